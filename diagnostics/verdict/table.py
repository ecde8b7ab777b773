"""All tests of a series, from its counts: one row each for the window, its modes and every checkpoint.

The order of the tests is fixed, so the same counts always use the same random numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from jaxtyping import Float, Int
from scipy.special import stdtr, stdtrit

from oversharp.diagnostics.statistics.confirmation import fisher_fell, holm
from oversharp.diagnostics.statistics.crossing import crossing
from oversharp.diagnostics.statistics.intervals import share_interval
from oversharp.diagnostics.statistics.keys import (
    POPULATION_DRAWS,
    PairedCounts,
    draws_for,
    exact_key,
    mean_changes,
    population_key,
    summed_covariances,
)
from oversharp.diagnostics.statistics.units import by_cluster
from oversharp.diagnostics.verdict.causes.explanations import (
    EXPLAINED_LEVEL,
    Cause,
    Fall,
    cause_of,
    fall_p,
    style_rise,
)
from oversharp.diagnostics.verdict.causes.unparsed import taken_for_correct
from oversharp.diagnostics.verdict.rule import (
    KEY_LEVEL,
    MARGIN,
    MARGIN_CONFIDENCE,
    STEP_LEVEL,
    LossRow,
    LossTable,
    WindowSizes,
)
from oversharp.diagnostics.verdict.seen import SeenCounts, pool
from oversharp.diagnostics.verdict.steps import rule_steps


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
    base_K = total.base_pass_at_k(seen.ks).mean(axis=0).tolist()
    worst = min(range(len(intervals)), key=lambda i: intervals[i].mean)
    p_P = holm(_p_of_problems(total))
    lost_P = p_P <= KEY_LEVEL * seen.spent
    change_P1 = mean_changes(seen.window, [seen.ks[worst]])
    change_P, fall = change_P1[:, 0], -float(change_P1[:, 0].sum())
    varying_G = by_cluster(change_P1, seen.cluster_P)[:, 0] if is_of_population else None
    least_change = p_no_loss = None
    if n_units > 1:
        mean_K = change_GK.mean(axis=0)
        error_K = np.sqrt((n_units - 1) * change_GK.var(axis=0, ddof=1) + 1.0) / n_units
        reach_K = stdtrit(n_units - 1, MARGIN_CONFIDENCE) * error_K
        least_change = float((mean_K - reach_K).min())
        p_no_loss = float(stdtr(n_units - 1, -((mean_K + MARGIN) / error_K)).max())
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


def _p_of_problems(counts: PairedCounts) -> Float[np.ndarray, " problem"]:
    """Return the p value of a fall of each problem's success rate, by Fisher's exact test."""
    (n_base_P, base_P), (n_late_P, late_P) = counts.base_hits, counts.late_hits
    return fisher_fell(base_P, n_base_P, late_P, n_late_P)


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
        total = pool(pairs)
        return total.n_problems == 1 and bool(_p_of_problems(total)[0] <= 1 - MARGIN_CONFIDENCE)
    error = np.sqrt((n_units - 1) * change_G.var(ddof=1) + 1.0) / n_units
    return bool(change_G.mean() + stdtrit(n_units - 1, MARGIN_CONFIDENCE) * error < 0)


def _error_of_change(change_G: Float[np.ndarray, " unit"] | None, total: PairedCounts, k: int) -> float:
    """Return the standard error of the change of pass@k, a probability.

    It is over problems or clusters if their changes are given, else over the samples of these problems.
    """
    if change_G is not None:
        return float(np.sqrt((len(change_G) - 1) * change_G.var(ddof=1) + 1.0) / len(change_G))
    base_KK, late_KK = summed_covariances(total, [k])
    return float(max(np.sqrt(base_KK[0, 0] + late_KK[0, 0]), 1e-6)) / total.n_problems


def _p_of_tail(seen: SeenCounts, rng: np.random.Generator) -> float | None:
    """Return the p value of a fall of pass@k of the pooled samples at k above ``seen.ks``; None without such a k.

    k is at most half of the samples. There are more pooled samples than samples of one checkpoint, so k may be larger.
    """
    ks, k = [], 2 * seen.ks[-1]
    while 2 * k <= seen.total.n_most:
        ks.append(k)
        k *= 2
    return exact_key(seen.total, ks=ks, rng=rng) if ks else None
