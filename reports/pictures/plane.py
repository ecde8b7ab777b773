"""Draw pass@k against pass@1: runs as paths from their base, and the base at lower temperatures."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import MaxNLocator

from oversharp.reports.pictures.canvas import line_look
from oversharp.reports.pictures.frame import TICK_PT, Frame, Scale
from oversharp.reports.pictures.palette import PLACEHOLDERS
from oversharp.reports.records import Colour, Panel

NAME_PT = 10.5
#: Width of a letter as a share of the font size. It is an upper estimate, because the browser's font is unknown.
_LETTER_WIDTH = 0.6
_GAPS_PT = (7.0, 13.0, 20.0)
#: Positions of a label relative to its point, in order of preference: right, left, above, below, then the corners.
_DIRECTIONS = ((1, 0), (-1, 0), (0, 1), (0, -1), (1, 1), (1, -1), (-1, -1), (-1, 1))
_ON_NAME, _ON_POINT, _ON_STROKE, _FAR = 100.0, 30.0, 5.0, 0.5
_MOST_COST = 10.0  # optional labels with a higher cost are omitted
Box = tuple[float, float, float, float]  # left, bottom, right, top, in points
_Boxes = Float[np.ndarray, "box 4"]
_LEFT_PT, _HEAD_PT, _SIDE_PT, _HEIGHT_PT, _FOOT_PT = 48.0, 28.0, 320.0, 260.0, 44.0
_AIR, _HEAD_AIR = 0.07, 0.1  # margins as shares of the range; the top margin is larger because of labels
#: Maximum distance of the greedy point below the other points, as a share of their range. A greedy point further below
#: is drawn at the lower edge of the axes.
_MOST_BELOW = 0.6
_RING_PT, _SMALL_PT = 13.0, 5.0
_STROKE_PT = 4.0  # labels avoid lines; each line is checked at points with this distance

_Limits = tuple[tuple[float, float], tuple[float, float]]


@dataclass(frozen=True, kw_only=True)
class Spot:
    """Named point of a plot of pass@k against pass@1."""

    name: str
    x: float
    y: float


@dataclass(frozen=True, kw_only=True)
class Plane(Panel):
    """Plot of pass@k (y) against pass@1 (x), both probabilities, with runs as paths.

    ``names`` are the labels of the points of ``lines``, empty for points without a label. ``curve`` is the base at
    lower temperatures, if sampled: it passes through the points of the first line, ``band`` is the outline of its CI,
    and ``greedy`` is its end. ``higher_t`` has pairs of points, a checkpoint on a path and the same weights at a higher
    temperature, with the colour of the path. ``ringed`` points are highlighted.
    """

    names: tuple[tuple[str, ...], ...]
    curve: tuple[tuple[float, float], ...] = ()
    band: tuple[tuple[float, float], ...] = ()
    greedy: Spot | None = None
    higher_t: tuple[tuple[Spot, Spot, Colour], ...] = ()
    ringed: tuple[Spot, ...] = ()

    def __post_init__(self) -> None:
        if [len(line.x) for line in self.lines] != [len(names) for names in self.names]:
            raise ValueError(f"plane {self.title!r}: every line needs one name per point")


def plane_height_pt() -> float:
    """Return the height of the picture in points."""
    return _HEAD_PT + _HEIGHT_PT + _FOOT_PT


def draw_plane(canvas: Canvas, panel: Plane, *, x_label: str, y_label: str, others: Sequence[Plane] = ()) -> Frame:
    """Draw, from back to front: band, curve with its greedy end, higher temperatures, paths, rings, labels.

    The axes span ranges as wide as the widest plane in ``others``, so that equal changes have equal lengths.
    """
    limits = _widen_limits(_limits(panel), [_limits(plane) for plane in others])
    look: dict[str, Any] = {"has_grid": True, "tick_pt": TICK_PT}
    frame = Frame(
        canvas,
        place_pt=(_LEFT_PT, _HEAD_PT, _SIDE_PT, _HEIGHT_PT),
        x=Scale(limits=limits[0], ticks=_ticks(*limits[0]), label=x_label, **look),
        y=Scale(limits=limits[1], ticks=_ticks(*limits[1]), label=y_label, **look),
        spines=("left", "bottom"),
    )
    greedy = _draw_frontier(frame, panel)
    for start, end, colour in panel.higher_t:
        stroke: dict[str, Any] = {"color": PLACEHOLDERS[colour], "linewidth": 1.0, "linestyle": (0, (1.2, 1.8))}
        frame.line((start.x, end.x), (start.y, end.y), **stroke)
        _draw_hollow(frame, end, PLACEHOLDERS[colour])
    for line in panel.lines[1:] if panel.curve else panel.lines:
        frame.line(line.x, line.y, **line_look(line.colour, line.style))  # type: ignore[arg-type]
    for spot in panel.ringed:
        ring: dict[str, Any] = {"markersize": _RING_PT, "markerfacecolor": "none", "markeredgewidth": 1.6}
        frame.line([spot.x], [spot.y], marker="o", markeredgecolor=PLACEHOLDERS["ink"], linestyle="none", **ring)
    _write_names(frame, panel, greedy)
    return frame


def _ticks(low: float, high: float) -> dict[float, str]:
    """Return tick → label between the limits, without values that no probability can have."""
    ticks = MaxNLocator(6, steps=[1, 2, 2.5, 5, 10]).tick_values(low, high)
    least, most = max(low, -1e-9), min(high, 1.0 + 1e-9)
    return {float(tick): f"{tick:.4g}" for tick in ticks if least <= tick <= most}


def _limits(panel: Plane) -> _Limits:
    """Return axis limits that include all points. The band, and a greedy point far below, may be outside."""
    spots = [*(end for _, end, _ in panel.higher_t), *panel.ringed]
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


def _widen_limits(own: _Limits, others: Sequence[_Limits]) -> _Limits:
    """Widen the limits ``own`` around their middle to the width of the widest plane, within 0 to 1 and margins."""
    made = []
    for axis, (low, high) in enumerate(own):
        width = max(limits[axis][1] - limits[axis][0] for limits in (own, *others))
        air = _AIR * width
        most, least = max(high, 1.0 + air), min(low, -air)
        start = max(min((low + high - width) / 2, most - width), least)
        made.append((start, start + width))
    return made[0], made[1]


def _draw_frontier(frame: Frame, panel: Plane) -> Spot | None:
    """Draw the base at lower temperatures: band, curve, points, line to greedy. Return the drawn greedy point."""
    if not panel.curve:
        return None
    if panel.band:
        # clip the band to the axes here, because inline_svg does not clip
        (left, right), (low, high) = frame.x.limits, frame.y.limits
        corners = np.clip(np.array(panel.band), (left, low), (right, min(high, 1.0)))
        frame.area(corners, panel.lines[0].colour, alpha=0.14)
    look = line_look(panel.lines[0].colour, panel.lines[0].style)
    xs, ys = zip(*panel.curve, strict=True)
    frame.line(xs, ys, **look | {"marker": "none"})
    frame.line(panel.lines[0].x, panel.lines[0].y, **look | {"linestyle": "none"})
    if panel.greedy is None:
        return None
    end = _clip_greedy(panel.curve[-1], panel.greedy, frame.y.limits[0])
    colour = PLACEHOLDERS[panel.lines[0].colour]
    frame.line((panel.curve[-1][0], end.x), (panel.curve[-1][1], end.y), color=colour, linewidth=1.0, dashes=(1.2, 1.8))
    _draw_hollow(frame, end, colour, marker="o" if end == panel.greedy else "v")
    return end


def _clip_greedy(start: tuple[float, float], greedy: Spot, low: float) -> Spot:
    """Return the greedy point. If it is below the axes, return the point where its line leaves them, with its value."""
    if greedy.y >= low:
        return greedy
    part = (start[1] - low) / (start[1] - greedy.y)
    return Spot(name=f"{greedy.name} ↓ {greedy.y:.2f}", x=start[0] + part * (greedy.x - start[0]), y=low)


def _draw_hollow(frame: Frame, spot: Spot, colour: str, *, marker: str = "o") -> None:
    look: dict[str, Any] = {"markersize": _SMALL_PT, "markerfacecolor": PLACEHOLDERS["surface"], "markeredgewidth": 1.3}
    frame.line([spot.x], [spot.y], marker=marker, markeredgecolor=colour, linestyle="none", **look)


# ---------------------------------------------------------------- names


def _write_names(frame: Frame, panel: Plane, greedy: Spot | None) -> None:
    to_page = frame.to_page.transform
    points = [*_points(panel), *([greedy] if greedy else [])]
    placed = place_names(
        _wanted_names(frame, panel, greedy),
        frame=(frame.box.x0, frame.box.y0, frame.box.x1 + 10.0, frame.box.y1 + 4.0),
        points=[tuple(to_page((spot.x, spot.y))) for spot in points],
        strokes=_strokes(frame, panel, greedy),
    )
    to_data = frame.to_page.inverted().transform
    for name in placed:
        x, y = to_data((name.left, name.middle))
        look: dict[str, Any] = {"colour": name.wanted.colour, "fontsize": NAME_PT, "va": "center_baseline"}
        frame.text(x, y, name.wanted.text, **look)


def _wanted_names(frame: Frame, panel: Plane, greedy: Spot | None) -> list[WantedName]:
    """Return the labels of all points, ends of lines first. Labels of inner points are optional."""
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
    must += [(end, colour, True) for _, end, colour in panel.higher_t]
    made = []
    for spot, colour, is_needed in (*must, *between):
        x, y = frame.to_page.transform((spot.x, spot.y))
        made.append(WantedName(text=spot.name, x=x, y=y, colour=colour, must=is_needed))
    return [wanted for wanted in made if wanted.text]


def _points(panel: Plane) -> Iterator[Spot]:
    for line in panel.lines:
        yield from (Spot(name="", x=x, y=y) for x, y in zip(line.x, line.y, strict=True))
    yield from (end for _, end, _ in panel.higher_t)


def _strokes(frame: Frame, panel: Plane, greedy: Spot | None) -> Iterator[tuple[float, float]]:
    """Yield closely spaced points along all drawn lines, in page coordinates."""
    drawn = [((start.x, start.y), (end.x, end.y)) for start, end, _ in panel.higher_t]
    drawn += itertools.pairwise(panel.curve)
    for line in panel.lines[1:] if panel.curve else panel.lines:
        drawn += itertools.pairwise(zip(line.x, line.y, strict=True))
    if greedy is not None:
        drawn.append((panel.curve[-1], (greedy.x, greedy.y)))
    for start, end in frame.to_page.transform(np.array(drawn).reshape(-1, 2)).reshape(-1, 2, 2):
        n_places = 2 + int(np.hypot(*(end - start)) / _STROKE_PT)
        yield from map(tuple, np.linspace(start, end, n_places).tolist())


@dataclass(frozen=True, kw_only=True)
class WantedName:
    """Label of the point at ``x`` and ``y``, in points. If ``must`` is false, it is placed only if there is room."""

    text: str
    x: float
    y: float
    colour: Colour
    must: bool = True


@dataclass(frozen=True, kw_only=True)
class PlacedName:
    """Label with its position: left edge and vertical middle, in points."""

    wanted: WantedName
    left: float
    middle: float


def place_names(
    wanted: Sequence[WantedName],
    *,
    frame: Box,
    points: Iterable[tuple[float, float]],
    strokes: Iterable[tuple[float, float]] = (),
    point_pt: float = 5.0,
) -> list[PlacedName]:
    """Place labels inside ``frame``, in order, with little overlap with other labels, ``points`` and ``strokes``.

    ``points`` are markers with half width ``point_pt``. ``strokes`` are points of lines, without width.

    >>> name = WantedName(text="a", x=50.0, y=50.0, colour="ink", must=False)
    >>> [(p.left, p.middle) for p in place_names([name], frame=(0, 0, 100, 100), points=[(50.0, 50.0)])]
    [(57.0, 50.0)]
    >>> full = [(x, y) for x in range(0, 100, 5) for y in range(0, 100, 5)]
    >>> place_names([name], frame=(0, 0, 100, 100), points=full)
    []
    """
    marks = np.array([_box_around(x, y, point_pt) for x, y in points]).reshape(-1, 4)
    thin = np.array([_box_around(x, y, 0.0) for x, y in strokes]).reshape(-1, 4)
    taken: list[Box] = []
    placed = []
    for name in wanted:
        costs = [
            (_box_cost(box, rank, frame, taken, marks, thin), box) for rank, box in enumerate(_candidate_boxes(name))
        ]
        least, box = min(costs, key=lambda pair: pair[0])
        if name.must or least < _MOST_COST:
            taken.append(box)
            placed.append(PlacedName(wanted=name, left=box[0], middle=(box[1] + box[3]) / 2))
    return placed


def _candidate_boxes(name: WantedName) -> list[Box]:
    """Return candidate boxes, best first. Only labels that must be placed may be further away from their point."""
    width, height = _LETTER_WIDTH * NAME_PT * len(name.text), NAME_PT
    made = []
    for gap in _GAPS_PT if name.must else _GAPS_PT[:1]:
        for right, up in _DIRECTIONS:
            near = gap * (0.7 if right and up else 1.0)
            middle_x = name.x + right * (near + width / 2)
            middle_y = name.y + up * (near + height / 2)
            made.append((middle_x - width / 2, middle_y - height / 2, middle_x + width / 2, middle_y + height / 2))
    return made


def _box_cost(box: Box, rank: int, frame: Box, taken: Sequence[Box], marks: _Boxes, thin: _Boxes) -> float:
    outside = box[0] < frame[0] or box[1] < frame[1] or box[2] > frame[2] or box[3] > frame[3]
    return (
        (10 * _ON_NAME if outside else 0.0)
        + _ON_NAME * _count_overlaps(box, np.array(taken).reshape(-1, 4))
        + _ON_POINT * _count_overlaps(box, marks)
        + _ON_STROKE * _count_overlaps(box, thin)
        + _FAR * rank
    )


def _box_around(x: float, y: float, half: float) -> Box:
    return (x - half, y - half, x + half, y + half)


def _count_overlaps(box: Box, others: _Boxes) -> int:
    left, bottom, right, top = others.T
    return int(((box[0] < right) & (left < box[2]) & (box[1] < top) & (bottom < box[3])).sum())
