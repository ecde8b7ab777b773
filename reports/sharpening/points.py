"""Points of a run and its controls (samples at other temperatures), as pass@1 and pass@k."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from oversharp.reports.context import Context
from oversharp.reports.evidence.source import SeriesSource
from oversharp.reports.pictures.plane import Spot
from oversharp.reports.wording import float_or_none

CONTROL, POWER = "control_pass_at_k", "power="
_LEAST_PLACES = 2  # minimum number of points of a path

#: Value, lower bound, upper bound. Unknown bounds are None.
Bounded = tuple[float, float | None, float | None]


@dataclass(frozen=True, kw_only=True)
class Point:
    """pass@1 (``at_1``) and pass@k (``at_k``) of one checkpoint at one temperature T.

    ``sharpness`` is 1 − T / (T of the audit). It is 0 for the audit's samples, negative at higher temperatures, and 1
    for greedy responses.
    """

    name: str
    step: int
    sharpness: float
    at_1: Bounded
    at_k: Bounded

    @property
    def place(self) -> tuple[float, float]:
        """Position (pass@1, pass@k)."""
        return (self.at_1[0], self.at_k[0])

    @property
    def spot(self) -> Spot:
        """Position with its name, for the picture."""
        return Spot(name=self.name, x=self.at_1[0], y=self.at_k[0])


@dataclass(frozen=True, kw_only=True)
class Points:
    """Points of one series at one ``k``.

    Attributes:
        run: Base and checkpoints in order of the steps.
        lower_t: Base at the audit's temperature, then at lower temperatures.
        higher_t: Checkpoints at higher temperatures.
        power: Responses of the base reweighted to p^α, by ascending α. Empty if unknown.
        higher_t_k: Largest k that the samples at higher temperatures allow, if it is below ``k``; else None.
    """

    series: SeriesSource
    k: int
    run: tuple[Point, ...]
    lower_t: tuple[Point, ...]
    higher_t: tuple[Point, ...]
    power: tuple[Point, ...]
    greedy: Bounded | None
    higher_t_k: int | None = None


def points_of(context: Context, series: SeriesSource, k: int | None = None) -> Points | None:
    """Return the points at ``k`` (default: see ``k_of``); None unless two checkpoints have pass@1 and pass@k."""
    k = k or k_of(context, series)
    steps = [int(step) for step in series.checkpoints["step"]]
    steps.sort(key=lambda step: (step != series.base_step, step))
    if k is None:
        return None
    run = [_point(context, series, step, k) for step in steps]
    points = tuple(point for point in run if point is not None)
    if len(points) < _LEAST_PLACES or points[0].step != series.base_step:
        return None
    drawn = _temperature_points(context, series, k)
    lower_t = [point for point in drawn if point.step == series.base_step and point.sharpness > 0]
    at = {point.step for point in points[1:]}
    higher_t = tuple(point for point in drawn if point.step in at and point.sharpness < 0)
    greedy = context.source.value_at("greedy_accuracy", series.name, series.base_step)
    return Points(
        series=series,
        k=k,
        run=points,
        lower_t=(points[0], *sorted(lower_t, key=lambda point: point.sharpness)),
        higher_t=higher_t,
        power=tuple(sorted(_power_points(context, series, k), key=lambda point: point.sharpness)),
        greedy=None if greedy is None else _with_bounds(greedy),
        higher_t_k=None if higher_t else _higher_t_k(context, series, k),
    )


def k_of(context: Context, series: SeriesSource) -> int | None:
    """Return the k at which the series is compared with the base at lower temperatures.

    Without such a comparison, or if the audit's pass@k lacks that k (--k 1,4,16), return the largest k with a CI.
    """
    rows = context.source.findings_of("frontier_gain")
    rows = rows[(rows["scope"] == "temperature") & rows["k"].notna()]
    own = rows.loc[rows["series"] == series.name, "k"]
    curve = context.known_ks(series)
    ks = [int(k) for k in own if int(k) in curve] or context.inference_ks(series)
    return max((k for k in ks if k > 1), default=None)


def _temperature_points(context: Context, series: SeriesSource, k: int) -> list[Point]:
    """Return the points of checkpoints at other temperatures than the audit's."""
    own = series.settings.get("temperature")
    if own is None:
        return []
    made = []
    rows = _at_temperatures(context, series)
    for row in rows.loc[rows["k"] == k, ["step", "scope"]].drop_duplicates().itertuples():
        sharpness = 1.0 - float(str(row.scope).removeprefix("T=")) / float(own)
        made.append(_point(context, series, int(row.step), k, scope=str(row.scope), sharpness=sharpness))
    return [point for point in made if point is not None]


def _higher_t_k(context: Context, series: SeriesSource, k: int) -> int | None:
    """Return the largest k with 1 < k < ``k`` of a checkpoint, other than the base, at another temperature.

    None if ``k`` is not a power of two. Samples at other temperatures have pass@k only at powers of two, so more
    samples would not help.
    """
    if k & (k - 1):
        return None
    rows = _at_temperatures(context, series)
    below = rows.loc[(rows["step"] != series.base_step) & (rows["k"] < k) & (rows["k"] > 1), "k"]
    return None if below.empty else int(below.max())


def _at_temperatures(context: Context, series: SeriesSource) -> pd.DataFrame:
    rows = context.source.known_findings(CONTROL, scope=None, series=series.name)
    return rows[rows["scope"].str.startswith("T=")]


def _power_points(context: Context, series: SeriesSource, k: int) -> Iterator[Point]:
    """Yield the base's responses reweighted to p^α."""
    rows = context.source.known_findings(CONTROL, scope=None, series=series.name)
    for scope in rows.loc[rows["scope"].str.startswith(POWER), "scope"].unique():
        exponent = float(str(scope).removeprefix(POWER))
        made = _point(context, series, series.base_step, k, scope=str(scope), sharpness=1.0 - 1.0 / exponent)
        if made is not None:
            yield replace(made, name=f"α={exponent:g}")


def _point(
    context: Context, series: SeriesSource, step: int, k: int, *, scope: str = "all", sharpness: float = 0.0
) -> Point | None:
    measure = CONTROL if sharpness else "pass_at_k"
    rows = [context.source.value_at(measure, series.name, step, k=tries, scope=scope) for tries in (1, k)]
    first, many = (None if row is None else _with_bounds(row) for row in rows)
    if first is None or many is None:
        return None
    own = "base" if step == series.base_step else series.step_text(step)
    return Point(name=scope if sharpness else own, step=step, sharpness=sharpness, at_1=first, at_k=many)


def _with_bounds(row: pd.Series[Any]) -> Bounded:
    return float(row["value"]), float_or_none(row["low"]), float_or_none(row["high"])
