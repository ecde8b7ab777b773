"""What of a run and its controls lies in the plane of pass@1 and pass@k."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from oversharp.reports.context import Context
from oversharp.reports.evidence.source import SeriesSource
from oversharp.reports.records import Spot
from oversharp.reports.wording import bound, known

CONTROL, POWER = "control_pass_at_k", "power="
_LEAST_PLACES = 2  # of a path, to be one

#: A value with its bounds, None where they are unknown.
Bounded = tuple[float, float | None, float | None]


@dataclass(frozen=True, kw_only=True)
class Point:
    """pass@1 (``one``) and pass@k (``many``) of one checkpoint at one temperature T.

    ``sharpness`` is 1 − T / the audit's own: 0 for the audit's samples, below 0 for hotter ones, 1 for greedy.
    """

    name: str
    step: int
    sharpness: float
    one: Bounded
    many: Bounded

    @property
    def place(self) -> tuple[float, float]:
        """Where it lies."""
        return (self.one[0], self.many[0])

    @property
    def spot(self) -> Spot:
        """Where it lies, with its name."""
        return Spot(name=self.name, x=self.one[0], y=self.many[0])


@dataclass(frozen=True, kw_only=True)
class Points:
    """What there is to draw of one series at one ``k``. ``colder`` starts with the base and is alone without others.

    ``power`` are the base's responses reweighted, from little to much; empty where that is not known. ``hotter_k`` is
    the largest k of the checkpoints drawn hotter where all of them end below ``k``, and so are not drawn here.
    """

    series: SeriesSource
    k: int
    run: tuple[Point, ...]
    colder: tuple[Point, ...]
    hotter: tuple[Point, ...]
    power: tuple[Point, ...]
    greedy: Bounded | None
    hotter_k: int | None = None


def points_of(context: Context, series: SeriesSource, k: int | None = None) -> Points | None:
    """At ``k``, by default ``k_of``; None where fewer than two checkpoints have a pass@1 and a pass@k."""
    k = k or k_of(context, series)
    steps = [int(step) for step in series.checkpoints["step"]]
    steps.sort(key=lambda step: (step != series.base_step, step))
    if k is None:
        return None
    run = [_point(context, series, step, k) for step in steps]
    found = tuple(one for one in run if one is not None)
    if len(found) < _LEAST_PLACES or found[0].step != series.base_step:
        return None
    drawn = _drawn(context, series, k)
    colder = [one for one in drawn if one.step == series.base_step and one.sharpness > 0]
    at = {one.step for one in found[1:]}
    hotter = tuple(one for one in drawn if one.step in at and one.sharpness < 0)
    greedy = context.source.value_at("greedy_accuracy", series.name, series.base_step)
    return Points(
        series=series,
        k=k,
        run=found,
        colder=(found[0], *sorted(colder, key=lambda one: one.sharpness)),
        hotter=hotter,
        power=tuple(sorted(_reweighted(context, series, k), key=lambda one: one.sharpness)),
        greedy=None if greedy is None else _bounded(greedy),
        hotter_k=None if hotter else _hotter_k(context, series, k),
    )


def k_of(context: Context, series: SeriesSource) -> int | None:
    """That of the comparison with the colder base; without one, the largest with an interval.

    So too where the curve was asked for at other k (--k 1,4,16): the comparison may be at one of its own.
    """
    rows = context.source.findings
    rows = rows[(rows["measure"] == "frontier_gain") & (rows["scope"] == "temperature") & rows["k"].notna()]
    own = rows.loc[rows["series"] == series.name, "k"]
    curve = context.known_ks(series)
    ks = [int(k) for k in own if int(k) in curve] or context.inference_ks(series)
    return max((k for k in ks if k > 1), default=None)


def _drawn(context: Context, series: SeriesSource, k: int) -> list[Point]:
    """What was drawn at other temperatures than the audit's own."""
    own = series.settings.get("temperature")
    if own is None:
        return []
    made = []
    rows = _at_temperatures(context, series)
    for row in rows.loc[rows["k"] == k, ["step", "scope"]].drop_duplicates().itertuples():
        sharpness = 1.0 - float(str(row.scope).removeprefix("T=")) / float(own)
        made.append(_point(context, series, int(row.step), k, scope=str(row.scope), sharpness=sharpness))
    return [one for one in made if one is not None]


def _hotter_k(context: Context, series: SeriesSource, k: int) -> int | None:
    """The largest k, above 1 and below ``k``, to which a checkpoint other than the base was drawn at a temperature.

    None at a ``k`` that is no power of two: controls have no other, however many are drawn.
    """
    if k & (k - 1):
        return None
    rows = _at_temperatures(context, series)
    below = rows.loc[(rows["step"] != series.base_step) & (rows["k"] < k) & (rows["k"] > 1), "k"]
    return None if below.empty else int(below.max())


def _at_temperatures(context: Context, series: SeriesSource) -> pd.DataFrame:
    rows = known(context.source.findings, CONTROL, scope=None, series=series.name)
    return rows[rows["scope"].str.startswith("T=")]


def _reweighted(context: Context, series: SeriesSource, k: int) -> Iterator[Point]:
    """The base's responses reweighted to p^α."""
    rows = known(context.source.findings, CONTROL, scope=None, series=series.name)
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
    one, many = (None if row is None else _bounded(row) for row in rows)
    if one is None or many is None:
        return None
    own = "base" if step == series.base_step else series.step_text(step)
    return Point(name=scope if sharpness else own, step=step, sharpness=sharpness, one=one, many=many)


def _bounded(row: pd.Series[Any]) -> Bounded:
    return float(row["value"]), bound(row["low"]), bound(row["high"])
