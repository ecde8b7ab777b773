"""Encode the points of a picture with their values, for the tooltips of the page's script."""

from __future__ import annotations

import re
from collections.abc import Iterator

from matplotlib.axes import Axes

from oversharp.reports.numbers import MINUS, decimal
from oversharp.reports.records import ChangeMap, HeatMap, Line, Panel, Plane

_DIGITS = 4
_MOST = 300  # panels with more points have no tooltips
_PARTS = re.compile(r"[,;|]+")


def points_text(axes: Axes, panel: Panel, height_pt: float) -> str:
    """Return the points of a picture as groups separated by "|"; "" if it has none or too many.

    For lines, the first group is the frame of the axes: left, top, right and bottom in points from the upper left
    corner, the limits of both axes, and for each axis 1 if it is logarithmic, else 0. Each further group is a line,
    "name;x x x;y y y". Its x values are omitted if they equal those of the previous line. For maps and planes, every
    group is "name;x,y,across,up;…": positions in points, and texts of the two values.
    """
    if isinstance(panel, HeatMap):
        return ""
    if isinstance(panel, ChangeMap):
        return "|".join(_row(axes, panel, row, height_pt) for row in range(len(panel.rows)))
    lines = [line for line in panel.lines if line.x]
    if not 0 < sum(len(line.x) for line in lines) <= _MOST:
        return ""
    if isinstance(panel, Plane):
        return "|".join(_path(axes, panel, i, height_pt) for i in range(len(panel.lines)))
    return "|".join((_frame(axes, height_pt), *_lines(lines)))


def _frame(axes: Axes, height_pt: float) -> str:
    box = axes.bbox
    places = (box.x0, height_pt - box.y1, box.x1, height_pt - box.y0)
    ends = (*axes.get_xlim(), *axes.get_ylim())
    logs = (int(scale == "log") for scale in (axes.get_xscale(), axes.get_yscale()))
    return " ".join((*(f"{place:.1f}" for place in places), *(f"{end:.7g}" for end in ends), *map(str, logs)))


def _lines(lines: list[Line]) -> Iterator[str]:
    before: tuple[float, ...] = ()
    for line in lines:
        xs = "" if line.x == before else " ".join(map(_short, line.x))
        before = line.x
        yield f"{_name(line.label)};{xs};{' '.join(map(_short, line.y))}"


def _row(axes: Axes, panel: ChangeMap, row: int, height_pt: float) -> str:
    cells = []
    for column, (k, value) in enumerate(zip(panel.columns, panel.cells[row], strict=True)):
        text = "unknown" if value is None else f"{decimal(value, 1, signed=True)} points"
        cells.append(f"{_place(axes, column + 0.5, row + 0.5, height_pt)},k = {k},{text}")
    return f"{_name(panel.rows[row])};{';'.join(cells)}"


def _path(axes: Axes, panel: Plane, i: int, height_pt: float) -> str:
    line = panel.lines[i]
    places = [
        f"{_place(axes, x, y, height_pt)},{_name(name)},{_signed_text(x)} across and {_signed_text(y)} up"
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


def _place(axes: Axes, x: float, y: float, height_pt: float) -> str:
    across, up = axes.transData.transform((x, y))
    return f"{across:.1f},{height_pt - up:.1f}"
