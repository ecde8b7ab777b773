"""Draw heat maps of gradient cosines and of changes of pass@k: blue above 0, orange below, paler near 0.

A shade is a colour with an opacity, so that 0 has the colour of the page's background in every theme.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import seaborn as sns
from jaxtyping import Float, Int
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap, to_rgba
from matplotlib.figure import Figure as Canvas

from oversharp.reports.numbers import decimal
from oversharp.reports.pictures.canvas import label_axes, place_axes
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


def draw_heat_map(canvas: Canvas, panel: HeatMap) -> None:
    """Draw a heat map with lines between groups, group names at the left, and marks at marked rows and columns."""
    axes = place_axes(canvas, _LEFT_PT, _HEAD_PT, _SIDE_PT, _SIDE_PT)
    key = place_axes(canvas, _LEFT_PT, _HEAD_PT + _SIDE_PT + 16.0, _SIDE_PT, _KEY_PT)
    _shades(axes, key, levels(np.array(panel.cells), 1.0), COSINE_OPACITY, scale=1.0)
    n = len(panel.cells)
    ends = np.cumsum([count for _, count in panel.groups])
    lines: dict[str, Any] = {"color": PLACEHOLDERS["muted"], "linewidth": 0.8}
    axes.hlines(ends[:-1], 0, n, **lines)
    axes.vlines(ends[:-1], 0, n, **lines)
    starts = np.flatnonzero(panel.marked)
    strip = -(2.0 + _STRIP_PT / 2) * n / _SIDE_PT
    strips: dict[str, Any] = {"color": PLACEHOLDERS["c3"], "linewidth": _STRIP_PT, "clip_on": False}
    axes.vlines(np.full(len(starts), strip), starts, starts + 1, **strips)
    axes.hlines(np.full(len(starts), strip), starts, starts + 1, **strips)
    every = -(-len(panel.groups) // _MOST_LABELS)
    names = [name for name, _ in panel.groups][::every]
    middles = [end - count / 2 for end, (_, count) in zip(ends, panel.groups, strict=True)][::every]
    axes.set_yticks(middles, names, rotation=0)
    axes.tick_params(axis="y", pad=_STRIP_PT + 7.0)


def draw_change_map(canvas: Canvas, panel: ChangeMap, *, x_label: str, y_label: str, is_small: bool = False) -> None:
    """Draw a map of changes, with numbers if they fit.

    A mark in the top corner of a cell is a significant rise, a mark in the bottom corner a significant fall.
    """
    row_pt = _row_pt(panel, is_small=is_small)
    left, width = _places_pt(panel, is_small=is_small)
    height, all_pt = row_pt * len(panel.rows), width * len(panel.columns)
    axes = place_axes(canvas, left, _HEAD_PT, all_pt, height)
    key = None
    if _has_key(panel, is_small=is_small):
        key = place_axes(canvas, left, _HEAD_PT + height + 44.0, all_pt, _KEY_PT)
    texts = None
    if _has_numbers(panel, is_small=is_small):
        texts = [["–" if v is None else decimal(v, 0, signed=True) for v in row] for row in panel.cells]
    values = np.array([[0.0 if value is None else value for value in row] for row in panel.cells])
    _shades(axes, key, levels(values, panel.scale), CHANGE_OPACITY, scale=panel.scale, texts=texts)
    lines: dict[str, Any] = {"color": PLACEHOLDERS["surface"], "linewidth": 1.0}
    axes.hlines(range(1, len(panel.rows)), 0, len(panel.columns), **lines)
    axes.vlines(range(1, len(panel.columns)), 0, len(panel.rows), **lines)
    side, up = _MARK_PT / width, min(_MARK_PT, row_pt / 2) / row_pt
    for row, column in np.argwhere(panel.sure):
        top, into = (row, up) if values[row, column] > 0 else (row + 1, -up)
        corner = ((column + 1, top), (column + 1, top + into), (column + 1 - side, top))
        axes.fill(*zip(*corner, strict=True), color=PLACEHOLDERS["ink"], linewidth=0)
    every = math.ceil((_DIGIT_PT * max(map(len, panel.columns)) + _LABEL_GAP_PT) / width)
    axes.set_xticks(np.arange(len(panel.columns))[::every] + 0.5, panel.columns[::every])
    named = math.ceil(_LEAST_ROW_PT / row_pt)
    places = [i for i in range(len(panel.rows)) if not i % named or i == panel.outlined]
    if panel.outlined is not None:
        places = [i for i in places if i == panel.outlined or abs(i - panel.outlined) >= named]
        corners = ((0, panel.outlined), (len(panel.columns), panel.outlined))
        below = [(x, y + 1) for x, y in reversed(corners)]
        frame: dict[str, Any] = {"color": PLACEHOLDERS["ink"], "linewidth": _OUTLINE_PT}
        axes.plot(*zip(*corners, *below, corners[0], strict=True), **frame)
    axes.set_yticks([i + 0.5 for i in places], [panel.rows[i] for i in places], rotation=0)
    label_axes(axes, x_label, y_label)


def _shades(
    axes: Axes,
    key: Axes | None,
    cells: Int[np.ndarray, "row column"],
    opacity: Sequence[float],
    *,
    scale: float,
    texts: Any = None,
) -> None:
    """Draw the cells with a frame, and the colour key from −scale to scale on ``key`` if given."""
    below = [to_rgba(PLACEHOLDERS[BELOW], alpha) for alpha in reversed(opacity)]
    above = [to_rgba(PLACEHOLDERS[ABOVE], alpha) for alpha in opacity]
    sns.heatmap(
        cells,
        ax=axes,
        cmap=ListedColormap([*below, (0.0, 0.0, 0.0, 0.0), *above]),
        vmin=-_LAST,
        vmax=_LAST,
        annot=texts,
        fmt="",
        annot_kws={"color": PLACEHOLDERS["ink"], "fontsize": 10.5},
        xticklabels=False,
        yticklabels=False,
        cbar=key is not None,
        cbar_ax=key,
        cbar_kws={"orientation": "horizontal"},
    )
    axes.spines[:].set_visible(True)
    axes.tick_params(length=0)
    if key is None:
        return
    bar = axes.collections[0].colorbar
    assert bar is not None
    bar.set_ticks((-_LAST, 0.0, _LAST), labels=[decimal(value, 0, signed=True) for value in (-scale, 0.0, scale)])
    bar.outline.set(linewidth=0.8, edgecolor=PLACEHOLDERS["muted"])  # type: ignore[operator]
    key.tick_params(length=0)
