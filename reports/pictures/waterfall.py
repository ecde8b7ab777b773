"""Draw a waterfall chart: the parts of a change as bars, each starting where the previous bar ends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from matplotlib.figure import Figure as Canvas

from oversharp.reports.numbers import decimal
from oversharp.reports.pictures.canvas import label_axes, place_axes
from oversharp.reports.pictures.palette import PLACEHOLDERS
from oversharp.reports.records import Colour, Panel

_ROW_PT, _HEAD_PT, _FOOT_PT = 25.0, 6.0, 44.0
_LEFT_PT, _RIGHT_PT, _WIDTH_PT = 150.0, 44.0, 380.0
_BAR = 0.56  # height of a bar, as a share of its row
_PALE = 0.35
_GAP_PT = 5.0


@dataclass(frozen=True, kw_only=True)
class WaterfallPart:
    """Part of a change in percentage points, with the bounds of its CI. ``sure`` is whether the CI excludes 0."""

    name: str
    value: float
    low: float | None = None
    high: float | None = None
    sure: bool = False


@dataclass(frozen=True, kw_only=True)
class Waterfall(Panel):
    """Decomposition of a change: its parts from top to bottom, and their sum ``whole``."""

    parts: tuple[WaterfallPart, ...]
    whole: WaterfallPart


def waterfall_height_pt(panel: Waterfall) -> float:
    """Return the height of the picture in points. It grows with the number of parts."""
    return _HEAD_PT + _ROW_PT * (len(panel.parts) + 1) + _FOOT_PT


def draw_waterfall(canvas: Canvas, panel: Waterfall, *, x_label: str, y_label: str) -> None:
    """Draw gains in blue, losses in orange, the whole in the text colour; pale if the CI (thin line) contains 0."""
    n_rows = len(panel.parts) + 1
    axes = place_axes(canvas, _LEFT_PT, _HEAD_PT, _WIDTH_PT - _LEFT_PT - _RIGHT_PT, _ROW_PT * n_rows)
    label_axes(axes, x_label, y_label)
    axes.grid(axis="x", color=PLACEHOLDERS["grid"], linewidth=0.8)
    axes.set_axisbelow(True)
    axes.axvline(0.0, color=PLACEHOLDERS["muted"], linewidth=1.0)
    start, ends = 0.0, [0.0]
    for row, part in enumerate((*panel.parts, panel.whole)):
        is_whole = part is panel.whole
        left = 0.0 if is_whole else start
        _bar(axes, row, left, part, "ink" if is_whole else "c1" if part.value > 0 else "c2")
        ends += [left + value for value in (part.value, part.low, part.high) if value is not None]
        if not is_whole:
            start += part.value
            axes.plot((start, start), (row, row + 1), color=PLACEHOLDERS["muted"], linewidth=0.8)
    margin = 0.04 * (max(ends) - min(ends) or 1.0)
    axes.set(xlim=(min(ends) - margin, max(ends) + margin), ylim=(n_rows - 0.5, -0.5))
    _names(axes, panel)


def _bar(axes: Any, row: int, left: float, part: WaterfallPart, colour: Colour) -> None:
    shade = 1.0 if part.sure else _PALE
    axes.barh(row, part.value, left=left, height=_BAR, color=PLACEHOLDERS[colour], alpha=shade, linewidth=0)
    if part.low is not None and part.high is not None:
        axes.plot((left + part.low, left + part.high), (row, row), color=PLACEHOLDERS["muted"], linewidth=1.2)


def _names(axes: Any, panel: Waterfall) -> None:
    """Write the name of every bar at the left of the axes, and its value at the right."""
    rows = (*panel.parts, panel.whole)
    axes.set_yticks(range(len(rows)), [part.name for part in rows])
    axes.tick_params(axis="y", length=0, labelcolor=PLACEHOLDERS["ink"])
    for row, part in enumerate(rows):
        axes.annotate(
            decimal(part.value, 1, signed=True),
            xy=(1.0, row),
            xycoords=axes.get_yaxis_transform(),
            xytext=(_GAP_PT, 0),
            textcoords="offset points",
            va="center",
            ha="left",
            fontsize=11.5,
            color=PLACEHOLDERS["ink"],
            annotation_clip=False,
        )
    axes.spines[["top", "right", "left"]].set_visible(False)
