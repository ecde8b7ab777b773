"""Measure false accepts and false refusals of the verifier "math" on solutions of models.

``python -m benchmarks.reading.grading --gsm8k FILE --math FILE`` (a minute on one core) reads two public files of
solutions with a verdict of another tool, grades them again and writes ``benchmarks/results/grading.json`` and ``.md``:
counts and rates, no text. ``--gsm8k`` is ``grade_school_math/data/example_model_solutions.jsonl`` of
openai/grade-school-math. ``--math`` is ``math/examples/math_eval/data/eval_rm_maj_example/math_cot_100.jsonl`` of
LeapLabTHU/limit-of-RLVR.

The peer is math-verify as in its README, on the whole response. All responses on which verifier and tool differ were
read by hand, with the result in ``READ``. *Crossed*: right answers compared with the golds of all other problems.
"""

from __future__ import annotations

import argparse
import json
import logging
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from scipy.stats import binomtest

from benchmarks.speed.results import RESULTS, circumstances, write
from oversharp.diagnostics.records.errors import ProblemError
from oversharp.diagnostics.records.types import Grade, Problem
from oversharp.diagnostics.verifiers import RULES
from oversharp.diagnostics.verifiers.math import MathVerifier, StrictMathVerifier, gold_of

MODELS = ("6b_finetuning", "6b_verification", "175b_finetuning", "175b_verification")
#: Solutions on which verifier and tool differ → whether the answer is right by hand, and why.
READ: dict[tuple[str, str], tuple[bool, str]] = {
    ("MATH", "72/7"): (True, "10000 for a gold of 10{,}000: the same number, which the tool compared as text"),
}
UNREAD = "nobody read it yet"
PAGE = """# Grading of solutions that models wrote

Made by `python -m benchmarks.reading.grading --gsm8k FILE --math FILE`; machine and versions are in `grading.json`, the
texts in the two public files that the script names. GSM8K: 1,319 problems, a solution each of four models; MATH: 100
problems, 8 responses each. What the tool that came with a file says of a response is taken for the truth, but where it
was read. Brackets: 95 % intervals (Clopper–Pearson), as if responses were independent. The rules had been mended on
these very files: one took "alternatively" for a withdrawal, and one 4t for 4.

## Wrong answers accepted, right answers refused

Per cent of the wrong and of the right answers; *alone* is math-verify as its README calls it.

| source | right | wrong | accepted | refused | alone: accepted | alone: refused |
|---|---:|---:|---:|---:|---:|---:|
{falsely}

Crossed: the right answers of {responses} responses of MATH against the golds of all other problems, {pairs} pairs;
{accepted} are accepted, {crossed} % of the different pairs of golds.

## What became of the others

Per cent of the responses. *Strictly*: by `math_strict`, ambiguous too where different boxes stand anywhere.

| source | responses | ambiguous | of these right | not read | different boxes | strictly ambiguous |
|---|---:|---:|---:|---:|---:|---:|
{states}

## Where verifier and tool differ

{read}

## Golds that are refused

{refused}
"""


@dataclass(frozen=True, kw_only=True)
class Solution:
    """One response with its tool's verdict.

    ``place`` is its position in the file: problem/response.
    """

    place: str
    gold: str
    text: str
    right: bool


@dataclass(frozen=True, kw_only=True)
class Share:
    """A rate with its 95 % interval (Clopper–Pearson). All are None if n = 0."""

    count: int
    of: int
    rate: float | None
    low: float | None
    high: float | None


def share(count: int, of: int) -> Share:
    """Return the share of ``count`` in ``of``.

    >>> share(0, 100).high
    0.03622
    """
    if of == 0:
        return Share(count=count, of=of, rate=None, low=None, high=None)
    bounds = binomtest(count, of).proportion_ci(0.95, method="exact")
    rate, low, high = (round(float(one), 5) for one in (count / of, *bounds))
    return Share(count=count, of=of, rate=rate, low=low, high=high)


def gsm8k(path: Path, announce: str) -> Iterator[Solution]:
    """Load four models' solutions.

    The final "A: 18" is replaced by ``announce`` and the answer.
    """
    for number, line in enumerate(path.read_text(encoding="utf-8").split("\n")):
        if not line.strip():
            continue
        record = json.loads(line)
        gold = record["ground_truth"].rsplit("A: ", 1)[1].strip()
        for model in MODELS:
            said = record[model]
            text = re.sub(r"^A: ", announce, said["solution"], flags=re.MULTILINE)
            yield Solution(place=f"{number}/{model}", gold=gold, text=text, right=bool(said["is_correct"]))


def mathematics(path: Path) -> Iterator[Solution]:
    """Load eight responses to each of 100 problems of MATH, boxed."""
    for line in path.read_text(encoding="utf-8").split("\n"):
        if line.strip():
            record = json.loads(line)
            for number, (text, score) in enumerate(zip(record["response"], record["score"], strict=True)):
                place = f"{record['idx']}/{number}"
                yield Solution(place=place, gold=record["gt"], text=text, right=str(score) == "True")


def problem(gold: str) -> Problem:
    """Return a problem with this gold."""
    return Problem(task="t", prompt="p", gold=gold, verifier="math")


def readable(verifier: MathVerifier, solutions: Sequence[Solution]) -> tuple[list[Solution], dict[str, str]]:
    """Return the solutions whose gold passes the check, and the other golds with the reason."""
    refused: dict[str, str] = {}
    for gold in dict.fromkeys(one.gold for one in solutions):
        try:
            verifier.check_gold(problem(gold))
        except ProblemError as error:
            refused[gold] = str(error)
    return [one for one in solutions if one.gold not in refused], refused


def measured(
    name: str, solutions: Sequence[Solution], verifier: MathVerifier, strict: StrictMathVerifier
) -> dict[str, Any]:
    """Return counts and rates of one source.

    The truth is the tool's verdict, or the manual one if the response was read.
    """
    kept, refused = readable(verifier, solutions)
    items = [(problem(one.gold), one.text) for one in kept]
    grades, strictly = verifier.grade(items), strict.grade(items)
    truth = [READ.get((name, one.place), (one.right, ""))[0] for one in kept]
    differ = [one for one, grade in zip(kept, grades, strict=True) if grade.correct != one.right]
    alone = [alone_accepts(one) for one in kept]
    return {
        "responses": len(kept),
        "golds_refused": refused,
        "right_by_the_tool": sum(one.right for one in kept),
        "right": sum(truth),
        "differ_from_the_tool": len(differ),
        "read": {one.place: READ.get((name, one.place), (None, UNREAD))[1] for one in differ},
        **rates([grade.correct for grade in grades], truth),
        "math_verify_alone": rates(alone, truth),
        "ambiguous": told(grades, "ambiguous"),
        "ambiguous_but_right": share(
            sum(grade.state == "ambiguous" and right for grade, right in zip(grades, truth, strict=True)), len(kept)
        ),
        "unread": told(grades, "parse_fail"),
        "several_different_boxes": share(sum((grade.n_boxed or 0) > 1 for grade in grades), len(grades)),
        "strictly_ambiguous": told(strictly, "ambiguous"),
    }


def rates(accepted: Sequence[bool], truth: Sequence[bool]) -> dict[str, Share]:
    """Return the share of wrong answers that are accepted, and of right answers that are refused."""
    pairs = list(zip(accepted, truth, strict=True))
    return {
        "falsely_accepted": share(sum(yes and not right for yes, right in pairs), sum(not right for right in truth)),
        "falsely_refused": share(sum(right and not yes for yes, right in pairs), sum(truth)),
    }


def told(grades: Sequence[Grade], state: str) -> Share:
    """Return the share of grades in a state."""
    return share(sum(grade.state == state for grade in grades), len(grades))


def alone_accepts(solution: Solution) -> bool:
    """Return math-verify's verdict on the whole response, as in its README."""
    from math_verify import parse, verify

    return bool(verify(parse(gold_of(solution.gold).boxed), parse(solution.text)))


def crossed(solutions: Sequence[Solution], verifier: MathVerifier) -> dict[str, Any]:
    """Compare right answers with different golds of other problems.

    Responses repeat answers, so the interval is over different pairs of golds: the answer's own, and the other.
    """
    right = [one for one in solutions if one.right]
    golds = list(dict.fromkeys(one.gold for one in solutions))
    pairs = [(gold, one) for one in right for gold in golds if gold != one.gold]
    grades = verifier.grade([(problem(gold), one.text) for gold, one in pairs])
    accepted = {(gold, one.gold) for (gold, one), grade in zip(pairs, grades, strict=True) if grade.correct}
    return {
        "responses": len(right),
        "pairs": len(pairs),
        "accepted": sorted(f"{own} for {gold}" for gold, own in accepted),
        "falsely_accepted": share(len(accepted), len({(gold, one.gold) for gold, one in pairs})),
    }


def main() -> None:
    """Grade both files, write the results and print them."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--gsm8k", type=Path, required=True, help="example_model_solutions.jsonl")
    parser.add_argument("--math", type=Path, required=True, help="math_cot_100.jsonl")
    options = parser.parse_args()
    logging.disable(logging.WARNING)  # math-verify's warnings about single responses
    boxes = list(mathematics(options.math))
    sources = {
        "GSM8K, after ####": ("GSM8K", list(gsm8k(options.gsm8k, "#### "))),
        "GSM8K, in a sentence": ("GSM8K", list(gsm8k(options.gsm8k, "The answer is "))),
        "MATH, boxed": ("MATH", boxes),
    }
    with MathVerifier(timeout_s=30.0) as verifier, StrictMathVerifier(timeout_s=30.0) as strict:
        told_of = {title: measured(name, some, verifier, strict) for title, (name, some) in sources.items()}
        result = {
            "rules": RULES["math"],
            "sources": told_of,
            "crossed": crossed(readable(verifier, boxes)[0], verifier),
            **circumstances(["math-verify", "latex2sympy2_extended", "sympy"]),
        }
    plain = json.loads(json.dumps(result, default=asdict))
    write("grading", plain)
    (RESULTS / "grading.md").write_text(page(plain), encoding="utf-8")
    read = [(title, *item) for title, one in plain["sources"].items() for item in one["read"].items()]
    unread = [f"{title}, {place}" for title, place, why in read if why == UNREAD]
    sys.exit(f"differ from the tool, and nobody read them: {unread}" if unread else 0)


def page(result: dict[str, Any]) -> str:
    """The tables as Markdown."""
    sources = result["sources"]
    falsely = [
        f"| {title} | {one['right']} | {one['responses'] - one['right']} | {cell(one['falsely_accepted'])} "
        f"| {cell(one['falsely_refused'])} | {cell(one['math_verify_alone']['falsely_accepted'])} "
        f"| {cell(one['math_verify_alone']['falsely_refused'])} |"
        for title, one in sources.items()
    ]
    states = [
        f"| {title} | {one['responses']} | {cell(one['ambiguous'])} | {one['ambiguous_but_right']['count']} "
        f"| {cell(one['unread'])} | {cell(one['several_different_boxes'])} | {cell(one['strictly_ambiguous'])} |"
        for title, one in sources.items()
    ]
    read = [f"- {title}, {place}: {why}." for title, one in sources.items() for place, why in one["read"].items()]
    refused = [f"- {title}: {why}." for title, one in sources.items() for why in one["golds_refused"].values()]
    cross = result["crossed"]
    return PAGE.format(
        falsely="\n".join(falsely),
        states="\n".join(states),
        read="\n".join(read),
        refused="\n".join(refused),
        responses=cross["responses"],
        pairs=f"{cross['pairs']:,}",
        accepted=len(cross["accepted"]),
        crossed=cell(cross["falsely_accepted"]),
    )


def cell(told: dict[str, Any]) -> str:
    """Format a share in per cent with its interval.

    >>> cell({"count": 1, "of": 4, "rate": 0.25, "low": 0.0063, "high": 0.8059})
    '25.00 (0.63–80.59)'
    """
    if told["rate"] is None:
        return "–"
    return f"{100 * told['rate']:.2f} ({100 * told['low']:.2f}–{100 * told['high']:.2f})"


if __name__ == "__main__":
    main()
