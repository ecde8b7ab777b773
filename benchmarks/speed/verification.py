"""Measure the speed of the verifiers: repeated answers, an answer that never ends, and the lenient reader.

``python -m benchmarks.speed.verification`` prints the numbers and writes ``benchmarks/results/verification.json``. The
peer is math-verify in a loop, one call per sample, in the same process and run. "exact" and "choice" grade responses
that are all different, with and without the lenient reader.
"""

from __future__ import annotations

import logging
import random
import time

from benchmarks.speed.results import circumstances, write
from oversharp.diagnostics.records.types import Problem
from oversharp.diagnostics.verifiers import choice, exact
from oversharp.diagnostics.verifiers.math import MathVerifier

SEED = 0
N_PROBLEMS = 100
N_SAMPLES = 200_000
ANSWERS_PER_PROBLEM = 20  # number of distinct (gold, answer) pairs: 2,000
N_PEER_SAMPLES = 4_000
TIMEOUT_S = 5.0
POISON = r"\boxed{9^{9^{9^{9}}}}"
N_PLAIN, PLAIN_TURNS = 6_000, 15
PLAIN_ENDS = ("So the answer is \\boxed{{{}}}.", "The final answer is: {}.", "Therefore\n{}", "#### {}")
REASONING = "We square both sides, collect terms in $x$ and check the cases {1, 2}.\n" * 10


def samples() -> list[tuple[Problem, str]]:
    """Draw rollouts like those of a policy: a few frequent answers, many rare ones."""
    rng = random.Random(SEED)
    forms = ("{}", r"\frac{{{}}}{{7}}", r"{}\sqrt{{3}}", "{}x+1")
    weights = [1 / rank for rank in range(1, ANSWERS_PER_PROBLEM + 1)]
    problems = [
        Problem(task="speed", prompt=f"problem {number}", gold=forms[number % 4].format(number + 2), verifier="math")
        for number in range(N_PROBLEMS)
    ]
    answers = {
        problem.gold: [problem.gold, *(forms[rank % 4].format(1000 + rank) for rank in range(1, ANSWERS_PER_PROBLEM))]
        for problem in problems
    }
    items = []
    for _ in range(N_SAMPLES):
        problem = rng.choice(problems)
        [answer] = rng.choices(answers[problem.gold], weights)
        items.append((problem, f"{REASONING}So the answer is $\\boxed{{{answer}}}$."))
    return items


def plain_loop(items: list[tuple[Problem, str]]) -> tuple[float, list[bool]]:
    """Return seconds and verdicts of math-verify as in its README."""
    from math_verify import parse, verify

    logging.getLogger("math_verify").setLevel(logging.ERROR)
    start = time.perf_counter()
    verdicts = [verify(parse(f"\\boxed{{{problem.gold}}}"), parse(text)) for problem, text in items]
    return time.perf_counter() - start, verdicts


def plain_samples(answers: list[str]) -> list[tuple[Problem, str]]:
    """Return responses that are all different, in four answer styles. Half of them are right."""
    rng = random.Random(SEED)
    items = []
    for number in range(N_PLAIN):
        gold = rng.choice(answers)
        problem = Problem(task="speed", prompt="Which?\nA. 1\nB. 2\nC. 3\nD. 4", gold=gold, verifier="exact")
        answer = gold if rng.random() < 0.5 else rng.choice(answers)
        items.append((problem, f"{REASONING}Case {number}.\n{rng.choice(PLAIN_ENDS).format(answer)}"))
    return items


def plain_speed(verifier: exact.ExactVerifier | choice.ChoiceVerifier, answers: list[str]) -> dict[str, float]:
    """Return microseconds per response, and the share of the lenient reader."""
    module, reader = (exact, "accepts_text") if verifier.name == "exact" else (choice, "accepts_letter")
    items = plain_samples(answers)
    with_reader, without_reader = [], []
    accepts = getattr(module, reader)
    for _ in range(PLAIN_TURNS):
        for times, function in ((with_reader, accepts), (without_reader, lambda gold, text: False)):
            setattr(module, reader, function)
            start = time.process_time()
            verifier.grade(items)
            times.append(time.process_time() - start)
    setattr(module, reader, accepts)
    seconds, seconds_without = min(with_reader), min(without_reader)
    return {
        "us_per_response": round(seconds / N_PLAIN * 1e6, 1),
        "share_of_second_reader": round(1 - seconds_without / seconds, 2),
    }


def main() -> None:
    """Measure, write the result file and print it."""
    items = samples()
    with MathVerifier(timeout_s=TIMEOUT_S) as verifier:
        start = time.perf_counter()
        grades = verifier.grade(items)
        cold_s = time.perf_counter() - start
        start = time.perf_counter()
        verifier.grade(items)
        warm_s = time.perf_counter() - start

    with MathVerifier(timeout_s=TIMEOUT_S) as verifier:
        verifier.grade(items[:1000])  # start the workers, as in the middle of an audit
        start = time.perf_counter()
        verifier.grade(items[1000:3000])
        clean_s = time.perf_counter() - start
        poisoned = [*items[3000:4000], (items[0][0], POISON), *items[4000:5000], (items[0][0], POISON)]
        start = time.perf_counter()
        states = [grade.state for grade in verifier.grade(poisoned)]
        poisoned_s = time.perf_counter() - start

    peer_items = items[:N_PEER_SAMPLES]
    peer_s, verdicts = plain_loop(peer_items)
    agree = sum(grade.correct == verdict for grade, verdict in zip(grades, verdicts, strict=False))

    plain = {
        "exact": plain_speed(exact.ExactVerifier(), [str(number) for number in range(100)]),
        "choice": plain_speed(choice.ChoiceVerifier(), list("ABCD")),
    }
    samples_per_s, peer_samples_per_s = N_SAMPLES / cold_s, N_PEER_SAMPLES / peer_s
    result = {
        "benchmark": "verification",
        "seed": SEED,
        "samples": N_SAMPLES,
        "distinct_pairs": len({(problem.gold, text) for problem, text in items}),
        "samples_per_s": round(samples_per_s),
        "samples_per_s_all_known": round(N_SAMPLES / warm_s),
        "goal_samples_per_s": 20_000,
        "peer_samples_per_s": round(peer_samples_per_s),
        "ratio_to_peer": round(samples_per_s / peer_samples_per_s, 1),
        "verdicts_equal_to_peer": f"{agree} of {N_PEER_SAMPLES}",
        "without_mathematics": plain,
        "poison": {
            "timeout_s": TIMEOUT_S,
            "clean_2000_samples_s": round(clean_s, 2),
            "with_the_same_poison_twice_s": round(poisoned_s, 2),
            "states": {state: states.count(state) for state in sorted(set(states))},
        },
        **circumstances(("oversharp", "math-verify", "sympy", "pebble")),
    }
    write("verification", result)


if __name__ == "__main__":
    main()
