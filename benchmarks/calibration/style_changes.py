"""Measure the effect of a changed answer style on the verdict, with and without a real loss.

``python -m benchmarks.calibration.style_changes`` (an hour of one core) simulates series whose base boxes its answers
and whose late checkpoints state them in one of eight styles. The verifier cannot parse six of them. Every different
response is graded by the shipped verifier, strictly and leniently, and the shipped rule labels the counts.

Results go into ``benchmarks/results/style_changes.json`` and ``.md``. Exit code 1 if a bound is exceeded: a loss is
called in more than 5 % of series without one, or a loss is found more than 3 points less often than without a change of
style.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from benchmarks.speed.results import RESULTS, circumstances, write
from oversharp.diagnostics.records.types import Problem
from oversharp.diagnostics.verdict import decide
from oversharp.diagnostics.verdict.counts import CheckpointCounts, GuessRate, SeriesCounts
from oversharp.diagnostics.verdict.decide import verdict_of
from oversharp.diagnostics.verifiers.math import MathVerifier

SEED = 31
N_PROBLEMS, N_BASE, N_LATE, N_CHECKPOINTS = 100, 64, 64, 3
#: Share of wrong responses whose last number is the gold, for example in a check.
ACCIDENTS = 0.02
#: Number of wrong answers of a problem.
N_WRONG = 3
POSITIVE = ("over_sharpened", "over_sharpened_here", "degraded", "mode_collapse", "lost_at_steps")
#: Largest rate of false alarms, and largest drop of the rate of detected losses.
MOST_WRONG, MOST_MISSED = 0.05, 0.03

STYLES: Mapping[str, Callable[[int], str]] = {
    "boxed": lambda answer: f"Add the parts. The total is $\\boxed{{{answer}}}$.",
    "Markdown label": lambda answer: f"Add the parts.\n\n**Answer:** {answer}",
    "label of another language": lambda answer: f"Se suman las partes.\n\nLa respuesta final es {answer}.",
    "unknown label": lambda answer: f"Add the parts.\nOutcome >> {answer}",
    "prose": lambda answer: f"Add the parts. So there are {answer} of them in all.",
    "table": lambda answer: f"Add the parts.\n\n| what | how many |\n|---|---|\n| total | {answer} |",
    "equation at the end": lambda answer: f"Add the parts:\n2 + 3 + … = {answer}",
    "JSON": lambda answer: f'Add the parts.\n{{"unit": "pens", "total": {answer}}}',
    "unknown language": lambda answer: f"Jumlisha sehemu. Jumla yake ni {answer}.",
}


@dataclass(frozen=True, kw_only=True)
class Loss:
    """Change of the success rates by training."""

    name: str
    apply: Callable[[Float[np.ndarray, " problem"], np.random.Generator], Float[np.ndarray, " problem"]]


def _sharper(rate_P: np.ndarray) -> np.ndarray:
    """Raise high pass@1, without a loss."""
    odds_P = rate_P / (1 - rate_P)
    return np.where(rate_P > 0.2, 2 * odds_P / (1 + 2 * odds_P), rate_P)


def _diffuse(rate_P: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Lower rarely solved problems and raise the others."""
    return np.where(rate_P < 0.25, rate_P / 6, _sharper(rate_P))


def _concentrated(rate_P: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Lose one problem of eight completely."""
    killed_P = rng.random(len(rate_P)) < 1 / 8
    return np.where(killed_P, 0.0, _sharper(rate_P))


LOSSES = (
    Loss(name="none", apply=lambda rate_P, rng: _sharper(rate_P)),
    Loss(name="diffuse", apply=_diffuse),
    Loss(name="concentrated", apply=_concentrated),
)


@dataclass(frozen=True, kw_only=True)
class Readings:
    """Shares of a problem's samples that each reader accepts: right answers, wrong ones, and accidental matches."""

    strict: tuple[float, float, float]
    lenient: tuple[float, float, float]


def readings() -> dict[str, Readings]:
    """Grade every style by both readers of the shipped verifier."""
    gold, wrong = 73, 58
    problem = Problem(task="styles", prompt="How many?", gold=str(gold), verifier="math")
    found = {}
    with MathVerifier() as verifier:
        for name, style in STYLES.items():
            texts = (style(gold), style(wrong), f"{style(wrong)}\nCompare the example with {gold}")
            grades = verifier.grade([(problem, text) for text in texts])
            found[name] = Readings(
                strict=tuple(float(grade.correct) for grade in grades),  # type: ignore[arg-type]
                lenient=tuple(float(bool(grade.lenient)) for grade in grades),  # type: ignore[arg-type]
            )
    return found


def _counts(
    rate_P: np.ndarray, n: int, share: float, first: Readings, second: Readings, rng: np.random.Generator
) -> tuple[Int[np.ndarray, " problem"], Int[np.ndarray, " problem"], Int[np.ndarray, " problem"]]:
    """Count samples that are accepted strictly, accepted leniently, and unparsed.

    A ``share`` of them is in the second style.
    """
    right_P = rng.binomial(n, rate_P)
    accident_P = rng.binomial(n - right_P, ACCIDENTS)
    kinds = (right_P, n - right_P - accident_P, accident_P)
    strict_P, lenient_P = np.zeros_like(right_P), np.zeros_like(right_P)
    for kind, number_P in enumerate(kinds):
        new_P = rng.binomial(number_P, share)
        for style, of_style_P in ((first, number_P - new_P), (second, new_P)):
            strict_P += (of_style_P * style.strict[kind]).astype(np.int64)
            lenient_P += (of_style_P * max(style.lenient[kind], style.strict[kind])).astype(np.int64)
    return strict_P, lenient_P, np.zeros_like(right_P)


def series(loss: Loss, style: Readings, base: Readings, share: float, rng: np.random.Generator) -> SeriesCounts:
    """Simulate one series: a base in one style, and late checkpoints with ``share`` of responses in another."""
    rate_P = np.clip(rng.beta(0.5, 0.8, N_PROBLEMS), 1e-4, 0.999)
    late_P = loss.apply(rate_P, rng)
    checkpoints = []
    for step in range(N_CHECKPOINTS + 1):
        rates_P = rate_P if step == 0 else late_P
        strict_P, lenient_P, unread_P = _counts(
            rates_P, N_BASE if step == 0 else N_LATE, share if step else 0.0, base, style, rng
        )
        checkpoints.append(
            CheckpointCounts(
                step=20 * step,
                checkpoint=f"step {20 * step}",
                n=N_BASE if step == 0 else N_LATE,
                correct_P=strict_P,
                minority_P=np.zeros_like(strict_P),
                rates=None,
                unread_P=unread_P,
                lenient_P=lenient_P,
            )
        )
    return SeriesCounts(
        series="styles",
        base=checkpoints[0],
        trained=tuple(checkpoints[1:]),
        shows_modes_P=np.zeros(N_PROBLEMS, dtype=bool),
        tasks=("styles",),
        graders=("math",),
        tokens_per_sample=None,
        guess_rate=GuessRate(share=0.0, source="given"),
    )


def _cell(arguments: tuple[str, str, float, int, Mapping[str, Readings]]) -> dict[str, Any]:
    name, loss_name, share, n_series, read = arguments
    loss = next(one for one in LOSSES if one.name == loss_name)
    # skip the size of a sufficient audit, which takes most of the time and is not tested here
    decide.settle = lambda *_, **__: None  # type: ignore[assignment]
    labels: Counter[str] = Counter()
    printed = 0
    for number in range(n_series):
        rng = np.random.default_rng([SEED, LOSSES.index(loss), list(STYLES).index(name), int(100 * share), number])
        verdict = verdict_of(series(loss, read[name], read["boxed"], share, rng))
        labels[verdict.label] += 1
        other = verdict.lenient
        printed += other is not None and not other.explains and other.label != verdict.label
    found = sum(labels[label] for label in POSITIVE)
    return {
        "style": name,
        "loss": loss_name,
        "share": share,
        "n_series": n_series,
        "read": bool(read[name].strict[0]),
        "labels": dict(labels),
        "called": found / n_series,
        "both_printed": printed / n_series,
    }


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the page: a row per style and share, a column per loss."""
    lines = [
        "# A change of answer style, with and without a loss",
        "",
        "Made by `python -m benchmarks.calibration.style_changes`; machine and versions are in `style_changes.json`. "
        f"{rows[0]['n_series']} series a cell, {N_PROBLEMS} problems, {N_BASE} samples each, "
        f"{N_CHECKPOINTS} checkpoints; the base boxes its answers. Per cent "
        "of the series in which a loss is called (any label but *format*, *no_loss*, "
        f"*inconclusive* and *guessing*). {100 * ACCIDENTS:.0f} % of wrong responses end on the gold.",
        "",
        "| late style | responses in it | read by the verifier | " + " | ".join(loss.name for loss in LOSSES) + " |",
        "|---|---:|---|" + "---:|" * len(LOSSES),
    ]
    for style, share in dict.fromkeys((row["style"], row["share"]) for row in rows):
        own = {row["loss"]: row for row in rows if (row["style"], row["share"]) == (style, share)}
        cells = " | ".join(f"{100 * own[loss.name]['called']:.0f}" for loss in LOSSES)
        lines.append(f"| {style} | {100 * share:.0f} % | {'yes' if own['none']['read'] else 'no'} | {cells} |")
    changed = [row for row in rows if row["style"] != "boxed"]
    pooled = {
        loss.name: float(np.mean([row["called"] for row in changed if row["loss"] == loss.name])) for loss in LOSSES
    }
    lines.append("| all changed styles | | | " + " | ".join(f"{100 * pooled[loss.name]:.1f}" for loss in LOSSES) + " |")
    return "\n".join([*lines, ""])


def broken(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the exceeded bounds, for each loss over all styles."""
    faults = []
    changed = [row for row in rows if row["style"] != "boxed"]
    for loss in LOSSES:
        own = [row for row in changed if row["loss"] == loss.name]
        called = float(np.mean([row["called"] for row in own]))  # all cells have equally many series
        unchanged = next(row["called"] for row in rows if (row["style"], row["loss"]) == ("boxed", loss.name))
        if loss.name == "none" and called > MOST_WRONG:
            faults.append(f"without a loss one is called in {100 * called:.1f} % of all series")
        if loss.name != "none" and called < unchanged - MOST_MISSED:
            faults.append(f"{loss.name}: {100 * called:.1f} % found, {100 * unchanged:.1f} % without a change of style")
    return faults


def main(arguments: Sequence[str] | None = None) -> int:
    """Simulate, label and write the results. Return 1 if a bound is exceeded."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--series", type=int, default=60, help="series of each cell")
    parser.add_argument("--workers", type=int, default=2)
    told = parser.parse_args(arguments)
    read = readings()
    cells = [
        (style, loss.name, share, told.series, read)
        for style in STYLES
        for share in ((1.0,) if style == "boxed" else (1.0, 0.5))
        for loss in LOSSES
    ]
    with ProcessPoolExecutor(told.workers) as pool:
        rows = list(pool.map(_cell, cells))
    write("style_changes", {"rows": rows, **circumstances(("numpy", "scipy", "math-verify"))})
    (RESULTS / "style_changes.md").write_text(table(rows), encoding="utf-8")
    print(table(rows))
    faults = broken(rows)
    print("\n".join(faults) or "all bounds hold")
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
