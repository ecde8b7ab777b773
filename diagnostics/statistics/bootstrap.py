"""Means over problems, drawn again with replacement: what the interval of an onset rests on."""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Float

#: Numbers that exist at one time while problems are drawn again.
_NUMBERS_AT_ONCE = 1 << 22


def resampled_means(
    values_PX: Float[np.ndarray, "problem column"], *, rng: np.random.Generator, draws: int
) -> Float[np.ndarray, "draw column"]:
    """Column means over as many problems as there are, drawn with replacement; a problem's columns stay together.

    Raises ``ValueError`` without a problem. Source: Efron 1979 (Ann. Stat. 7:1).

    >>> resampled_means(np.array([[0.5, 2.0]]), rng=np.random.default_rng(0), draws=2).tolist()  # one problem
    [[0.5, 2.0], [0.5, 2.0]]
    """
    n_problems = len(values_PX)
    if not n_problems:
        raise ValueError("problems can only be drawn again where there is one")
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
    """The bounds that leave (1 − confidence) / 2 of the draws outside on each side; draws may be infinite.

    Both are drawn values, because a value between a number and infinity would be none. Raises ``ValueError`` without
    a draw.

    >>> percentile_bounds(np.append(np.arange(1.0, 97.0), [np.inf] * 3), confidence=0.9)
    (5.0, 95.0)
    """
    if not len(values_D):
        raise ValueError("an interval needs at least one draw")
    outside = max(1, math.floor((len(values_D) + 1) * (1.0 - confidence) / 2.0 + 1e-9))
    sorted_D = np.sort(values_D)
    return float(sorted_D[outside - 1]), float(sorted_D[-outside])
