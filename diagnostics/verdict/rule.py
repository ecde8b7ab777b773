"""Rule that maps counts to a label. It was fixed before it was applied to any series.

``benchmarks/calibration/rule.py`` simulates how often it raises false alarms and what it misses; its results are
committed.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from jaxtyping import Int
from scipy.stats import t as student_t

from oversharp.diagnostics.statistics.confirmation import fisher_fell
from oversharp.diagnostics.statistics.keys import (
    POPULATION_DRAWS,
    PairedCounts,
    draws_for,
    exact_key,
    mean_changes,
    population_key,
)
from oversharp.diagnostics.statistics.selection import ProblemFilter
from oversharp.diagnostics.statistics.units import by_cluster
from oversharp.diagnostics.verdict.explanations import EXPLAINED_LEVEL, Cause, Fall, Unread, cause_of
from oversharp.diagnostics.verdict.steps import StepRuling, rule_steps

#: over_sharpened       both keys: on these problems and on the population they were sampled from
#: over_sharpened_here  the exact key alone: on these problems
#: degraded             a key, but pass@1 fell significantly too: the model got worse, not only narrower
#: format               a loss, but unparsed samples explain most of it, and parsed ones do not show it
#: guessing             a loss, but false accepts at the base would explain it
#: mode_collapse        pass@k is kept, correct responses outside the dominant mode are lost
#: selected             the base's samples chose the problems, and no loss shows in spite of that: no conclusion
#: lost_at_steps        none of these in the window as a whole, but a loss at single checkpoints of it
#: no_loss              pass@k fell by no more than ``MARGIN`` at any k
Label = Literal[
    "over_sharpened",
    "over_sharpened_here",
    "degraded",
    "format",
    "guessing",
    "mode_collapse",
    "selected",
    "lost_at_steps",
    "no_loss",
    "inconclusive",
]

#: Levels of both keys, of the minority channel, and of single checkpoints. Together they raise a false alarm in less
#: than 4.5 % of series without a loss: far enough below 5 % for a simulation to show it.
KEY_LEVEL, MINORITY_LEVEL, STEP_LEVEL = 0.03, 0.005, 0.005
#: At this p value or below, the base's samples chose the problems.
SELECTED_LEVEL = 0.001
#: A fall of pass@k that is too small to matter, in probability, and the required confidence that it is no larger.
MARGIN, MARGIN_CONFIDENCE = 0.02, 0.95


@dataclass(frozen=True, kw_only=True)
class SeenCounts:
    """Input of the rule.

    Attributes:
        total: Correct samples, those of the late checkpoints pooled.
        window: The same checkpoints one by one, for the size of the fall of pass@k.
        steps: All checkpoints, the last of them the window, tested at ``step_ks``.
        minority: Correct samples, pooled too, outside the mode that dominated an independent half of the base's
            samples.
        minority_unread: The unparsed samples that belong to ``minority``; None if unknown.
        unread: For each of ``steps``, the samples that count as wrong because of their form; empty, or None, if
            unknown.
        lenient: ``total`` by the lenient reader; None without one.
        lenient_steps: ``steps`` by the lenient reader; empty without one.
        selection: A filter that all problems pass by the base's samples; None if they pass none.
        guess_share: Share of wrong responses that may be accepted.
        cluster_P: Cluster of each problem.
        spent: Part of all levels that this look may use; 1 for a verdict that is read once, on one run.
    """

    total: PairedCounts
    window: Sequence[PairedCounts]
    steps: Sequence[PairedCounts]
    ks: Sequence[int]
    step_ks: Sequence[int]
    minority: PairedCounts | None = None
    minority_ks: Sequence[int] = ()
    minority_unread: Unread | None = None
    unread: Sequence[Unread | None] = ()
    lenient: PairedCounts | None = None
    lenient_steps: Sequence[PairedCounts] = ()
    selection: ProblemFilter | None = None
    guess_share: float = 0.0
    cluster_P: Int[np.ndarray, " problem"] | None = None
    spent: float = 1.0

    @property
    def unread_of_window(self) -> Unread | None:
        """Unparsed samples of the window together; None if unknown for one of its checkpoints."""
        known = [one for one in self.unread[-len(self.window) :] if one is not None]
        if not self.unread or len(known) < len(self.window):
            return None
        return Unread(base_P=known[0].base_P, late_P=np.sum([one.late_P for one in known], axis=0))

    def fall_of_window(self) -> Fall:
        """Return the input of the keys, with their level."""
        return Fall(
            counts=self.total,
            ks=self.ks,
            unread=self.unread_of_window,
            level=KEY_LEVEL * self.spent,
            lenient=self.lenient,
            selection=self.selection,
        )

    def fall_of_modes(self) -> Fall | None:
        """Return the input of the minority channel; None where no problem shows its modes."""
        if self.minority is None or not self.minority.n_problems or not self.minority_ks:
            return None
        level = MINORITY_LEVEL * self.spent
        return Fall(counts=self.minority, ks=self.minority_ks, unread=self.minority_unread, level=level)

    def fall_of_step(self, t: int, of: int = 1) -> Fall:
        """Return checkpoint ``t``, one of ``of`` that share the level of single checkpoints."""
        unread = self.unread[t] if self.unread else None
        lenient = self.lenient_steps[t] if self.lenient_steps else None
        return Fall(
            counts=self.steps[t],
            ks=self.step_ks,
            unread=unread,
            level=STEP_LEVEL * self.spent / of,
            lenient=lenient,
            selection=self.selection,
        )

    def read_leniently(self) -> SeenCounts | None:
        """Return the same samples by the lenient reader; None without one.

        Their modes are unknown.
        """
        if self.lenient is None:
            return None
        return replace(
            self,
            total=self.lenient,
            window=self.lenient_steps[-len(self.window) :],
            steps=self.lenient_steps,
            minority=None,
            minority_unread=None,
            unread=(),  # the lenient reader parses every sample
            lenient=None,
            lenient_steps=(),
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Ruling:
    """The label and the results behind it.

    ``p_minority`` is None where no problem shows its modes. ``cause`` is another explanation for the fall of the
    window, ``modes_cause`` for lost modes; those of single checkpoints are in ``steps``, which is empty where single
    checkpoints cannot be tested. ``fell``: pass@k of the window fell, by the keys. ``modes_collapsed``: minority modes
    were lost.
    """

    label: Label
    p_exact: float
    p_population: float
    p_minority: float | None
    #: Smallest one-sided lower bound of the change of pass@k over k; None for a single problem.
    least_change: float | None
    #: p value of a fall by ``MARGIN`` or more at some k; None for a single problem.
    p_no_loss: float | None = None
    #: One-sided upper bound of the change of pass@1; None for a single problem.
    first_most: float | None = None
    fell: bool = False
    modes_collapsed: bool = False
    cause: Cause | None = None
    modes_cause: Cause | None = None
    steps: tuple[StepRuling, ...] = ()


def spent_share(*, number: int, declared: int | None, runs: int) -> float:
    """Return the part of the levels that look ``number`` (from 1) may use.

    All looks together then stay below the levels, by the union bound at any stopping time. Declared looks share evenly.
    If the number is not declared, or exceeded, look j gets 1 / (j (j + 1)), which adds up to 1. Runs of which one is
    chosen divide each share again.

    >>> [spent_share(number=j, declared=None, runs=1) for j in (1, 2, 3)]
    [0.5, 0.16666666666666666, 0.08333333333333333]
    >>> spent_share(number=2, declared=10, runs=2)
    0.05
    """
    if declared is not None and number <= declared:
        return 1.0 / (declared * runs)
    return 1.0 / (number * (number + 1) * runs)


def rule(seen: SeenCounts, *, rng: np.random.Generator) -> Ruling:
    """Return the label of a series from its counts.

    Raises ``ValueError`` without a problem or for a k above the number of samples.

    >>> half = np.full(200, 128)
    >>> same = PairedCounts(base_P=half, late_P=half, n_base=256, n_late=256)
    >>> seen = SeenCounts(total=same, window=[same], steps=[same], ks=[1, 8, 64], step_ks=[1, 8, 64])
    >>> rule(seen, rng=np.random.default_rng(0)).label
    'no_loss'
    """
    if seen.total.n_problems == 0:
        raise ValueError("a verdict needs at least one problem")
    key_level = KEY_LEVEL * seen.spent
    p_exact = exact_key(seen.total, ks=seen.ks, rng=rng, draws=draws_for(key_level))
    # if the first key is not significant, the second is only reported, and the usual number of draws is enough
    draws = max(POPULATION_DRAWS, draws_for(key_level)) if p_exact <= key_level else POPULATION_DRAWS
    p_population = population_key(seen.total, ks=seen.ks, rng=rng, draws=draws, cluster_P=seen.cluster_P)
    modes, p_minority = seen.fall_of_modes(), None
    if modes is not None:
        p_minority = exact_key(modes.counts, ks=modes.ks, rng=rng, draws=draws_for(modes.level))
    least_change, first_most, p_no_loss = _bounds(seen)
    found = Ruling(
        label="inconclusive",
        p_exact=p_exact,
        p_population=p_population,
        p_minority=p_minority,
        least_change=least_change,
        p_no_loss=p_no_loss,
        first_most=first_most,
        fell=p_exact <= key_level,
        modes_collapsed=modes is not None and (p_minority or 0.0) <= modes.level,
        steps=rule_steps(
            seen.steps,
            ks=seen.step_ks,
            level=STEP_LEVEL * seen.spent,
            exact_level=KEY_LEVEL,
            margin=MARGIN,
            rng=rng,
            cluster_P=seen.cluster_P,
        ),
    )
    found = _with_causes(found, seen, rng)
    return replace(found, label=_label(found, seen))


def _with_causes(found: Ruling, seen: SeenCounts, rng: np.random.Generator) -> Ruling:
    """Return the ruling with other explanations of the findings that decide its label.

    These are the window and, unless its fall is unexplained, modes and checkpoints. Checkpoints before the window
    matter only where it shows no fall.
    """
    if found.fell:
        found = replace(found, cause=_cause(seen.fall_of_window(), seen, rng))
    modes = seen.fall_of_modes() if found.modes_collapsed and not _is_unexplained(found) else None
    found = replace(found, modes_cause=None if modes is None else _cause(modes, seen, rng))
    return _with_causes_of(found, seen, rng, {t for t in _lost(found) if t >= _first_asked(found, seen)})


def with_causes_of_all(found: Ruling, seen: SeenCounts, *, rng: np.random.Generator) -> Ruling:
    """Return the ruling with explanations for the lost checkpoints that do not decide its label."""
    return _with_causes_of(found, seen, rng, {t for t in _lost(found) if t < _first_asked(found, seen)})


def _with_causes_of(found: Ruling, seen: SeenCounts, rng: np.random.Generator, lost: Collection[int]) -> Ruling:
    steps = tuple(
        replace(step, cause=_cause(seen.fall_of_step(t, len(lost)), seen, rng, len(lost))) if t in lost else step
        for t, step in enumerate(found.steps)
    )
    return replace(found, steps=steps)


def _cause(fall: Fall, seen: SeenCounts, rng: np.random.Generator, of: int = 1) -> Cause | None:
    return cause_of(fall, guess_share=seen.guess_share, guess_level=EXPLAINED_LEVEL / of, rng=rng)


def _is_unexplained(found: Ruling) -> bool:
    return found.fell and found.cause is None


def _lost(found: Ruling) -> list[int]:
    return [t for t, step in enumerate(found.steps) if step.lost]


def _first_asked(found: Ruling, seen: SeenCounts) -> int:
    """Return the first checkpoint whose other explanations decide the label."""
    if not found.fell:
        return 0
    return len(found.steps) if found.cause is None else len(found.steps) - len(seen.window)


def _label(found: Ruling, seen: SeenCounts) -> Label:
    """Return the first label that fits.

    Unexplained falls of window, modes and checkpoints come first, then falls with another explanation.
    """
    if _is_unexplained(found):
        if _pass_at_1_fell(found, seen):
            return "degraded"
        return "over_sharpened" if found.p_population <= KEY_LEVEL * seen.spent else "over_sharpened_here"
    if found.modes_collapsed and found.modes_cause is None:
        return "mode_collapse"
    steps = [step.cause for step in found.steps[-len(seen.window) :] if step.lost]
    if None in steps:
        return "lost_at_steps"
    causes = [found.cause if found.fell else None, found.modes_cause, *steps]
    explained = next((one for one in ("format", "guessing") if one in causes), None)
    is_chosen = seen.selection is not None and seen.selection.p <= SELECTED_LEVEL
    # a fall with another explanation showed in spite of the selection
    if "selection" in causes or (is_chosen and explained is None):
        return "selected"
    if explained is not None:
        return explained  # type: ignore[return-value]
    return "no_loss" if found.least_change is not None and found.least_change > -MARGIN else "inconclusive"


def _pass_at_1_fell(found: Ruling, seen: SeenCounts) -> bool:
    """Return whether pass@1 fell over problems.

    A single problem gives no inference about others: it is tested by Fisher's exact test.
    """
    if found.first_most is not None:
        return found.first_most < 0
    total = seen.total
    if total.n_problems > 1:
        return False
    return bool(fisher_fell(total.base_P, total.n_base, total.late_P, total.n_late)[0] <= 1 - MARGIN_CONFIDENCE)


def _bounds(seen: SeenCounts) -> tuple[float | None, float | None, float | None]:
    """Return one-sided bounds of changes: the smallest lower one over k, the upper one of pass@1.

    The third value is the largest p value over k of a fall by ``MARGIN`` or more.
    """
    change_GK = by_cluster(mean_changes(seen.window, seen.ks), seen.cluster_P)
    n_units = len(change_GK)
    if n_units < 2:
        return None, None, None
    mean_K = change_GK.mean(axis=0)
    error_K = np.sqrt((n_units - 1) * change_GK.var(axis=0, ddof=1) + 1.0) / n_units
    reach_K = student_t.ppf(MARGIN_CONFIDENCE, n_units - 1) * error_K
    p_K = student_t.sf((mean_K + MARGIN) / error_K, n_units - 1)
    return float((mean_K - reach_K).min()), float(mean_K[0] + reach_K[0]), float(p_K.max())
