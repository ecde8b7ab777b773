"""A matrix of cosines as one SVG: blue above 0, orange below, the paler the nearer; readable in light, dark and print.

Colours are the classes of the stylesheet with a fixed opacity, so that 0 is the page itself in every theme.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from dataclasses import dataclass
from xml.etree import ElementTree

from reports.numbers import fixed
from reports.records import Colour, Panel

#: From here on a value has the next shade; below the first it has none.
EDGES = (0.05, 0.2, 0.4, 0.6, 0.8)
OPACITY = (0.14, 0.32, 0.52, 0.74, 1.0)
ABOVE: Colour = "c1"
BELOW: Colour = "c2"
WIDTH, SIDE, LEFT, TOP = 380.0, 316.0, 52.0, 24.0
_STRIP = 7.0  # the marks of correct responses, beside the rows and above the columns
_MOST_LABELS = 20
_KEY_TOP, _KEY_HEIGHT = TOP + SIDE + 16.0, 12.0
HEIGHT = _KEY_TOP + _KEY_HEIGHT + 22.0


@dataclass(frozen=True, kw_only=True)
class HeatPanel(Panel):
    """A symmetric matrix of values from −1 to 1. Rows belong to groups, named in order; ``marked`` rows get a mark."""

    cells: tuple[tuple[float, ...], ...]
    groups: tuple[tuple[str, int], ...]  # name and number of rows
    marked: tuple[bool, ...]

    def __post_init__(self) -> None:
        n_rows = len(self.cells)
        counts = (len(self.marked), sum(count for _, count in self.groups), *map(len, self.cells))
        if not n_rows or any(count != n_rows for count in counts):
            raise ValueError(f"heat map {self.title!r}: {n_rows} rows, but marks, groups or columns differ: {counts}")


def shade(value: float) -> tuple[Colour, float] | None:
    """The colour of a value and its opacity, None where it is too near to 0 to have one.

    >>> shade(-0.5), shade(1.0), shade(0.01)
    (('c2', 0.52), ('c1', 1.0), None)
    """
    level = sum(abs(value) >= edge for edge in EDGES)
    return None if not level else (ABOVE if value > 0 else BELOW, OPACITY[level - 1])


def heat_svg(panel: HeatPanel, *, prefix: str, title: str) -> str:
    """Inline SVG of ``panel`` with its title and description, in the shape of the other figures."""
    svg = ElementTree.Element(
        "svg",
        {
            "viewBox": f"0 0 {WIDTH:g} {HEIGHT:g}",
            "role": "img",
            "aria-labelledby": f"{prefix}-title {prefix}-desc",
        },
    )
    ElementTree.SubElement(svg, "title", {"id": f"{prefix}-title"}).text = title
    ElementTree.SubElement(svg, "desc", {"id": f"{prefix}-desc"}).text = panel.description
    _draw_cells(svg, panel)
    _draw_groups(svg, panel)
    _draw_key(svg)
    return ElementTree.tostring(svg, encoding="unicode")


def _draw_cells(svg: ElementTree.Element, panel: HeatPanel) -> None:
    """One path per shade, in units of cells: a run of neighbours is a stroke as wide as a cell, "M3 5h2".

    A kernel has thousands of cells; as rectangles in page units each would take four times the room.
    """
    side = SIDE / len(panel.cells)
    runs: dict[tuple[Colour, float], list[str]] = defaultdict(list)
    for row, values in enumerate(panel.cells):
        column = 0
        for look, same in itertools.groupby(values, key=shade):
            count = len(list(same))
            if look is not None:
                runs[look].append(f"M{column} {row}h{count}")
            column += count
    # shifted by half a cell: a stroke lies half above its line and half below
    place = f"translate({LEFT:g} {TOP + side / 2:.4f})scale({side:.4f})"
    cells = ElementTree.SubElement(svg, "g", {"transform": place, "shape-rendering": "crispEdges"})
    for (colour, opacity), parts in sorted(runs.items()):
        look_attributes = {"class": f"s-{colour}", "stroke-opacity": _short(opacity)}
        ElementTree.SubElement(cells, "path", {"d": "".join(parts), **look_attributes})


def _draw_groups(svg: ElementTree.Element, panel: HeatPanel) -> None:
    """Lines between groups, their names at the left, and the marks."""
    side = SIDE / len(panel.cells)
    marks = []
    for i, is_marked in enumerate(panel.marked):
        if is_marked:
            marks.append(
                f"M{_short(LEFT - _STRIP - 2)} {_short(TOP + i * side)}h{_STRIP:g}v{_short(side)}h-{_STRIP:g}z"
            )
            marks.append(
                f"M{_short(LEFT + i * side)} {_short(TOP - _STRIP - 2)}h{_short(side)}v{_STRIP:g}h-{_short(side)}z"
            )
    if marks:
        ElementTree.SubElement(svg, "path", {"d": "".join(marks), "class": "f-c3"})
    lines, start = [], 0
    every = -(-len(panel.groups) // _MOST_LABELS)
    for number, (name, count) in enumerate(panel.groups):
        if number:
            at = start * side
            lines.append(f"M{LEFT:g} {_short(TOP + at)}h{SIDE:g}M{_short(LEFT + at)} {TOP:g}v{SIDE:g}")
        if number % every == 0:
            _text(svg, LEFT - _STRIP - 7, TOP + (start + count / 2) * side + 4, name, anchor="end")
        start += count
    frame = f"M{LEFT:g} {TOP:g}h{SIDE:g}v{SIDE:g}h-{SIDE:g}z"
    outline = {"fill": "none", "class": "s-muted", "stroke-width": "0.8"}
    ElementTree.SubElement(svg, "path", {"d": "".join([*lines, frame]), **outline})


def _draw_key(svg: ElementTree.Element) -> None:
    """Every shade once, from −1 to 1; the value of a box is the first that has its shade."""
    shown = [*(-edge for edge in reversed(EDGES)), 0.0, *EDGES]
    width = SIDE / len(shown)
    for i, value in enumerate(shown):
        look = shade(value)
        box = {
            "x": _short(LEFT + i * width),
            "y": _short(_KEY_TOP),
            "width": _short(width),
            "height": f"{_KEY_HEIGHT:g}",
        }
        if look is not None:
            ElementTree.SubElement(svg, "rect", {**box, "class": f"f-{look[0]}", "fill-opacity": _short(look[1])})
    frame = {"x": f"{LEFT:g}", "y": _short(_KEY_TOP), "width": f"{SIDE:g}", "height": f"{_KEY_HEIGHT:g}"}
    ElementTree.SubElement(svg, "rect", {**frame, "fill": "none", "class": "s-muted", "stroke-width": "0.8"})
    for place, value in ((0.0, -1.0), (0.5, 0.0), (1.0, 1.0)):
        _text(svg, LEFT + place * SIDE, _KEY_TOP + _KEY_HEIGHT + 14, fixed(value, 0, signed=True), anchor="middle")


def _text(svg: ElementTree.Element, x: float, y: float, text: str, *, anchor: str) -> None:
    place = {"x": _short(x), "y": _short(y), "text-anchor": anchor, "font-size": "11.5", "class": "f-muted"}
    ElementTree.SubElement(svg, "text", place).text = text


def _short(value: float) -> str:
    text = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if text in ("-0", "") else text
