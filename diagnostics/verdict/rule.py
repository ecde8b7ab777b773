"""Rule that maps the table of tests to a label, and the significance levels. Pure, without randomness.

The rule was fixed before it was applied to any series. ``benchmarks/calibration/rule.py`` simulates its rates of false
alarms and of missed losses. The results are committed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from oversharp.diagnostics.statistics.crossing import Crossing
from oversharp.diagnostics.statistics.units import Interval
from oversharp.diagnostics.verdict.causes.explanations import Cause
from oversharp.diagnostics.verdict.headings import Label

#: Levels of the tests of pass@k (exact and population), of minority modes, and of single checkpoints. Together they
#: cause a false alarm in less than 4.5 % of series without a loss, so a simulation can show that it is below 5 %.
KEY_LEVEL, MINORITY_LEVEL, STEP_LEVEL = 0.03, 0.005, 0.005
#: At this p value or below, the base's samples are taken to have selected the problems.
SELECTED_LEVEL = 0.001
#: Largest fall of pass@k (probability) that still counts as no loss, and the required confidence.
MARGIN, MARGIN_CONFIDENCE = 0.02, 0.95


def spent_share(*, number: int, declared: int | None, runs: int) -> float:
    """Return the share of the significance levels that look ``number`` (from 1) may use.

    A look is a verdict on new checkpoints or samples. By the union bound, the false alarms of all looks together then
    stay below the levels at any stopping time. Declared looks have equal shares. If no number is declared, or if it is
    exceeded, look j has the share 1 / (j (j + 1)); these sum to 1. Each share is divided by ``runs``, the number of
    runs from which one is chosen.

    >>> [spent_share(number=j, declared=None, runs=1) for j in (1, 2, 3)]
    [0.5, 0.16666666666666666, 0.08333333333333333]
    >>> spent_share(number=2, declared=10, runs=2)
    0.05
    """
    if declared is not None and number <= declared:
        return 1.0 / (declared * runs)
    return 1.0 / (number * (number + 1) * runs)


@dataclass(frozen=True, kw_only=True, slots=True)
class LossRow:
    """Tests of the window, of its modes, or of one checkpoint.

    Attributes:
        which: What is tested. For modes, correct samples outside each problem's dominant mode.
        level: Level of the tests.
        fell: Whether pass@k of these problems fell significantly.
        k: The k with the lowest change of pass@k; for a checkpoint, relative to its standard error.
        change: Change of pass@k at ``k``, a probability, with its 95 % interval from ``low`` to ``high``. The interval
            of the window is for this k only, that of a checkpoint is simultaneous over all checkpoints and k. None if
            unknown.
        place: Position of a checkpoint among the compared ones; None for the window and its modes.
        p_exact: p value for these problems; of a checkpoint, adjusted for all checkpoints.
        p_population: p value for the population of the problems, in the same form.
        cause: Another explanation of the fall; None without one, or if it was not tested.
        kept: Whether pass@k fell by less than ``MARGIN`` at every k, by the one-sided lower bounds of the change.
    """

    which: Literal["window", "modes", "checkpoint"]
    level: float
    fell: bool
    k: int
    change: float
    place: int | None = None
    low: float | None = None
    high: float | None = None
    p_exact: float | None = None
    p_population: float | None = None
    cause: Cause | None = None
    kept: bool = False

    @property
    def is_unexplained(self) -> bool:
        """Whether it fell, without another explanation."""
        return self.fell and self.cause is None

    @property
    def is_of_population(self) -> bool:
        """Whether the test for the population is significant."""
        return self.p_population is not None and self.p_population <= self.level


@dataclass(frozen=True, kw_only=True, slots=True)
class WindowSizes:
    """Sizes of the window's changes of pass@k, over problems or clusters.

    Attributes:
        base: pass@k of the base at each k.
        intervals: Mean change at each k, with its 95 % interval.
        worst: Index of the k with the lowest mean change.
        error: Standard error of the lowest change: over problems if the test for their population is significant, else
            over the samples of these problems.
        crossing: The smallest k from which pass@k stays below the base.
        least_change: Smallest one-sided lower bound of the change over all k; None for a single problem.
        p_no_loss: p value of a fall by ``MARGIN`` or more at some k; None for a single problem.
        pass_at_1_fell: Whether pass@1 fell significantly, as graded.
        pass_at_1_fell_in_all: Whether it did by every reading of the same samples: also by a lenient reader's grades,
            and with unparsed samples taken for correct.
        p_problem: Smallest p value of single problems, by Holm's correction.
        share_lost: Share of the problems with a significant fall of their success rate.
        share_by_lost: Share of the largest fall of pass@k from these problems; None without a fall.
    """

    base: tuple[float, ...]
    intervals: tuple[Interval, ...]
    worst: int
    error: float
    crossing: Crossing
    least_change: float | None
    p_no_loss: float | None
    pass_at_1_fell: bool
    pass_at_1_fell_in_all: bool
    p_problem: float
    share_lost: float
    share_by_lost: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """Limits of the conclusions from a series, apart from its tests.

    ``few`` is the reason why there is no inference on the population of the problems, or None. ``dependence`` describes
    the correlation between samples of a problem; None if they may be independent. ``is_end_unknown`` means that a late
    checkpoint was left out, and ``knows_temperature`` that the sampling temperature is recorded.
    """

    few: str | None = None
    dependence: str | None = None
    is_end_unknown: bool = False
    knows_temperature: bool = True


@dataclass(frozen=True, kw_only=True, slots=True)
class LossTable:
    """All tests of a series.

    Attributes:
        modes: None if no problem has correct samples of a second mode.
        checkpoints: All compared checkpoints. The last ``n_window`` are the window. Empty if they cannot be tested.
        ks: The k of the window's tests.
        spent: Share of the significance levels that this look uses.
        p_selection: p value of "the base's samples did not select the problems"; None if the problems pass no filter.
        p_tail: p value of a fall at k above ``ks``; None if the pooled samples allow no such k, or if it was not
            tested.
        knows_unread: Whether the unparsed samples of the whole window are known.
        limits: Limits of the conclusions, apart from the tests.
    """

    window: LossRow
    modes: LossRow | None
    checkpoints: tuple[LossRow, ...]
    n_window: int
    ks: tuple[int, ...]
    spent: float
    sizes: WindowSizes
    p_selection: float | None
    p_tail: float | None
    knows_unread: bool
    limits: Limits

    @property
    def late_falls(self) -> list[LossRow]:
        """Checkpoints of the window that fell."""
        return [row for row in self.checkpoints[-self.n_window :] if row.fell]

    @property
    def pooled_falls(self) -> list[LossRow]:
        """The window and its modes, if they fell."""
        return [row for row in (self.window, self.modes) if row is not None and row.fell]


def label_of(table: LossTable) -> Label:
    """Return the first label whose condition is met."""
    few = table.limits.few
    pooled = [row.cause for row in table.pooled_falls]
    single = [row.cause for row in table.late_falls]
    explained = _first_explanation([*pooled, *single])
    # with too few problems, single checkpoints have no result, so explanations of their loss are not printed
    printed = explained if few is None else _first_explanation(pooled)

    # correlated samples: no conclusion
    if table.limits.dependence is not None:
        return "inconclusive"
    # pass@k of the window fell, without another explanation
    if table.window.is_unexplained:
        if table.sizes.pass_at_1_fell or table.ks == (1,):
            return "degraded"
        return "over_sharpened" if table.window.is_of_population and few is None else "over_sharpened_here"
    # modes other than the dominant ones were lost
    if table.modes is not None and table.modes.is_unexplained:
        return "mode_collapse"
    # a single checkpoint of the window fell, without another explanation
    if None in single:
        return "lost_at_steps" if few is None else printed or "inconclusive"
    # the base's samples selected the problems, and no other explanation of a fall applies
    is_chosen = table.p_selection is not None and table.p_selection <= SELECTED_LEVEL
    if "selection" in (*pooled, *single) or (is_chosen and explained is None):
        return "selected"
    # a fall has another explanation
    if explained is not None:
        return printed or "inconclusive"
    # no fall by the margin or more in the population, and the last checkpoints are known
    if table.window.kept and few is None and not table.limits.is_end_unknown:
        return "no_loss"
    return "inconclusive"


def _first_explanation(causes: Sequence[Cause | None]) -> Literal["format", "guessing"] | None:
    return "format" if "format" in causes else "guessing" if "guessing" in causes else None


def row_of_label(table: LossTable, label: Label) -> LossRow | None:
    """Return the row with the fall that the label is about (the largest of several checkpoints), or None."""
    match label:
        case "mode_collapse":
            return table.modes
        case "lost_at_steps" | "format" | "guessing":
            cause = None if label == "lost_at_steps" else label
            pooled = [] if cause is None else [row for row in table.pooled_falls if row.cause == cause]
            single = [row for row in table.late_falls if row.cause == cause]
            return pooled[0] if pooled else min(single, key=lambda row: row.change)
        case _:
            return next(iter(table.pooled_falls), None)
