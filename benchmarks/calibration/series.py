"""Simulated series with known rates as the verdict's rule gets them, and counts of its labels."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import get_args

import numpy as np
from jaxtyping import Float, Int
from scipy.stats import binomtest
from scipy.stats import t as student_t

from benchmarks.calibration.in_rounds import draw_in_rounds, stopping_rule
from benchmarks.calibration.planted import (
    KINDS,
    N_MODES,
    Kind,
    PlantedProblems,
    dominant_modes,
    draw_problems,
    mass_at,
    mean_pass_at_k,
)
from oversharp.diagnostics.statistics.keys import PairedCounts, inference_ks, scale_of
from oversharp.diagnostics.verdict.counts import CheckpointCounts
from oversharp.diagnostics.verdict.counts import SeriesCounts as AuditCounts
from oversharp.diagnostics.verdict.headings import Label
from oversharp.diagnostics.verdict.record import POSITIVE
from oversharp.diagnostics.verdict.rule import KEY_LEVEL, LossTable, label_of
from oversharp.diagnostics.verdict.seen import SeenCounts, seen_counts
from oversharp.diagnostics.verdict.table import run_tests

STRICT_NULLS: tuple[Kind, ...] = ("no_change", "moderate", "late_moderate")
ALTERNATIVES: tuple[Kind, ...] = ("over_mild", "over_medium", "over_severe", "collapse_mild", "collapse_severe")
SIMULATED: tuple[Kind, ...] = (*STRICT_NULLS, "churn", *ALTERNATIVES)
#: Largest allowed rate of false alarms under a strict null.
BAR = 0.05
#: Number of series that distinguishes a rate of 3 % from 5 %.
ENOUGH = 300
N_CHECKPOINTS, WINDOW = 9, 3

Judge = Callable[..., tuple[Label, LossTable]]


@dataclass(frozen=True, kw_only=True)
class Cell:
    """Settings of a simulation: kind of change, number of problems, samples per problem and checkpoint.

    With ``enough``, problems are drawn in rounds until they have as many correct samples, and at most ``n``.
    """

    kind: Kind
    n_problems: int
    n: int
    enough: int | None = None


@dataclass(frozen=True, kw_only=True)
class SeriesCounts:
    """Counts of one series, and the true changes from the base to the last checkpoint at k = n / 2."""

    total: PairedCounts
    window: tuple[PairedCounts, ...]
    minority: PairedCounts
    change: float  # of pass@k
    minority_change: float  # of pass@k without the base's dominant mode


@dataclass(frozen=True, kw_only=True)
class Row:
    """Results of one cell: series by label, rejections of each test, mean true change (probability)."""

    cell: Cell
    series: int
    labels: dict[Label, int]
    exact: int
    population: int
    minority: int
    change: float
    minority_change: float
    cpu_s: float
    samples: float | None = None  # mean number of samples of a problem and checkpoint, if it is not n

    @property
    def positives(self) -> int:
        """Number of series that were called a loss."""
        return sum(self.labels[label] for label in POSITIVE)

    @property
    def bar_held(self) -> bool:
        """Return whether at most ``BAR`` of a strict null's series were called a loss; True for others."""
        return self.cell.kind not in STRICT_NULLS or self.positives <= BAR * self.series


def draw_series(cell: Cell, rng: np.random.Generator) -> SeriesCounts:
    """Draw one series: its truth, then the counts of an audit of it."""
    problems = draw_problems(cell.n_problems, rng)
    base_PJ = problems.mass_PJ
    choosing_PJ, counted_PJ = (_drawn(base_PJ, cell.n, rng) for _ in range(2))
    progress = [step / N_CHECKPOINTS for step in range(N_CHECKPOINTS - WINDOW + 1, N_CHECKPOINTS + 1)]
    window_TPJ = np.stack([_drawn(mass_at(cell.kind, problems, s), cell.n, rng) for s in progress])
    late_PJ = window_TPJ.sum(axis=0)
    base_P = (choosing_PJ + counted_PJ).sum(axis=1)
    shown_P = choosing_PJ.sum(axis=1) > 0
    other_PJ = np.arange(N_MODES) != choosing_PJ.argmax(axis=1)[:, None]
    change, minority_change = _truth(cell, problems)
    return SeriesCounts(
        total=PairedCounts(
            base_P=base_P,
            late_P=late_PJ.sum(axis=1),
            n_base=2 * cell.n,
            n_late=WINDOW * cell.n,
        ),
        window=tuple(
            PairedCounts(base_P=base_P, late_P=late_P, n_base=2 * cell.n, n_late=cell.n)
            for late_P in window_TPJ.sum(axis=2)
        ),
        minority=PairedCounts(
            base_P=(counted_PJ * other_PJ).sum(axis=1)[shown_P],
            late_P=(late_PJ * other_PJ).sum(axis=1)[shown_P],
            n_base=cell.n,
            n_late=WINDOW * cell.n,
        ),
        change=change,
        minority_change=minority_change,
    )


def draw_stopped(cell: Cell, rng: np.random.Generator) -> tuple[SeenCounts, float, float, float]:
    """Draw one series in rounds: its counts, the true changes as in ``draw_series``, and the mean number of samples."""
    problems = draw_problems(cell.n_problems, rng)
    progress = [step / N_CHECKPOINTS for step in range(N_CHECKPOINTS - WINDOW + 1, N_CHECKPOINTS + 1)]
    mass_SPJ = np.stack([problems.mass_PJ, *(mass_at(cell.kind, problems, s) for s in progress)])
    rules = [stopping_rule(n, cell.enough or 1, of=cell.n, has_modes=True) for n in (2 * cell.n, *[cell.n] * WINDOW)]
    in_rounds = draw_in_rounds(rules, mass_SPJ, None, rng)
    base, *window = (
        CheckpointCounts(
            step=step, checkpoint=f"checkpoint-{step}", n=rounds.rule.cap, correct_P=rounds.codes, rates=None,
            minority_P=minority_P, rounds=rounds,
        )
        for step, (rounds, minority_P) in enumerate(zip(in_rounds.rounds, in_rounds.minority_SP, strict=True))
    )  # fmt: skip
    counts = AuditCounts(
        series="run", base=base, trained=(*window, *window, *window), shows_modes_P=in_rounds.shows_modes_P,
        tasks=("planted",), graders=("exact",), tokens_per_sample=None, selected_by="none",
    )  # fmt: skip
    seen = seen_counts(counts)  # the window is the last third
    seen = replace(seen, steps=seen.steps[-WINDOW:], unread=(), guess_share=0.0)
    samples = (base.hits[0].mean() + N_CHECKPOINTS * np.mean([one.hits[0].mean() for one in window])) / (
        1 + N_CHECKPOINTS
    )
    return (seen, *_truth(cell, problems), float(samples))


def _drawn(mass_PJ: np.ndarray, n: int, rng: np.random.Generator) -> Int[np.ndarray, "problem mode"]:
    wrong_P = np.maximum(1 - mass_PJ.sum(axis=1), 0.0)
    return rng.multinomial(n, np.concatenate([mass_PJ, wrong_P[:, None]], axis=1))[:, :-1]


def _truth(cell: Cell, problems: PlantedProblems) -> tuple[float, float]:
    base_PJ, last_PJ = problems.mass_PJ, mass_at(cell.kind, problems, 1.0)
    other_PJ = 1 - dominant_modes(base_PJ)
    k = cell.n // 2
    return (
        mean_pass_at_k(last_PJ.sum(axis=1), k) - mean_pass_at_k(base_PJ.sum(axis=1), k),
        mean_pass_at_k((last_PJ * other_PJ).sum(axis=1), k) - mean_pass_at_k((base_PJ * other_PJ).sum(axis=1), k),
    )


def rule(seen: SeenCounts, *, rng: np.random.Generator) -> tuple[Label, LossTable]:
    """Label counts by the shipped rule, from the tests that decide it."""
    table = run_tests(seen, rng=rng)
    return label_of(table), table


def simulate(cell: Cell, *, series: int, first: int = 0, seed: int, judge: Judge = rule) -> Row:
    """Label ``series`` series by ``judge``, starting at number ``first``."""
    start = time.process_time()
    rng = np.random.default_rng([seed, KINDS.index(cell.kind), cell.n_problems, cell.n, first])
    ks = inference_ks(cell.n)
    labels: Counter[Label] = Counter(dict.fromkeys(get_args(Label), 0))
    exact = population = minority = 0
    changes = []
    samples = []
    for _ in range(series):
        if cell.enough is None:
            drawn = draw_series(cell, rng)
            change, minority_change = drawn.change, drawn.minority_change
            seen = SeenCounts(
                total=drawn.total, window=drawn.window, steps=drawn.window, ks=ks, step_ks=ks,
                minority=drawn.minority, minority_ks=ks,
            )  # fmt: skip
        else:
            seen, change, minority_change, mean_samples = draw_stopped(cell, rng)
            samples.append(mean_samples)
        label, table = judge(seen, rng=rng)
        labels[label] += 1
        exact += table.window.p_exact <= KEY_LEVEL
        population += table.window.p_population <= KEY_LEVEL
        minority += table.modes is not None and table.modes.fell
        changes.append((change, minority_change))
    change, minority_change = np.mean(changes, axis=0)
    return Row(
        cell=cell,
        series=series,
        labels=dict(labels),
        exact=exact,
        population=population,
        minority=minority,
        change=float(change),
        minority_change=float(minority_change),
        cpu_s=time.process_time() - start,
        samples=float(np.mean(samples)) if samples else None,
    )


def joined(parts: Sequence[Row]) -> Row:
    """Join the rows of one cell."""
    n = sum(part.series for part in parts)
    return Row(
        cell=parts[0].cell,
        series=n,
        labels={label: sum(part.labels[label] for part in parts) for label in parts[0].labels},
        exact=sum(part.exact for part in parts),
        population=sum(part.population for part in parts),
        minority=sum(part.minority for part in parts),
        change=sum(part.change * part.series for part in parts) / n,
        minority_change=sum(part.minority_change * part.series for part in parts) / n,
        cpu_s=sum(part.cpu_s for part in parts),
        samples=None if parts[0].samples is None else sum(part.series * (part.samples or 0.0) for part in parts) / n,
    )


def interval(count: int, of: int) -> tuple[float, float]:
    """Return the 95 % interval of a rate (Clopper–Pearson).

    >>> [round(bound, 3) for bound in interval(40, 1000)]
    [0.029, 0.054]
    """
    bounds = binomtest(count, of).proportion_ci(0.95, method="exact")
    return float(bounds.low), float(bounds.high)


def exceeds(count: int, of: int, bound: float = BAR) -> bool:
    """Return whether a rate exceeds a bound.

    With fewer series than ``ENOUGH`` the lower end of the 95 % interval must be above it.
    """
    return count > bound * of and (of >= ENOUGH or interval(count, of)[0] > bound)


def reach_here(variance: np.ndarray | float, n_problems: int) -> Float[np.ndarray, "*shape"]:
    """Return half of the width of the 95 % interval of a mean over these problems.

    ``variance`` is the sum of the unbiased variances of the problems' estimates. The interval has the variance floor of
    the tests (``keys.scale_of``).

    >>> round(float(reach_here(3.5, 100)), 4)  # 1.984 · 2 / 100
    0.0397
    """
    return np.asarray(student_t.ppf(0.975, n_problems - 1) * scale_of(np.asarray(variance)) / n_problems)
