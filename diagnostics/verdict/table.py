"""All tests of a series, from its counts: one row each for the window, its modes and every checkpoint.

The order of the tests is fixed, so the same counts always use the same random numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from scipy.stats import t as student_t

from oversharp.diagnostics.statistics.confirmation import fisher_fell, holm
from oversharp.diagnostics.statistics.crossing import crossing
from oversharp.diagnostics.statistics.intervals import share_interval
from oversharp.diagnostics.statistics.keys import (
    POPULATION_DRAWS,
    PairedCounts,
    draws_for,
    exact_key,
    inference_ks,
    mean_changes,
    population_key,
)
from oversharp.diagnostics.statistics.pass_at_k import pass_at_k_table, within_problem_variance_table
from oversharp.diagnostics.statistics.selection import ProblemFilter, find_selection
from oversharp.diagnostics.statistics.units import by_cluster
from oversharp.diagnostics.verdict.counts import CheckpointCounts, SeriesCounts
from oversharp.diagnostics.verdict.explanations import (
    EXPLAINED_LEVEL,
    Cause,
    Fall,
    Unread,
    cause_of,
    fall_p,
    style_rise,
    taken_for_correct,
)
from oversharp.diagnostics.verdict.rule import (
    KEY_LEVEL,
    MARGIN,
    MARGIN_CONFIDENCE,
    MINORITY_LEVEL,
    STEP_LEVEL,
    Limits,
    LossRow,
    LossTable,
    WindowSizes,
    spent_share,
)
from oversharp.diagnostics.verdict.steps import rule_steps


@dataclass(frozen=True, kw_only=True)
class SeenCounts:
    """Input of the tests.

    Attributes:
        total: Correct samples of the base and of the window, pooled over its checkpoints.
        window: Counts of each checkpoint of the window, for the size of the fall of pass@k.
        steps: Counts of all checkpoints, tested at ``step_ks``. The last ones are the window.
        minority: Pooled correct samples outside the dominant mode. Another half of the base's samples determines that
            mode.
        minority_unread: Unparsed samples that belong to ``minority``; None if unknown.
        unread: Truncated, unparsed and timed-out samples of each of ``steps``; empty, or None, if unknown.
        lenient: Counts of ``steps`` by the lenient reader; empty without one.
        selection: Filter that all problems pass by the base's samples; None if they pass none.
        guess_share: Share of wrong responses that the grader may accept.
        cluster_P: Cluster of each problem.
        spent: Share of the significance levels that this look uses; 1 for a single verdict on one run.
        limits: Limits of the conclusions, apart from the tests.
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
    lenient: Sequence[PairedCounts] = ()
    selection: ProblemFilter | None = None
    guess_share: float = 0.0
    cluster_P: Int[np.ndarray, " problem"] | None = None
    spent: float = 1.0
    limits: Limits = field(default_factory=Limits)

    def mean_changes(self) -> Float[np.ndarray, "unit k"]:
        """Return the mean change of pass@k over the window, of each problem or cluster."""
        return by_cluster(mean_changes(self.window, self.ks), self.cluster_P)

    @property
    def unread_of_window(self) -> Unread | None:
        """Unparsed samples of the window together; None if unknown for one of its checkpoints."""
        known = [one for one in self.unread[-len(self.window) :] if one is not None]
        if not self.unread or len(known) < len(self.window):
            return None
        return Unread(base_P=known[0].base_P, late_P=np.sum([one.late_P for one in known], axis=0))

    def fall_of_window(self) -> Fall:
        """Return the input and the level of the tests of the window."""
        return Fall(
            counts=self.total,
            ks=self.ks,
            unread=self.unread_of_window,
            level=KEY_LEVEL * self.spent,
            lenient=_pooled(self.lenient[-len(self.window) :]) if self.lenient else None,
            selection=self.selection,
        )

    def fall_of_modes(self) -> Fall | None:
        """Return the input of the test of minority modes; None if no problem has correct samples of a second mode."""
        if self.minority is None or not self.minority.n_problems or not self.minority_ks:
            return None
        level = MINORITY_LEVEL * self.spent
        return Fall(counts=self.minority, ks=self.minority_ks, unread=self.minority_unread, level=level)

    def fall_of_step(self, t: int, of: int = 1) -> Fall:
        """Return the input for checkpoint ``t``. ``of`` checkpoints share the level of single checkpoints."""
        return Fall(
            counts=self.steps[t],
            ks=self.step_ks,
            unread=self.unread[t] if self.unread else None,
            level=STEP_LEVEL * self.spent / of,
            lenient=self.lenient[t] if self.lenient else None,
            selection=self.selection,
        )

    def fall_of(self, row: LossRow) -> Fall:
        """Return the input of the tests of a row."""
        modes = self.fall_of_modes() if row.which == "modes" else None
        return modes or (self.fall_of_window() if row.place is None else self.fall_of_step(row.place))

    def read_leniently(self) -> SeenCounts | None:
        """Return the counts of the same samples by the lenient reader, without their modes; None without it.

        The lenient reader has no unparsed samples.
        """
        if not self.lenient:
            return None
        window = self.lenient[-len(self.window) :]
        unknown: dict[str, Any] = {"minority": None, "minority_unread": None, "unread": (), "lenient": ()}
        return replace(self, total=_pooled(window), window=window, steps=self.lenient, **unknown)


def seen_counts(counts: SeriesCounts) -> SeenCounts:
    """Return the input of the tests from the counts of a series."""
    base, compared, window = counts.base, counts.compared, counts.window
    steps = [PairedCounts(base_P=base.correct_P, late_P=one.correct_P, n_base=base.n, n_late=one.n) for one in compared]
    lenient = [
        PairedCounts(base_P=base.lenient_P, late_P=one.lenient_P, n_base=base.n, n_late=one.n)
        for one in compared
        if base.lenient_P is not None and one.lenient_P is not None
    ]
    n_least, total, minority = min(one.n for one in window), _pooled(steps[-len(window) :]), _minority(counts, window)
    return SeenCounts(
        total=total,
        window=steps[-len(window) :],
        steps=steps,
        step_ks=inference_ks(min(base.n, *(one.n for one in compared))),
        ks=inference_ks(min(base.n, n_least)),
        minority=minority,
        minority_ks=() if minority is None else inference_ks(min(base.n // 2, n_least)),
        minority_unread=_minority_unread(counts, window),
        unread=[_unread(base, [one]) for one in compared],
        lenient=lenient if len(lenient) == len(compared) else (),
        selection=_selection(counts, total),
        guess_share=counts.guess_rate.share,
        cluster_P=counts.cluster_P,
        spent=spent_share(number=counts.looks.number, declared=counts.looks.declared, runs=counts.looks.runs),
        limits=Limits(
            few=counts.why_few,
            dependence=counts.dependence,
            is_end_unknown=counts.is_end_unknown,
            knows_temperature=counts.knows_temperature,
        ),
    )


def _pooled(pairs: Sequence[PairedCounts]) -> PairedCounts:
    """Return the counts of checkpoints with their samples summed."""
    return PairedCounts(
        base_P=pairs[0].base_P,
        late_P=_summed(pair.late_P for pair in pairs),
        n_base=pairs[0].n_base,
        n_late=sum(pair.n_late for pair in pairs),
    )


def _selection(counts: SeriesCounts, total: PairedCounts) -> ProblemFilter | None:
    """Return the filter by which the base's samples may have selected the problems; ``selected_by`` overrides it."""
    if counts.selected_by == "none":
        return None
    found = find_selection(total, counts.base.first_correct_P, counts.base.first_wrong_P)
    if counts.selected_by != "base":
        return found
    weight_C = np.ones(total.n_base + 1) if found is None else found.weight_C
    return ProblemFilter(weight_C=weight_C, p=0.0)


def _unread(base: CheckpointCounts, window: Sequence[CheckpointCounts]) -> Unread | None:
    late = [one.unread_P for one in window if one.unread_P is not None]
    if base.unread_P is None or len(late) < len(window):
        return None
    return Unread(base_P=base.unread_P, late_P=_summed(late))


def _minority_unread(counts: SeriesCounts, window: Sequence[CheckpointCounts]) -> Unread | None:
    """Return the unparsed samples that belong to the counts of minority modes.

    Only the second half of the base's samples counts, so half of its unparsed samples are used. Samples that only the
    lenient reader accepts have an unknown mode and count as unparsed.
    """
    unread, shown_P = _unread(counts.base, window), counts.shows_modes_P
    if unread is None:
        return None
    misread = [one.lenient_P - one.correct_P for one in (counts.base, *window) if one.lenient_P is not None]
    if len(misread) == 1 + len(window):
        base_P = np.minimum(unread.base_P + misread[0], counts.base.n - counts.base.correct_P)
        most_P = _summed(one.n - one.correct_P for one in window)
        unread = Unread(base_P=base_P, late_P=np.minimum(unread.late_P + _summed(misread[1:]), most_P))
    return Unread(base_P=unread.base_P[shown_P] // 2, late_P=unread.late_P[shown_P])


def _minority(counts: SeriesCounts, window: Sequence[CheckpointCounts]) -> PairedCounts | None:
    """Return correct samples outside the dominant mode; None without any, as if the grader distinguishes no modes.

    The first half of the base's samples determines the dominant mode, so only its second half counts.
    """
    shown_P = counts.shows_modes_P
    base_P, late_P = counts.base.minority_P[shown_P], _summed(one.minority_P for one in window)[shown_P]
    if not (base_P.any() or late_P.any()):
        return None
    n_base = counts.base.n - counts.base.n // 2
    return PairedCounts(base_P=base_P, late_P=late_P, n_base=n_base, n_late=sum(one.n for one in window))


def _summed(counts: Iterable[np.ndarray]) -> np.ndarray:
    return np.sum(list(counts), axis=0)


def run_tests(seen: SeenCounts, *, rng: np.random.Generator, claim_rng: np.random.Generator | None = None) -> LossTable:
    """Return all tests of a series.

    Without ``claim_rng``, only tests that affect the label: no test of the tail, and no other explanation of a
    checkpoint's fall if it does not affect the label.

    Raises ``ValueError`` without a problem or for a k above the number of samples.

    >>> half = np.full(200, 128)
    >>> same = PairedCounts(base_P=half, late_P=half, n_base=256, n_late=256)
    >>> seen = SeenCounts(total=same, window=[same], steps=[same], ks=[1, 8, 64], step_ks=[1, 8, 64])
    >>> table = run_tests(seen, rng=np.random.default_rng(0))
    >>> table.window.fell, table.window.kept
    (False, True)
    """
    if seen.total.n_problems == 0:
        raise ValueError("a verdict needs at least one problem")
    of_window, of_modes = seen.fall_of_window(), seen.fall_of_modes()
    p_exact = fall_p(of_window.counts, ks=of_window.ks, level=of_window.level, rng=rng)
    fell = p_exact <= of_window.level
    # if the exact test is not significant, the population test is only reported: fewer draws are enough
    draws = max(POPULATION_DRAWS, draws_for(of_window.level)) if fell else POPULATION_DRAWS
    p_population = population_key(seen.total, ks=seen.ks, rng=rng, draws=draws, cluster_P=seen.cluster_P)
    p_modes = 1.0 if of_modes is None else fall_p(of_modes.counts, ks=of_modes.ks, level=of_modes.level, rng=rng)
    singles = rule_steps(
        seen.steps,
        ks=seen.step_ks,
        level=STEP_LEVEL * seen.spent,
        exact_level=KEY_LEVEL,
        margin=MARGIN,
        rng=rng,
        cluster_P=seen.cluster_P,
    )
    # other explanations are tested for falls that affect the label: an unexplained fall of the window decides the
    # label alone, and checkpoints before the window matter only if the window shows no fall
    cause = _cause(of_window, seen, rng) if fell else None
    is_decided = fell and cause is None
    modes_cause = None
    if of_modes is not None and p_modes <= of_modes.level and not is_decided:
        modes_cause = _cause(of_modes, seen, rng)
    first = 0 if not fell else len(singles) if is_decided else len(singles) - len(seen.window)
    lost = [t for t, single in enumerate(singles) if single.lost_here]
    causes = _causes_of_steps(seen, [t for t in lost if t >= first], rng)
    if claim_rng is not None:
        causes |= _causes_of_steps(seen, [t for t in lost if t < first], rng)
    sizes = _sizes(seen, is_of_population=p_population <= of_window.level)
    worst = sizes.intervals[sizes.worst]
    window = LossRow(
        which="window",
        level=of_window.level,
        fell=fell,
        k=seen.ks[sizes.worst],
        change=worst.mean,
        low=worst.low,
        high=worst.high,
        p_exact=p_exact,
        p_population=p_population,
        cause=cause,
        kept=sizes.least_change is not None and sizes.least_change > -MARGIN,
    )
    modes = None
    if of_modes is not None:
        modes = LossRow(
            which="modes",
            level=of_modes.level,
            fell=p_modes <= of_modes.level,
            k=of_modes.worst_k,
            change=float(of_modes.counts.changes([of_modes.worst_k]).mean()),
            p_exact=p_modes,
            cause=modes_cause,
        )
    level = STEP_LEVEL * seen.spent
    checkpoints = tuple(
        LossRow(
            which="checkpoint",
            level=level,
            fell=single.lost_here,
            place=t,
            p_exact=single.p_here,
            p_population=single.p,
            cause=causes.get(t),
            **{name: getattr(single, name) for name in ("k", "change", "low", "high", "kept")},
        )
        for t, single in enumerate(singles)
    )
    return LossTable(
        window=window,
        modes=modes,
        checkpoints=checkpoints,
        n_window=len(seen.window),
        ks=tuple(seen.ks),
        spent=seen.spent,
        sizes=sizes,
        p_selection=None if seen.selection is None else seen.selection.p,
        p_tail=None if claim_rng is None else _p_of_tail(seen, claim_rng),
        knows_unread=seen.unread_of_window is not None,
        limits=seen.limits,
    )


def _causes_of_steps(seen: SeenCounts, lost: Sequence[int], rng: np.random.Generator) -> dict[int, Cause | None]:
    """Return other explanations of the falls of the ``lost`` checkpoints, which share the levels."""
    return {t: _cause(seen.fall_of_step(t, len(lost)), seen, rng, len(lost)) for t in lost}


def _cause(fall: Fall, seen: SeenCounts, rng: np.random.Generator, of: int = 1) -> Cause | None:
    return cause_of(fall, guess_share=seen.guess_share, guess_level=EXPLAINED_LEVEL / of, rng=rng)


def _sizes(seen: SeenCounts, *, is_of_population: bool) -> WindowSizes:
    """Return the sizes of the window's changes, with their bounds, over problems or clusters."""
    change_GK, total = seen.mean_changes(), seen.total
    n_units = len(change_GK)
    intervals = tuple(share_interval(change_G, bounds=(-1.0, 1.0)) for change_G in change_GK.T)
    base_K = pass_at_k_table(total.n_base, seen.ks)[total.base_P].mean(axis=0).tolist()
    worst = min(range(len(intervals)), key=lambda i: intervals[i].mean)
    fisher_P = fisher_fell(total.base_P, total.n_base, total.late_P, total.n_late)
    p_P = holm(fisher_P)
    lost_P = p_P <= KEY_LEVEL * seen.spent
    change_P1 = mean_changes(seen.window, [seen.ks[worst]])
    change_P, fall = change_P1[:, 0], -float(change_P1[:, 0].sum())
    varying_G = by_cluster(change_P1, seen.cluster_P)[:, 0] if is_of_population else None
    least_change = p_no_loss = None
    if n_units > 1:
        mean_K = change_GK.mean(axis=0)
        error_K = np.sqrt((n_units - 1) * change_GK.var(axis=0, ddof=1) + 1.0) / n_units
        reach_K = student_t.ppf(MARGIN_CONFIDENCE, n_units - 1) * error_K
        least_change = float((mean_K - reach_K).min())
        p_no_loss = float(student_t.sf((mean_K + MARGIN) / error_K, n_units - 1).max())
    return WindowSizes(
        base=tuple(base_K),
        intervals=intervals,
        worst=worst,
        error=_error_of_change(varying_G, total, seen.ks[worst]),
        crossing=crossing(change_GK, seen.ks),
        least_change=least_change,
        p_no_loss=p_no_loss,
        pass_at_1_fell=_pass_at_1_fell(seen.window, seen.cluster_P),
        pass_at_1_fell_in_all=all(_pass_at_1_fell(pairs, seen.cluster_P) for pairs in _readings(seen)),
        p_problem=float(p_P.min()),
        share_lost=float(lost_P.mean()),
        share_by_lost=float(np.clip(-change_P[lost_P].sum() / fall, 0.0, 1.0)) if fall > 0 else None,
    )


def _readings(seen: SeenCounts) -> Iterator[Sequence[PairedCounts]]:
    """Yield the counts of the window as graded, and by other readings of the same samples.

    These are the lenient reader's grades if the answer style changed, and if more late samples than base samples are
    unparsed, the counts with these taken for correct.
    """
    yield seen.window
    leniently, unread = seen.read_leniently(), seen.unread_of_window
    if leniently is not None and style_rise(seen.total, leniently.total) is not None:
        yield leniently.window
    if unread is not None and unread.rise(seen.total) > 0:
        of_steps = seen.unread[-len(seen.window) :]
        yield [
            pair if one is None else taken_for_correct(pair, one)
            for pair, one in zip(seen.window, of_steps, strict=True)
        ]


def _pass_at_1_fell(pairs: Sequence[PairedCounts], cluster_P: Int[np.ndarray, " problem"] | None) -> bool:
    """Return whether mean pass@1 of the window fell significantly over problems or clusters."""
    change_G = by_cluster(mean_changes(pairs, [1]), cluster_P)[:, 0]
    n_units = len(change_G)
    if n_units == 1:  # no inference over problems from a single one
        total = _pooled(pairs)
        fisher_P = fisher_fell(total.base_P, total.n_base, total.late_P, total.n_late)
        return total.n_problems == 1 and bool(fisher_P[0] <= 1 - MARGIN_CONFIDENCE)
    error = np.sqrt((n_units - 1) * change_G.var(ddof=1) + 1.0) / n_units
    return bool(change_G.mean() + student_t.ppf(MARGIN_CONFIDENCE, n_units - 1) * error < 0)


def _error_of_change(change_G: Float[np.ndarray, " unit"] | None, total: PairedCounts, k: int) -> float:
    """Return the standard error of the change of pass@k, a probability.

    It is over problems or clusters if their changes are given, else over the samples of these problems.
    """
    if change_G is not None:
        return float(np.sqrt((len(change_G) - 1) * change_G.var(ddof=1) + 1.0) / len(change_G))
    variance = sum(
        float(within_problem_variance_table(n, [k])[counts_P].sum()) if n > 1 else 0.25 * len(counts_P)
        for n, counts_P in ((total.n_base, total.base_P), (total.n_late, total.late_P))
    )
    return max(np.sqrt(variance), 1e-6) / total.n_problems


def _p_of_tail(seen: SeenCounts, rng: np.random.Generator) -> float | None:
    """Return the p value of a fall of pass@k of the pooled samples at k above ``seen.ks``; None without such a k.

    k is at most half of the samples. There are more pooled samples than samples of one checkpoint, so k may be larger.
    """
    ks, k = [], 2 * seen.ks[-1]
    while 2 * k <= min(seen.total.n_base, seen.total.n_late):
        ks.append(k)
        k *= 2
    return exact_key(seen.total, ks=ks, rng=rng) if ks else None
