"""Compare the test on ways with the test on listed modes, on policies with known mode probabilities.

The problems are those of Countdown-mini with two or more ways up to order. The distributions over their modes come from
teacher forcing of a trained base and of checkpoints trained from it, and from that base with a part of its minority
ways removed, or none. Samples are drawn and written in three forms: as listed modes, as expressions, and as solutions
in words, which are longer at the checkpoint. ``minority_ways_p`` is computed on the listed classes and on the parsed
ways, and both are compared with the true distributions.
"""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import compress, pairwise
from pathlib import Path
from typing import Any, cast

import numpy as np

from benchmarks.calibration.demo_truth import mode_logp
from benchmarks.reading.ways_generated import IN_WORDS, JOINTS, OPENINGS, REMARKS
from benchmarks.speed.results import digits
from oversharp.diagnostics.measures.examples import tiny_ways
from oversharp.diagnostics.measures.modes.ways.losses import minority_ways_p
from oversharp.diagnostics.records.progress import ConsoleProgress
from oversharp.diagnostics.records.types import Problem
from oversharp.diagnostics.tasks import countdown
from oversharp.diagnostics.ways import get_reader
from oversharp.diagnostics.ways.contract import Signature
from oversharp.diagnostics.ways.joining import name_ways
from oversharp.trainers.config import SftConfig, TrainConfig
from oversharp.trainers.loop import train
from oversharp.trainers.sft import train_base

READER = get_reader()
LEVEL = 0.05
N, WORDINGS = 256, 6
LAST_STEP = 80
#: Runs from one base: objective, learning rate, seeds.
TRAINED: tuple[tuple[str, float, tuple[int, ...]], ...] = (
    ("grpo", 2e-4, (1, 2, 3)),
    ("iac", 2e-4, (1, 2)),
    ("grpo", 5e-6, (1, 2)),
)
#: Numbers of perturbed series with a loss and without one.
LOSSES, KEPT = 36, 36
Law = Mapping[str, float]
_AT_RANDOM = {str(n): repr(1.0 + np.random.default_rng(n).random()) for n in range(100)}


@dataclass(frozen=True, kw_only=True)
class Series:
    """Base and late distributions over the modes of each problem.

    ``lost``: whether minority ways were removed; None for a trained run.
    """

    name: str
    base: Sequence[Law]
    late: Sequence[Law]
    lost: bool | None


@cache
def class_of(expression: str) -> str:
    """Return a value that is equal for two expressions exactly if they are the same polynomial in their numbers.

    It does not use the reader.
    """
    tokens = [_AT_RANDOM.get(token, token) for token in expression.split()]
    return f"{eval(' '.join(tokens), {'__builtins__': {}}):.9f}"


def several_ways() -> list[Problem]:
    """Return the problems with modes of at least two classes, whether trained on or not."""
    problems = [countdown.problem(query) for part in countdown.split_queries() for query in part]
    return [problem for problem in problems if len(set(map(class_of, problem.modes))) > 1]


# ---- laws


def laws(checkpoint: Path, problems: Sequence[Problem]) -> list[Law]:
    """Return the probability of each mode of each problem."""
    left = iter(np.exp(mode_logp(checkpoint, problems)))
    return [{mode: float(next(left)) for mode in problem.modes} for problem in problems]


def trained(folder: Path) -> Iterator[tuple[str, Path]]:
    """Return the base, then the last checkpoint of each run. Train missing runs."""
    base = train_base(SftConfig(output_dir=folder / "base", resume=True), ConsoleProgress())
    yield "base", base
    for algorithm, rate, seeds in TRAINED:
        for seed in seeds:
            name = f"{algorithm}-lr{rate:g}-seed{seed}"
            config = TrainConfig(
                model=str(base), algorithm=algorithm, output_dir=folder / name, seed=seed, learning_rate=rate,
                max_steps=LAST_STEP, save_every=LAST_STEP, resume=True,
            )  # fmt: skip
            yield name, train(config, ConsoleProgress()) / f"checkpoint-{LAST_STEP}"


def without(law: Law, rng: np.random.Generator) -> Law:
    """Move a random part of the mass of all minority classes to the leading class."""
    mass = _mass(law)
    leading, kept = max(mass, key=lambda name: mass[name]), float(rng.uniform(0.1, 0.9))
    gone = (1 - kept) * (sum(mass.values()) - mass[leading])
    scale = {name: 1 + gone / mass[name] if name == leading else kept for name in mass}
    return {mode: p * scale[class_of(mode)] for mode, p in law.items()}


def unharmed(law: Law, kind: int, rng: np.random.Generator) -> Law:
    """Return a distribution in which no class loses.

    By ``kind``: unchanged, more often right in all ways, or with other orders of the same ways.
    """
    if kind == 0:
        return law
    if kind == 1:
        more = float(rng.uniform(1.0, 1.0 / max(sum(law.values()), 0.3)))
        return {mode: p * min(more, 0.999 / sum(law.values())) for mode, p in law.items()}
    mass, first = _mass(law), {}
    for mode in sorted(law):
        first.setdefault(class_of(mode), mode)
    return {mode: 0.2 * p + (0.8 * mass[class_of(mode)] if first[class_of(mode)] == mode else 0.0)
            for mode, p in law.items()}  # fmt: skip


def _mass(law: Law) -> dict[str, float]:
    mass: dict[str, float] = defaultdict(float)
    for mode, p in law.items():
        mass[class_of(mode)] += p
    return mass


def perturbed(base: Sequence[Law], seed: int) -> Iterator[Series]:
    """Yield half of the series with a loss on a part of the problems, half without."""
    for number in range(LOSSES + KEPT):
        rng = np.random.default_rng([seed, number])
        if number < LOSSES:
            share = float(rng.uniform(0.1, 1.0))
            late = [without(law, rng) if rng.random() < share else law for law in base]
        else:
            late = [unharmed(law, number % 3, rng) for law in base]
        yield Series(name=f"perturbed {number}", base=base, late=late, lost=number < LOSSES)


# ---- texts of the samples


def worded(expression: str, style: int, rng: np.random.Generator) -> str:
    """Write a solution in words that computes the expression. Style 0 is terse, 1 verbose."""
    times, equals = [("*", "="), ("\\times", "="), ("x", "=")][int(rng.integers(0, 3))]
    answer = countdown.value([int(t) for t in expression.split()[::2]], expression.split()[1::2])
    lines = [str(rng.choice(OPENINGS))] if style else []
    if style and rng.random() < IN_WORDS:
        return " ".join([*lines, f"I did the sums in my head, and the answer is {answer}."])
    if rng.random() < 0.3:
        equations = [f"{expression} {equals} {answer}"]
    else:
        equations = [f"{left} {equals} {right}" for left, right in steps(expression.split(), split=rng.random() < 0.5)]
    for equation in equations:
        joint = f"{rng.choice(JOINTS)} " if style or rng.random() < 0.3 else ""
        shown = equation.replace("*", times)
        lines.append(f"{joint}\\( {shown} \\)." if times == "\\times" else f"{joint}{shown}.")
        if style:
            lines.append(str(rng.choice(REMARKS)))
    lines.append(f"The answer is {answer}.")
    return ("\n" if rng.random() < 0.5 else " ").join(line for line in lines if line)


def steps(tokens: Sequence[str], *, split: bool) -> Iterator[tuple[str, int]]:
    """Yield products first, then the remaining sum. ``split``: one operation per line.

    >>> list(steps("12 - 6 * 2".split(), split=False)), list(steps("9 - 3 - 2".split(), split=True))
    ([('6 * 2', 12), ('12 - 12', 0)], [('9 - 3', 6), ('6 - 2', 4)])
    """
    terms: list[list[str]] = [[tokens[0]]]
    signs = ["+"]
    for sign, number in zip(tokens[1::2], tokens[2::2], strict=True):
        if sign == "*":
            terms[-1].append(number)
        else:
            terms.append([number])
            signs.append(sign)
    left: list[str] = []
    for factors in terms:
        made = factors[0]
        pieces = [(made, factor) for factor in factors[1:]] if split else [tuple(factors)] if len(factors) > 1 else []
        for piece in pieces:
            operands = [made, *piece[1:]]
            made = str(int(np.prod([int(one) for one in operands])))
            yield " * ".join(operands), int(made)
        left.append(made)
    if len(left) == 1:
        return
    runs = list(pairwise(range(len(left)))) if split else [tuple(range(len(left)))]
    total = int(left[0])
    for run in runs:
        shown = str(total) + "".join(f" {signs[i]} {left[i]}" for i in run[1:])
        total = countdown.value([total, *(int(left[i]) for i in run[1:])], [signs[i] for i in run[1:]])
        yield shown, total


# ---- the comparison


def said(problems: Sequence[Problem], series: Series, rng: np.random.Generator, *, words: bool) -> dict[str, float]:
    """Draw samples, and return p of the minority test for each naming, as expressions or in ``words``."""
    rows: dict[str, list[tuple[Any, ...]]] = defaultdict(list)
    for place, (problem, base, late) in enumerate(zip(problems, series.base, series.late, strict=True)):
        drawn = {name: _drawn(law, rng) for name, law in (("base", base), ("late", late))}
        names = _in_words(problem, drawn, rng) if words else _as_expressions(problem, drawn)
        for naming, of in names.items():
            for checkpoint, own in of.items():
                rows[naming].append(
                    (checkpoint, f"q{place}", None, True, 0)
                )  # a problem that is never solved counts too
                for half in (True, False):
                    part = own[: N // 2] if half else own[N // 2 :]
                    counts = Counter(way for way, is_right in part if is_right)
                    rows[naming] += [(checkpoint, f"q{place}", way, half, n) for way, n in counts.items()]
    found = [(naming, one) for naming, own in rows.items() for one in minority_ways_p(tiny_ways(own, n=N))]
    return {f"{naming}, {one.scope}": float(cast("float", one.value)) for naming, one in found}


def _drawn(law: Law, rng: np.random.Generator) -> list[str | None]:
    """Draw the modes of ``N`` samples; None for a wrong one."""
    chance = np.array([*law.values(), max(0.0, 1 - sum(law.values()))])
    names = [*law, None]
    return [names[i] for i in rng.choice(len(names), size=N, p=chance / chance.sum())]


#: By naming and checkpoint: class of every sample (None if unknown), and whether it is right.
Named = Mapping[str, Mapping[str, Sequence[tuple[str | None, bool]]]]


def _as_expressions(problem: Problem, drawn: Mapping[str, Sequence[str | None]]) -> Named:
    signed = dict(zip(problem.modes, READER.read(list(problem.modes)), strict=True))
    counts: Counter = Counter(signed[mode] for modes in drawn.values() for mode in modes if mode is not None)
    ways = name_ways(counts, joined_from=READER.joined_from)
    of_mode: Mapping[str, Callable[[str], str | None]] = {
        "listed modes": lambda mode: mode,
        "written": lambda mode: signed[mode].written,
        "listed ways": class_of,
        "ways": lambda mode: ways[signed[mode]],
    }
    return {
        naming: {name: [(of(mode), True) if mode else (None, False) for mode in modes] for name, modes in drawn.items()}
        for naming, of in of_mode.items()
    }


def _in_words(problem: Problem, drawn: Mapping[str, Sequence[str | None]], rng: np.random.Generator) -> Named:
    texts = {(mode, style): [worded(mode, style, rng) for _ in range(WORDINGS)]
             for mode in problem.modes for style in (0, 1)}  # fmt: skip
    read = {key: READER.read(own) for key, own in texts.items()}
    heard: dict[str, list[Signature | None]] = {}
    for checkpoint, verbose in (("base", 0.1), ("late", 0.9)):
        style_N, wording_N = (rng.random(N) < verbose).astype(int), rng.integers(0, WORDINGS, N)
        heard[checkpoint] = [
            read[mode, int(style)][int(wording)] if mode else None
            for mode, style, wording in zip(drawn[checkpoint], style_N, wording_N, strict=True)
        ]
    counts = Counter(one for own in heard.values() for one in own if one is not None)
    ways = name_ways(counts, joined_from=READER.joined_from)
    return {
        "listed ways": {
            name: [(class_of(m), True) if m else (None, False) for m in own] for name, own in drawn.items()
        },
        "ways": {name: [(ways.get(one), True) if one else (None, False) for one in own] for name, own in heard.items()},
    }


#: Compared tests: in words or as expressions, by the list, and as parsed.
COMPARED = {
    "modes as they are listed": (False, "listed modes, all", "written, all"),
    "ways of expressions": (False, "listed ways, all", "ways, all"),
    "ways told in words, unread ones taken to be alike": (True, "listed ways, all", "ways, alike"),
    "ways told in words, unread ones no loss": (True, "listed ways, all", "ways, all"),
}


def agreement(folder: Path, seed: int = 6) -> dict[str, Any]:
    """Return how often both tests agree, and how often each is right where the truth is known."""
    problems = several_ways()
    in_words = [
        1 not in problem.meta["numbers"] for problem in problems
    ]  # in words who multiplies by 1 computes nothing
    (_, first), *others = trained(folder)
    base = laws(first, problems)
    all_series = [Series(name=name, base=base, late=laws(path, problems), lost=None) for name, path in others]
    all_series += perturbed(base, seed)
    found = []
    for place, series in enumerate(all_series):
        some = Series(name=series.name, base=list(compress(series.base, in_words)),
                      late=list(compress(series.late, in_words)), lost=series.lost)  # fmt: skip
        told = {
            words: said(own, one, np.random.default_rng([seed, place, words]), words=words)
            for words, own, one in ((False, problems, series), (True, list(compress(problems, in_words)), some))
        }
        found.append((series, told))
        print(series.name, series.lost, told, file=sys.stderr, flush=True)
    return {
        "problems": len(problems),
        "of_them_told_in_words": sum(in_words),
        "samples": N,
        "trained_series": len(others),
        "perturbed_series": {"with a loss": LOSSES, "without": KEPT},
        "compared": {name: _compared(found, *which) for name, which in COMPARED.items()},
    }


def _compared(
    found: Sequence[tuple[Series, Mapping[bool, Mapping[str, float]]]], words: bool, listed: str, read: str
) -> dict[str, Any]:
    both = [(series.lost, told[words][listed] <= LEVEL, told[words][read] <= LEVEL) for series, told in found]
    kinds = {"trained": None, "with a loss": True, "without": False}
    return {"agree": digits(sum(a == b for _, a, b in both) / len(both))} | {
        kind: {
            "series": sum(one == lost for one, _, _ in both),
            "lost_by_the_list": sum(a for one, a, _ in both if one == lost),
            "lost_as_read": sum(b for one, _, b in both if one == lost),
            "agree": sum(a == b for one, a, b in both if one == lost),
        }
        for kind, lost in kinds.items()
    }
