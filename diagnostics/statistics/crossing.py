"""Where a loss begins: k*, the number of attempts from which pass@k stays below the base, and the step of its onset.

pass@k of a sharpened model is higher at small k and lower at large k. At k* the gain turns into a loss.

The first checkpoint below 0 is a biased estimate of the onset: noise puts it before the decline in most series.
Instead, a line that is flat up to a step and falls from there is fitted to all checkpoints.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.special import stdtrit

from oversharp.diagnostics.statistics.intervals import percentile_bounds, resampled_means

#: Smaller mean differences are rounding errors: the tables of two sample sizes differ in the last digit.
_ROUNDING = 1e-12
#: Number of candidate steps for the start of the decline, from the base to the second-to-last checkpoint.
_CANDIDATES = 400


@dataclass(frozen=True, kw_only=True, slots=True)
class Crossing:
    """k* with the bounds of its 95 % interval, in attempts; None means beyond the largest k.

    ``Crossing(value=90.0, low=20.0, high=None)``: estimated at 90, at least 20, and possibly beyond the range.
    """

    value: float | None
    low: float | None
    high: float | None


def crossing(
    change_PK: Float[np.ndarray, "problem k"],
    ks: Sequence[int],
    *,
    confidence: float = 0.95,
) -> Crossing:
    """Return k* of one checkpoint: from there, its mean change of pass@k is below 0 up to the largest k.

    k* is interpolated linearly on log₂ k. It is 1 if the mean is below 0 at every k, and beyond the range if the mean
    is not below 0 at the largest k. ``ks`` ascend.

    The interval extends from the first to the last k at which the interval of the mean change
    (``intervals.share_interval``) contains 0. At the true crossing the change is 0, so both intervals have the same
    coverage. A percentile bootstrap of k* over 30 problems covered in 84 to 87 % of cases. For a single problem the
    interval is the whole range. The interval is conditional on a crossing; ``keys`` tests whether pass@k fell.

    Raises ``ValueError`` without a problem or a k, if ks do not ascend, or if a k has no column.

    >>> crossing(np.tile([0.2, 0.1, -0.1], (50, 1)), [1, 2, 4])  # half-way from 2 to 4, in logs; ± .04 around each mean
    Crossing(value=2.8284271247461903, low=2.46..., high=3.25...)
    >>> crossing(np.tile([0.2, -0.1, 0.1], (50, 1)), [1, 2, 4]).value is None  # it rises again
    True
    """
    return crossings(change_PK[None], ks, confidence=confidence)[0]


def crossings(
    change_TPK: Float[np.ndarray, "step problem k"], ks: Sequence[int], *, confidence: float = 0.95
) -> list[Crossing]:
    """Return ``crossing`` of every checkpoint.

    >>> gained, lost = np.full((9, 2), 0.1), np.full((9, 2), -0.1)
    >>> [k_star.value for k_star in crossings(np.stack([gained, lost]), [1, 2])]
    [None, 1.0]
    """
    _, n_problems, n_ks = change_TPK.shape
    if not n_problems or not n_ks:
        raise ValueError(f"a crossing needs a problem and a k; got {n_problems} problems and {n_ks} values of k")
    if len(ks) != n_ks or ks[0] < 1 or (np.diff(ks) <= 0).any():
        raise ValueError(f"ks must ascend from 1, one for each of {n_ks} columns; got {list(ks)}")
    log2_K = np.log2(ks)
    mean_TK = change_TPK.mean(axis=1)
    value_T = _find_crossings(mean_TK, log2_K)
    if n_problems == 1:
        return [Crossing(value=_finite_or_none(value), low=float(ks[0]), high=None) for value in value_T]
    error_TK = np.sqrt((n_problems - 1) * change_TPK.var(axis=1, ddof=1) + 1.0) / n_problems  # as in share_interval
    margin_TK = float(stdtrit(n_problems - 1, 0.5 + confidence / 2.0)) * error_TK
    # The checkpoint is significantly ahead before the lower bound first reaches 0, and significantly behind after the
    # upper bound last reaches 0.
    low_T = _find_first_zero(mean_TK - margin_TK, log2_K)
    high_T = _find_crossings(mean_TK + margin_TK, log2_K)
    return [
        Crossing(value=_finite_or_none(value), low=_finite_or_none(low), high=_finite_or_none(high))
        for value, low, high in zip(value_T, low_T, high_T, strict=True)
    ]


def k_star_of(mean_XK: Float[np.ndarray, "*rows k"], ks: Sequence[int]) -> Float[np.ndarray, "*rows"]:
    """Return k* of mean changes, one per row, without interval; infinite beyond the largest k.

    >>> k_star_of(np.array([[0.1, -0.1], [0.1, 0.1]]), [1, 4]).tolist()
    [2.0, inf]
    """
    return _find_crossings(mean_XK, np.log2(ks))


def _find_crossings(
    mean_XK: Float[np.ndarray, "*rows k"], log2_K: Float[np.ndarray, " k"]
) -> Float[np.ndarray, "*rows"]:
    """Return k* of every row; infinite where the last value is not below 0."""
    mean_XK = np.where(np.abs(mean_XK) <= _ROUNDING, 0.0, mean_XK)
    n_ks = len(log2_K)
    kept_XK = mean_XK >= 0.0
    last_X = n_ks - 1 - np.argmax(kept_XK[..., ::-1], axis=-1)  # of the values that are not below 0
    after_X = np.minimum(last_X + 1, n_ks - 1)
    above_X = np.take_along_axis(mean_XK, last_X[..., None], axis=-1)[..., 0]
    below_X = np.take_along_axis(mean_XK, after_X[..., None], axis=-1)[..., 0]
    never_X, always_X = kept_XK[..., -1], ~kept_XK.any(axis=-1)
    share_X = above_X / np.where(never_X | always_X, 1.0, above_X - below_X)
    crossed_X = 2.0 ** (log2_K[last_X] + share_X * (log2_K[after_X] - log2_K[last_X]))
    return np.where(never_X, np.inf, np.where(always_X, 2.0 ** log2_K[0], crossed_X))


def _find_first_zero(
    mean_TK: Float[np.ndarray, "step k"], log2_K: Float[np.ndarray, " k"]
) -> Float[np.ndarray, " step"]:
    """Return the place where every row first falls to 0; infinite if it stays above."""
    met_TK = mean_TK <= _ROUNDING
    at_T = np.argmax(met_TK, axis=-1)
    before_T = np.maximum(at_T - 1, 0)
    rows_T = np.arange(len(mean_TK))
    above_T, below_T = mean_TK[rows_T, before_T], mean_TK[rows_T, at_T]
    share_T = above_T / np.where(at_T == before_T, 1.0, above_T - below_T)
    crossed_T = 2.0 ** (log2_K[before_T] + share_T * (log2_K[at_T] - log2_K[before_T]))
    return np.where(met_TK.any(axis=-1), crossed_T, np.inf)


def _finite_or_none(k: float) -> float | None:
    return float(k) if np.isfinite(k) else None


@dataclass(frozen=True, kw_only=True, slots=True)
class Onset:
    """``step`` at which the decline began, with its 95 % interval.

    ``high`` None: possibly after all checkpoints.
    """

    step: float
    low: float
    high: float | None


def onset(
    change_TP: Float[np.ndarray, "step problem"],
    steps_T: Sequence[int],
    base_step: int,
    *,
    rng: np.random.Generator,
    draws: int = 499,
) -> Onset | None:
    """Return where the mean over problems of ``change_TP`` (late minus base, per step and problem) begins to fall.

    The line y = level + slope · max(0, step − s₀), slope < 0, is fitted by least squares. The candidates for s₀ are on
    a grid from ``base_step`` to the second-to-last of ``steps_T``, because a later bend cannot be located. Level and
    slope are fitted for each candidate. The base is the point (``base_step``, 0). The level is not fixed at 0, because
    the sampling error of the base shifts all differences alike. A line through 0 would turn that into a decline from
    the start.

    The interval is a percentile bootstrap over problems, extended to contain the estimate; for a single problem it is
    all of training. Returns None with fewer than two steps, or if no candidate falls.

    Use it only for series that are known to decline, because noise also has a best fit. The interval includes the
    sampling error over problems, but not the deviation of the curve from such a line. If the curve rises first, falls
    faster and faster, or stops falling, there is no single bend, and the step is only a summary.

    Raises ``ValueError`` unless there is a problem and the steps ascend from above ``base_step``, one per row.

    Source: two-phase regression, Hinkley 1971 (J. Am. Stat. Assoc. 66:736), the first phase flat.

    >>> mean_T = -0.01 * np.maximum(0, np.array([10, 20, 30, 40, 50]) - 25)
    >>> fit = onset(np.tile(mean_T[:, None], (1, 30)), [10, 20, 30, 40, 50], 0, rng=np.random.default_rng(0))
    >>> round(fit.step, 1)
    25.0
    """
    n_steps, n_problems = change_TP.shape
    if not n_problems:
        raise ValueError("an onset needs at least one problem")
    if len(steps_T) != n_steps or (np.diff([base_step, *steps_T]) <= 0).any():
        raise ValueError(f"steps must ascend from the base's {base_step}, one per row of {n_steps}; got {steps_T}")
    if n_steps < 2:
        return None
    step_T = np.asarray(steps_T, dtype=np.float64)
    candidate_G = np.union1d(np.linspace(base_step, step_T[-2], _CANDIDATES), step_T[:-1])
    change_PT = np.vstack([np.zeros((1, n_problems)), change_TP]).T
    step_T = np.concatenate([[float(base_step)], step_T])
    value = float(_began(change_PT.mean(axis=0)[None], step_T, candidate_G)[0])
    if not np.isfinite(value):
        return None
    if n_problems == 1:
        return Onset(step=value, low=float(base_step), high=None)
    mean_DT = resampled_means(change_PT, rng=rng, draws=draws)
    low, high = percentile_bounds(_began(mean_DT, step_T, candidate_G))
    return Onset(step=value, low=min(low, value), high=max(high, value) if np.isfinite(high) else None)


def _began(
    mean_DT: Float[np.ndarray, "draw step"],
    step_T: Float[np.ndarray, " step"],
    candidate_G: Float[np.ndarray, " candidate"],
) -> Float[np.ndarray, " draw"]:
    """Return the best candidate for every curve; infinite where none falls."""
    hinge_GT = np.maximum(0.0, step_T - candidate_G[:, None])
    hinge_GT -= hinge_GT.mean(axis=1, keepdims=True)  # the level is fitted too
    hinge_GT /= np.sqrt((hinge_GT**2).sum(axis=1, keepdims=True))
    # The sum of squares falls by the square of the projection if the slope has the right sign.
    fall_DG = np.maximum(0.0, -(mean_DT @ hinge_GT.T))
    # a curve without a change contains only rounding errors
    fall_DG[fall_DG <= _ROUNDING] = 0.0
    return np.where(fall_DG.any(axis=1), candidate_G[fall_DG.argmax(axis=1)], np.inf)
