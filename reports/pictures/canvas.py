"""Style of all pictures, with placeholder colours, and placement of axes in points."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import matplotlib
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas

from oversharp.reports.pictures.palette import PLACEHOLDERS
from oversharp.reports.records import Colour

MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
DASHES: tuple[tuple[float, ...], ...] = ((), (4, 1.6), (1.2, 1.4), (6, 1.6, 1.2, 1.6), (8, 2), (3, 1, 1, 1, 1, 1))
POINTS_PER_INCH = 72.0

_STYLE: dict[Any, Any] = {
    "text.parse_math": False,  # names may contain dollar signs, which are not mathematics
    "svg.fonttype": "none",
    "pdf.fonttype": 42,  # TrueType, because conferences refuse Type 3 fonts, which are matplotlib's default
    "ps.fonttype": 42,
    "svg.hashsalt": "oversharp",
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 12.0,
    "axes.labelsize": 12.0,
    "xtick.labelsize": 11.5,
    "ytick.labelsize": 11.5,
    "axes.edgecolor": PLACEHOLDERS["muted"],
    "axes.labelcolor": PLACEHOLDERS["ink"],
    "xtick.color": PLACEHOLDERS["muted"],
    "ytick.color": PLACEHOLDERS["muted"],
    "text.color": PLACEHOLDERS["ink"],
    "axes.linewidth": 0.8,
    "xtick.major.width": 0.8,
    "ytick.major.width": 0.0,
    "xtick.major.size": 3.5,
    "ytick.major.size": 0.0,
    "axes.facecolor": "none",
    "figure.facecolor": "none",
}


@contextmanager
def empty_canvas(width_pt: float, height_pt: float) -> Iterator[Canvas]:
    """Yield a canvas with one pixel per point. The report's style applies only inside the context."""
    with sns.axes_style("ticks"), matplotlib.rc_context(_STYLE):
        yield Canvas(figsize=(width_pt / POINTS_PER_INCH, height_pt / POINTS_PER_INCH), dpi=POINTS_PER_INCH)


def place_axes(canvas: Canvas, left_pt: float, top_pt: float, width_pt: float, height_pt: float) -> Axes:
    """Add axes at a position in points from the upper left corner."""
    width, height = canvas.bbox.size
    return canvas.add_axes((left_pt / width, 1 - (top_pt + height_pt) / height, width_pt / width, height_pt / height))


def label_axes(axes: Axes, x_label: str, y_label: str) -> None:
    """Label the axes. The y label is horizontal and above its axis, so that long labels fit."""
    axes.set_xlabel(x_label, labelpad=4)
    axes.set_ylabel(y_label, rotation=0, ha="left", va="center")
    width, height = axes.figure.bbox.size
    axes.yaxis.set_label_coords(4 / width, 1 - 12 / height, transform=axes.figure.transFigure)


def line_look(colour: Colour, style: int) -> dict[str, Any]:
    """Return the matplotlib properties of a line. Dashes and marker distinguish lines for readers without colour."""
    dashes = DASHES[style % len(DASHES)]
    return {
        "color": PLACEHOLDERS[colour],
        "linewidth": 1.9,
        "linestyle": (0, dashes) if dashes else "-",
        "marker": MARKERS[style % len(MARKERS)],
        "markersize": 6.0,
        "markerfacecolor": PLACEHOLDERS[colour],
        "markeredgecolor": PLACEHOLDERS["surface"],
        "markeredgewidth": 0.9,
    }
