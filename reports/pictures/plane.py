"""Draw runs in the plane of pass@1 and pass@k as paths from their base, with the base at lower temperatures."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator

from oversharp.reports.pictures.canvas import label_axes, place_axes
from oversharp.reports.pictures.looks import line_look
from oversharp.reports.pictures.naming import SIZE_PT, WantedName, place_names
from oversharp.reports.pictures.palette import PLACEHOLDERS
from oversharp.reports.records import Colour, Plane, Spot

_LEFT_PT, _HEAD_PT, _SIDE_PT, _HEIGHT_PT, _FOOT_PT = 48.0, 28.0, 320.0, 260.0, 44.0
_AIR, _HEAD_AIR = 0.07, 0.1  # margins as shares of the range; labels need more at the top
#: A greedy end further below the other points, as a share of their range, is drawn at the lower edge.
_MOST_BELOW = 0.6
_RING_PT, _SMALL_PT = 13.0, 5.0
_STROKE_PT = 4.0  # distance between points of a stroke that labels avoid

_Limits = tuple[tuple[float, float], tuple[float, float]]


def plane_height_pt() -> float:
    """Return the height of the picture in points."""
    return _HEAD_PT + _HEIGHT_PT + _FOOT_PT


def draw_plane(canvas: Canvas, panel: Plane, *, x_label: str, y_label: str, beside: Sequence[Plane] = ()) -> None:
    """Draw, from bottom to top: band, curve and greedy end, higher temperatures, paths, rings, labels.

    The axes have the length of the widest plane in ``beside``, so that equal moves look equal.
    """
    axes = place_axes(canvas, _LEFT_PT, _HEAD_PT, _SIDE_PT, _HEIGHT_PT)
    label_axes(axes, x_label, y_label)
    axes.grid(color=PLACEHOLDERS["grid"], linewidth=0.8)
    axes.set_axisbelow(True)
    limits = _widen_limits(_limits(panel), [_limits(plane) for plane in beside])
    axes.set(xlim=limits[0], ylim=limits[1])
    for axis, (low, high) in ((axes.xaxis, limits[0]), (axes.yaxis, limits[1])):
        ticks = MaxNLocator(6, steps=[1, 2, 2.5, 5, 10]).tick_values(low, high)
        least, most = max(low, -1e-9), min(high, 1.0 + 1e-9)
        axis.set_major_locator(FixedLocator([tick for tick in ticks if least <= tick <= most]))
        axis.set_major_formatter(FuncFormatter(lambda value, _position: f"{value:.4g}"))
    greedy = _draw_frontier(axes, panel, limits)
    for start, hot, colour in panel.hotter:
        stroke: dict[str, Any] = {"color": PLACEHOLDERS[colour], "linewidth": 1.0, "linestyle": (0, (1.2, 1.8))}
        axes.plot((start.x, hot.x), (start.y, hot.y), **stroke)
        _draw_hollow(axes, hot, PLACEHOLDERS[colour])
    for line in panel.lines[1:] if panel.curve else panel.lines:
        axes.plot(line.x, line.y, **line_look(line.colour, line.style))
    for spot in panel.ringed:
        ring: dict[str, Any] = {"markersize": _RING_PT, "markerfacecolor": "none", "markeredgewidth": 1.6}
        axes.plot([spot.x], [spot.y], marker="o", markeredgecolor=PLACEHOLDERS["ink"], linestyle="none", **ring)
    _write_names(axes, panel, greedy)
    sns.despine(ax=axes)


def _limits(panel: Plane) -> _Limits:
    """Return limits that include everything but the band, and the greedy end unless it is too far below."""
    spots = [*(hot for _, hot, _ in panel.hotter), *panel.ringed]
    xs = [*(x for line in panel.lines for x in line.x), *(spot.x for spot in spots)]
    ys = [*(y for line in panel.lines for y in line.y), *(spot.y for spot in spots)]
    if panel.greedy is not None:
        xs.append(panel.greedy.x)
        if min(ys) - panel.greedy.y <= _MOST_BELOW * (max(ys) - min(ys)):
            ys.append(panel.greedy.y)
    x_range, y_range = max(xs) - min(xs) or 0.1, max(ys) - min(ys) or 0.1
    return (
        (min(xs) - _AIR * x_range, max(xs) + _AIR * x_range),
        (min(ys) - _AIR * y_range, max(ys) + _HEAD_AIR * y_range),
    )


def _widen_limits(own: _Limits, beside: Sequence[_Limits]) -> _Limits:
    """Widen ``own`` limits around their middle to the width of the widest, within the range of probabilities."""
    made = []
    for axis, (low, high) in enumerate(own):
        width = max(limits[axis][1] - limits[axis][0] for limits in (own, *beside))
        air = _AIR * width
        most, least = max(high, 1.0 + air), min(low, -air)
        start = max(min((low + high - width) / 2, most - width), least)
        made.append((start, start + width))
    return made[0], made[1]


def _draw_frontier(axes: Axes, panel: Plane, limits: _Limits) -> Spot | None:
    """Draw band, curve, its points and the line to the greedy end; return where that end is drawn."""
    if not panel.curve:
        return None
    if panel.band:
        # the SVG is not clipped: clip the band to the axes
        (left, right), (low, high) = limits
        xs, ys = np.array(panel.band).T
        fill: dict[str, Any] = {"color": PLACEHOLDERS[panel.lines[0].colour], "alpha": 0.14, "linewidth": 0}
        axes.fill(np.clip(xs, left, right), np.clip(ys, low, min(high, 1.0)), **fill)
    look = line_look(panel.lines[0].colour, panel.lines[0].style)
    axes.plot(*zip(*panel.curve, strict=True), **look | {"marker": "none"})
    axes.plot(panel.lines[0].x, panel.lines[0].y, **look | {"linestyle": "none"})
    if panel.greedy is None:
        return None
    end = _clip_greedy(panel.curve[-1], panel.greedy, limits[1][0])
    colour = PLACEHOLDERS[panel.lines[0].colour]
    axes.plot((panel.curve[-1][0], end.x), (panel.curve[-1][1], end.y), color=colour, linewidth=1.0, dashes=(1.2, 1.8))
    _draw_hollow(axes, end, colour, marker="o" if end == panel.greedy else "v")
    return end


def _clip_greedy(start: tuple[float, float], greedy: Spot, low: float) -> Spot:
    """Return the greedy end, or the point where its line leaves the axes, labelled with its value."""
    if greedy.y >= low:
        return greedy
    part = (start[1] - low) / (start[1] - greedy.y)
    return Spot(name=f"{greedy.name} ↓ {greedy.y:.2f}", x=start[0] + part * (greedy.x - start[0]), y=low)


def _draw_hollow(axes: Axes, spot: Spot, colour: str, *, marker: str = "o") -> None:
    look: dict[str, Any] = {"markersize": _SMALL_PT, "markerfacecolor": PLACEHOLDERS["surface"], "markeredgewidth": 1.3}
    axes.plot([spot.x], [spot.y], marker=marker, markeredgecolor=colour, linestyle="none", **look)


# ---------------------------------------------------------------- names


def _write_names(axes: Axes, panel: Plane, greedy: Spot | None) -> None:
    to_page = axes.transData.transform
    points = [*_points(panel), *([greedy] if greedy else [])]
    placed = place_names(
        _wanted_names(axes, panel, greedy),
        frame=(axes.bbox.x0, axes.bbox.y0, axes.bbox.x1 + 10.0, axes.bbox.y1 + 4.0),
        points=[tuple(to_page((spot.x, spot.y))) for spot in points],
        strokes=_strokes(axes, panel, greedy),
    )
    to_data = axes.transData.inverted().transform
    for name in placed:
        look: dict[str, Any] = {"color": PLACEHOLDERS[name.wanted.colour], "fontsize": SIZE_PT, "va": "center_baseline"}
        x, y = to_data((name.left, name.middle))
        axes.text(x, y, name.wanted.text, **look)


def _wanted_names(axes: Axes, panel: Plane, greedy: Spot | None) -> list[WantedName]:
    """Return the wanted labels, ends of lines first; inner points of a path are optional."""
    must: list[tuple[Spot, Colour, bool]] = []
    between: list[tuple[Spot, Colour, bool]] = []
    for line, names in zip(panel.lines, panel.names, strict=True):
        spots = [Spot(name=name, x=x, y=y) for name, x, y in zip(names, line.x, line.y, strict=True)]
        must += [(spot, line.colour, True) for spot in (spots[-1], *spots[:1])]
        inner = spots[1:-1]
        if panel.curve and line is panel.lines[0]:
            must += [(spot, line.colour, True) for spot in inner]
        else:
            between += [(spot, line.colour, False) for spot in reversed(inner)]
    must += [(spot, "ink", True) for spot in panel.ringed]
    must += [(greedy, panel.lines[0].colour, True)] if greedy else []
    must += [(hot, colour, True) for _, hot, colour in panel.hotter]
    made = []
    for spot, colour, is_needed in (*must, *between):
        x, y = axes.transData.transform((spot.x, spot.y))
        made.append(WantedName(text=spot.name, x=x, y=y, colour=colour, must=is_needed))
    return [wanted for wanted in made if wanted.text]


def _points(panel: Plane) -> Iterator[Spot]:
    for line in panel.lines:
        yield from (Spot(name="", x=x, y=y) for x, y in zip(line.x, line.y, strict=True))
    yield from (hot for _, hot, _ in panel.hotter)


def _strokes(axes: Axes, panel: Plane, greedy: Spot | None) -> Iterator[tuple[float, float]]:
    """Yield points along all drawn lines, in page coordinates."""
    drawn = [((start.x, start.y), (hot.x, hot.y)) for start, hot, _ in panel.hotter]
    drawn += itertools.pairwise(panel.curve)
    for line in panel.lines[1:] if panel.curve else panel.lines:
        drawn += itertools.pairwise(zip(line.x, line.y, strict=True))
    if greedy is not None:
        drawn.append((panel.curve[-1], (greedy.x, greedy.y)))
    for start, end in axes.transData.transform(np.array(drawn).reshape(-1, 2)).reshape(-1, 2, 2):
        n_places = 2 + int(np.hypot(*(end - start)) / _STROKE_PT)
        yield from map(tuple, np.linspace(start, end, n_places).tolist())
