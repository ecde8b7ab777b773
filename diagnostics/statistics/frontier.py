"""The sharpening frontier of a base: which pass@1 drawing it sharper gives, and which pass@k that leaves.

Sharper means a lower temperature, or any other knob that turns the base's own law towards its likeliest responses
without training. A checkpoint above the frontier has what no such knob gives; one on it is a temperature.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float, Int
from scipy.interpolate import PchipInterpolator
from scipy.stats import norm
from scipy.stats import t as student_t
from sklearn import config_context
from sklearn.isotonic import isotonic_regression

from oversharp.diagnostics.statistics.clusters import by_cluster
from oversharp.diagnostics.statistics.intervals import percentile_bounds, resampled_means
from oversharp.diagnostics.statistics.units import few_clusters, named_clusters

#: What interpolating between the points may be off by, in pass@1: about as much as on the demo's base, drawn at T = 1,
#: .6, .3 and .15, at k = 64 and 128. At small k, where the curve bends more, it is off by more.
INTERPOLATED = 0.005
#: Points along the interpolated frontier.
_RESOLUTION = 200
#: Least share of problems that k attempts miss, in what is interpolated: the logarithm of 0 is none.
_LEAST = 1e-4
#: What part of the misses of the other intervals that of a share, which not every audit gives, may have.
_OF_SELECTED = 0.4


@dataclass(frozen=True, kw_only=True)
class FrontierPoints:
    """pass@1 (``x``) and pass@k (``y``) of every problem, unbiased, at the points that were drawn.

    ``sharpness_S`` ascends from 0, the base as it is. ``limit_P``: pass@1 at the sharpest end, which is one response
    per problem: there pass@k is pass@1. None where nobody knows it.
    """

    sharpness_S: Float[np.ndarray, " point"]
    x_SP: Float[np.ndarray, "point problem"]
    y_SP: Float[np.ndarray, "point problem"]
    limit_P: Float[np.ndarray, " problem"] | None


@dataclass(frozen=True, kw_only=True)
class Matched:
    """What a checkpoint has more than the sharpened base, with the bounds of the 95 % interval; in probability.

    ``value`` is None where the frontier was not drawn, or does not reach; ``why`` says which.
    """

    value: float | None
    low: float | None
    high: float | None
    why: str | None = None


@dataclass(frozen=True, kw_only=True)
class AgainstFrontier:
    """One checkpoint, or the mean of several, against the frontier.

    ``gain``: pass@1 beyond that of the sharpened base with the same pass@k. ``loss``: pass@k against that of the
    sharpened base with the same pass@1; below 0 is less. ``share``: of the rise of pass@1, what the sharpened base with
    the same pass@k has too. ``above`` and ``below`` are the shares of the draws in which the checkpoint's gain is above
    and below 0; where sharpening lowers pass@1, below what it leaves. The bounds of the gain, and these shares, allow
    for what interpolation may be off by.
    """

    gain: Matched
    loss: Matched
    share: Matched
    above: float
    below: float


@dataclass(frozen=True, kw_only=True)
class _Curve:
    """The frontier of each draw, from the base on: pass@1 ascends, pass@k descends.

    Beyond its last place pass@1 is at most ``reach_D`` and pass@k at least ``lowest_D``. ``least_DR`` is pass@1 as it
    was drawn where sharpening lowers it, at most that of the frontier.
    """

    x_DR: Float[np.ndarray, "draw place"]
    least_DR: Float[np.ndarray, "draw place"]
    y_DR: Float[np.ndarray, "draw place"]
    reach_D: Float[np.ndarray, " draw"]
    lowest_D: Float[np.ndarray, " draw"]


def against_frontier(
    points: FrontierPoints,
    x_TP: Float[np.ndarray, "step problem"],
    y_TP: Float[np.ndarray, "step problem"],
    *,
    groups: Sequence[Sequence[int]],
    rng: np.random.Generator,
    cluster_P: Int[np.ndarray, " problem"] | None = None,
    draws: int = 999,
    confidence: float = 0.95,
) -> list[AgainstFrontier]:
    """Each group of checkpoints (indices into ``x_TP``), matched one by one, then meaned, against the frontier.

    Between the points both pass@1 and the problems that k attempts miss are interpolated over the sharpness, monotone,
    on the logistic and the logarithmic scale; before that they are made monotone by isotonic regression. Beyond the
    sharpest point that was drawn the frontier is known only to lie between it and the limit, and a checkpoint there
    gets bounds in place of a value. The intervals are a bootstrap over problems, or over their clusters, that draws all
    points and checkpoints together; deviations are widened to those of Student's t, and those of pass@k by the floor of
    ``intervals.share_interval``. Raises ``ValueError`` without a problem.

    >>> base, sharp = np.full((1, 400), 0.3), np.full((1, 400), 0.5)
    >>> points = FrontierPoints(sharpness_S=np.array([0.0, 1.0]), x_SP=np.vstack([base, sharp]),
    ...     y_SP=np.vstack([base + 0.6, sharp + 0.2]), limit_P=np.full(400, 0.6))
    >>> [found] = against_frontier(points, np.full((1, 400), 0.55), np.full((1, 400), 0.75), groups=[[0]],
    ...     rng=np.random.default_rng(0))
    >>> round(found.gain.value, 3), round(found.share.value, 2), found.above > 0.97  # it has .465 at .75
    (0.085, 0.66, True)
    """
    columns_PX = by_cluster(
        np.vstack([points.x_SP, points.y_SP, _limits(points), x_TP, y_TP]).T, named_clusters(cluster_P)
    )
    n_problems = len(columns_PX)
    mean_DX = np.vstack([columns_PX.mean(axis=0)[None], resampled_means(columns_PX, rng=rng, draws=draws)])
    mean_DX[1:] = mean_DX[0] + _widening(n_problems, confidence) * (mean_DX[1:] - mean_DX[0])
    mean_DX = np.clip(mean_DX, 0.0, 1.0)
    n_points, n_steps = len(points.sharpness_S), len(x_TP)
    x_DS, y_DS, limit_D1, x_DT, y_DT = np.split(mean_DX, np.cumsum([n_points, n_points, 1, n_steps]), axis=1)
    # Where every problem is solved by both, nothing varies, and yet it is not certain: as in ``share_interval``.
    y_DT[1:] += rng.standard_normal(draws)[:, None] * _widening(n_problems, confidence) / n_problems
    curve = _curve(points, x_DS, y_DS, limit_D1[:, 0])
    gain_DT2, loss_DT2 = _gains(curve, x_DT, y_DT), _losses(curve, x_DT, y_DT)
    gain_DT2[1:] += np.array([-INTERPOLATED, INTERPOLATED])  # no draw of problems knows of it
    # the base is the least that can be had, and yet a run on the way that sharpening takes is not below that way
    short_DT = _gains(replace(curve, x_DR=curve.least_DR), x_DT, y_DT)[..., 1] + INTERPOLATED
    found = [_group(curve, x_DT, gain_DT2, loss_DT2, short_DT, list(group), confidence) for group in groups]
    return found if few_clusters(cluster_P) is None else [_without_intervals(one) for one in found]


def colder_weights(
    sharpness_S: Float[np.ndarray, " point"],
    x_DS: Float[np.ndarray, "draw point"],
    y_DS: Float[np.ndarray, "draw point"],
    x_D: Float[np.ndarray, " draw"],
    y_D: Float[np.ndarray, " draw"],
) -> tuple[Float[np.ndarray, "draw point"], Float[np.ndarray, "draw point"]]:
    """Shares of the drawn points that stand for the coldest base that has no more than a checkpoint, and no less.

    No more pass@1 than the checkpoint's ``x_D``, no less pass@k than its ``y_D``; not colder than the sharpest point
    that was drawn. Where drawing colder lowers pass@1, and the checkpoint's is lower, two standard errors are allowed.
    The first shares give the frontier's pass@1 there, the second its pass@k: at most two neighbouring points have one.

    >>> x, y, s = np.array([[0.2, 0.4, 0.5]]), np.array([[0.9, 0.8, 0.6]]), np.array([0.0, 0.4, 0.7])
    >>> [one.round(2).tolist() for one in colder_weights(s, x, y, np.array([0.4]), np.array([0.3]))]  # lost more
    [[[0.0, 1.0, 0.0]], [[0.0, 1.0, 0.0]]]
    >>> [one.round(2).tolist() for one in colder_weights(s, x, y, np.array([0.1]), np.array([0.3]))]  # pass@1 fell
    [[[1.0, 0.0, 0.0]], [[1.0, 0.0, 0.0]]]
    """
    points = FrontierPoints(sharpness_S=sharpness_S, x_SP=x_DS.T, y_SP=y_DS.T, limit_P=None)
    curve = _curve(points, x_DS, y_DS, np.zeros(len(x_DS)))
    first_D = x_DS[:, 0]
    allowed_D = np.where(x_D < first_D, np.minimum(x_D + 2.0 * (x_D - first_D).std(), first_D), x_D)
    place_D = _last_place(np.minimum(allowed_D[:, None] - curve.least_DR, curve.y_DR - y_D[:, None]))
    rising_DS = np.maximum(_in_order(x_DS), x_DS[:, :1])
    return _shares_at(place_D, curve.x_DR, rising_DS), _shares_at(place_D, -curve.y_DR, _in_order(-y_DS))


def _last_place(left_DR: Float[np.ndarray, "draw place"]) -> Float[np.ndarray, " draw"]:
    """The last place of every row up to which something is left, between two places by the line through them; or 0."""
    holds_DR = left_DR >= 0.0
    last_D = np.where(holds_DR.any(axis=1), left_DR.shape[1] - 1 - holds_DR[:, ::-1].argmax(axis=1), 0)
    rows, next_D = np.arange(len(left_DR)), np.minimum(last_D + 1, left_DR.shape[1] - 1)
    here_D, there_D = np.maximum(left_DR[rows, last_D], 0.0), np.minimum(left_DR[rows, next_D], 0.0)
    return last_D + np.where(here_D > there_D, here_D / np.maximum(here_D - there_D, 1e-300), 0.0) * (next_D > last_D)


def _shares_at(
    place_D: Float[np.ndarray, " draw"], value_DR: np.ndarray, value_DS: Float[np.ndarray, "draw point"]
) -> Float[np.ndarray, "draw point"]:
    """Of the points, whose values ascend, what makes up the value at a place of the curve."""
    weight_DS = np.zeros_like(value_DS)
    point_S, place_R = np.arange(value_DS.shape[1], dtype=np.float64), np.arange(value_DR.shape[1])
    for weight_S, place, value_R, value_S in zip(weight_DS, place_D, value_DR, value_DS, strict=True):
        value = np.interp(place, place_R, value_R)
        point = float(np.interp(value, value_S, point_S)) if value > value_S[0] else 0.0
        before = min(int(point), len(point_S) - 2)
        weight_S[before], weight_S[before + 1] = before + 1 - point, point - before
    return weight_DS


def frontier_curve(
    points: FrontierPoints,
) -> tuple[Float[np.ndarray, " place"], Float[np.ndarray, " place"]]:
    """pass@1 and pass@k along the interpolated frontier, from the base on: what is drawn.

    >>> flat = np.full((2, 4), 0.5)
    >>> x, y = frontier_curve(FrontierPoints(sharpness_S=np.array([0.0, 1.0]), x_SP=flat, y_SP=flat, limit_P=flat[0]))
    >>> x.round(3).tolist() == y.round(3).tolist() == [0.5] * len(x)
    True
    """
    x_S, y_S = points.x_SP.mean(axis=1), points.y_SP.mean(axis=1)
    curve = _curve(points, x_S[None], y_S[None], _limits(points).mean(axis=1))
    return curve.x_DR[0], curve.y_DR[0]


def _limits(points: FrontierPoints) -> Float[np.ndarray, "one problem"]:
    return np.zeros((1, points.x_SP.shape[1])) if points.limit_P is None else points.limit_P[None]


def _curve(
    points: FrontierPoints,
    x_DS: Float[np.ndarray, "draw point"],
    y_DS: Float[np.ndarray, "draw point"],
    limit_D: Float[np.ndarray, " draw"],
) -> _Curve:
    sharpness_S = points.sharpness_S
    place_R = np.linspace(sharpness_S[0], sharpness_S[-1], _RESOLUTION)
    # Where sharpening lowers pass@1, pooling would put the base below itself: it stays the least that can be had.
    rising_DS = np.maximum(_in_order(x_DS), x_DS[:, :1])
    falling_DS = 1.0 - _in_order(1.0 - y_DS)
    log_missed_DR = PchipInterpolator(sharpness_S, np.log(1.0 - falling_DS + _LEAST), axis=1)(place_R)
    x_DR, y_DR = _between(sharpness_S, rising_DS, place_R), np.clip(1.0 + _LEAST - np.exp(log_missed_DR), 0.0, 1.0)
    known = points.limit_P is not None
    return _Curve(
        x_DR=x_DR,
        least_DR=np.minimum(x_DR, _between(sharpness_S, x_DS, place_R)),
        y_DR=y_DR,
        reach_D=np.maximum(limit_D, x_DR[:, -1]) if known else np.ones(len(x_DR)),
        lowest_D=np.minimum(limit_D, y_DR[:, -1]) if known else np.zeros(len(x_DR)),
    )


def _between(sharpness_S: np.ndarray, x_DS: np.ndarray, place_R: np.ndarray) -> Float[np.ndarray, "draw place"]:
    inside_DS = np.clip(x_DS, _LEAST, 1.0 - _LEAST)
    logit_DR = PchipInterpolator(sharpness_S, np.log(inside_DS / (1.0 - inside_DS)), axis=1)(place_R)
    return np.asarray(1.0 / (1.0 + np.exp(-logit_DR)))


def _in_order(value_DS: Float[np.ndarray, "draw point"]) -> Float[np.ndarray, "draw point"]:
    """Rows that ascend; those that do not are pooled where they fall (the check alone is cheap, pooling is not)."""
    ordered_DS = value_DS.copy()
    with config_context(skip_parameter_validation=True, assume_finite=True):
        for place in np.flatnonzero((np.diff(value_DS, axis=1) < 0.0).any(axis=1)):
            ordered_DS[place] = isotonic_regression(value_DS[place])
    return ordered_DS


def _gains(curve: _Curve, x_DT: np.ndarray, y_DT: np.ndarray) -> Float[np.ndarray, "draw step bound"]:
    """pass@1 less that of the frontier at equal pass@k: the lower and the upper bound, equal where it is known."""
    first_D1, last_D1 = curve.x_DR[:, :1], curve.x_DR[:, -1:]
    matched_DT = np.array(
        [np.interp(y_T, y_R[::-1], x_R[::-1]) for y_T, y_R, x_R in zip(y_DT, curve.y_DR, curve.x_DR, strict=True)]
    )
    beyond_DT = y_DT < curve.y_DR[:, -1:] - _LEAST  # of the sharpest that was drawn: somewhere between it and the limit
    above_DT = y_DT > curve.y_DR[:, :1] + _LEAST  # what no sharpening has
    low_DT = x_DT - np.where(beyond_DT, curve.reach_D[:, None], np.where(above_DT, first_D1, matched_DT))
    high_DT = np.where(above_DT, np.inf, x_DT - np.where(beyond_DT, last_D1, matched_DT))
    return np.stack([low_DT, high_DT], axis=-1)


def _losses(curve: _Curve, x_DT: np.ndarray, y_DT: np.ndarray) -> Float[np.ndarray, "draw step bound"]:
    """pass@k less that of the frontier at equal pass@1; bounds as of ``_gains``."""
    matched_DT = np.array(
        [np.interp(x_T, x_R, y_R) for x_T, x_R, y_R in zip(x_DT, curve.x_DR, curve.y_DR, strict=True)]
    )
    lowest_D1 = curve.lowest_D[:, None]
    beyond_DT = x_DT > curve.x_DR[:, -1:] + _LEAST
    out_of_reach_DT = beyond_DT & (x_DT > curve.reach_D[:, None])
    under_DT = x_DT < curve.x_DR[:, :1] - _LEAST  # less pass@1 than the base: sharpening goes the other way
    low_DT = np.where(under_DT, -np.inf, y_DT - np.where(out_of_reach_DT, lowest_D1, matched_DT))
    high_DT = np.where(out_of_reach_DT, np.inf, y_DT - np.where(beyond_DT, lowest_D1, matched_DT))
    return np.stack([low_DT, high_DT], axis=-1)


def _group(
    curve: _Curve,
    x_DT: np.ndarray,
    gain_DT2: np.ndarray,
    loss_DT2: np.ndarray,
    short_DT: np.ndarray,
    group: list[int],
    confidence: float,
) -> AgainstFrontier:
    gain_D2, loss_D2 = gain_DT2[:, group].mean(axis=1), loss_DT2[:, group].mean(axis=1)
    rise_D = (x_DT[:, group] - curve.x_DR[:, :1]).mean(axis=1)
    return AgainstFrontier(
        gain=_matched(gain_D2, confidence, "at equal pass@k"),
        loss=_matched(loss_D2, confidence, "at equal pass@1"),
        share=_share(gain_D2, rise_D, confidence),
        above=float((gain_D2[1:, 0] > 0.0).mean()),
        below=float((short_DT[1:, group].mean(axis=1) < 0.0).mean()),
    )


def _without_intervals(found: AgainstFrontier) -> AgainstFrontier:
    """Of too few clusters nothing is known but the values."""
    bare = {name: replace(getattr(found, name), low=None, high=None) for name in ("gain", "loss", "share")}
    return replace(found, **bare, above=0.0, below=0.0)


def _matched(
    bounds_D2: Float[np.ndarray, "draw bound"], confidence: float, where: str, furthest: float = 1.0
) -> Matched:
    """``furthest``: no difference is larger; infinite where nothing bounds it."""
    low, _ = percentile_bounds(bounds_D2[1:, 0], confidence=confidence)
    _, high = percentile_bounds(bounds_D2[1:, 1], confidence=confidence)
    least, most = (float(one) for one in bounds_D2[0])
    ends = (_within(min(low, least), furthest), _within(max(high, most), furthest))
    if most - least <= _LEAST:
        return Matched(value=least, low=ends[0], high=ends[1])
    if np.isinf(most):
        return Matched(value=None, low=ends[0], high=ends[1], why=f"beyond what sharpening the base reaches, {where}")
    if np.isinf(least):
        why = "pass@1 lies below the base's: sharpening goes the other way"
        return Matched(value=None, low=ends[0], high=ends[1], why=why)
    why = (
        f"sharper than the sharpest draw of the base, {where}: between {100 * least:+.1f} and {100 * most:+.1f} points"
    )
    return Matched(value=None, low=ends[0], high=ends[1], why=why.replace("-", "−"))


def _share(gain_D2: np.ndarray, rise_D: np.ndarray, confidence: float) -> Matched:
    """The share where the rise is sure; its interval misses two fifths as often as the others.

    Where a rise seldom is sure, the share is given in audits in which it came out too high, and then lies too near to
    1: misses of all audits are misses of the few that give it, of one in four four times as large a part.
    """
    least_rise, _ = percentile_bounds(rise_D[1:], confidence=confidence)
    if least_rise <= 0.0:
        return Matched(value=None, low=None, high=None, why="pass@1 did not surely rise")
    with np.errstate(invalid="ignore"):
        share_D2 = 1.0 - gain_D2[:, ::-1] / np.maximum(rise_D, _LEAST)[:, None]
    found = _matched(share_D2, 1.0 - _OF_SELECTED * (1.0 - confidence), "at equal pass@k", furthest=np.inf)
    if found.value is None:
        return Matched(
            value=None, low=found.low, high=found.high, why="the sharpened base with the same pass@k was not drawn"
        )
    return found


def _widening(n_problems: int, confidence: float) -> float:
    """What takes the spread of a bootstrap over so few problems to that of Student's t."""
    if n_problems < 2:
        return 1.0
    tail = 0.5 + confidence / 2.0
    ratio = float(student_t.ppf(tail, n_problems - 1) / norm.ppf(tail))
    return ratio * float(np.sqrt(n_problems / (n_problems - 1)))


def _within(bound: float, furthest: float) -> float | None:
    return float(np.clip(bound, -furthest, furthest)) if np.isfinite(bound) else None
