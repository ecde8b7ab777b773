"""Place labels next to their points without overlaps, if there is room."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from oversharp.reports.records import Colour

SIZE_PT = 10.5
#: Letter width as a share of the font size; generous, because the browser's font is unknown.
_LETTER = 0.6
_GAPS_PT = (7.0, 13.0, 20.0)
#: Directions from the point: right, left, above, below, then the corners.
_WAYS = ((1, 0), (-1, 0), (0, 1), (0, -1), (1, 1), (1, -1), (-1, -1), (-1, 1))
_ON_NAME, _ON_POINT, _ON_STROKE, _FAR = 100.0, 30.0, 5.0, 0.5
_MOST = 10.0  # maximum cost of an optional name

Box = tuple[float, float, float, float]  # left, bottom, right, top, in points


@dataclass(frozen=True, kw_only=True)
class WantedName:
    """Label of a point, in page points. Labels with ``must`` are always placed; others only if there is room."""

    text: str
    x: float
    y: float
    colour: Colour
    must: bool = True


@dataclass(frozen=True, kw_only=True)
class PlacedName:
    """Label with its left edge and vertical middle."""

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
    """Place names inside ``frame``, in order; ``points`` have half width ``point_pt``, ``strokes`` none.

    >>> name = WantedName(text="a", x=50.0, y=50.0, colour="ink", must=False)
    >>> [(p.left, p.middle) for p in place_names([name], frame=(0, 0, 100, 100), points=[(50.0, 50.0)])]
    [(57.0, 50.0)]
    >>> full = [(x, y) for x in range(0, 100, 5) for y in range(0, 100, 5)]
    >>> place_names([name], frame=(0, 0, 100, 100), points=full)
    []
    """
    marks = [_around(x, y, point_pt) for x, y in points]
    thin = [_around(x, y, 0.0) for x, y in strokes]
    taken: list[Box] = []
    placed = []
    for name in wanted:
        costs = [(_cost(box, rank, frame, taken, marks, thin), box) for rank, box in enumerate(_boxes(name))]
        least, box = min(costs, key=lambda pair: pair[0])
        if name.must or least < _MOST:
            taken.append(box)
            placed.append(PlacedName(wanted=name, left=box[0], middle=(box[1] + box[3]) / 2))
    return placed


def _boxes(name: WantedName) -> list[Box]:
    """Return candidate boxes, best first; larger gaps to the point only for names that must be placed."""
    width, height = _LETTER * SIZE_PT * len(name.text), SIZE_PT
    made = []
    for gap in _GAPS_PT if name.must else _GAPS_PT[:1]:
        for right, up in _WAYS:
            near = gap * (0.7 if right and up else 1.0)
            middle_x = name.x + right * (near + width / 2)
            middle_y = name.y + up * (near + height / 2)
            made.append((middle_x - width / 2, middle_y - height / 2, middle_x + width / 2, middle_y + height / 2))
    return made


def _cost(box: Box, rank: int, frame: Box, taken: list[Box], marks: list[Box], thin: list[Box]) -> float:
    outside = box[0] < frame[0] or box[1] < frame[1] or box[2] > frame[2] or box[3] > frame[3]
    return (
        (10 * _ON_NAME if outside else 0.0)
        + _ON_NAME * sum(_meet(box, other) for other in taken)
        + _ON_POINT * sum(_meet(box, other) for other in marks)
        + _ON_STROKE * sum(_meet(box, other) for other in thin)
        + _FAR * rank
    )


def _around(x: float, y: float, half: float) -> Box:
    return (x - half, y - half, x + half, y + half)


def _meet(box: Box, other: Box) -> bool:
    return box[0] < other[2] and other[0] < box[2] and box[1] < other[3] and other[1] < box[3]
