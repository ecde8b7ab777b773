"""Other explanations of a fall of pass@k: false accepts, unparsed samples, selected problems.

A verdict is "over-sharpened" only if none of these applies. In the names of this module, *unread* is unparsed, and a
*guess* is a false accept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.stats import binom

from oversharp.diagnostics.statistics.confirmation import holm
from oversharp.diagnostics.statistics.keys import (
    EXACT_DRAWS,
    PairedCounts,
    covariance_table,
    draws_for,
    exact_key,
    least_normal_p,
    scale_of,
    sums_of_rows,
)
from oversharp.diagnostics.statistics.pass_at_k import pass_at_k_table
from oversharp.diagnostics.statistics.selection import ProblemFilter, selected_fall_p

#: format    unparsed samples explain at least half of the fall, and the parsed ones show no significant fall; or the
#:           grades of a lenient reader show none
#: unread    unparsed samples explain less than half of the fall, and the parsed ones show no significant fall either:
#:           no conclusion
#: guessing  false accepts at the base explain the fall
#: selection these base samples selected the problems, so an unchanged model would show such a fall too
Cause = Literal["format", "unread", "guessing", "selection"]
CAUSES: Mapping[Cause, str] = {
    "format": "unparsed or misread samples",
    "guessing": "false accepts at the base",
    "unread": "too few parsed samples",
    "selection": "selection of the problems by these base samples",
}

#: Least number of draws, times the level, for a p value that is only compared with the level.
_COMPARED_DRAWS_PER_LEVEL = 3
#: Level of the test that excludes another explanation of a fall.
EXPLAINED_LEVEL = 0.01
#: Least number of draws, times the level, for the test of false accepts.
_GUESS_DRAWS_PER_LEVEL = 1.5
#: First draws of the test of false accepts. It stops if ``_ENOUGH`` of them are as low as the observed change.
_FIRST_DRAWS, _ENOUGH = 200, 25
#: The answer style changed if the share that only the lenient reader accepts changed by this (probability).
NOTABLE_STYLE_RISE = 0.01
#: Smallest significant change of that share, in standard errors. Weight of the pooled rate, in wrong samples.
_CLEAR_STYLE_RISE, _PRIOR_WRONG = 3.0, 4.0
#: Unparsed samples explain a fall if their share of it is at least this.
_MOST = 0.5
#: Unparsed samples are mentioned if they could explain at least this share of a fall.
NOTABLE_UNREAD_SHARE = 0.5
#: Bounds of the search for the share of false accepts, and the number of bisections on a logarithmic scale.
_GUESSES, _HALVINGS = (1e-5, 0.5), 8
#: A problem rose if its rate is higher by this number of standard errors. Smallest scale of drawn changes, in problems.
_SURELY_ROSE, _LEAST_SCALE = 3.0, 0.5
#: Success rates below this multiple of the share of false accepts are treated as rare.
_RARE = 10.0
#: k with more expected false accepts among k samples are omitted: false accepts alone solve nearly every problem there.
_MOST_GUESSES_AT_K = 3.0


@dataclass(frozen=True, kw_only=True)
class Unread:
    """Samples of every problem that are truncated, unparsed or timed out, and so count as wrong."""

    base_P: Int[np.ndarray, " problem"]
    late_P: Int[np.ndarray, " problem"]

    def rise(self, counts: PairedCounts) -> float:
        """Return the rise of their share of all samples, a probability."""
        return float(self.late_P.mean() / counts.n_late - self.base_P.mean() / counts.n_base)


@dataclass(frozen=True, kw_only=True)
class Fall:
    """A significant fall, with the counts that other explanations are tested on.

    Attributes:
        ks: Tested k.
        unread: Unparsed samples; None if unknown.
        level: Level of the test that found the fall.
        lenient: Counts of the same samples by the lenient reader; None without one.
        selection: Filter that all problems pass by the base's samples; None if they pass none.
    """

    counts: PairedCounts
    ks: Sequence[int]
    unread: Unread | None
    level: float
    lenient: PairedCounts | None = None
    selection: ProblemFilter | None = None

    @property
    def worst_k(self) -> int:
        """The k at which mean pass@k fell most."""
        return self.ks[int(self.counts.changes(self.ks).sum(axis=0).argmin())]


def fall_p(
    counts: PairedCounts, *, ks: Sequence[int], level: float, rng: np.random.Generator, is_compared_only: bool = False
) -> float:
    """Return the p value of "mean pass@k of these problems fell at none of ``ks``".

    The number of draws depends on ``level``. With ``is_compared_only`` the p value is only compared with the level, so
    fewer draws are enough.
    """
    draws = draws_for(level)
    if is_compared_only:
        draws = min(draws, max(EXACT_DRAWS, int(_COMPARED_DRAWS_PER_LEVEL / level)))
    return exact_key(counts, ks=ks, rng=rng, draws=draws)


def cause_of(fall: Fall, *, guess_share: float, guess_level: float, rng: np.random.Generator) -> Cause | None:
    """Return another explanation of a fall; None if none applies.

    If more late samples are unparsed than base samples, the fall must also be significant without them. One of two
    tests is enough: all late unparsed samples in excess of the base's count as correct, which is the most favourable
    assumption, or only parsed samples count. False accepts are tested at ``guess_level``.

    >>> half, none = np.full(100, 128), np.zeros(100, dtype=np.int64)
    >>> counts = PairedCounts(base_P=half, late_P=half // 2, n_base=256, n_late=256)
    >>> cut = Fall(counts=counts, ks=[1, 8], unread=Unread(base_P=none, late_P=half), level=0.03)
    >>> print(cause_of(cut, guess_share=0.0, guess_level=0.01, rng=np.random.default_rng(0)))
    format
    """
    if is_misread(fall, rng):
        return "format"
    unread = _unread_that_matter(fall, rng)
    if unread is not None:
        read = read_alone(fall.counts, unread, rng=rng)
        if not _shows(fall, read, rng):
            part = share_explained(fall.counts, read, k=fall.worst_k)
            return "format" if part is None or part >= _MOST else "unread"
    if fall.selection is not None:  # an unchanged model may show such a fall on problems that the base's samples chose
        draws = draws_for(fall.level)
        if selected_fall_p(fall.counts, fall.selection, ks=fall.ks, rng=rng, draws=draws) > fall.level:
            return "selection"
    if guess_share > 0:
        draws = max(EXACT_DRAWS, int(_GUESS_DRAWS_PER_LEVEL / guess_level))
        if guessing_p(fall.counts, share=guess_share, ks=fall.ks, rng=rng, draws=draws) > guess_level:
            return "guessing"
    return None


def is_misread(fall: Fall, rng: np.random.Generator) -> bool:
    """Return whether unparsed answer formats explain the fall, because the lenient reader's grades show none.

    Three conditions must hold. The share of samples that only the lenient reader accepts rose by more than its false
    accepts explain (``style_rise``). This rise is at least half of the lost correct samples. No fall is significant by
    the lenient grades: neither of pass@k, nor of single problems (Holm's correction). Single problems are tested
    because false accepts of the lenient reader hide their loss from pass@k at large k.
    """
    if fall.lenient is None or style_rise(fall.counts, fall.lenient) is None:
        return False
    part = share_misread(fall.counts, fall.lenient)
    if part is None or part < _MOST or _shows(fall, fall.lenient, rng):
        return False
    return _p_of_single_problems(fall.lenient, 0.0, fall.ks) > fall.level


def style_rise(counts: PairedCounts, lenient: PairedCounts) -> float | None:
    """Return the rise of the share of samples that only the lenient reader accepts, a probability.

    The expected false accepts of the lenient reader, at the base's rate, are subtracted. None for a change of less than
    ``NOTABLE_STYLE_RISE``, or of less than ``_CLEAR_STYLE_RISE`` standard errors over problems.

    >>> half, none = np.full(10, 8), np.zeros(10, dtype=np.int64)
    >>> strict = PairedCounts(base_P=half, late_P=none, n_base=16, n_late=16)
    >>> style_rise(strict, PairedCounts(base_P=half, late_P=half, n_base=16, n_late=16))
    0.5
    """
    rise_P = _misread_rise(counts, lenient)
    rise, error = float(rise_P.mean()), float(rise_P.std() / np.sqrt(len(rise_P)))
    return rise if abs(rise) >= max(NOTABLE_STYLE_RISE, _CLEAR_STYLE_RISE * error) else None


def share_misread(counts: PairedCounts, lenient: PairedCounts) -> float | None:
    """Return the share of the lost correct samples that the lenient reader accepts; None without a loss."""
    lost_P = np.maximum(0.0, counts.base_P / counts.n_base - counts.late_P / counts.n_late)
    if not lost_P.any():
        return None
    misread_P = np.maximum(0.0, _misread_rise(counts, lenient))
    return float(np.minimum(misread_P, lost_P).sum() / lost_P.sum())


def _misread_rise(counts: PairedCounts, lenient: PairedCounts) -> Float[np.ndarray, " problem"]:
    """Return the late share that only the lenient reader accepts, minus the expected share at the base's rate.

    The base's rate is the share of its wrong samples that only the lenient reader accepts. It is shrunk towards the
    rate of all problems, with a weight of ``_PRIOR_WRONG`` wrong samples.
    """
    gap_P, wrong_P = lenient.base_P - counts.base_P, counts.n_base - counts.base_P
    pooled = float(gap_P.sum() / max(1, wrong_P.sum()))
    rate_P = (gap_P + _PRIOR_WRONG * pooled) / (wrong_P + _PRIOR_WRONG)
    late_gap_P = (lenient.late_P - counts.late_P) / counts.n_late
    return np.asarray(late_gap_P - rate_P * (1.0 - counts.late_P / counts.n_late))


def _unread_that_matter(fall: Fall, rng: np.random.Generator) -> Unread | None:
    """Return the unparsed samples if they can explain the fall, else None.

    They can if the fall is not significant when the late ones in excess of the base's count as correct.
    """
    if fall.unread is None or fall.unread.rise(fall.counts) <= 0:
        return None
    return None if _shows(fall, taken_for_correct(fall.counts, fall.unread), rng) else fall.unread


def _shows(fall: Fall, counts: PairedCounts, rng: np.random.Generator) -> bool:
    """Return whether the fall is significant in other counts of the same problems.

    k is at most half of their samples.
    """
    most = max(1, min(counts.n_base, counts.n_late) // 2)
    ks = sorted({min(k, most) for k in fall.ks})
    return fall_p(counts, ks=ks, level=fall.level, rng=rng, is_compared_only=True) <= fall.level


def guessing_p(
    counts: PairedCounts, *, share: float, ks: Sequence[int], rng: np.random.Generator, draws: int = EXACT_DRAWS
) -> float:
    """Return the p value of the hypothesis that false accepts at the base explain the fall.

    Under the hypothesis the grader accepted up to ``share`` of the base's wrong responses and none later, and nothing
    else was lost. Such a fall occurs when training makes wrong answers rarer or different.

    The test fixes the correct samples of both sides together and draws the late ones. The success rate is p late and
    p + share · (1 − p) at the base, with the maximum-likelihood p of each problem. Problems that rose significantly
    (``_SURELY_ROSE`` standard errors) keep their counts, because their gain must not hide the loss of others. The
    statistic is the smallest standardised change over k. Sampling stops if ``_ENOUGH`` of the first ``_FIRST_DRAWS``
    draws are as low as the observed one.

    Success rates cannot be negative, so the likelihood counts some false accepts on impossible problems as lost
    ability. Therefore the p value is at least that of the fall after an unbiased subtraction of false accepts
    (``_p_without_guesses``). It is replaced by the p value of single problems (Holm's correction) if that is smaller,
    where these problems make up half of the largest fall.

    >>> rng = np.random.default_rng(0)
    >>> guessed = PairedCounts(base_P=np.full(100, 2), late_P=np.full(100, 0), n_base=2048, n_late=3072)
    >>> known = PairedCounts(base_P=np.full(100, 200), late_P=np.full(100, 0), n_base=2048, n_late=3072)
    >>> [guessing_p(one, share=0.002, ks=[1, 32, 512], rng=rng) > 0.5 for one in (guessed, known)]
    [True, False]
    """
    drawn_DK = _drawn_changes(counts, share, ks, rng, min(draws, _FIRST_DRAWS))
    n_as_low = _as_low(drawn_DK, counts, ks)
    if n_as_low < _ENOUGH and len(drawn_DK) < draws:
        more_DK = _drawn_changes(counts, share, ks, rng, draws - len(drawn_DK))
        drawn_DK = np.concatenate([drawn_DK, more_DK])
        n_as_low = _as_low(drawn_DK, counts, ks)
    p = max((1 + n_as_low) / (len(drawn_DK) + 1), _p_without_guesses(counts, share, ks, rng, 8 * draws))
    return min(p, _p_of_single_problems(counts, share, ks))


def _drawn_changes(
    counts: PairedCounts, share: float, ks: Sequence[int], rng: np.random.Generator, draws: int
) -> Float[np.ndarray, "draw k"]:
    """Draw changes of pass@k, summed over problems, if only false accepts made the base better."""
    late_DP = _redistributed(counts, share, rng, draws)
    base_CK, late_CK = pass_at_k_table(counts.n_base, ks), pass_at_k_table(counts.n_late, ks)
    return sums_of_rows(late_CK, late_DP) - sums_of_rows(base_CK, counts.base_P + counts.late_P - late_DP)


def _as_low(drawn_DK: Float[np.ndarray, "draw k"], counts: PairedCounts, ks: Sequence[int]) -> int:
    """Return the number of draws whose smallest standardised change over k is at most the observed one."""
    mean_K, scale_K = drawn_DK.mean(axis=0), np.maximum(drawn_DK.std(axis=0), _LEAST_SCALE)
    observed = float(((counts.changes(ks).sum(axis=0) - mean_K) / scale_K).min())
    return int((((drawn_DK - mean_K) / scale_K).min(axis=1) <= observed + 1e-12).sum())


def _p_without_guesses(
    counts: PairedCounts, share: float, ks: Sequence[int], rng: np.random.Generator, draws: int
) -> float:
    """Return the p value of "pass@k fell at no k, after subtracting false accepts from the base".

    By the normal approximation. The probability that none of k base samples is accepted is ((1 − p)(1 − share))^k, so
    its unbiased estimate divided by (1 − share)^k is unbiased for (1 − p)^k at every p. Problems that rose
    significantly are omitted, and so are k at which false accepts alone solve nearly every problem.
    """
    ks = tuple(k for k in ks if k == 1 or k * share <= _MOST_GUESSES_AT_K)
    if min(counts.n_base, counts.n_late) < 2:
        return 0.0
    stays_P = ~_surely_rose(counts)
    base_P, late_P = counts.base_P[stays_P], counts.late_P[stays_P]
    more_K = (1.0 - share) ** -np.asarray(ks, dtype=np.float64)
    base_miss_K = (1.0 - pass_at_k_table(counts.n_base, ks)[base_P]).sum(axis=0)
    late_miss_K = (1.0 - pass_at_k_table(counts.n_late, ks)[late_P]).sum(axis=0)
    covariance_KK = np.outer(more_K, more_K) * covariance_table(counts.n_base, ks)[base_P].sum(axis=0)
    covariance_KK = covariance_KK + covariance_table(counts.n_late, ks)[late_P].sum(axis=0)
    change_K = base_miss_K * more_K - late_miss_K
    least = float((change_K / scale_of(np.diag(covariance_KK))).min())
    return least_normal_p(least, covariance_KK, rng=rng, draws=draws)


def _surely_rose(counts: PairedCounts) -> Bool[np.ndarray, " problem"]:
    base_P, late_P = counts.base_P / counts.n_base, counts.late_P / counts.n_late
    pooled_P = (counts.base_P + counts.late_P) / (counts.n_base + counts.n_late)
    error_P = np.sqrt(pooled_P * (1 - pooled_P) * (1 / counts.n_base + 1 / counts.n_late))
    return np.asarray(late_P - base_P > _SURELY_ROSE * error_P)


def _p_of_single_problems(counts: PairedCounts, share: float, ks: Sequence[int]) -> float:
    """Return the largest adjusted p value among the problems that make up half of the largest fall.

    Problems are added in the order of their p values, which are for "only false accepts made the base better".
    """
    change_PK = counts.changes(ks)
    change_P = change_PK[:, change_PK.sum(axis=0).argmin()]
    total_P = counts.base_P + counts.late_P
    p_P = holm(np.asarray(binom.cdf(counts.late_P, total_P, _late_shares(counts, share))))
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
    n_base, n_late = counts.n_base, counts.n_late
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
    rate_P = _late_rates(counts, share)
    expected_late_P = counts.n_late * rate_P
    expected_base_P = counts.n_base * (rate_P + share * (1.0 - rate_P))
    return np.asarray(expected_late_P / np.maximum(expected_late_P + expected_base_P, 1e-300))


def _late_rates(counts: PairedCounts, share: float) -> Float[np.ndarray, " problem"]:
    """Return the maximum-likelihood late success rates, if only false accepts raise the base's.

    With a = 1 − share the likelihood is (share + a p)^base · p^late · (1 − p)^rest; its derivative is a quadratic.
    """
    kept = 1.0 - share
    n_total = counts.n_base + counts.n_late
    rest_P = n_total - counts.base_P - counts.late_P
    linear_P = counts.base_P * kept + counts.late_P * (kept - share) - rest_P * share
    root_P = np.sqrt(linear_P**2 + 4.0 * kept * n_total * counts.late_P * share)
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
        return guessing_p(counts, share=float(np.exp(log_share)), ks=ks, rng=rng, draws=draws) > level

    if not explains(high):
        return None
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if explains(middle) else (middle, high)
    return float(np.exp(high))


def read_alone(counts: PairedCounts, unread: Unread, *, rng: np.random.Generator) -> PairedCounts:
    """Return the counts among parsed samples only.

    From every problem an equal number of parsed samples is drawn at random: the number of the problem with the fewest.
    Scaled counts would be rounded, and would have the scatter of fewer samples. A problem with less than half of its
    samples parsed on either side is omitted. The result may have no problem.
    """
    read_base_P, read_late_P = counts.n_base - unread.base_P, counts.n_late - unread.late_P
    stays_P = (2 * read_base_P >= counts.n_base) & (2 * read_late_P >= counts.n_late)
    base_P, n_base = _thinned(counts.base_P[stays_P], read_base_P[stays_P], counts.n_base, rng)
    late_P, n_late = _thinned(counts.late_P[stays_P], read_late_P[stays_P], counts.n_late, rng)
    return PairedCounts(base_P=base_P, late_P=late_P, n_base=n_base, n_late=n_late)


def _thinned(
    correct_P: np.ndarray, read_P: np.ndarray, n: int, rng: np.random.Generator
) -> tuple[Int[np.ndarray, " problem"], int]:
    """Draw an equal number of parsed samples from every problem, and count the correct ones.

    Returns the counts and that number: the smallest of any problem, or ``n`` without a problem.
    """
    least = int(read_P.min(initial=n))
    return rng.hypergeometric(correct_P, read_P - correct_P, least), least


def taken_for_correct(counts: PairedCounts, unread: Unread) -> PairedCounts:
    """Return the counts with all late unparsed samples in excess of the base's counted as correct.

    This is the largest possible effect of unparsed samples.

    >>> counts = PairedCounts(base_P=np.array([8, 8]), late_P=np.array([2, 2]), n_base=16, n_late=8)
    >>> unread = Unread(base_P=np.array([0, 8]), late_P=np.array([5, 5]))
    >>> taken_for_correct(counts, unread).late_P.tolist()
    [7, 3]
    """
    more_P = unread.late_P - unread.base_P * counts.n_late // counts.n_base
    return replace(counts, late_P=counts.late_P + np.maximum(0, more_P))


def share_explained(counts: PairedCounts, read: PairedCounts, *, k: int) -> float | None:
    """Return the share of the fall of pass@k that disappears if only parsed samples count.

    The falls are summed over problems. None without a fall, or if too few problems or samples were parsed for ``k``.
    """
    fall = -float(counts.changes([k]).sum())
    if fall <= 0 or not read.n_problems or min(read.n_base, read.n_late) < k:
        return None
    return float(np.clip(1.0 + float(read.changes([k]).sum()) / fall, 0.0, 1.0))
