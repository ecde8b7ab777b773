"""Intervals of a mean over problems: problems are the resampling unit, Student's t the reference.

Comparisons are paired: pass the per-problem differences. Two families:

* probabilities and shares live on a scale of length 1, so a variance floor is known: se² = ((P−1)s² + 1)/P², as if
  one more problem had deviated by a full point. It keeps the coverage at few problems, where all differences may be
  0 by chance.
* unbounded quantities (nats, tokens) have no such scale: se² = s²/P.

One problem has no spread to learn from: the interval is None.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.stats import t as student_t


@dataclass(frozen=True, kw_only=True, slots=True)
class Interval:
    """``mean`` over ``n`` problems with the bounds of its interval, None where there is none."""

    mean: float
    low: float | None
    high: float | None
    n: int


def share_interval(
    values_P: Float[np.ndarray, " problem"], *, bounds: tuple[float, float] = (0.0, 1.0), confidence: float = 0.95
) -> Interval:
    """Mean of probabilities or shares (or, with ``bounds=(-1, 1)``, of their paired differences) over problems.

    The interval is cut at ``bounds``. Raises ``ValueError`` without a value.

    >>> share_interval(np.array([0.2, 0.4, 0.6, 0.8]))
    Interval(mean=0.5, low=0.0, high=1.0, n=4)
    >>> drop = share_interval(np.full(100, -0.3), bounds=(-1.0, 1.0))
    >>> round(drop.low, 4), round(drop.high, 4)  # all equal, yet not certain
    (-0.3198, -0.2802)
    """
    mean, variance, n = _moments(values_P)
    se = None if variance is None else math.sqrt(((n - 1) * variance + 1.0) / n**2)
    return _t_interval(mean, se, n, bounds, confidence)


def mean_interval(
    values_P: Float[np.ndarray, " problem"],
    *,
    bounds: tuple[float, float] = (-math.inf, math.inf),
    confidence: float = 0.95,
) -> Interval:
    """Mean of an unbounded quantity (nats, tokens) over problems, by the plain paired t.

    Raises ``ValueError`` without a value.

    >>> three = mean_interval(np.array([1.0, 2.0, 3.0]))
    >>> three.mean, round(three.low, 3), round(three.high, 3)  # 2 ± 4.303 / √3
    (2.0, -0.484, 4.484)
    >>> mean_interval(np.array([1.0]))
    Interval(mean=1.0, low=None, high=None, n=1)
    """
    mean, variance, n = _moments(values_P)
    se = None if variance is None else math.sqrt(variance / n)
    return _t_interval(mean, se, n, bounds, confidence)


def ratio_interval(
    numerator_P: Float[np.ndarray, " problem"],
    denominator_P: Float[np.ndarray, " problem"],
    *,
    floor: bool,
    bounds: tuple[float, float] = (-math.inf, math.inf),
    confidence: float = 0.95,
) -> Interval:
    """Σ numerator / Σ denominator over problems, for parts of unequal size (modes, tokens) nested in problems.

    Linearised: r_i = (numerator_i − R · denominator_i) / mean(denominator) has mean 0 and takes the place of the
    deviations (Cochran, Sampling Techniques, 1977, §6.4). ``floor`` adds the variance floor of ``share_interval``.
    ``mean`` is the ratio and ``n`` counts problems. Raises ``ValueError`` unless Σ denominator > 0.

    >>> ratio_interval(np.array([1.0, 0.0]), np.array([1.0, 3.0]), floor=False).mean
    0.25
    """
    total = float(denominator_P.sum())
    if not total > 0.0:
        raise ValueError(f"a ratio needs a positive denominator; got {total}")
    ratio = float(numerator_P.sum()) / total
    n = len(denominator_P)
    residual_P = (numerator_P - ratio * denominator_P) / (total / n)
    _, variance, _ = _moments(residual_P)
    se = None if variance is None else math.sqrt(((n - 1) * variance + 1.0) / n**2 if floor else variance / n)
    return _t_interval(ratio, se, n, bounds, confidence)


def _moments(values_P: Float[np.ndarray, " problem"]) -> tuple[float, float | None, int]:
    """Mean, sample variance (ddof = 1; None for one value) and number of values."""
    n = len(values_P)
    if n == 0:
        raise ValueError("an interval over problems needs at least one problem")
    mean = float(np.mean(values_P))
    return mean, float(np.var(values_P, ddof=1)) if n > 1 else None, n


def _t_interval(mean: float, se: float | None, n: int, bounds: tuple[float, float], confidence: float) -> Interval:
    if se is None:
        return Interval(mean=mean, low=None, high=None, n=n)
    half_width = float(student_t.ppf(0.5 + confidence / 2.0, n - 1)) * se
    low, high = bounds
    # The mean itself may leave the bounds by rounding; the interval must still hold it.
    return Interval(
        mean=mean, low=min(mean, max(low, mean - half_width)), high=max(mean, min(high, mean + half_width)), n=n
    )
