"""A checkpoint × k map of changes as one SVG: blue above 0, orange below, numbers where they fit, marks where sure.

Colours are the classes of the stylesheet, faint enough that ink stays readable on them in light, dark and print.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from xml.etree import ElementTree

from reports.numbers import fixed
from reports.pictures.heatmap import ABOVE, BELOW
from reports.records import Colour, Panel

#: What the darkest shade stands for, in points: the least of these that holds all values.
SCALES = (5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 60.0, 80.0, 100.0)
#: From this share of the scale on a value has the next shade.
EDGES = (0.05, 0.2, 0.4, 0.6, 0.8)
OPACITY = (0.08, 0.18, 0.28, 0.39, 0.5)
WIDTH, SIDE, LEFT, TOP = 380.0, 320.0, 44.0, 24.0
_ROW = 24.0
_LEAST_FOR_NUMBERS = 22.0  # of a cell's width, for a sign and two digits
_DIGIT, _LABEL_GAP = 7.2, 6.0  # of a step below its column
_MARK = 6.0
_KEY_HEIGHT = 12.0


@dataclass(frozen=True, kw_only=True)
class ChangeMap(Panel):
    """Changes in points, None where unknown. ``columns`` and ``rows`` name them from left and from top.

    ``sure`` cells get a mark; ``scale`` is what the darkest shade stands for.
    """

    columns: tuple[str, ...]
    rows: tuple[str, ...]
    cells: tuple[tuple[float | None, ...], ...]
    sure: tuple[tuple[bool, ...], ...]
    scale: float

    def __post_init__(self) -> None:
        widths = {len(self.columns), *map(len, self.cells), *map(len, self.sure)}
        if not self.columns or len(widths) > 1 or {len(self.cells), len(self.sure)} != {len(self.rows)}:
            raise ValueError(f"change map {self.title!r}: {len(self.rows)} rows and widths {sorted(widths)}")


def scale_of(values: Sequence[float]) -> float:
    """What the darkest shade stands for, in points.

    >>> scale_of([-7.2, 1.0]), scale_of([])
    (10.0, 5.0)
    """
    largest = max((abs(value) for value in values), default=0.0)
    return next((scale for scale in SCALES if largest <= scale), SCALES[-1])


def shade(value: float, scale: float) -> tuple[Colour, float] | None:
    """The colour of a value and its opacity, None where it is too near to 0 to have one.

    >>> shade(-7.0, 10.0), shade(0.4, 10.0)
    (('c2', 0.39), None)
    """
    level = sum(abs(value) >= edge * scale for edge in EDGES)
    return None if not level else (ABOVE if value > 0 else BELOW, OPACITY[level - 1])


def change_svg(panel: ChangeMap, *, prefix: str, title: str, x_label: str, y_label: str) -> str:
    """Inline SVG of ``panel`` with its title and description, in the shape of the other figures."""
    bottom = TOP + _ROW * len(panel.rows)
    key_top = bottom + 44.0
    height = key_top + _KEY_HEIGHT + 20.0
    svg = ElementTree.Element(
        "svg",
        {"viewBox": f"0 0 {WIDTH:g} {height:g}", "role": "img", "aria-labelledby": f"{prefix}-title {prefix}-desc"},
    )
    ElementTree.SubElement(svg, "title", {"id": f"{prefix}-title"}).text = title
    ElementTree.SubElement(svg, "desc", {"id": f"{prefix}-desc"}).text = panel.description
    _draw_shades(svg, panel)
    _draw_numbers(svg, panel)
    _draw_sure(svg, panel)
    _draw_axes(svg, panel, bottom, x_label, y_label)
    _draw_key(svg, panel.scale, key_top)
    return ElementTree.tostring(svg, encoding="unicode")


def _draw_shades(svg: ElementTree.Element, panel: ChangeMap) -> None:
    """One path per shade; neighbours of one shade in a row are one rectangle."""
    width = SIDE / len(panel.columns)
    runs: dict[tuple[Colour, float], list[str]] = defaultdict(list)
    for row, values in enumerate(panel.cells):
        column = 0
        for look, same in itertools.groupby(values, key=lambda v: None if v is None else shade(v, panel.scale)):
            count = len(list(same))
            if look is not None:
                x, y = _short(LEFT + column * width), _short(TOP + row * _ROW)
                runs[look].append(f"M{x} {y}h{_short(count * width)}v{_ROW:g}h-{_short(count * width)}z")
            column += count
    for (colour, opacity), parts in sorted(runs.items()):
        look_attributes = {"class": f"f-{colour}", "fill-opacity": _short(opacity), "shape-rendering": "crispEdges"}
        ElementTree.SubElement(svg, "path", {"d": "".join(parts), **look_attributes})


def _draw_numbers(svg: ElementTree.Element, panel: ChangeMap) -> None:
    width = SIDE / len(panel.columns)
    if width < _LEAST_FOR_NUMBERS:
        return
    group = _text_group(svg, "ink", "middle", "10.5")
    for row, values in enumerate(panel.cells):
        for column, value in enumerate(values):
            text = "–" if value is None else fixed(value, 0, signed=True)
            _text(group, LEFT + (column + 0.5) * width, TOP + (row + 0.5) * _ROW + 4, text)


def _draw_sure(svg: ElementTree.Element, panel: ChangeMap) -> None:
    """A corner in ink where the band leaves out 0; corners point up for a rise and down for a fall."""
    width = SIDE / len(panel.columns)
    parts = []
    for row, marks in enumerate(panel.sure):
        for column, is_sure in enumerate(marks):
            value = panel.cells[row][column]
            if not is_sure or value is None:
                continue
            right = LEFT + (column + 1) * width
            if value > 0:
                parts.append(f"M{_short(right)} {_short(TOP + row * _ROW)}v{_MARK:g}l-{_MARK:g}-{_MARK:g}z")
            else:
                parts.append(f"M{_short(right)} {_short(TOP + (row + 1) * _ROW)}v-{_MARK:g}l-{_MARK:g} {_MARK:g}z")
    if parts:
        ElementTree.SubElement(svg, "path", {"d": "".join(parts), "class": "f-ink"})


def _draw_axes(svg: ElementTree.Element, panel: ChangeMap, bottom: float, x_label: str, y_label: str) -> None:
    width = SIDE / len(panel.columns)
    group = _text_group(svg, "muted", "end", "11.5")
    for row, name in enumerate(panel.rows):
        _text(group, LEFT - 7, TOP + (row + 0.5) * _ROW + 4, name)
    group = _text_group(svg, "muted", "middle", "11.5")
    label_width = _DIGIT * max(map(len, panel.columns)) + _LABEL_GAP
    every = math.ceil(label_width / width)
    for column, name in enumerate(panel.columns):
        if column % every == 0:
            _text(group, LEFT + (column + 0.5) * width, bottom + 15, name)
    _text(_text_group(svg, "ink", "middle", "12"), LEFT + SIDE / 2, bottom + 32, x_label)
    _text(_text_group(svg, "ink", "start", "12"), 4, 14, y_label)
    lines = [f"M{LEFT:g} {_short(TOP + i * _ROW)}h{SIDE:g}" for i in range(1, len(panel.rows))]
    lines += [f"M{_short(LEFT + i * width)} {TOP:g}v{_short(bottom - TOP)}" for i in range(1, len(panel.columns))]
    grid = {"d": "".join(lines), "fill": "none", "class": "s-surface", "stroke-width": "1"}
    ElementTree.SubElement(svg, "path", grid)
    frame = {"x": f"{LEFT:g}", "y": f"{TOP:g}", "width": f"{SIDE:g}", "height": _short(bottom - TOP)}
    ElementTree.SubElement(svg, "rect", {**frame, "fill": "none", "class": "s-muted", "stroke-width": "0.8"})


def _draw_key(svg: ElementTree.Element, scale: float, top: float) -> None:
    """Every shade once, from −scale to scale, in points."""
    shown = [*(-edge for edge in reversed(EDGES)), 0.0, *EDGES]
    width = SIDE / len(shown)
    for i, share in enumerate(shown):
        look = shade(share * scale, scale)
        box = {"x": _short(LEFT + i * width), "y": _short(top), "width": _short(width), "height": f"{_KEY_HEIGHT:g}"}
        if look is not None:
            ElementTree.SubElement(svg, "rect", {**box, "class": f"f-{look[0]}", "fill-opacity": _short(look[1])})
    frame = {"x": f"{LEFT:g}", "y": _short(top), "width": f"{SIDE:g}", "height": f"{_KEY_HEIGHT:g}"}
    ElementTree.SubElement(svg, "rect", {**frame, "fill": "none", "class": "s-muted", "stroke-width": "0.8"})
    group = _text_group(svg, "muted", "middle", "11.5")
    for place, value in ((0.0, -scale), (0.5, 0.0), (1.0, scale)):
        _text(group, LEFT + place * SIDE, top + _KEY_HEIGHT + 14, fixed(value, 0, signed=True))


def _text_group(svg: ElementTree.Element, colour: Colour, anchor: str, size: str) -> ElementTree.Element:
    """Texts that share their look: said once, it costs nothing for each of them."""
    look = {"class": f"f-{colour}", "text-anchor": anchor, "font-size": size}
    return ElementTree.SubElement(svg, "g", look)


def _text(group: ElementTree.Element, x: float, y: float, text: str) -> None:
    ElementTree.SubElement(group, "text", {"x": _short(x), "y": _short(y)}).text = text


def _short(value: float) -> str:
    text = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if text in ("-0", "") else text
