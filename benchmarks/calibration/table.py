"""The calibration's results as tables to read."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from benchmarks.calibration.planted import Kind
from benchmarks.calibration.series import (
    ALTERNATIVES,
    BAR,
    N_CHECKPOINTS,
    POSITIVE,
    STRICT_NULLS,
    WINDOW,
    Row,
    interval,
)
from oversharp.diagnostics.verdict.headings import Label
from oversharp.diagnostics.verdict.rule import KEY_LEVEL, MINORITY_LEVEL, STEP_LEVEL

NAMES: dict[Kind, str] = {
    "no_change": "no change",
    "moderate": "moderate only",
    "late_moderate": "late moderate only",
    "churn": "zero-mean churn",
    "over_mild": "over-sharpened, mild",
    "over_medium": "over-sharpened, medium",
    "over_severe": "over-sharpened, severe",
    "collapse_mild": "mode collapse, mild",
    "collapse_severe": "mode collapse, severe",
}


def tables(rows: Sequence[Row], *, seed: int) -> str:
    """The whole Markdown file."""
    nulls = [kind for kind in NAMES if kind not in ALTERNATIVES]
    parts = [_introduction(rows, seed), "## Called a loss though nothing was lost", _NULLS_EXPLAINED]
    parts.append(_table(rows, nulls, {NAMES[kind]: _false_positives(kind) for kind in nulls}))
    parts += ["## Called a loss, and it was one", _POWER_EXPLAINED]
    for kind in ALTERNATIVES:
        columns: dict[str, Callable[[dict[Kind, Row]], str]] = {
            "pass@(n/2), points": _number(kind, lambda row: f"{100 * row.change:+.1f}"),
            "without the dominant mode, points": _number(kind, lambda row: f"{100 * row.minority_change:+.1f}"),
            "called a loss": _number(kind, lambda row: _rate(row.positives, row.series)),
            "over-sharpened": _label(kind, "over_sharpened"),
            "… on these problems": _label(kind, "over_sharpened_here"),
            "mode collapse": _label(kind, "mode_collapse"),
            "no loss found": _label(kind, "no_loss"),
        }
        parts += [f"### {NAMES[kind].capitalize()}", _table(rows, [kind], columns)]
    return "\n\n".join(parts) + "\n"


_NULLS_EXPLAINED = f"""Per cent of series labelled {", ".join(POSITIVE)}, with a 95 % interval (Clopper–Pearson).

- *No change*: every checkpoint is the base.
- *Moderate only*: no correct mode of any problem loses probability (Definition 2.1), the likelier ones gain the most.
- *Late moderate only*: nothing happens in the first half; then the dominant modes alone gain.
- *Zero-mean churn* is no null: each problem's logit moves by a normal of standard deviation 0.4, so some problems do
  lose. Nothing is promised there; a rule that looks at these very problems may rightly see it."""

_POWER_EXPLAINED = """The first two columns are the truth, averaged over the series: how pass@k at k = n/2 changes from
the base to the last checkpoint, of all correct responses, and of those outside the base's dominant mode. Where they are
positive there is no loss to be found within reach of n. The other columns are per cent of series."""


def _introduction(rows: Sequence[Row], seed: int) -> str:
    strict = [row for row in rows if row.cell.kind in STRICT_NULLS]
    missed = [row for row in strict if not row.bar_held]
    worst = max(strict, key=lambda row: row.positives / row.series, default=None)
    held = "no series was simulated"
    if worst is not None:
        cell = worst.cell
        held = (
            f"The bar, at most {100 * BAR:.0f} % under every strict null in every cell, is "
            f"{'held' if not missed else f'missed in {len(missed)} of {len(strict)} cells'}. "
            f"The highest rate is {_rate(worst.positives, worst.series)} % "
            f"({NAMES[cell.kind]}, {cell.n_problems} problems, n = {cell.n})."
        )
    return f"""# Calibration of the verdict

Made by `make calibration` (seed {seed}); machine, versions and counts are in `calibration.json`. {held}

Each series has P problems with four correct modes each, and {N_CHECKPOINTS} checkpoints after the base. A tenth of the
problems is out of the base's reach, the success of the others is logit-normal (mean −2.6, standard deviation 2.6),
divided among the modes by a uniform Dirichlet law. The rule sees n samples of each of the last {WINDOW} checkpoints,
pooled, and 2n of the base, all graded rightly; levels {KEY_LEVEL} for both keys, {MINORITY_LEVEL} for the minority
channel and {STEP_LEVEL} for single checkpoints. The key for these very problems and the minority channel are exact
tests: under a strict null the rate is at most the sum of the levels, but for the luck of the simulation. What real runs
have beside that is in [real_life.md](real_life.md).{_in_rounds(rows)}"""


def _in_rounds(rows: Sequence[Row]) -> str:
    """Return how the samples were drawn, if not equally many of each problem."""
    drawn = sorted({(row.cell.n, row.samples) for row in rows if row.samples and row.cell.kind == "no_change"})
    if not drawn:
        return ""
    means = {n: np.mean([samples for of, samples in drawn if of == n]) for n, _ in drawn}
    numbers = ", ".join(f"{mean:.0f} at n = {n}" for n, mean in means.items())
    return f"""

Here each problem is sampled in rounds until {rows[0].cell.enough} samples are correct, and n is the largest number. The
first round has half of n, at most 64. Mean number of samples of a problem without a change: {numbers}. Samples are not
pooled but estimates averaged, the key for these problems is approximate, and the minority channel sees the first round.
Compare with [equally many samples](calibration.md)."""


def _table(rows: Sequence[Row], kinds: Sequence[Kind], columns: dict[str, Callable[[dict[Kind, Row]], str]]) -> str:
    cells = sorted({(row.cell.n, row.cell.n_problems) for row in rows if row.cell.kind in kinds})
    lines = [f"| n | P | series | {' | '.join(columns)} |", f"|{'---:|' * (len(columns) + 3)}"]
    for n, n_problems in cells:
        by_kind = {row.cell.kind: row for row in rows if (row.cell.n, row.cell.n_problems) == (n, n_problems)}
        series = sorted({by_kind[kind].series for kind in kinds if kind in by_kind})
        told = " | ".join(column(by_kind) for column in columns.values())
        lines.append(f"| {n} | {n_problems} | {', '.join(map(str, series))} | {told} |")
    return "\n".join(lines)


def _number(kind: Kind, tell: Callable[[Row], str]) -> Callable[[dict[Kind, Row]], str]:
    return lambda by_kind: tell(by_kind[kind]) if kind in by_kind else "not run"


def _label(kind: Kind, label: Label) -> Callable[[dict[Kind, Row]], str]:
    return _number(kind, lambda row: f"{100 * row.labels[label] / row.series:.0f}")


def _false_positives(kind: Kind) -> Callable[[dict[Kind, Row]], str]:
    return _number(kind, lambda row: _rate(row.positives, row.series))


def _rate(count: int, of: int) -> str:
    low, high = interval(count, of)
    return f"{100 * count / of:.1f} ({100 * low:.1f}–{100 * high:.1f})"
