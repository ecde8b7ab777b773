"""Encode the points of a picture with their values, for the tooltips of the page's script."""

from __future__ import annotations

import re
from collections.abc import Iterator

from oversharp.reports.numbers import MINUS, decimal
from oversharp.reports.pictures.frame import Frame
from oversharp.reports.pictures.plane import Plane
from oversharp.reports.records import ChangeMap, HeatMap, Line, Panel

_DIGITS = 4
_MOST = 300  # panels with more points have no tooltips
_PARTS = re.compile(r"[,;|]+")


def points_text(frame: Frame, panel: Panel) -> str:
    """Return the points of a picture as groups separated by "|"; "" if it has none or too many.

    For lines, the first group is the frame of the axes: left, top, right and bottom in points from the upper left
    corner, the limits of both axes, and for each axis 1 if it is logarithmic, else 0. Each further group is a line,
    "name;x x x;y y y". Its x values are omitted if they equal those of the previous line. For maps and planes, every
    group is "name;x,y,across,up;…": positions in points, and texts of the two values.
    """
    if isinstance(panel, HeatMap):
        return ""
    if isinstance(panel, ChangeMap):
        return "|".join(_row(frame, panel, row) for row in range(len(panel.rows)))
    lines = [line for line in panel.lines if line.x]
    if not 0 < sum(len(line.x) for line in lines) <= _MOST:
        return ""
    if isinstance(panel, Plane):
        return "|".join(_path(frame, panel, i) for i in range(len(panel.lines)))
    return "|".join((_axes(frame), *_lines(lines)))


def _axes(frame: Frame) -> str:
    box, height_pt = frame.box, frame.canvas.bbox.height
    places = (box.x0, height_pt - box.y1, box.x1, height_pt - box.y0)
    ends = (*frame.x.limits, *frame.y.limits)
    logs = (int(scale.log_base is not None) for scale in (frame.x, frame.y))
    return " ".join((*(f"{place:.1f}" for place in places), *(f"{end:.7g}" for end in ends), *map(str, logs)))


def _lines(lines: list[Line]) -> Iterator[str]:
    before: tuple[float, ...] = ()
    for line in lines:
        xs = "" if line.x == before else " ".join(map(_short, line.x))
        before = line.x
        yield f"{_name(line.label)};{xs};{' '.join(map(_short, line.y))}"


def _row(frame: Frame, panel: ChangeMap, row: int) -> str:
    cells = []
    for column, (k, value) in enumerate(zip(panel.columns, panel.cells[row], strict=True)):
        text = "unknown" if value is None else f"{decimal(value, 1, signed=True)} points"
        cells.append(f"{_place(frame, column + 0.5, row + 0.5)},k = {k},{text}")
    return f"{_name(panel.rows[row])};{';'.join(cells)}"


def _path(frame: Frame, panel: Plane, i: int) -> str:
    line = panel.lines[i]
    places = [
        f"{_place(frame, x, y)},{_name(name)},{_signed_text(x)} across and {_signed_text(y)} up"
        for x, y, name in zip(line.x, line.y, panel.names[i], strict=True)
    ]
    return f"{_name(line.label)};{';'.join(places)}"


def _name(text: str) -> str:
    """Return a name without the separators of the format.

    >>> _name("a|b; c")
    'a b c'
    """
    return " ".join(_PARTS.sub(" ", text).split())


def _short(value: float) -> str:
    """Format a value with four significant digits, for a script to parse.

    >>> _short(0.267891), _short(-20.66), _short(160.0)
    ('0.2679', '-20.66', '160')
    """
    return f"{value:.{_DIGITS}g}"


def _signed_text(value: float) -> str:
    return _short(value).replace("-", MINUS)


def _place(frame: Frame, x: float, y: float) -> str:
    across, up = frame.to_page.transform((x, y))
    return f"{across:.1f},{frame.canvas.bbox.height - up:.1f}"
