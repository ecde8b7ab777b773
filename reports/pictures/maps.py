"""Draw heat maps of gradient cosines and of changes of pass@k: blue above 0, orange below, paler near 0.

A shade is a colour with an opacity, so that 0 has the colour of the page's background in every theme.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure as Canvas

from oversharp.reports.numbers import decimal
from oversharp.reports.pictures.frame import Frame, Scale
from oversharp.reports.pictures.palette import PLACEHOLDERS
from oversharp.reports.records import ChangeMap, Colour, HeatMap

#: Smallest absolute value of each shade, as a share of the scale. Smaller values than the first have no shade.
EDGES = (0.05, 0.2, 0.4, 0.6, 0.8)
#: Opacities of the shades. Shades of changes are faint enough to keep the numbers in the cells readable.
COSINE_OPACITY, CHANGE_OPACITY = (0.14, 0.32, 0.52, 0.74, 1.0), (0.08, 0.18, 0.28, 0.39, 0.5)
ABOVE: Colour = "c1"
BELOW: Colour = "c2"
_HEAD_PT, _KEY_PT = 24.0, 12.0
_SIDE_PT, _LEFT_PT = 316.0, 52.0  # side length of the cosine map, and its left margin
_STRIP_PT = 7.0  # width of the strips that mark correct responses
_MOST_LABELS = 20
#: Map of changes: maximum height of a row, maximum height of all rows, and width including the row names.
_ROW_PT, _ALL_ROWS_PT, _MAP_PT = 24.0, 288.0, 366.0
#: The same sizes for small maps, and the width of their picture. They have no key if the cells have numbers.
_SMALL_ROW_PT, _SMALL_ROWS_PT, _SMALL_MAP_PT, SMALL_WIDTH_PT = 24.0, 234.0, 272.0, 284.0
_LEAST_ROW_PT = 13.0  # minimum row height for numbers and row names
_LEAST_FOR_NUMBERS_PT = 22.0  # minimum cell width for a sign and two digits
_DIGIT_PT, _LABEL_GAP_PT = 7.2, 6.0  # width of a digit of a label, and distance between column labels
_MARK_PT, _OUTLINE_PT = 6.0, 2.2
_LAST = len(EDGES) + 0.5  # limit of the colour scale, beyond the largest shade


def levels(values: Float[np.ndarray, "row column"], scale: float) -> Int[np.ndarray, "row column"]:
    """Return the shade of every value, from −5 to 5. Shade 0 has no colour.

    >>> levels(np.array([[-7.0, 0.4, 10.0]]), 10.0).tolist()
    [[-4, 0, 5]]
    """
    sizes = np.searchsorted(np.multiply(EDGES, scale), np.abs(values), side="right")
    return np.where(values < 0, -sizes, sizes)


def heat_map_height_pt() -> float:
    """Return the height of the picture in points."""
    return _HEAD_PT + _SIDE_PT + 16.0 + _KEY_PT + 22.0


def change_map_height_pt(panel: ChangeMap, *, is_small: bool = False) -> float:
    """Return the height of the picture in points. It grows with the number of rows, up to a limit."""
    row_pt = _row_pt(panel, is_small=is_small)
    key_pt = _KEY_PT + 20.0 if _has_key(panel, is_small=is_small) else 0.0
    return _HEAD_PT + row_pt * len(panel.rows) + 44.0 + key_pt


def _row_pt(panel: ChangeMap, *, is_small: bool) -> float:
    most_pt, all_pt = (_SMALL_ROW_PT, _SMALL_ROWS_PT) if is_small else (_ROW_PT, _ALL_ROWS_PT)
    return min(most_pt, all_pt / len(panel.rows))


def _places_pt(panel: ChangeMap, *, is_small: bool) -> tuple[float, float]:
    """Return the left edge of the first column and the width of a column, in points."""
    left = 12.0 + _DIGIT_PT * max(map(len, panel.rows))
    return left, ((_SMALL_MAP_PT if is_small else _MAP_PT) - left) / len(panel.columns)


def _has_numbers(panel: ChangeMap, *, is_small: bool) -> bool:
    _, width = _places_pt(panel, is_small=is_small)
    return width >= _LEAST_FOR_NUMBERS_PT and _row_pt(panel, is_small=is_small) >= _LEAST_ROW_PT


def _has_key(panel: ChangeMap, *, is_small: bool) -> bool:
    return not (is_small and _has_numbers(panel, is_small=is_small))


def draw_heat_map(canvas: Canvas, panel: HeatMap) -> Frame:
    """Draw a heat map with lines between groups, group names at the left, and marks at marked rows and columns."""
    n = len(panel.cells)
    ends = [int(end) for end in np.cumsum([count for _, count in panel.groups])]
    every = -(-len(panel.groups) // _MOST_LABELS)
    middles = {end - count / 2: name for end, (name, count) in list(zip(ends, panel.groups, strict=True))[::every]}
    frame = Frame(
        canvas,
        place_pt=(_LEFT_PT, _HEAD_PT, _SIDE_PT, _SIDE_PT),
        x=Scale(limits=(0, n)),
        y=Scale(limits=(n, 0), ticks=middles, pad_pt=_STRIP_PT + 7.0),
        spines=("left", "right", "bottom", "top"),
    )
    _draw_cells(frame, levels(np.array(panel.cells), 1.0), COSINE_OPACITY)
    frame.strokes((((0, end), (n, end)) for end in ends[:-1]), "muted", 0.8)
    frame.strokes((((end, 0), (end, n)) for end in ends[:-1]), "muted", 0.8)
    starts = [start for start, is_marked in enumerate(panel.marked) if is_marked]
    strip = -(2.0 + _STRIP_PT / 2) * n / _SIDE_PT
    frame.strokes((((strip, start), (strip, start + 1)) for start in starts), "c3", _STRIP_PT)
    frame.strokes((((start, strip), (start + 1, strip)) for start in starts), "c3", _STRIP_PT)
    _draw_key(canvas, (_LEFT_PT, _HEAD_PT + _SIDE_PT + 16.0, _SIDE_PT, _KEY_PT), COSINE_OPACITY, scale=1.0)
    return frame


def draw_change_map(canvas: Canvas, panel: ChangeMap, *, x_label: str, y_label: str, is_small: bool = False) -> Frame:
    """Draw a map of changes, with numbers if they fit.

    A mark in the top corner of a cell is a significant rise, a mark in the bottom corner a significant fall.
    """
    row_pt = _row_pt(panel, is_small=is_small)
    left, width = _places_pt(panel, is_small=is_small)
    n_rows, n_columns = len(panel.rows), len(panel.columns)
    height, all_pt = row_pt * n_rows, width * n_columns
    frame = Frame(
        canvas,
        place_pt=(left, _HEAD_PT, all_pt, height),
        x=Scale(limits=(0, n_columns), ticks=_column_labels(panel, width), label=x_label),
        y=Scale(limits=(n_rows, 0), ticks=_row_labels(panel, row_pt), label=y_label),
        spines=("left", "right", "bottom", "top"),
    )
    values = np.array([[0.0 if value is None else value for value in row] for row in panel.cells])
    _draw_cells(frame, levels(values, panel.scale), CHANGE_OPACITY)
    frame.strokes((((0, row), (n_columns, row)) for row in range(1, n_rows)), "surface", 1.0)
    frame.strokes((((column, 0), (column, n_rows)) for column in range(1, n_columns)), "surface", 1.0)
    side, up = _MARK_PT / width, min(_MARK_PT, row_pt / 2) / row_pt
    for row, column in np.argwhere(panel.sure):
        top, into = (row, up) if values[row, column] > 0 else (row + 1, -up)
        frame.area(((column + 1, top), (column + 1, top + into), (column + 1 - side, top)), "ink")
    if panel.outlined is not None:
        top, bottom = panel.outlined, panel.outlined + 1
        outline: dict[str, Any] = {"color": PLACEHOLDERS["ink"], "linewidth": _OUTLINE_PT}
        frame.line((0, n_columns, n_columns, 0, 0), (top, top, bottom, bottom, top), **outline)
    if _has_numbers(panel, is_small=is_small):
        look: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 10.5}
        for row, column in np.ndindex(values.shape):
            value = panel.cells[row][column]
            frame.text(column + 0.5, row + 0.5, "–" if value is None else decimal(value, 0, signed=True), **look)
    if _has_key(panel, is_small=is_small):
        _draw_key(canvas, (left, _HEAD_PT + height + 44.0, all_pt, _KEY_PT), CHANGE_OPACITY, scale=panel.scale)
    return frame


def _column_labels(panel: ChangeMap, width_pt: float) -> dict[float, str]:
    every = math.ceil((_DIGIT_PT * max(map(len, panel.columns)) + _LABEL_GAP_PT) / width_pt)
    return {column + 0.5: str(panel.columns[column]) for column in range(0, len(panel.columns), every)}


def _row_labels(panel: ChangeMap, row_pt: float) -> dict[float, str]:
    """Return position → name of rows with enough distance. The outlined row always has its name."""
    every = math.ceil(_LEAST_ROW_PT / row_pt)
    places = [i for i in range(len(panel.rows)) if not i % every or i == panel.outlined]
    if panel.outlined is not None:
        places = [i for i in places if i == panel.outlined or abs(i - panel.outlined) >= every]
    return {i + 0.5: panel.rows[i] for i in places}


def _shades(opacity: Sequence[float]) -> Float[np.ndarray, "shade 4"]:
    """Return the colours of the shades from −5 to 5."""
    below = [to_rgba(PLACEHOLDERS[BELOW], alpha) for alpha in reversed(opacity)]
    above = [to_rgba(PLACEHOLDERS[ABOVE], alpha) for alpha in opacity]
    return np.array([*below, (0.0, 0.0, 0.0, 0.0), *above])


def _draw_cells(frame: Frame, cells: Int[np.ndarray, "row column"], opacity: Sequence[float]) -> None:
    n_rows, n_columns = cells.shape
    corners = np.stack(np.meshgrid(np.arange(n_columns + 1.0), np.arange(n_rows + 1.0)), axis=-1)
    frame.cells(_shades(opacity)[cells + len(EDGES)], corners)


def _draw_key(
    canvas: Canvas, place_pt: tuple[float, float, float, float], opacity: Sequence[float], *, scale: float
) -> None:
    """Draw the colour key from −scale to scale."""
    ends = {value: decimal(sign * scale, 0, signed=True) for value, sign in ((-_LAST, -1), (0.0, 0), (_LAST, 1))}
    key = Frame(
        canvas,
        place_pt=place_pt,
        x=Scale(limits=(-_LAST, _LAST), ticks=ends),
        y=Scale(limits=(0, 1)),
        spines=(),
        layer=10,
    )
    corners = np.stack(np.meshgrid(np.arange(-_LAST, _LAST + 1), (0.0, 1.0), indexing="ij"), axis=-1)
    key.cells(_shades(opacity)[:, None], corners)
    outline: dict[str, Any] = {"color": PLACEHOLDERS["muted"], "linewidth": 0.8, "transform": key.inside}
    key.line((0, 0, 0, 1, 1, 1, 0), (0, 0.5, 1, 1, 0.5, 0, 0), **outline)
