"""Simultaneous band around the change of pass@k, valid at every step and every k at once.

With separate intervals for 40 steps and 10 values of k, at least one would miss 0 in every other series that did not
change. The band is wider, so that all of them are valid together.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.special import ndtr, stdtrit

#: Largest number of array elements in memory while the null distribution is sampled.
_NUMBERS_AT_ONCE = 1 << 22


@dataclass(frozen=True, kw_only=True)
class Band:
    """Mean change per step and k with its simultaneous band, in probability.

    ``alarm`` is the index of the first step with a significant fall at some k, or None.
    """

    mean_TK: Float[np.ndarray, "step k"]
    low_TK: Float[np.ndarray, "step k"]
    high_TK: Float[np.ndarray, "step k"]
    alarm: int | None


def simultaneous_band(
    change_TPK: Float[np.ndarray, "step problem k"],
    *,
    rng: np.random.Generator,
    draws: int = 999,
    confidence: float = 0.95,
) -> Band:
    """Return the band of the mean change of pass@k since the base, for all steps and k together.

    ``change_TPK`` are probabilities, late minus base. For the population these problems were sampled from, all true
    means are inside the band with probability ``confidence``. The critical value is from a multiplier bootstrap with
    Rademacher signs, converted to Student's t. The signs are the same at all steps and k, so correlated changes give a
    narrower band. The variance has the floor of ``intervals.share_interval``. The band is clipped to [−1, 1].

    ``alarm`` uses a one-sided band at the same confidence. At most 1 − ``confidence`` of series have an alarm before a
    decline.

    A single problem gives no estimate of the spread: its band is [−1, 1]. Raises ``ValueError`` for an empty axis.

    Source: Chernozhukov, Chetverikov, Kato 2013 (Ann. Stat. 41:2786), with Rademacher signs.

    >>> fell_TPK = np.stack([np.zeros((50, 2)), np.full((50, 2), -0.4)])
    >>> band = simultaneous_band(fell_TPK, rng=np.random.default_rng(0))
    >>> band.alarm, band.mean_TK[1].round(3).tolist(), bool(band.high_TK[1, 0] < 0 < band.high_TK[0, 0])
    (1, [-0.4, -0.4], True)
    """
    n_steps, n_problems, n_ks = change_TPK.shape
    if not change_TPK.size:
        raise ValueError(f"a band needs a step, a problem and a k; got the shape {change_TPK.shape}")
    mean_TK = change_TPK.mean(axis=1)
    if n_problems == 1:
        return Band(mean_TK=mean_TK, low_TK=np.full_like(mean_TK, -1), high_TK=np.full_like(mean_TK, 1), alarm=None)
    deviation_PX = np.moveaxis(change_TPK - mean_TK[:, None], 1, 0).reshape(n_problems, n_steps * n_ks)
    scale_X = np.sqrt((deviation_PX**2).sum(axis=0) + 1.0)  # standard error of the sum over problems
    largest_D, furthest_D = _null(deviation_PX / scale_X, 1.0 / scale_X, rng, draws)
    error_TK = (scale_X / n_problems).reshape(n_steps, n_ks)
    freedom = n_problems - 1.0
    margin_TK = _critical(furthest_D, confidence, freedom) * error_TK
    surely_below_T = (mean_TK + _critical(largest_D, confidence, freedom) * error_TK < 0.0).any(axis=1)
    return Band(
        mean_TK=mean_TK,
        low_TK=np.maximum(mean_TK - margin_TK, -1.0),
        high_TK=np.minimum(mean_TK + margin_TK, 1.0),
        alarm=int(np.argmax(surely_below_T)) if surely_below_T.any() else None,
    )


def _null(
    studentised_PX: Float[np.ndarray, "problem column"],
    floor_X: Float[np.ndarray, " column"],
    rng: np.random.Generator,
    draws: int,
) -> tuple[Float[np.ndarray, " draw"], Float[np.ndarray, " draw"]]:
    """Return the maximum over all columns, and the maximum absolute value, of every draw."""
    batches = [
        (sum_DX.max(axis=1), sum_DX.min(axis=1)) for sum_DX in draw_null(studentised_PX, floor_X, rng=rng, draws=draws)
    ]
    largest_D, least_D = (np.concatenate(parts) for parts in zip(*batches, strict=True))
    return largest_D, np.maximum(largest_D, -least_D)


def draw_null(
    studentised_PX: Float[np.ndarray, "problem column"],
    floor_X: Float[np.ndarray, " column"],
    *,
    rng: np.random.Generator,
    draws: int,
) -> Iterator[Float[np.ndarray, "draw column"]]:
    """Yield batches of ``draws`` studentised sums over problems under the null hypothesis of no change.

    Each draw gives every problem a random sign, the same in all columns. ``floor_X`` is the root of the variance floor,
    divided by the scale of each column.
    """
    n_problems, n_columns = studentised_PX.shape
    at_once = max(1, _NUMBERS_AT_ONCE // (n_problems + n_columns))
    for start in range(0, draws, at_once):
        size = min(at_once, draws - start)
        sum_DX = (rng.integers(0, 2, size=(size, n_problems)) * 2.0 - 1.0) @ studentised_PX
        # the scale contains the floor, so the draws must contain it too
        yield sum_DX + rng.standard_normal(size)[:, None] * floor_X


def stepped_down(
    statistic_X: Float[np.ndarray, " test"], null_DX: Float[np.ndarray, "draw test"]
) -> Float[np.ndarray, " test"]:
    """Return adjusted p values by step-down; a large statistic is evidence against the null hypothesis.

    Each test is compared with the largest draw of itself and those with smaller statistics. p values are monotone in
    that order.

    Source: Romano and Wolf 2005 (Econometrica 73:1237).

    >>> stepped_down(np.array([1.0, 3.0]), np.array([[2.0, 0.0], [0.0, 1.0], [0.0, 2.0]])).tolist()
    [0.5, 0.25]
    """
    order_X = np.argsort(-statistic_X, kind="stable")
    # the largest draw over this test and all with smaller statistics
    largest_DX = np.maximum.accumulate(null_DX[:, order_X[::-1]], axis=1)[:, ::-1]
    p_X = np.empty(len(statistic_X))
    p_X[order_X] = np.maximum.accumulate((1 + (largest_DX >= statistic_X[order_X]).sum(axis=0)) / (len(null_DX) + 1))
    return p_X


def _critical(statistic_D: Float[np.ndarray, " draw"], confidence: float, freedom: float) -> float:
    """Return the quantile of the draws, converted from the normal distribution to Student's t."""
    return float(from_normal(quantile_of_draws(statistic_D, confidence), freedom))


def from_normal(value: float, freedom: float | np.ndarray) -> Float[np.ndarray, ...]:
    """Return the value that Student's t exceeds as rarely as the standard normal distribution exceeds ``value``.

    >>> float(from_normal(1.959964, 1e9).round(5)), float(from_normal(50.0, 5.0))  # P(Z > 50) is 0 in floating point
    (1.95996, inf)
    """
    freedoms, tail = np.asarray(freedom, dtype=np.float64), np.asarray(ndtr(-value))
    return np.where(tail > 0.0, -stdtrit(freedoms, tail), np.inf)


def quantile_of_draws(statistic_D: Float[np.ndarray, " draw"], confidence: float) -> float:
    """Return the draw that the observed statistic exceeds with probability 1 − ``confidence`` under the null."""
    rank = min(len(statistic_D), math.ceil((len(statistic_D) + 1) * confidence - 1e-9))
    return float(np.partition(statistic_D, rank - 1)[rank - 1])
