"""False accepts as an explanation of a fall: the grader accepted wrong responses of the base, and fewer later.

In the names of this module, a *guess* is a false accept.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.special import bdtr

from oversharp.diagnostics.statistics.confirmation import holm
from oversharp.diagnostics.statistics.keys import (
    EXACT_DRAWS,
    PairedCounts,
    least_normal_p,
    scale_of,
    summed_covariances,
    sums_of_rows,
)
from oversharp.diagnostics.statistics.pass_at_k import pass_at_k_table
from oversharp.diagnostics.statistics.stopping import draw_codes, most_samples

#: First draws of the test of false accepts. It stops if ``_ENOUGH`` of them are as low as the observed change.
_FIRST_DRAWS, _ENOUGH = 200, 25
#: Bounds of the search for the share of false accepts, and the number of bisections on a logarithmic scale.
_GUESSES, _HALVINGS = (1e-5, 0.5), 8
#: A problem rose if its rate is higher by this number of standard errors. Smallest scale of drawn changes, in problems.
_SURELY_ROSE, _LEAST_SCALE = 3.0, 0.5
#: How much estimates from the first draws may be wrong: the scale by this factor, the mean by this number of errors.
_SAFE_SCALE, _SAFE_ERRORS = 1.25, 4.0
#: Success rates below this multiple of the share of false accepts are treated as rare.
_RARE = 10.0
#: k with more expected false accepts among k samples are omitted: false accepts alone solve nearly every problem there.
_MOST_GUESSES_AT_K = 3.0


def guessing_p(
    counts: PairedCounts,
    *,
    share: float,
    ks: Sequence[int],
    rng: np.random.Generator,
    draws: int = EXACT_DRAWS,
    level: float | None = None,
) -> float:
    """Return the p value of the hypothesis that false accepts at the base explain the fall.

    Under the hypothesis the grader accepted up to ``share`` of the base's wrong responses and none later, and nothing
    else was lost. Such a fall occurs when training makes wrong answers rarer or different.

    The test fixes the correct samples of both sides together and draws the late ones. (With a stopping rule, it draws
    both sides by the rule.) The success rate is p late and
    p + share · (1 − p) at the base, with the maximum-likelihood p of each problem. Problems that rose significantly
    (``_SURELY_ROSE`` standard errors) keep their counts, because their gain must not hide the loss of others. The
    statistic is the smallest standardised change over k. Sampling stops if ``_ENOUGH`` of the first ``_FIRST_DRAWS``
    draws are as low as the observed one.

    Success rates cannot be negative, so the likelihood counts some false accepts on impossible problems as lost
    ability. Therefore the p value is at least that of the fall after an unbiased subtraction of false accepts
    (``_p_without_guesses``). It is replaced by the p value of single problems (Holm's correction) if that is smaller,
    where these problems make up half of the largest fall.

    With a ``level``, it returns as soon as it is clear whether the p value is above it. Then the returned value is only
    on the same side of the level. Clear falls need the first draws at most.

    >>> rng = np.random.default_rng(0)
    >>> guessed = PairedCounts(base_P=np.full(100, 2), late_P=np.full(100, 0), n_base=2048, n_late=3072)
    >>> known = PairedCounts(base_P=np.full(100, 200), late_P=np.full(100, 0), n_base=2048, n_late=3072)
    >>> [guessing_p(one, share=0.002, ks=[1, 32, 512], rng=rng) > 0.5 for one in (guessed, known)]
    [True, False]
    """
    single_p = p_of_single_problems(counts, share, ks)
    if level is not None and single_p <= level:
        return single_p
    least_p = _p_without_guesses(counts, share, ks, rng, 8 * draws)
    if level is not None and least_p > level:
        return min(least_p, single_p)
    drawn_DK = _drawn_changes(counts, share, ks, rng, min(draws, _FIRST_DRAWS))
    n_as_low = _as_low(drawn_DK, counts, ks)
    if level is not None:
        most_p = max(_largest_p(drawn_DK, counts, ks), least_p)
        if most_p <= level:
            return min(most_p, single_p)
    is_enough = n_as_low >= _ENOUGH or (level is not None and 1 + n_as_low > level * (draws + 1))
    if not is_enough and len(drawn_DK) < draws:
        more_DK = _drawn_changes(counts, share, ks, rng, draws - len(drawn_DK))
        drawn_DK = np.concatenate([drawn_DK, more_DK])
        n_as_low = _as_low(drawn_DK, counts, ks)
    return min(max((1 + n_as_low) / (len(drawn_DK) + 1), least_p), single_p)


def _drawn_changes(
    counts: PairedCounts, share: float, ks: Sequence[int], rng: np.random.Generator, draws: int
) -> Float[np.ndarray, "draw k"]:
    """Draw changes of pass@k, summed over problems, if only false accepts made the base better."""
    base_CK, late_CK = pass_at_k_table(counts.n_base, ks), pass_at_k_table(counts.n_late, ks)
    if counts.is_stopped:
        base_DP, *late_TDP = _draw_again(counts, share, rng, draws)
        late_DK = np.mean([sums_of_rows(late_CK, late_DP) for late_DP in late_TDP], axis=0)
        return np.asarray(late_DK - sums_of_rows(base_CK, base_DP))
    late_DP = _redistributed(counts, share, rng, draws)
    return sums_of_rows(late_CK, late_DP) - sums_of_rows(base_CK, counts.base_P + counts.late_P - late_DP)


def _draw_again(
    counts: PairedCounts, share: float, rng: np.random.Generator, draws: int
) -> list[Int[np.ndarray, "draw problem"]]:
    """Draw base and late checkpoints by their stopping rules, if only false accepts made the base better."""
    rate_P, stays_P = _late_rates(counts, share), _surely_rose(counts)
    sides = [(counts.n_base, rate_P + share * (1.0 - rate_P), counts.base_P)]
    sides += [(counts.n_late, rate_P, late_P) for late_P in counts.late_rows]
    drawn = [(draw_codes(samples, rates_P, rng=rng, draws=draws), code_P) for samples, rates_P, code_P in sides]
    return [np.where(stays_P, code_P, drawn_DP) for drawn_DP, code_P in drawn]


def _as_low(drawn_DK: Float[np.ndarray, "draw k"], counts: PairedCounts, ks: Sequence[int]) -> int:
    """Return the number of draws whose smallest standardised change over k is at most the observed one."""
    mean_K, scale_K = drawn_DK.mean(axis=0), np.maximum(drawn_DK.std(axis=0), _LEAST_SCALE)
    observed = float(((counts.changes(ks).sum(axis=0) - mean_K) / scale_K).min())
    return int((((drawn_DK - mean_K) / scale_K).min(axis=1) <= observed + 1e-12).sum())


def _largest_p(drawn_DK: Float[np.ndarray, "draw k"], counts: PairedCounts, ks: Sequence[int]) -> float:
    """Return an upper bound of the p value, from the mean and the variance of the drawn changes.

    A change is a sum over independent problems. Each is −1 to 1 with a mean of at most about 0, so at most 1 below its
    mean. Bernstein's inequality bounds the probability of such a sum at each k, and the bounds are added. Less
    favourable values replace the mean and the variance, because they are estimated from few draws.
    Source: Boucheron, Lugosi, Massart 2013, section 2.8.
    """
    error_K = drawn_DK.std(axis=0) / np.sqrt(len(drawn_DK))
    scale_K = _SAFE_SCALE * np.maximum(drawn_DK.std(axis=0), _LEAST_SCALE)
    mean_K = drawn_DK.mean(axis=0) - _SAFE_ERRORS * error_K
    lowest = float(((counts.changes(ks).sum(axis=0) - mean_K) / scale_K).min())
    if lowest >= 0:
        return 1.0
    return float(np.exp(-(lowest**2) / 2 / (1 - lowest / (3 * scale_K))).sum())


def _p_without_guesses(
    counts: PairedCounts, share: float, ks: Sequence[int], rng: np.random.Generator, draws: int
) -> float:
    """Return the p value of "pass@k fell at no k, after subtracting false accepts from the base".

    By the normal approximation. The probability that none of k base samples is accepted is ((1 − p)(1 − share))^k, so
    its unbiased estimate divided by (1 − share)^k is unbiased for (1 − p)^k at every p. Problems that rose
    significantly are omitted, and so are k at which false accepts alone solve nearly every problem.
    """
    ks = tuple(k for k in ks if k == 1 or k * share <= _MOST_GUESSES_AT_K)
    if counts.n_most < 2:
        return 0.0
    counts = counts.only(~_surely_rose(counts))
    more_K = (1.0 - share) ** -np.asarray(ks, dtype=np.float64)
    base_miss_K = (1.0 - counts.base_pass_at_k(ks)).sum(axis=0)
    change_K = base_miss_K * (more_K - 1.0) + counts.changes(ks).sum(axis=0)
    base_KK, late_KK = summed_covariances(counts, ks)
    covariance_KK = np.outer(more_K, more_K) * base_KK + late_KK
    least = float((change_K / scale_of(np.diag(covariance_KK))).min())
    return least_normal_p(least, covariance_KK, rng=rng, draws=draws)


def _surely_rose(counts: PairedCounts) -> Bool[np.ndarray, " problem"]:
    (n_base_P, base_P), (n_late_P, late_P) = counts.base_hits, counts.late_hits
    pooled_P = (base_P + late_P) / (n_base_P + n_late_P)
    error_P = np.sqrt(pooled_P * (1 - pooled_P) * (1 / n_base_P + 1 / n_late_P))
    return np.asarray(late_P / n_late_P - base_P / n_base_P > _SURELY_ROSE * error_P)


def p_of_single_problems(counts: PairedCounts, share: float, ks: Sequence[int]) -> float:
    """Return the largest adjusted p value among the problems that make up half of the largest fall.

    Problems are added in the order of their p values, which are for "only false accepts made the base better".
    """
    change_PK = counts.changes(ks)
    change_P = change_PK[:, change_PK.sum(axis=0).argmin()]
    (_, base_P), (_, late_P) = counts.base_hits, counts.late_hits
    p_P = holm(np.asarray(bdtr(late_P, base_P + late_P, _late_shares(counts, share))))
    order_P = np.argsort(p_P, kind="stable")
    enough_P = change_P[order_P].cumsum() <= change_P.sum() / 2
    return float(p_P[order_P][enough_P.argmax()]) if change_P.sum() < 0 and enough_P.any() else 1.0


def _redistributed(
    counts: PairedCounts, share: float, rng: np.random.Generator, draws: int
) -> Int[np.ndarray, "draw problem"]:
    """Draw late correct samples given those of both sides, if only false accepts made the base better.

    On rarely solved problems, each correct sample is late with the probability ``_late_shares``. On other problems
    false accepts are few in comparison: the numbers are hypergeometric, as without a change, minus the expected shift
    by false accepts.
    """
    n_base, n_late = most_samples(counts.n_base), most_samples(counts.n_late)
    n_total, total_P = n_base + n_late, counts.base_P + counts.late_P
    rate_P, stays_P = _late_rates(counts, share), _surely_rose(counts)
    rare_P = (rate_P < _RARE * share) & ~stays_P
    often_P = ~rare_P & ~stays_P
    late_DP = np.repeat(counts.late_P[None], draws, axis=0)
    late_DP[:, rare_P] = rng.binomial(
        total_P[rare_P], _late_shares(counts, share)[rare_P], size=(draws, int(rare_P.sum()))
    )
    often_D = rng.hypergeometric(total_P[often_P], n_total - total_P[often_P], n_late, size=(draws, int(often_P.sum())))
    shift_P = n_late * (rate_P - total_P / n_total)
    late_DP[:, often_P] = np.floor(often_D + shift_P[often_P] + rng.random(often_D.shape))
    return np.clip(late_DP, np.maximum(0, total_P - n_base), np.minimum(total_P, n_late))


def _late_shares(counts: PairedCounts, share: float) -> Float[np.ndarray, " problem"]:
    """Return the expected share of late samples among the correct ones, if only false accepts made the base better."""
    rate_P, (n_base_P, _), (n_late_P, _) = _late_rates(counts, share), counts.base_hits, counts.late_hits
    expected_late_P = n_late_P * rate_P
    expected_base_P = n_base_P * (rate_P + share * (1.0 - rate_P))
    return np.asarray(expected_late_P / np.maximum(expected_late_P + expected_base_P, 1e-300))


def _late_rates(counts: PairedCounts, share: float) -> Float[np.ndarray, " problem"]:
    """Return the maximum-likelihood late success rates, if only false accepts raise the base's.

    With a = 1 − share the likelihood is (share + a p)^base · p^late · (1 − p)^rest; its derivative is a quadratic.
    """
    kept = 1.0 - share
    (n_base_P, base_P), (n_late_P, late_P) = counts.base_hits, counts.late_hits
    n_total = n_base_P + n_late_P
    rest_P = n_total - base_P - late_P
    linear_P = base_P * kept + late_P * (kept - share) - rest_P * share
    root_P = np.sqrt(linear_P**2 + 4.0 * kept * n_total * late_P * share)
    return np.clip((linear_P + root_P) / (2.0 * max(kept, 1e-12) * n_total), 0.0, 1.0)


def guess_rate_that_explains(
    counts: PairedCounts, *, ks: Sequence[int], level: float, rng: np.random.Generator, draws: int = EXACT_DRAWS
) -> float | None:
    """Return the smallest share of false accepts at the base that would produce such a fall.

    None if it is above 0.5. The relative error is at most one twentieth. Shares below 1e-5 are returned as about 1e-5.
    ``draws`` must be large enough for p values below ``level``; otherwise every share would explain the fall.
    """
    low, high = (float(np.log(bound)) for bound in _GUESSES)

    def explains(log_share: float) -> bool:
        share = float(np.exp(log_share))
        return guessing_p(counts, share=share, ks=ks, rng=rng, draws=draws, level=level) > level

    if not explains(high):
        return None
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if explains(middle) else (middle, high)
    return float(np.exp(high))
