"""Tests of problem sets that may have been selected by the same base samples that are compared.

A filter such as "solved, but not always" keeps problems with both correct and wrong base samples. If the same samples
are then compared with late ones, an unchanged model seems to lose rare correct answers: a problem without them at the
base is not in the set (regression to the mean).

Let *hits* be correct samples. Given the hits of both sides together, the base's hits are hypergeometric if nothing
changed. A filter multiplies that distribution by the probability that a problem with that number of hits passes. This
gives two exact tests: whether all problems pass a filter by chance, and whether pass@k fell given the filter. With a
stopping rule both are parametric, and hits are codes of end points.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int
from scipy.special import gammaln, xlog1py, xlogy

from oversharp.diagnostics.statistics.keys import EXACT_DRAWS, PairedCounts, sums_of_rows
from oversharp.diagnostics.statistics.pass_at_k import pass_at_k_table
from oversharp.diagnostics.statistics.stopping import RowDraws, StoppingRule, as_rule, draw_codes, most_samples

#: Bounds of pass rates that filters often use, in addition to "solved" and "not always solved". They are tried for sets
#: of at least ``_LEAST_PROBLEMS``, because a few problems are within any bounds.
_RATES, _LEAST_PROBLEMS = (0.05, 0.1, 0.2, 0.25), 30
#: Draws per batch. Sampling stops when ``_ENOUGH`` draws are as low as the observed statistic.
_DRAWS_AT_ONCE, _ENOUGH = 600, 100
#: Success rates among which the most likely one of a problem is searched for.
_GRID = tuple((np.geomspace(1e-6, 0.5, 200)).tolist() + (1.0 - np.geomspace(0.5, 1e-6, 200)[1:]).tolist())
#: Smallest standard deviation of a summed change, in problems.
_LEAST_SCALE = 0.5


@dataclass(frozen=True, kw_only=True)
class ProblemFilter:
    """A filter of problems that all problems of a set pass.

    Attributes:
        weight_C: Probability that a problem with ``c`` correct base samples passes the filter.
        p: Smallest p value of three tests of "these samples did not select the problems". The first is the probability
            that all problems are solved this often, given the correct samples of base and late checkpoints together; it
            is exact if nothing changed. The others are the probabilities that the first samples of all problems contain
            a correct one, and a wrong one, given the number of correct base samples; they are always exact.
    """

    weight_C: Float[np.ndarray, " correct"]
    p: float


def find_selection(
    counts: PairedCounts,
    first_correct_P: Int[np.ndarray, " problem"] | None = None,
    first_wrong_P: Int[np.ndarray, " problem"] | None = None,
) -> ProblemFilter | None:
    """Return the narrowest usual filter that all problems pass by the base's samples.

    None where a problem was never solved.

    Args:
        counts: Correct samples of the base and of late checkpoints.
        first_correct_P: Index of each problem's first correct base sample; ``n_base`` or more without one.
        first_wrong_P: Index of each problem's first wrong base sample. If both are given, filters by the first samples
            only are detected too.

    >>> kept = PairedCounts(base_P=np.array([1, 2, 1]), late_P=np.array([0, 1, 1]), n_base=8, n_late=8)
    >>> selection = find_selection(kept)  # solved, but not always
    >>> selection.weight_C.tolist(), round(selection.p, 3)  # p: (1 - 8/16) (1 - 56/560) (1 - 28/120)
    ([0.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.0], 0.345)
    """
    n, base_P = most_samples(counts.n_base), counts.base_P
    if not counts.n_problems or n < 2 or base_P.min() < 1:  # with a single sample a filter leaves no variation
        return None
    is_mixed = bool(base_P.max() < n)
    n_first, n_first_mixed = _chosen_by_first(n, first_correct_P, first_wrong_P)
    rule = as_rule(counts.n_base)
    solved_C = 1.0 - rule.first_alike(n_first, correct=False)
    always_C = is_mixed * rule.first_alike(n_first_mixed, correct=True)
    p_of_order = min(_chance_of_all(solved_C[base_P]), _chance_of_all(1.0 - always_C[base_P]))
    weight_C = np.maximum(0.0, solved_C - always_C)
    if counts.is_stopped:  # the order is tested above; here it would depend on the late samples, which may be many more
        solved_C = (rule.hits(np.arange(rule.cap + 1))[1] > 0).astype(np.float64)
    for share_C in _shares(rule) if counts.n_problems >= _LEAST_PROBLEMS else ():
        least = max((rate for rate in _RATES if share_C[base_P].min() >= rate), default=0.0)
        most = min((1 - rate for rate in _RATES if share_C[base_P].max() <= 1 - rate), default=1.0)
        solved_C = solved_C * (share_C >= least)
        weight_C = weight_C * ((share_C >= least) & (share_C <= most))
    # do not test "no problem is always solved" against late samples: training makes problems easier
    if counts.is_stopped:
        passed_P = rule.chances(_unchanged_rates(counts)) @ solved_C
    else:
        passed_P = _Draws.of(counts, solved_C).passed_P
    p_of_hits = _chance_of_all(passed_P)
    return ProblemFilter(weight_C=weight_C, p=min(p_of_hits, p_of_order))


def _unchanged_rates(counts: PairedCounts) -> Float[np.ndarray, " problem"]:
    """Return the success rate of each problem if nothing changed.

    With a stopping rule, a lost problem has many more late samples than base samples. Pooled, they would make a real
    loss look like a filter. So both sides also count equally, and the larger of the two rates is used.
    """
    n_P, hits_P = counts.all_hits
    sides_P = counts.base_pass_at_k([1])[:, 0] + counts.changes([1])[:, 0] / 2
    return np.asarray(np.maximum(hits_P / n_P, sides_P))


def _shares(rule: StoppingRule) -> list[Float[np.ndarray, " code"]]:
    """Return pass rates that a filter may use: the share of correct samples, and the estimate of pass@1."""
    n_C, correct_C = rule.hits(np.arange(rule.cap + 1))
    # rounded, because a rate of exactly a bound is within it
    return [np.round(rate_C, 9) for rate_C in (correct_C / n_C, rule.pass_at_k_table([1])[:, 0])]


def _chance_of_all(passed_P: np.ndarray) -> float:
    return float(np.exp(np.log(np.clip(passed_P, 1e-300, 1.0)).sum()))


def _chosen_by_first(n: int, first_correct_P: np.ndarray | None, first_wrong_P: np.ndarray | None) -> tuple[int, int]:
    """Return the number of first samples in which every problem has a correct one, and a wrong one; n if unknown."""
    if first_correct_P is None or first_wrong_P is None:
        return n, n
    n_first, n_first_mixed = int(first_correct_P.max()) + 1, int(first_wrong_P.max()) + 1
    # equal first samples everywhere: the samples are sorted by correctness
    return (n, n) if min(n_first, n_first_mixed) == 1 else (min(n, n_first), min(n, n_first_mixed))


def selected_fall_p(
    counts: PairedCounts,
    selection: ProblemFilter,
    *,
    ks: Sequence[int],
    rng: np.random.Generator,
    draws: int = EXACT_DRAWS,
) -> float:
    """Return the one-sided p of "pass@k of these problems fell at none of ``ks``", given that the filter selected them.

    It is exact if nothing changed. The base's correct samples are drawn given those of both sides and the filter. The
    statistic is the minimum over ``ks`` of the change of summed pass@k, standardised by the mean and standard deviation
    of the first draws. Sampling stops after ``_ENOUGH`` draws as low as the observed one.

    >>> rng = np.random.default_rng(0)
    >>> kept = PairedCounts(base_P=np.ones(40, dtype=int), late_P=np.zeros(40, dtype=int), n_base=16, n_late=16)
    >>> selected_fall_p(kept, find_selection(kept), ks=[1, 8], rng=rng)  # one hit each: the filter leaves no other
    1.0
    """
    source = (_StoppedDraws if counts.is_stopped else _Draws).of(counts, selection.weight_C)
    base_CK, late_CK = pass_at_k_table(counts.n_base, ks), pass_at_k_table(counts.n_late, ks)
    mean_K = scale_K = None
    observed, n_drawn, n_as_low = 0.0, 0, 0
    while n_drawn < draws and n_as_low < _ENOUGH:
        base_DP, late_TDP = source.draw(rng, min(_DRAWS_AT_ONCE, draws - n_drawn))
        late_DK = np.mean([sums_of_rows(late_CK, late_DP) for late_DP in late_TDP], axis=0)
        drawn_DK = late_DK - sums_of_rows(base_CK, base_DP)
        if mean_K is None or scale_K is None:
            mean_K, scale_K = drawn_DK.mean(axis=0), np.maximum(drawn_DK.std(axis=0), _LEAST_SCALE)
            observed = float(((counts.changes(ks).sum(axis=0) - mean_K) / scale_K).min())
        n_as_low += int((((drawn_DK - mean_K) / scale_K).min(axis=1) <= observed + 1e-9).sum())
        n_drawn += len(drawn_DK)
    return (1 + n_as_low) / (n_drawn + 1)


@dataclass(frozen=True, kw_only=True)
class _StoppedDraws:
    """Base and late end points of a stopping rule, if nothing changed and the base's passed a filter."""

    counts: PairedCounts
    rate_R: Float[np.ndarray, " rate"]
    row_P: Int[np.ndarray, " problem"]
    base: RowDraws

    @classmethod
    def of(cls, counts: PairedCounts, weight_C: Float[np.ndarray, " code"]) -> _StoppedDraws:
        """Find the most likely success rate of each problem, given that its base samples passed the filter."""
        n_P, hits_P = counts.all_hits
        rate_R = np.array(_GRID)
        mass_RC = as_rule(counts.n_base).chances(rate_R) * weight_C
        log_passed_R = np.log(np.maximum(mass_RC.sum(axis=1), 1e-300))
        log_PR = xlogy(hits_P[:, None], rate_R) + xlog1py((n_P - hits_P)[:, None], -rate_R) - log_passed_R
        cumulative_RC = mass_RC.cumsum(axis=1) / np.maximum(mass_RC.sum(axis=1), 1e-300)[:, None]
        return cls(
            counts=counts, rate_R=rate_R, row_P=log_PR.argmax(axis=1), base=RowDraws.from_cumulative(cumulative_RC)
        )

    def draw(self, rng: np.random.Generator, draws: int) -> tuple[np.ndarray, list[np.ndarray]]:
        """Draw the codes of base and late checkpoints."""
        rate_P, samples = self.rate_R[self.row_P], self.counts.n_late
        base_DP = self.base.draw(self.row_P, rng=rng, draws=draws)
        return base_DP, [draw_codes(samples, rate_P, rng=rng, draws=draws) for _ in self.counts.late_rows]


@dataclass(frozen=True, kw_only=True)
class _Draws:
    """Distribution of the base's correct samples, given those of both sides and a filter.

    One row per different total.
    """

    total_P: Int[np.ndarray, " problem"]
    row_P: Int[np.ndarray, " problem"]
    base: RowDraws
    #: Probability that a problem passes the filter.
    passed_P: Float[np.ndarray, " problem"]

    @classmethod
    def of(cls, counts: PairedCounts, weight_C: Float[np.ndarray, " correct"]) -> _Draws:
        """Build the distributions for these counts."""
        n_base, n_late = most_samples(counts.n_base), most_samples(counts.n_late)
        total_P = counts.base_P + counts.late_P
        total_R, row_P = np.unique(total_P, return_inverse=True)
        correct_C = np.arange(n_base + 1)
        late_RC = total_R[:, None] - correct_C
        is_possible_RC = (late_RC >= 0) & (late_RC <= n_late)
        late_RC = np.clip(late_RC, 0, n_late)
        log_RC = _log_choose(n_base, correct_C) + _log_choose(n_late, late_RC)
        log_RC = log_RC - _log_choose(n_base + n_late, total_R)[:, None]
        mass_RC = np.where(is_possible_RC, np.exp(log_RC), 0.0) * weight_C
        passed_R = mass_RC.sum(axis=1)
        cumulative_RC = mass_RC.cumsum(axis=1) / np.maximum(passed_R, 1e-300)[:, None]
        return cls(total_P=total_P, row_P=row_P, base=RowDraws.from_cumulative(cumulative_RC), passed_P=passed_R[row_P])

    def draw(self, rng: np.random.Generator, draws: int) -> tuple[np.ndarray, list[np.ndarray]]:
        """Draw the hits of base and late samples."""
        base_DP = self.base.draw(self.row_P, rng=rng, draws=draws)
        return base_DP, [self.total_P - base_DP]


def _log_choose(n: int | np.ndarray, k: int | np.ndarray) -> Float[np.ndarray, ...]:
    return np.asarray(gammaln(np.asarray(n) + 1.0) - gammaln(np.asarray(k) + 1.0) - gammaln(np.asarray(n) - k + 1.0))
