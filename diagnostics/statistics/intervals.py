"""Intervals of a mean over problems.

Problems are the resampling unit, and most intervals use Student's t. Comparisons are paired: pass the differences per
problem. Functions by quantity:

* ``share_interval``: probabilities and shares. Their scale has length 1, so there is a variance floor:
  se² = ((P−1)s² + 1)/P², as if one more problem had deviated by a full point. It keeps the coverage at few problems,
  where all differences may be 0 by chance.
* ``yes_no_interval``: a property that each problem has or lacks; exact.
* ``sparse_interval``: quantities that are 0 for most problems (entropies, numbers of modes).
* ``mean_interval``: unbounded quantities (nats, tokens): se² = s²/P. It covers only where no rare problem dominates the
  mean: with 30 problems of which 3 % move thirty times as far as the rest, it covers in 60 % of cases.
* ``median_interval``: the median over problems of such heavy tails, for any distribution.

Related problems (``cluster_P`` numbers the cluster of each) are not independent: clusters are then the units, and with
fewer than ``FEW_CLUSTERS`` there is no interval. Source: Miller 2024, arXiv:2411.00640, section 2.2.

Where no interval is reliable (one problem, no spread), its ends are None. The coverage of each is measured in
``benchmarks/results/interval_coverage.md``.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.special import betainccinv, betaincinv, stdtrit

from oversharp.diagnostics.statistics.units import (
    NOT_RELATED,
    Interval,
    few_clusters,
    independent_problems,
    left_out_error,
    named_clusters,
    over_units,
    totals,
)

#: Least number of problems above 0 for ``sparse_interval``. With fewer, the spread of the values is unknown.
LEAST_ABOVE_ZERO = 5
#: Largest number of array elements in memory while problems are resampled.
_NUMBERS_AT_ONCE = 1 << 22
#: Values whose difference is smaller than this are equal up to rounding.
_ROUNDING = 1e-12


def share_interval(
    values_P: Float[np.ndarray, " problem"],
    *,
    bounds: tuple[float, float] = (0.0, 1.0),
    floor: float = 1.0,
    confidence: float = 0.95,
    cluster_P: Int[np.ndarray, " problem"] | None = None,
) -> Interval:
    """Return the mean of probabilities or shares over problems, with its interval.

    Pass ``bounds=(-1, 1)`` for paired differences. The interval is clipped to ``bounds``. The variance is that of the
    data plus ``floor`` extra problems that deviate by 1. Use 2 for differences of yes-no properties: with 1 the
    coverage can be as low as 87 % if few problems change (with 2: 94 %). Raises ``ValueError`` without a value.

    >>> share_interval(np.array([0.2, 0.4, 0.6, 0.8]))
    Interval(mean=0.5, low=0.0, high=1.0, n=4)
    >>> drop = share_interval(np.full(100, -0.3), bounds=(-1.0, 1.0))
    >>> round(drop.low, 4), round(drop.high, 4)  # all equal, yet not certain
    (-0.3198, -0.2802)
    """

    def of(value_U: Float[np.ndarray, " unit"], freedom: float) -> Interval:
        mean, variance, n = _moments(value_U)
        se = None if variance is None else math.sqrt(((n - 1) * variance + floor) / n**2)
        return _t_interval(mean, se, n, freedom, bounds, confidence)

    return over_units(of, values_P, cluster_P)


def mean_interval(
    values_P: Float[np.ndarray, " problem"],
    *,
    bounds: tuple[float, float] = (-math.inf, math.inf),
    confidence: float = 0.95,
    cluster_P: Int[np.ndarray, " problem"] | None = None,
) -> Interval:
    """Return the mean of an unbounded quantity (nats, tokens) over problems, by the paired t.

    With clusters it is a ratio. Raises ``ValueError`` without a value.

    >>> three = mean_interval(np.array([1.0, 2.0, 3.0]))
    >>> three.mean, round(three.low, 3), round(three.high, 3)  # 2 ± 4.303 / √3
    (2.0, -0.484, 4.484)
    >>> mean_interval(np.array([1.0]))
    Interval(mean=1.0, low=None, high=None, n=1)
    """
    if named_clusters(cluster_P) is not None:
        ones_P = np.ones(len(values_P))
        return ratio_interval(values_P, ones_P, floor=False, bounds=bounds, confidence=confidence, cluster_P=cluster_P)
    mean, variance, n = _moments(values_P)
    se = None if variance is None else math.sqrt(variance / n)
    return _t_interval(mean, se, n, n - 1.0, bounds, confidence)


def yes_no_interval(
    holds_P: Bool[np.ndarray, " problem"],
    *,
    confidence: float = 0.95,
    cluster_P: Int[np.ndarray, " problem"] | None = None,
) -> Interval:
    """Return the share of problems that have a property, with the exact interval of a binomial share.

    It covers at least as often as stated for any true share and number of problems, at 0 and 1 too. For related
    problems it is that of the number of independent problems with the same variance. Source: Clopper and Pearson 1934
    (Biometrika 26:404); Korn and Graubard 1998 (Survey Methodology 24:193). Raises ``ValueError`` without a problem.

    >>> none = yes_no_interval(np.zeros(30, dtype=bool))
    >>> none.mean, none.low, round(none.high, 4)  # 1 − .025^(1/30)
    (0.0, 0.0, 0.1157)
    """
    n, n_true = len(holds_P), int(np.count_nonzero(holds_P))
    if n == 0:
        raise ValueError("an interval over problems needs at least one problem")
    if n == 1:
        return Interval(mean=float(n_true), low=None, high=None, n=1)
    cluster_P = named_clusters(cluster_P)
    if why := few_clusters(cluster_P):
        return Interval(mean=n_true / n, low=None, high=None, n=n, why=why)
    worth = float(n) if cluster_P is None else independent_problems(holds_P.astype(np.float64), cluster_P, confidence)
    true, outside = worth * n_true / n if worth < n else n_true, (1.0 - confidence) / 2.0
    low = float(betaincinv(true, worth - true + 1, outside)) if n_true else 0.0
    high = float(betainccinv(true + 1, worth - true, outside)) if n_true < n else 1.0
    return Interval(mean=n_true / n, low=low, high=high, n=n, over="problems" if cluster_P is None else "clusters")


def sparse_interval(
    values_P: Float[np.ndarray, " problem"],
    *,
    room_above: float = 0.0,
    confidence: float = 0.95,
    cluster_P: Int[np.ndarray, " problem"] | None = None,
) -> Interval:
    """Return the mean of non-negative values that may be 0 for most problems.

    Examples are entropies in nats and numbers of modes. If most values are 0, chance decides whether the sample
    contains two or five positive ones, and Student's t ignores that. So the variance is raised as if two more problems
    had the mean of the positive values, times the share of zeros. ``room_above`` is added to the upper end; it is the
    possible bias of all values from unseen samples. There is no interval if fewer than five problems (or clusters with
    such a problem) are above 0, or if all values are equal.

    Raises ``ValueError`` without a value.

    >>> few = sparse_interval(np.array([0.5] * 4 + [0.0] * 26))
    >>> few.low is None, round(few.mean, 3)
    (True, 0.067)
    >>> some = sparse_interval(np.array([0.5] * 5 + [0.0] * 25))
    >>> round(some.low, 3), round(some.high, 3)
    (0.0, 0.167)
    """
    total_U = totals(values_P, named_clusters(cluster_P))
    above_U = total_U > _ROUNDING

    def of(value_U: Float[np.ndarray, " unit"], freedom: float) -> Interval:
        mean, variance, n = _moments(value_U)
        n_above = int(np.count_nonzero(above_U))
        if variance is None or n_above < LEAST_ABOVE_ZERO or np.ptp(values_P) <= _ROUNDING * mean:
            return Interval(mean=mean, low=None, high=None, n=n)
        two_more = 2.0 * (1.0 - n_above / n) * float(np.mean(total_U[above_U] ** 2))
        made = _t_interval(mean, math.sqrt(variance / n + two_more / n**2), n, freedom, (0.0, math.inf), confidence)
        return replace(made, high=made.high + room_above) if made.high is not None else made

    return over_units(of, values_P, cluster_P)


def median_interval(
    values_P: Float[np.ndarray, " problem"],
    *,
    confidence: float = 0.95,
    cluster_P: Int[np.ndarray, " problem"] | None = None,
) -> Interval:
    """Return the median over problems, with an interval that is valid for any distribution.

    ``mean`` is the median, and the bounds are two of the values. With fewer than six problems there is no interval,
    because even the whole range of values covers too rarely. With clusters there is none, because the values are not
    independent. Source: Thompson 1936 (Ann. Math. Stat. 7:122). Raises ``ValueError`` without a value.

    >>> median_interval(np.array([1.0, 2.0, 3.0, 4.0, 5.0, -90.0]))  # 1 − 2 · ½⁶ = .97
    Interval(mean=2.5, low=-90.0, high=5.0, n=6)
    """
    if not len(values_P):
        raise ValueError("a median over problems needs at least one problem")
    sorted_P, n = np.sort(values_P), len(values_P)
    median = float(np.median(sorted_P))
    if named_clusters(cluster_P) is not None:
        return Interval(mean=median, low=None, high=None, n=n, why=NOT_RELATED)
    from scipy.stats import binom  # takes a second to import

    # number of values outside on each side: P(Bin(n, ½) < outside) is at most half of the allowed miss rate
    outside = int(binom.ppf((1.0 - confidence) / 2.0, n, 0.5))
    if not outside:
        return Interval(mean=median, low=None, high=None, n=n)
    return Interval(mean=median, low=float(sorted_P[outside - 1]), high=float(sorted_P[-outside]), n=n)


def ratio_interval(
    numerator_P: Float[np.ndarray, " problem"],
    denominator_P: Float[np.ndarray, " problem"],
    *,
    floor: bool,
    bounds: tuple[float, float] = (-math.inf, math.inf),
    confidence: float = 0.95,
    cluster_P: Int[np.ndarray, " problem"] | None = None,
) -> Interval:
    """Return Σ numerator / Σ denominator over problems.

    Use it for parts of unequal size (modes, tokens) nested in problems. The ratio is linearised (Cochran, Sampling
    Techniques, 1977, §6.4). Its error is a jackknife over problems or clusters (``left_out_error``).
    ``floor`` adds the variance floor of ``share_interval``. ``mean`` is the ratio and ``n`` counts problems. Raises
    ``ValueError`` unless Σ denominator > 0.

    >>> ratio_interval(np.array([1.0, 0.0]), np.array([1.0, 3.0]), floor=False).mean
    0.25
    """
    total = float(denominator_P.sum())
    if not total > 0.0:
        raise ValueError(f"a ratio needs a positive denominator; got {total}")
    ratio = float(numerator_P.sum()) / total
    n = len(denominator_P)
    cluster_P = named_clusters(cluster_P)
    if why := few_clusters(cluster_P):
        return Interval(mean=ratio, low=None, high=None, n=n, why=why)
    unit_P = np.arange(n) if cluster_P is None else cluster_P
    se, freedom = left_out_error(numerator_P - ratio * denominator_P, denominator_P, unit_P)
    if se is not None and floor:
        se = math.hypot(se, 1.0 / len(np.unique(unit_P)))
    made = _t_interval(ratio, se, n, freedom, bounds, confidence)
    return made if cluster_P is None else replace(made, over="clusters")


def resampled_means(
    values_PX: Float[np.ndarray, "problem column"], *, rng: np.random.Generator, draws: int
) -> Float[np.ndarray, "draw column"]:
    """Return column means over problems resampled with replacement.

    A problem's columns stay together. Raises ``ValueError`` without a problem. Source: Efron 1979 (Ann. Stat. 7:1).

    >>> resampled_means(np.array([[0.5, 2.0]]), rng=np.random.default_rng(0), draws=2).tolist()  # one problem
    [[0.5, 2.0], [0.5, 2.0]]
    """
    n_problems = len(values_PX)
    if not n_problems:
        raise ValueError("problems can only be resampled where there is at least one")
    at_once = max(1, _NUMBERS_AT_ONCE // n_problems)
    means = []
    for start in range(0, draws, at_once):
        size = min(at_once, draws - start)
        drawn_DP = rng.integers(0, n_problems, size=(size, n_problems))
        # Counting is ten times as fast as ``rng.multinomial``, which draws a binomial number for every problem.
        cell_DP = drawn_DP + n_problems * np.arange(size)[:, None]
        weight_DP = np.bincount(cell_DP.ravel(), minlength=size * n_problems).reshape(size, n_problems)
        means.append(weight_DP.astype(np.float64) @ values_PX / n_problems)
    return np.concatenate(means) if means else np.empty((0, values_PX.shape[1]))


def percentile_bounds(values_D: Float[np.ndarray, " draw"], *, confidence: float = 0.95) -> tuple[float, float]:
    """Return the bounds that leave (1 − confidence) / 2 of the draws outside on each side.

    Draws may be infinite. Both bounds are drawn values, because interpolating between a number and infinity gives no
    number. Raises ``ValueError`` without a draw.

    >>> percentile_bounds(np.append(np.arange(1.0, 97.0), [np.inf] * 3), confidence=0.9)
    (5.0, 95.0)
    """
    if not len(values_D):
        raise ValueError("an interval needs at least one draw")
    outside = max(1, math.floor((len(values_D) + 1) * (1.0 - confidence) / 2.0 + 1e-9))
    sorted_D = np.sort(values_D)
    return float(sorted_D[outside - 1]), float(sorted_D[-outside])


def _moments(values_P: Float[np.ndarray, " problem"]) -> tuple[float, float | None, int]:
    """Return mean, sample variance (ddof = 1; None for one value) and number of values."""
    n = len(values_P)
    if n == 0:
        raise ValueError("an interval over problems needs at least one problem")
    mean = float(np.mean(values_P))
    return mean, float(np.var(values_P, ddof=1)) if n > 1 else None, n


def _t_interval(
    mean: float, se: float | None, n: int, freedom: float, bounds: tuple[float, float], confidence: float
) -> Interval:
    if se is None:
        return Interval(mean=mean, low=None, high=None, n=n)
    half_width = float(stdtrit(freedom, 0.5 + confidence / 2.0)) * se
    low, high = bounds
    # Rounding may move the mean beyond the bounds; the interval must still contain it.
    return Interval(
        mean=mean, low=min(mean, max(low, mean - half_width)), high=max(mean, min(high, mean + half_width)), n=n
    )
