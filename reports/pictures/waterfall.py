"""Draw a waterfall chart: the parts of a change as bars, each starting where the previous bar ends."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import MaxNLocator, ScalarFormatter

from oversharp.reports.numbers import decimal
from oversharp.reports.pictures.frame import TICK_LABEL_PT, TICK_PT, Frame, Scale
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


def draw_waterfall(canvas: Canvas, panel: Waterfall, *, x_label: str, y_label: str) -> Frame:
    """Draw gains in blue, losses in orange, the whole in the text colour; pale if the CI (thin line) contains 0."""
    rows = (*panel.parts, panel.whole)
    *starts, _ = itertools.accumulate((part.value for part in panel.parts), initial=0.0)
    starts.append(0.0)  # of the whole
    frame = Frame(
        canvas,
        place_pt=(_LEFT_PT, _HEAD_PT, _WIDTH_PT - _LEFT_PT - _RIGHT_PT, _ROW_PT * len(rows)),
        x=_x_scale(panel, starts, x_label),
        y=Scale(
            limits=(len(rows) - 0.5, -0.5),
            ticks={row: part.name for row, part in enumerate(rows)},
            label=y_label,
            label_colour="ink",
        ),
    )
    frame.line((0.0, 0.0), (0, 1), transform=frame.across, color=PLACEHOLDERS["muted"], linewidth=1.0)
    for row, (part, start) in enumerate(zip(rows, starts, strict=True)):
        is_whole = part is panel.whole
        _bar(frame, row, start, part, "ink" if is_whole else "c1" if part.value > 0 else "c2")
        if not is_whole:
            end = start + part.value
            frame.line((end, end), (row, row + 1), color=PLACEHOLDERS["muted"], linewidth=0.8)
        value = decimal(part.value, 1, signed=True)
        frame.text(1.0, row, value, transform=frame.up, offset_pt=(_GAP_PT, 0), va="center", fontsize=TICK_LABEL_PT)
    return frame


def _x_scale(panel: Waterfall, starts: Sequence[float], label: str) -> Scale:
    """Return an axis that includes 0, all bars and their CIs, with a margin."""
    ends = [0.0]
    for part, start in zip((*panel.parts, panel.whole), starts, strict=True):
        ends += [start + value for value in (part.value, part.low, part.high) if value is not None]
    margin = 0.04 * (max(ends) - min(ends) or 1.0)
    low, high = min(ends) - margin, max(ends) + margin
    ticks = MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]).tick_values(low, high)
    formatter = ScalarFormatter()
    formatter.create_dummy_axis()
    formatter.axis.set_view_interval(low, high)  # type: ignore[union-attr]
    texts = dict(zip(map(float, ticks), formatter.format_ticks(list(ticks)), strict=True))
    return Scale(limits=(low, high), ticks=texts, label=label, has_grid=True, tick_pt=TICK_PT)


def _bar(frame: Frame, row: int, left: float, part: WaterfallPart, colour: Colour) -> None:
    right, top, bottom = left + part.value, row - _BAR / 2, row + _BAR / 2
    corners = ((left, top), (right, top), (right, bottom), (left, bottom))
    frame.area(corners, colour, alpha=1.0 if part.sure else _PALE)
    if part.low is not None and part.high is not None:
        ends = (left + part.low, left + part.high)
        frame.line(ends, (row, row), color=PLACEHOLDERS["muted"], linewidth=1.2)
