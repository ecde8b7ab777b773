"""Style of all pictures, with placeholder colours."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import matplotlib
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
    "text.color": PLACEHOLDERS["ink"],
    "lines.solid_capstyle": "round",
    "figure.facecolor": "none",
}


def report_style() -> AbstractContextManager[None]:
    """Return a context in which canvases are made, drawn and saved in the report's style."""
    return matplotlib.rc_context(_STYLE)


def empty_canvas(width_pt: float, height_pt: float) -> Canvas:
    """Return a canvas with one pixel per point. Make it inside ``report_style``."""
    return Canvas(figsize=(width_pt / POINTS_PER_INCH, height_pt / POINTS_PER_INCH), dpi=POINTS_PER_INCH)


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
