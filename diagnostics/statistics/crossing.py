"""k*: the number of attempts from which on a checkpoint solves less than the base did.

A sharpened model wins with few attempts and loses with many. k* is where the one turns into the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from diagnostics.statistics.bootstrap import percentile_bounds, resampled_means

#: Mean differences this small are rounding: tables of two sample sizes differ in the last digit.
_ROUNDING = 1e-12


@dataclass(frozen=True, kw_only=True, slots=True)
class Crossing:
    """k* with the bounds of its 95 % interval, in attempts; None means beyond the largest k that was looked at.

    ``Crossing(value=90.0, low=20.0, high=None)``: estimated at 90, at least 20, and it may lie beyond the range.
    """

    value: float | None
    low: float | None
    high: float | None


def crossing(
    change_PK: Float[np.ndarray, "problem k"], ks: Sequence[int], *, rng: np.random.Generator, draws: int = 999
) -> Crossing:
    """k* of one checkpoint: where the mean over problems of the change of pass@k falls below 0 for good.

    For good: it stays below 0 up to the largest k. Interpolated linearly on log₂ k; 1 where the mean is below 0 at
    every k, beyond the range where it is not at the largest. ``ks`` ascend. The interval is a percentile bootstrap over
    problems, widened to hold the value; for a single problem, it is the whole range. It says where pass@k crosses if it
    does: whether something was lost is a question for ``keys``.

    Raises ``ValueError`` without a problem or a k, where ks do not ascend, or where a k has no column.

    >>> rng = np.random.default_rng(0)
    >>> crossing(np.tile([0.2, 0.1, -0.1], (50, 1)), [1, 2, 4], rng=rng)  # half-way from 2 to 4, in logs
    Crossing(value=2.8284271247461903, low=2.8284271247461903, high=2.8284271247461903)
    >>> crossing(np.tile([0.2, -0.1, 0.1], (50, 1)), [1, 2, 4], rng=rng).value is None  # not for good
    True
    """
    return crossings(change_PK[None], ks, rng=rng, draws=draws)[0]


def crossings(
    change_TPK: Float[np.ndarray, "step problem k"],
    ks: Sequence[int],
    *,
    rng: np.random.Generator,
    draws: int = 999,
) -> list[Crossing]:
    """``crossing`` of every checkpoint, from one set of draws.

    >>> gained, lost = np.full((9, 2), 0.1), np.full((9, 2), -0.1)
    >>> [k_star.value for k_star in crossings(np.stack([gained, lost]), [1, 2], rng=np.random.default_rng(0))]
    [None, 1.0]
    """
    n_steps, n_problems, n_ks = change_TPK.shape
    if not n_problems or not n_ks:
        raise ValueError(f"a crossing needs a problem and a k; got {n_problems} problems and {n_ks} values of k")
    if len(ks) != n_ks or ks[0] < 1 or (np.diff(ks) <= 0).any():
        raise ValueError(f"k ascends from 1, one for each of {n_ks} columns; got {list(ks)}")
    log2_K = np.log2(ks)
    value_T = _crossed(change_TPK.mean(axis=1), log2_K)
    if n_problems == 1:
        return [Crossing(value=_within(value), low=float(ks[0]), high=None) for value in value_T]
    columns_PX = np.moveaxis(change_TPK, 1, 0).reshape(n_problems, n_steps * n_ks)
    mean_DTK = resampled_means(columns_PX, rng=rng, draws=draws).reshape(draws, n_steps, n_ks)
    drawn_DT = _crossed(mean_DTK, log2_K)
    found = []
    for t, value in enumerate(value_T):
        low, high = percentile_bounds(drawn_DT[:, t])
        found.append(
            Crossing(value=_within(value), low=_within(min(low, value)), high=_within(max(high, value))),
        )
    return found


def _crossed(mean_XK: Float[np.ndarray, "*rows k"], log2_K: Float[np.ndarray, " k"]) -> Float[np.ndarray, "*rows"]:
    """k* of every row; infinite where the last value is not below 0."""
    mean_XK = np.where(np.abs(mean_XK) <= _ROUNDING, 0.0, mean_XK)
    n_ks = len(log2_K)
    held_XK = mean_XK >= 0.0
    last_X = n_ks - 1 - np.argmax(held_XK[..., ::-1], axis=-1)  # of the values that are not below 0
    after_X = np.minimum(last_X + 1, n_ks - 1)
    above_X = np.take_along_axis(mean_XK, last_X[..., None], axis=-1)[..., 0]
    below_X = np.take_along_axis(mean_XK, after_X[..., None], axis=-1)[..., 0]
    never_X, always_X = held_XK[..., -1], ~held_XK.any(axis=-1)
    share_X = above_X / np.where(never_X | always_X, 1.0, above_X - below_X)
    crossed_X = 2.0 ** (log2_K[last_X] + share_X * (log2_K[after_X] - log2_K[last_X]))
    return np.where(never_X, np.inf, np.where(always_X, 2.0 ** log2_K[0], crossed_X))


def _within(k: float) -> float | None:
    return float(k) if np.isfinite(k) else None
