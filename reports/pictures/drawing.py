"""Draw figure records with matplotlib, one canvas per panel.

Pictures are as wide as a phone (400 units). Larger screens scale them up, so text is readable everywhere. Everything
must be drawn inside the axes, because ``inline_svg`` does not clip.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import numpy as np
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import MaxNLocator
from matplotlib.transforms import Affine2D

from oversharp.reports.numbers import MINUS
from oversharp.reports.pictures.canvas import MARKERS, empty_canvas, line_look, report_style
from oversharp.reports.pictures.frame import TICK_PT, Frame, Scale
from oversharp.reports.pictures.inline import inline_svg
from oversharp.reports.pictures.maps import (
    SMALL_WIDTH_PT,
    change_map_height_pt,
    draw_change_map,
    draw_heat_map,
    heat_map_height_pt,
)
from oversharp.reports.pictures.palette import PLACEHOLDERS
from oversharp.reports.pictures.plane import Plane, draw_plane, plane_height_pt
from oversharp.reports.pictures.points import points_text
from oversharp.reports.pictures.waterfall import Waterfall, draw_waterfall, waterfall_height_pt
from oversharp.reports.records import ChangeMap, Colour, Figure, HeatMap, Line, Mark, Panel

WIDTH_PT, HEIGHT_PT = 380.0, 256.0
#: Maximum number of large maps of changes. More maps are drawn small, so that they fit in one row.
_MOST_LARGE_MAPS = 2
LEFT_PT, RIGHT_PT, HEAD_PT, FOOT_PT = 48.0, 12.0, 28.0, 44.0
_MARKED_POINTS = 45  # lines with more points have only a few markers
_LONG_MARKERS = 8
_CAP_PT, _APART_PT = 4.0, 6.0  # half the width of the ends of a dashed bar, and the distance between two bars
_DIGIT_PT, _TICK_GAP_PT = 7.2, 8.0  # width of a digit of a tick label, and its distance from the axes
_MARK_ROW_PT = 14.0  # height of the row above the axes for the label of a mark


def figure_svgs(figure: Figure) -> tuple[str, ...]:
    """Return one accessible SVG per panel of ``figure``, without styles, scripts or external links."""
    with report_style():
        return tuple(_panel_svg(figure, panel) for panel in figure.panels)


def _panel_svg(figure: Figure, panel: Panel) -> str:
    frame = draw_panel(figure, panel)
    title = f"{figure.title}: {panel.title}" if panel.title else figure.title
    return inline_svg(frame.canvas, title=title, description=panel.description, points=points_text(frame, panel))


def swatch_svg(line: Line, *, kind: str) -> str:
    """Return the SVG of the line's sample in the legend, with its colour, dashes and marker."""
    return _swatch(line.colour, line.style, kind)


@lru_cache(maxsize=256)
def _swatch(colour: Colour, style: int, kind: str) -> str:
    """Draw a legend sample. Cached, because a report has about a hundred legends but few distinct samples."""
    with report_style():
        canvas = empty_canvas(34, 14)
        frame = Frame(canvas, place_pt=(0, 0, 34, 14), x=Scale(limits=(0, 1)), y=Scale(limits=(-1, 1)), spines=())
        look = line_look(colour, style) | ({} if kind == "line" else {"linestyle": "none"})
        frame.line((0.04, 0.5, 0.96), (0, 0, 0), markevery=(1, 2), **look)
        return inline_svg(canvas)


def draw_panel(figure: Figure, panel: Panel) -> Frame:
    """Draw one panel of ``figure`` on a canvas and return its frame. Draw and save inside ``report_style``."""
    labels = {"x_label": figure.x_label, "y_label": figure.y_label}
    match panel:
        case HeatMap():
            return draw_heat_map(empty_canvas(WIDTH_PT, heat_map_height_pt()), panel)
        case ChangeMap():
            is_small = len(figure.panels) > _MOST_LARGE_MAPS
            width_pt, height_pt = (
                SMALL_WIDTH_PT if is_small else WIDTH_PT,
                change_map_height_pt(panel, is_small=is_small),
            )
            return draw_change_map(empty_canvas(width_pt, height_pt), panel, is_small=is_small, **labels)
        case Plane():
            others = [other for other in figure.panels if isinstance(other, Plane)]
            return draw_plane(empty_canvas(WIDTH_PT, plane_height_pt()), panel, others=others, **labels)
        case Waterfall():
            return draw_waterfall(empty_canvas(WIDTH_PT, waterfall_height_pt(panel)), panel, **labels)
        case _:
            return _draw_lines(empty_canvas(WIDTH_PT, HEIGHT_PT), figure, panel)


def _draw_lines(canvas: Canvas, figure: Figure, panel: Panel) -> Frame:
    x_limits, y_limits = _limits(figure)
    linear = tick_texts(_y_locator().tick_values(*y_limits), y_limits)
    ticks = log_tick_texts(y_limits) if figure.log_y else linear
    left_pt = max(LEFT_PT, _TICK_GAP_PT + _DIGIT_PT * max(map(len, ticks.values()), default=0))
    head_pt = HEAD_PT + _MARK_ROW_PT * max(len(panel.marks) for panel in figure.panels)
    frame = Frame(
        canvas,
        place_pt=(left_pt, head_pt, WIDTH_PT - left_pt - RIGHT_PT, HEIGHT_PT - FOOT_PT - head_pt),
        x=Scale(
            limits=x_limits,
            ticks={tick: _tick(tick) for tick in _x_ticks(figure, x_limits)},
            label=figure.x_label,
            log_base=2 if figure.log_x else None,
            tick_pt=TICK_PT,
        ),
        y=Scale(
            limits=y_limits,
            ticks=ticks,
            label=figure.y_label,
            log_base=10 if figure.log_y else None,
            has_grid=True,
        ),
    )
    if figure.zero_line:
        frame.line((0, 1), (0, 0), transform=frame.up, color=PLACEHOLDERS["muted"], linewidth=1.0)
    if figure.diagonal:
        frame.line(x_limits, x_limits, color=PLACEHOLDERS["muted"], linewidth=0.9, dashes=(2, 2))
    for line in panel.lines:
        if figure.kind == "scatter":
            _scatter(frame, line)
        else:
            _band(frame, line)
            _curve(frame, line)
    bars = [line for line in panel.lines if line.beyond is not None]
    for i, line in enumerate(bars):
        _dashed_bar(frame, line, shift_pt=_APART_PT * (i - (len(bars) - 1) / 2))
    for i, mark in enumerate(panel.marks):
        _point_out(frame, mark, i)
    return frame


def _drawn_x(figure: Figure) -> set[float]:
    lines = [line for panel in figure.panels for line in panel.lines]
    return {x for line in lines for x in (*line.x, *(() if line.beyond is None else (line.beyond.x,)))}


def _x_ticks(figure: Figure, limits: tuple[float, float]) -> list[float]:
    xs = list(figure.x_ticks) or sorted(_drawn_x(figure))
    if figure.log_x:
        return _few(xs, 8)
    if figure.x_ticks:
        return _few(xs, 6)
    return [float(tick) for tick in MaxNLocator(6, steps=[1, 2, 2.5, 5, 10]).tick_values(*limits)]


def _point_out(frame: Frame, mark: Mark, row: int) -> None:
    """Draw a mark: a dotted vertical line, its CI as a faint band, and its label in a row above the axes."""
    left, right = frame.x.limits
    if mark.low is not None and mark.high is not None:
        low, high = max(mark.low, left), min(mark.high, right)
        frame.area([(low, 0), (high, 0), (high, 1), (low, 1)], "muted", transform=frame.across, alpha=0.12)
    dashes = (1.2, 1.8) if row % 2 == 0 else (5, 2)
    frame.line(
        (mark.x, mark.x), (0, 1), transform=frame.across, color=PLACEHOLDERS["ink"], linewidth=1.3, dashes=dashes
    )
    is_left = frame.across.transform((mark.x, 0))[0] < frame.inside.transform((0.5, 0))[0]
    frame.text(
        mark.x,
        1.0,
        mark.label,
        transform=frame.across,
        offset_pt=(3 if is_left else -3, 3 + _MARK_ROW_PT * row),
        ha="left" if is_left else "right",
        va="bottom",
        fontsize=10.5,
    )


def _few(values: list[float], limit: int) -> list[float]:
    every = max(1, -(-len(values) // limit))
    return values[::every]


def _y_locator() -> MaxNLocator:
    return MaxNLocator(5, steps=[1, 2, 2.5, 5, 10])


def tick_texts(values: Iterable[float], limits: tuple[float, float]) -> dict[float, str]:
    """Return tick → label for ticks within ``limits``.

    Labels have enough digits to distinguish neighbours, and all have the same power of ten.

    >>> tick_texts([0.0, 0.25, 0.5], (0.0, 0.5))
    {0.0: '0', 0.25: '0.25', 0.5: '0.5'}
    >>> tick_texts([0.0, 1e-4, 2e-4], (0.0, 2e-4))
    {0.0: '0', 0.0001: '1e−4', 0.0002: '2e−4'}
    """
    low, high = limits
    shown = [float(value) for value in values if low - 1e-9 * (high - low) <= value <= high + 1e-9 * (high - low)]
    largest = max((abs(value) for value in shown), default=0.0)
    if not largest:
        return {value: _tick(value) for value in shown}
    power = math.floor(math.log10(largest))
    power = 0 if -3 <= power < 5 else power
    step = min((b - a for a, b in itertools.pairwise(shown)), default=largest)
    digits = max(6, math.ceil(math.log10(largest / step)) + 2)
    suffix = f"e{power}".replace("-", MINUS) if power else ""
    return {
        value: "0" if abs(value) < step / 1e6 else f"{value / 10**power:.{digits}g}".replace("-", MINUS) + suffix
        for value in shown
    }


def log_tick_texts(limits: tuple[float, float]) -> dict[float, str]:
    """Return tick → label for a logarithmic axis: powers of ten, and their multiples by 2 and 5 if these are few.

    >>> log_tick_texts((7.0, 31.0))
    {10.0: '10', 20.0: '20'}
    >>> log_tick_texts((0.05, 2e5))
    {0.1: '0.1', 10.0: '10', 1000.0: '1000', 100000.0: '1e5'}
    """
    low, high = limits
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    tens = [10.0**power for power in powers if low <= 10.0**power <= high]
    if len(tens) > 2:
        shown = tens[:: -(-len(tens) // 5)]
    else:
        shown = [m * 10.0**power for power in powers for m in (1, 2, 5) if low <= m * 10.0**power <= high]
    return {value: _tick(value) if 1e-3 <= value < 1e5 else _power(value) for value in shown}


def _power(value: float) -> str:
    digit, exponent = f"{value:.0e}".split("e")
    return f"{digit}e{int(exponent)}".replace("-", MINUS)


def _tick(value: float) -> str:
    """Format a tick with as few digits as possible."""
    return f"{value:.6g}".replace("-", MINUS)


def _band(frame: Frame, line: Line) -> None:
    """Draw the CI of a line as a band."""
    if not line.low:
        return
    known = [
        (x, low, high)
        for x, low, high in zip(line.x, line.low, line.high, strict=True)
        if low is not None and high is not None
    ]
    if len(known) == 1:
        x, low, high = known[0]
        frame.line((x, x), (low, high), color=PLACEHOLDERS[line.colour], linewidth=1.4)
    elif known:
        lows, highs = [(x, low) for x, low, _ in known], [(x, high) for x, _, high in known]
        frame.area([highs[0], *lows, highs[-1], *reversed(highs)], line.colour, alpha=0.14)


def _curve(frame: Frame, line: Line) -> None:
    """Draw a line with dashes and markers. A line with many points is thin and solid, with few markers."""
    look = line_look(line.colour, line.style)
    if len(line.x) > _MARKED_POINTS:
        look |= {"linewidth": 1.2, "linestyle": "-", "markevery": len(line.x) // _LONG_MARKERS}
    known = [(x, y) for x, y in zip(line.x, line.y, strict=True) if y is not None]
    frame.line([x for x, _ in known], [y for _, y in known], **look)


def _dashed_bar(frame: Frame, line: Line, *, shift_pt: float) -> None:
    """Draw the interval beyond a line as a dashed bar with ends, in the colour of the line."""
    if (span := line.beyond) is None:
        return
    place = frame.to_page + Affine2D().translate(shift_pt, 0.0)  # a pixel is a point
    look: dict[str, Any] = {"transform": place, "color": PLACEHOLDERS[line.colour], "linewidth": 1.6}
    frame.line((span.x, span.x), (span.low, span.high), dashes=(2.5, 1.8), **look)
    for end in (span.low, span.high):
        frame.line((span.x, span.x), (end, end), marker="_", markersize=2 * _CAP_PT, markeredgewidth=1.6, **look)


def _scatter(frame: Frame, line: Line) -> None:
    """Draw bubbles whose area is proportional to the number of problems, large bubbles first."""
    order = np.argsort(-np.array(line.sizes), kind="stable")
    xs, ys, sizes = (np.array(values)[order] for values in (line.x, line.y, line.sizes))
    look = {"facecolors": PLACEHOLDERS[line.colour], "edgecolors": PLACEHOLDERS["surface"], "linewidths": 0.6}
    frame.markers(xs, ys, 25.0 * sizes, marker=MARKERS[line.style % len(MARKERS)], alpha=0.75, **look)


def _limits(figure: Figure) -> tuple[tuple[float, float], tuple[float, float]]:
    """Return axis limits for all panels. They include everything that is drawn, with a margin."""
    lines = [line for panel in figure.panels for line in panel.lines]
    spans = [line.beyond for line in lines if line.beyond is not None]
    xs = _drawn_x(figure)
    ys = [y for line in lines for y in (*line.y, *line.low, *line.high) if y is not None]
    ys += [end for span in spans for end in (span.low, span.high)]
    x_low, x_high = min([*xs, *figure.x_ticks]), max([*xs, *figure.x_ticks])
    if figure.log_x:
        x_limits = (x_low / 1.15, x_high * 1.15)
    else:
        air = 0.03 * (x_high - x_low) or 0.5
        x_limits = (x_low - air, x_high + air)
    y_low, y_high = min(ys), max(ys)
    if figure.log_y:
        air = max(1.1, (y_high / y_low) ** 0.05)
        return x_limits, (y_low / air, y_high * air)
    if figure.y_range is not None:
        low, high = figure.y_range
        y_low, y_high = min(y_low, low), high if y_high > low + 0.55 * (high - low) else y_high
    elif figure.zero_line or 0 <= y_low < 0.5 * y_high:
        y_low, y_high = min(y_low, 0.0), max(y_high, 0.0)
    air = 0.04 * (y_high - y_low) or 0.05 * abs(y_high) or (0.01 if figure.y_range else 0.5)
    if figure.diagonal:
        low, high = min(x_low, y_low) - air, max(x_high, y_high) + air
        return (low, high), (low, high)
    return x_limits, (y_low - (0 if y_low == 0 and y_high > 0 and not figure.zero_line else air), y_high + air)
