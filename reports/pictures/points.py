"""The points of a picture with their values, for a page that names them under the pointer and at the keyboard."""

from __future__ import annotations

import re
from collections.abc import Iterator

from matplotlib.axes import Axes

from oversharp.reports.numbers import MINUS, fixed
from oversharp.reports.records import ChangeMap, HeatMap, Line, Panel, Plane

_DIGITS = 4
_MOST = 300  # of a panel: a noisy curve of thousands of points is read off its table
_PARTS = re.compile(r"[,;|]+")


def points_text(axes: Axes, panel: Panel, height_pt: float) -> str:
    """Groups of points, parted by "|"; empty for a picture without points, or with too many of them.

    Of lines the first group is the frame of the axes: left, top, right and bottom in points from the upper left corner,
    then the ends of both axes and 1 for a logarithmic one; then of every line "name;x x x;y y y", without the xs where
    the line before has the same. Of maps and planes, whose points have names, every group is "name;x,y,across,up;…"
    with the place in points.
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
        text = "unknown" if value is None else f"{fixed(value, 1, signed=True)} points"
        cells.append(f"{_place(axes, column + 0.5, row + 0.5, height_pt)},k = {k},{text}")
    return f"{_name(panel.rows[row])};{';'.join(cells)}"


def _path(axes: Axes, panel: Plane, i: int, height_pt: float) -> str:
    line = panel.lines[i]
    places = [
        f"{_place(axes, x, y, height_pt)},{_name(name)},{_signed(x)} across and {_signed(y)} up"
        for x, y, name in zip(line.x, line.y, panel.names[i], strict=True)
    ]
    return f"{_name(line.label)};{';'.join(places)}"


def _name(text: str) -> str:
    """A name without what parts names from each other.

    >>> _name("a|b; c")
    'a b c'
    """
    return " ".join(_PARTS.sub(" ", text).split())


def _short(value: float) -> str:
    """In as many digits as a picture's reader needs, for a script to read.

    >>> _short(0.267891), _short(-20.66), _short(160.0)
    ('0.2679', '-20.66', '160')
    """
    return f"{value:.{_DIGITS}g}"


def _signed(value: float) -> str:
    return _short(value).replace("-", MINUS)


def _place(axes: Axes, x: float, y: float, height_pt: float) -> str:
    across, up = axes.transData.transform((x, y))
    return f"{across:.1f},{height_pt - up:.1f}"
