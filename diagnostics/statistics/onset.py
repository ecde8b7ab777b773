"""Step at which a decline began.

The first checkpoint below 0 is a biased estimate: noise puts it before the decline in most series. Instead, a line that
is flat up to a step and falls from there is fitted to all checkpoints.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from oversharp.diagnostics.statistics.intervals import percentile_bounds, resampled_means

#: Number of candidate steps for the start of the decline, from the base to the second-to-last checkpoint.
_CANDIDATES = 400
#: Smaller declines (probability) are rounding errors.
_ROUNDING = 1e-12


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
