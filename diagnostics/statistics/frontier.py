"""Sharpening frontier of a base: the pass@k at each pass@1 when its sampling is sharpened.

Sharpening is a lower temperature, or any other change of sampling that moves the base's distribution towards its
likeliest responses. A checkpoint above the frontier is better than any of these; one on the frontier is equivalent to a
temperature.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float, Int
from scipy.special import ndtri, stdtrit

from oversharp.diagnostics.statistics.intervals import percentile_bounds, resampled_means
from oversharp.diagnostics.statistics.units import by_cluster, few_clusters, named_clusters

#: Interpolation error between the points, in pass@1. It was measured with the demo's base, sampled at T = 1, .6, .3 and
#: .15, at k = 64 and 128. At small k the curve bends more, and the error is larger.
INTERPOLATED = 0.005
#: Number of points on the interpolated frontier.
_RESOLUTION = 200
#: Lower bound of 1 − pass@k in the interpolation, because log 0 is undefined.
_LEAST = 1e-4
#: Miss rate of the interval of ``share``, relative to that of the other intervals (see ``_share``).
_OF_SELECTED = 0.4


@dataclass(frozen=True, kw_only=True)
class FrontierPoints:
    """Unbiased pass@1 (``x``) and pass@k (``y``) of every problem at the sampled points.

    ``sharpness_S`` ascends from 0, the base without sharpening. ``limit_P`` is pass@1 at the sharpest end, which has
    one response per problem: there pass@k equals pass@1. None if unknown.
    """

    sharpness_S: Float[np.ndarray, " point"]
    x_SP: Float[np.ndarray, "point problem"]
    y_SP: Float[np.ndarray, "point problem"]
    limit_P: Float[np.ndarray, " problem"] | None


@dataclass(frozen=True, kw_only=True)
class Matched:
    """Difference between a checkpoint and the sharpened base, with 95 % bounds; in probability.

    ``value`` is None where the frontier was not sampled or does not reach; ``why`` is the reason.
    """

    value: float | None
    low: float | None
    high: float | None
    why: str | None = None


@dataclass(frozen=True, kw_only=True)
class AgainstFrontier:
    """One checkpoint, or the mean of several, compared with the frontier.

    The bounds of ``gain``, and ``above`` and ``below``, include the interpolation error.

    Attributes:
        gain: pass@1 minus that of the sharpened base with the same pass@k.
        loss: pass@k minus that of the sharpened base with the same pass@1; negative is worse.
        share: Share of the rise of pass@1 that the sharpened base with the same pass@k has too.
        above: Share of the bootstrap draws with a gain above 0.
        below: Share of the bootstrap draws with a gain below 0. If sharpening lowers pass@1, the lowered pass@1 is the
            reference.
    """

    gain: Matched
    loss: Matched
    share: Matched
    above: float
    below: float


@dataclass(frozen=True, kw_only=True)
class _Curve:
    """Frontier of each draw, starting at the base: pass@1 ascends, pass@k descends.

    Beyond its last place pass@1 is at most ``reach_D`` and pass@k at least ``lowest_D``. ``least_DR`` is the sampled
    pass@1 where sharpening lowers it, and at most that of the frontier.
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
    """Compare each group of checkpoints (indices into ``x_TP``) with the frontier.

    A group's results are averaged.

    Between the points, pass@1 (logistic scale) and 1 − pass@k (logarithmic scale) are interpolated over the sharpness
    with a monotone interpolant, after isotonic regression. Beyond the sharpest sampled point, the frontier is only
    known to be between that point and the limit, so a checkpoint there gets bounds instead of a value.

    The intervals are from a bootstrap over problems or clusters, which resamples all points and checkpoints together.
    Deviations are widened to those of Student's t, and those of pass@k by the floor of ``intervals.share_interval``.
    Raises ``ValueError`` without a problem.

    >>> base, sharp = np.full((1, 400), 0.3), np.full((1, 400), 0.5)
    >>> points = FrontierPoints(sharpness_S=np.array([0.0, 1.0]), x_SP=np.vstack([base, sharp]),
    ...     y_SP=np.vstack([base + 0.6, sharp + 0.2]), limit_P=np.full(400, 0.6))
    >>> [against] = against_frontier(points, np.full((1, 400), 0.55), np.full((1, 400), 0.75), groups=[[0]],
    ...     rng=np.random.default_rng(0))
    >>> round(against.gain.value, 3), round(against.share.value, 2), against.above > 0.97  # it has .465 at .75
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
    # variance floor as in ``share_interval``: if both solve every problem, the variance is 0 but the error is not
    y_DT[1:] += rng.standard_normal(draws)[:, None] * _widening(n_problems, confidence) / n_problems
    curve = _curve(points, x_DS, y_DS, limit_D1[:, 0])
    gain_DT2, loss_DT2 = _gains(curve, x_DT, y_DT), _losses(curve, x_DT, y_DT)
    gain_DT2[1:] += np.array([-INTERPOLATED, INTERPOLATED])  # the bootstrap does not contain this error
    # the base is the lower bound, yet a run on the path that sharpening takes is not below that path
    short_DT = _gains(replace(curve, x_DR=curve.least_DR), x_DT, y_DT)[..., 1] + INTERPOLATED
    comparisons = [_group(curve, x_DT, gain_DT2, loss_DT2, short_DT, list(group), confidence) for group in groups]
    return comparisons if few_clusters(cluster_P) is None else [_without_intervals(each) for each in comparisons]


def colder_weights(
    sharpness_S: Float[np.ndarray, " point"],
    x_DS: Float[np.ndarray, "draw point"],
    y_DS: Float[np.ndarray, "draw point"],
    x_D: Float[np.ndarray, " draw"],
    y_D: Float[np.ndarray, " draw"],
) -> tuple[Float[np.ndarray, "draw point"], Float[np.ndarray, "draw point"]]:
    """Return weights of the sampled points for the lowest temperature within given limits.

    At this temperature the base has at most the checkpoint's pass@1 ``x_D`` and at least its pass@k ``y_D``. The
    temperature is not below the lowest sampled one. If lower temperatures lower pass@1, and the checkpoint's pass@1 is
    lower too, the limits are relaxed by two standard errors. The first weights give the frontier's pass@1 at that
    temperature, the second its pass@k. At most two neighbouring points have weights above 0.

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
    rising_DS = np.maximum(_sort_by_pooling(x_DS), x_DS[:, :1])
    return _shares_at(place_D, curve.x_DR, rising_DS), _shares_at(place_D, -curve.y_DR, _sort_by_pooling(-y_DS))


def _last_place(left_DR: Float[np.ndarray, "draw place"]) -> Float[np.ndarray, " draw"]:
    """Return the last place of every row with a positive value, interpolated between two places; or 0."""
    holds_DR = left_DR >= 0.0
    last_D = np.where(holds_DR.any(axis=1), left_DR.shape[1] - 1 - holds_DR[:, ::-1].argmax(axis=1), 0)
    rows, next_D = np.arange(len(left_DR)), np.minimum(last_D + 1, left_DR.shape[1] - 1)
    here_D, there_D = np.maximum(left_DR[rows, last_D], 0.0), np.minimum(left_DR[rows, next_D], 0.0)
    return last_D + np.where(here_D > there_D, here_D / np.maximum(here_D - there_D, 1e-300), 0.0) * (next_D > last_D)


def _shares_at(
    place_D: Float[np.ndarray, " draw"], value_DR: np.ndarray, value_DS: Float[np.ndarray, "draw point"]
) -> Float[np.ndarray, "draw point"]:
    """Return the weights of the points, whose values ascend, that give the value at a place of the curve."""
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
    """Return pass@1 and pass@k along the interpolated frontier, starting at the base, for plots.

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
    from scipy.interpolate import PchipInterpolator  # slow to import

    sharpness_S = points.sharpness_S
    place_R = np.linspace(sharpness_S[0], sharpness_S[-1], _RESOLUTION)
    # if sharpening lowers pass@1, pooling would lower the base too: keep the base as lower bound
    rising_DS = np.maximum(_sort_by_pooling(x_DS), x_DS[:, :1])
    falling_DS = 1.0 - _sort_by_pooling(1.0 - y_DS)
    log_missed_DR = PchipInterpolator(sharpness_S, np.log(1.0 - falling_DS + _LEAST), axis=1)(place_R)
    x_DR, y_DR = _interpolate(sharpness_S, rising_DS, place_R), np.clip(1.0 + _LEAST - np.exp(log_missed_DR), 0.0, 1.0)
    known = points.limit_P is not None
    return _Curve(
        x_DR=x_DR,
        least_DR=np.minimum(x_DR, _interpolate(sharpness_S, x_DS, place_R)),
        y_DR=y_DR,
        reach_D=np.maximum(limit_D, x_DR[:, -1]) if known else np.ones(len(x_DR)),
        lowest_D=np.minimum(limit_D, y_DR[:, -1]) if known else np.zeros(len(x_DR)),
    )


def _interpolate(sharpness_S: np.ndarray, x_DS: np.ndarray, place_R: np.ndarray) -> Float[np.ndarray, "draw place"]:
    from scipy.interpolate import PchipInterpolator  # slow to import

    inside_DS = np.clip(x_DS, _LEAST, 1.0 - _LEAST)
    logit_DR = PchipInterpolator(sharpness_S, np.log(inside_DS / (1.0 - inside_DS)), axis=1)(place_R)
    return np.asarray(1.0 / (1.0 + np.exp(-logit_DR)))


def _sort_by_pooling(value_DS: Float[np.ndarray, "draw point"]) -> Float[np.ndarray, "draw point"]:
    """Return rows that ascend, by isotonic regression of the rows that fall.

    The regression at a point is the largest, over its starts, of the smallest mean from a start to an end, where the
    start is at most and the end at least the point.

    Source: Robertson, Wright, Dykstra 1988 (Order Restricted Statistical Inference), theorem 1.4.4.
    """
    ordered_DS, n_points = value_DS.copy(), value_DS.shape[1]
    falls_D = (np.diff(value_DS, axis=1) < 0.0).any(axis=1)
    value_FS = value_DS[falls_D]
    ordered_FS = np.full_like(value_FS, -np.inf)
    for start in range(n_points):
        mean_FE = np.cumsum(value_FS[:, start:], axis=1) / np.arange(1, n_points - start + 1)
        least_FE = np.minimum.accumulate(mean_FE[:, ::-1], axis=1)[:, ::-1]
        ordered_FS[:, start:] = np.maximum(ordered_FS[:, start:], least_FE)
    ordered_DS[falls_D] = ordered_FS
    return ordered_DS


def _gains(curve: _Curve, x_DT: np.ndarray, y_DT: np.ndarray) -> Float[np.ndarray, "draw step bound"]:
    """Return lower and upper bounds of pass@1 minus that of the frontier at equal pass@k.

    The bounds are equal where the frontier is known.
    """
    first_D1, last_D1 = curve.x_DR[:, :1], curve.x_DR[:, -1:]
    matched_DT = np.array(
        [np.interp(y_T, y_R[::-1], x_R[::-1]) for y_T, y_R, x_R in zip(y_DT, curve.y_DR, curve.x_DR, strict=True)]
    )
    beyond_DT = y_DT < curve.y_DR[:, -1:] - _LEAST  # past the sharpest sampled point: between it and the limit
    above_DT = y_DT > curve.y_DR[:, :1] + _LEAST  # unreachable by sharpening
    low_DT = x_DT - np.where(beyond_DT, curve.reach_D[:, None], np.where(above_DT, first_D1, matched_DT))
    high_DT = np.where(above_DT, np.inf, x_DT - np.where(beyond_DT, last_D1, matched_DT))
    return np.stack([low_DT, high_DT], axis=-1)


def _losses(curve: _Curve, x_DT: np.ndarray, y_DT: np.ndarray) -> Float[np.ndarray, "draw step bound"]:
    """Return pass@k minus that of the frontier at equal pass@1; bounds as in ``_gains``."""
    matched_DT = np.array(
        [np.interp(x_T, x_R, y_R) for x_T, x_R, y_R in zip(x_DT, curve.x_DR, curve.y_DR, strict=True)]
    )
    lowest_D1 = curve.lowest_D[:, None]
    beyond_DT = x_DT > curve.x_DR[:, -1:] + _LEAST
    out_of_reach_DT = beyond_DT & (x_DT > curve.reach_D[:, None])
    under_DT = x_DT < curve.x_DR[:, :1] - _LEAST  # less pass@1 than the base: the opposite of sharpening
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
        gain=_summarise(gain_D2, confidence, "at equal pass@k"),
        loss=_summarise(loss_D2, confidence, "at equal pass@1"),
        share=_share(gain_D2, rise_D, confidence),
        above=float((gain_D2[1:, 0] > 0.0).mean()),
        below=float((short_DT[1:, group].mean(axis=1) < 0.0).mean()),
    )


def _without_intervals(against: AgainstFrontier) -> AgainstFrontier:
    """Remove intervals and shares, because there are too few clusters."""
    bare = {name: replace(getattr(against, name), low=None, high=None) for name in ("gain", "loss", "share")}
    return replace(against, **bare, above=0.0, below=0.0)


def _summarise(
    bounds_D2: Float[np.ndarray, "draw bound"], confidence: float, where: str, furthest: float = 1.0
) -> Matched:
    """Summarise the bounds of a difference.

    ``furthest`` is the largest possible size of the difference, or infinity.
    """
    low, _ = percentile_bounds(bounds_D2[1:, 0], confidence=confidence)
    _, high = percentile_bounds(bounds_D2[1:, 1], confidence=confidence)
    least, most = (float(bound) for bound in bounds_D2[0])
    ends = (_clip_bound(min(low, least), furthest), _clip_bound(max(high, most), furthest))
    if most - least <= _LEAST:
        return Matched(value=least, low=ends[0], high=ends[1])
    if np.isinf(most):
        return Matched(value=None, low=ends[0], high=ends[1], why=f"out of reach of sharpening the base, {where}")
    if np.isinf(least):
        why = "pass@1 is below the base's: the opposite of sharpening"
        return Matched(value=None, low=ends[0], high=ends[1], why=why)
    why = f"beyond the sharpest sample of the base, {where}: between {100 * least:+.1f} and {100 * most:+.1f} points"
    return Matched(value=None, low=ends[0], high=ends[1], why=why.replace("-", "−"))


def _share(gain_D2: np.ndarray, rise_D: np.ndarray, confidence: float) -> Matched:
    """Return the share if the rise is significant. Its interval is wider than those of other results.

    If the rise is significant in few audits, these overestimate it, and their share is too close to 1. A miss rate of
    5 % of all audits is 20 % of the audits that report a share, if these are one quarter. So the interval has two
    fifths of the miss rate of other intervals (``_OF_SELECTED``).
    """
    least_rise, _ = percentile_bounds(rise_D[1:], confidence=confidence)
    if least_rise <= 0.0:
        return Matched(value=None, low=None, high=None, why="pass@1 did not rise significantly")
    with np.errstate(invalid="ignore"):
        share_D2 = 1.0 - gain_D2[:, ::-1] / np.maximum(rise_D, _LEAST)[:, None]
    share = _summarise(share_D2, 1.0 - _OF_SELECTED * (1.0 - confidence), "at equal pass@k", furthest=np.inf)
    if share.value is None:
        return Matched(
            value=None, low=share.low, high=share.high, why="the sharpened base with the same pass@k was not drawn"
        )
    return share


def _widening(n_problems: int, confidence: float) -> float:
    """Return the factor that widens the bootstrap's spread over few problems to that of Student's t."""
    if n_problems < 2:
        return 1.0
    tail = 0.5 + confidence / 2.0
    ratio = float(stdtrit(n_problems - 1, tail) / ndtri(tail))
    return ratio * float(np.sqrt(n_problems / (n_problems - 1)))


def _clip_bound(bound: float, furthest: float) -> float | None:
    return float(np.clip(bound, -furthest, furthest)) if np.isfinite(bound) else None
