"""Draw figure records with matplotlib and seaborn, one canvas per panel.

Pictures are as wide as a phone (400 units). Larger screens scale them up, so text is readable everywhere. Everything
must be drawn inside the axes, because ``inline_svg`` does not clip.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import lru_cache

import numpy as np
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from oversharp.reports.numbers import MINUS
from oversharp.reports.pictures.canvas import MARKERS, empty_canvas, label_axes, line_look, place_axes
from oversharp.reports.pictures.inline import inline_svg
from oversharp.reports.pictures.maps import (
    SMALL_WIDTH_PT,
    change_map_height_pt,
    draw_change_map,
    draw_heat_map,
    heat_map_height_pt,
)
from oversharp.reports.pictures.palette import PLACEHOLDERS
from oversharp.reports.pictures.plane import draw_plane, plane_height_pt
from oversharp.reports.pictures.points import points_text
from oversharp.reports.pictures.waterfall import Waterfall, draw_waterfall, waterfall_height_pt
from oversharp.reports.records import ChangeMap, Colour, Figure, HeatMap, Line, Mark, Panel, Plane

WIDTH_PT, HEIGHT_PT = 380.0, 256.0
#: Maximum number of large maps of changes. More maps are drawn small, so that they fit in one row.
_MOST_LARGE_MAPS = 2
LEFT_PT, RIGHT_PT, HEAD_PT, FOOT_PT = 48.0, 12.0, 28.0, 44.0
_MARKED_POINTS = 45  # lines with more points have only a few markers
_LONG_MARKERS = 8
_DIGIT_PT, _TICK_GAP_PT = 7.2, 8.0  # width of a digit of a tick label, and its distance from the axes
_MARK_ROW_PT = 14.0  # height of the row above the axes for the label of a mark


def figure_svgs(figure: Figure) -> tuple[str, ...]:
    """Return one accessible SVG per panel of ``figure``, without styles, scripts or external links."""
    made = []
    for panel in figure.panels:
        title = f"{figure.title}: {panel.title}" if panel.title else figure.title
        with draw_panel(figure, panel) as canvas:
            points = points_text(canvas.axes[0], panel, canvas.bbox.height)
            made.append(inline_svg(canvas, title=title, description=panel.description, points=points))
    return tuple(made)


def swatch_svg(line: Line, *, kind: str) -> str:
    """Return the SVG of the line's sample in the legend, with its colour, dashes and marker."""
    return _swatch(line.colour, line.style, kind)


@lru_cache(maxsize=256)
def _swatch(colour: Colour, style: int, kind: str) -> str:
    """Draw a legend sample. Cached, because a report has about a hundred legends but few distinct samples."""
    with empty_canvas(34, 14) as canvas:
        axes = canvas.add_axes((0, 0, 1, 1))
        axes.set_axis_off()
        axes.set(xlim=(0, 1), ylim=(-1, 1))
        look = line_look(colour, style) | ({} if kind == "line" else {"linestyle": "none"})
        axes.plot((0.04, 0.5, 0.96), (0, 0, 0), markevery=(1, 2), **look)
        return inline_svg(canvas)


@contextmanager
def draw_panel(figure: Figure, panel: Panel) -> Iterator[Canvas]:
    """Draw one panel of ``figure`` and yield its canvas. Save it inside the context: the style applies only there."""
    match panel:
        case HeatMap():
            with empty_canvas(WIDTH_PT, heat_map_height_pt()) as canvas:
                draw_heat_map(canvas, panel)
                yield canvas
        case ChangeMap():
            is_small = len(figure.panels) > _MOST_LARGE_MAPS
            width_pt = SMALL_WIDTH_PT if is_small else WIDTH_PT
            with empty_canvas(width_pt, change_map_height_pt(panel, is_small=is_small)) as canvas:
                draw_change_map(canvas, panel, x_label=figure.x_label, y_label=figure.y_label, is_small=is_small)
                yield canvas
        case Plane():
            with empty_canvas(WIDTH_PT, plane_height_pt()) as canvas:
                others = [other for other in figure.panels if isinstance(other, Plane)]
                draw_plane(canvas, panel, x_label=figure.x_label, y_label=figure.y_label, others=others)
                yield canvas
        case Waterfall():
            with empty_canvas(WIDTH_PT, waterfall_height_pt(panel)) as canvas:
                draw_waterfall(canvas, panel, x_label=figure.x_label, y_label=figure.y_label)
                yield canvas
        case _:
            with empty_canvas(WIDTH_PT, HEIGHT_PT) as canvas:
                _draw_lines(canvas, figure, panel)
                yield canvas


def _draw_lines(canvas: Canvas, figure: Figure, panel: Panel) -> None:
    x_limits, y_limits = _limits(figure)
    linear = tick_texts(_y_locator().tick_values(*y_limits), y_limits)
    ticks = log_tick_texts(y_limits) if figure.log_y else linear
    left_pt = max(LEFT_PT, _TICK_GAP_PT + _DIGIT_PT * max(map(len, ticks.values()), default=0))
    head_pt = HEAD_PT + _MARK_ROW_PT * max(len(panel.marks) for panel in figure.panels)
    size = (WIDTH_PT - left_pt - RIGHT_PT, HEIGHT_PT - FOOT_PT - head_pt)
    axes = place_axes(canvas, left_pt, head_pt, *size)
    label_axes(axes, figure.x_label, figure.y_label)  # must precede seaborn, which labels only unlabelled axes
    axes.grid(axis="y", color=PLACEHOLDERS["grid"], linewidth=0.8)
    axes.set_axisbelow(True)
    if figure.zero_line:
        axes.axhline(0, color=PLACEHOLDERS["muted"], linewidth=1.0)
    if figure.diagonal:
        axes.plot(x_limits, x_limits, color=PLACEHOLDERS["muted"], linewidth=0.9, dashes=(2, 2))
    for line in panel.lines:
        if figure.kind == "scatter":
            _scatter(axes, line)
        else:
            _band(axes, line)
            _curve(axes, line)
    if figure.log_y:
        axes.set_yscale("log")
        axes.yaxis.set_minor_locator(NullLocator())
    _axes(axes, figure, x_limits, y_limits)
    for i, mark in enumerate(panel.marks):
        _point_out(axes, mark, i, x_limits)
    axes.yaxis.set_major_locator(FixedLocator(list(ticks)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _position: ticks[value]))
    sns.despine(ax=axes, left=True)


def _axes(axes: Axes, figure: Figure, x_limits: tuple[float, float], y_limits: tuple[float, float]) -> None:
    xs = list(figure.x_ticks) or sorted({x for panel in figure.panels for line in panel.lines for x in line.x})
    if figure.log_x:
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_locator(FixedLocator(_few(xs, 8)))
        axes.xaxis.set_minor_locator(NullLocator())
    elif figure.x_ticks:
        axes.xaxis.set_major_locator(FixedLocator(_few(xs, 6)))
    else:
        axes.xaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 2.5, 5, 10]))
    axes.xaxis.set_major_formatter(FuncFormatter(_tick))
    axes.set_xlim(x_limits)
    axes.set_ylim(y_limits)


def _point_out(axes: Axes, mark: Mark, row: int, x_limits: tuple[float, float]) -> None:
    """Draw a mark: a dotted vertical line, its CI as a faint band, and its label in a row above the axes."""
    left, right = x_limits
    if mark.low is not None and mark.high is not None:
        axes.axvspan(max(mark.low, left), min(mark.high, right), color=PLACEHOLDERS["muted"], alpha=0.12, linewidth=0)
    stroke = axes.axvline(mark.x, color=PLACEHOLDERS["ink"], linewidth=1.3)
    stroke.set_dashes((1.2, 1.8) if row % 2 == 0 else (5, 2))
    on_left = axes.get_xaxis_transform().transform((mark.x, 0))[0] < axes.transAxes.transform((0.5, 0))[0]
    axes.annotate(
        mark.label,
        xy=(mark.x, 1.0),
        xycoords=axes.get_xaxis_transform(),
        xytext=(3 if on_left else -3, 3 + _MARK_ROW_PT * row),
        textcoords="offset points",
        ha="left" if on_left else "right",
        va="bottom",
        fontsize=10.5,
        annotation_clip=False,
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


def _tick(value: float, _position: int | None = None) -> str:
    """Format a tick with as few digits as possible."""
    return f"{value:.6g}".replace("-", MINUS)


def _band(axes: Axes, line: Line) -> None:
    """Draw the CI of a line as a band. Seaborn cannot: it only draws bands that it computes from samples."""
    if not line.low:
        return
    known = [
        (x, low, high)
        for x, low, high in zip(line.x, line.low, line.high, strict=True)
        if low is not None and high is not None
    ]
    if len(known) == 1:
        x, low, high = known[0]
        axes.vlines(x, low, high, color=PLACEHOLDERS[line.colour], linewidth=1.4)
    elif known:
        xs, lows, highs = zip(*known, strict=True)
        axes.fill_between(xs, lows, highs, color=PLACEHOLDERS[line.colour], alpha=0.14, linewidth=0)


def _curve(axes: Axes, line: Line) -> None:
    """Draw a line with dashes and markers. A line with many points is thin and solid, with few markers."""
    look = line_look(line.colour, line.style)
    if len(line.x) > _MARKED_POINTS:
        look |= {"linewidth": 1.2, "linestyle": "-", "markevery": len(line.x) // _LONG_MARKERS}
    known = [(x, y) for x, y in zip(line.x, line.y, strict=True) if y is not None]
    # same output as sns.lineplot, which is slower because it builds a table for each line
    axes.plot([x for x, _ in known], [y for _, y in known], **look)


def _scatter(axes: Axes, line: Line) -> None:
    """Draw bubbles whose area is proportional to the number of problems, large bubbles first."""
    order = np.argsort(-np.array(line.sizes), kind="stable")
    xs, ys, sizes = (np.array(values)[order] for values in (line.x, line.y, line.sizes))
    look = {"marker": MARKERS[line.style % len(MARKERS)], "color": PLACEHOLDERS[line.colour], "linewidth": 0.6}
    edge = PLACEHOLDERS["surface"]
    sns.scatterplot(x=xs, y=ys, s=25.0 * sizes, ax=axes, alpha=0.75, edgecolor=edge, legend=False, **look)


def _limits(figure: Figure) -> tuple[tuple[float, float], tuple[float, float]]:
    """Return axis limits for all panels. They include everything that is drawn, with a margin."""
    lines = [line for panel in figure.panels for line in panel.lines]
    xs = [x for line in lines for x in line.x]
    ys = [y for line in lines for y in (*line.y, *line.low, *line.high) if y is not None]
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
