"""Look of lines in figures and legends."""

from __future__ import annotations

from typing import Any

from oversharp.reports.pictures.palette import PLACEHOLDERS
from oversharp.reports.records import Colour

MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
DASHES: tuple[tuple[float, ...], ...] = ((), (4, 1.6), (1.2, 1.4), (6, 1.6, 1.2, 1.6), (8, 2), (3, 1, 1, 1, 1, 1))


def line_look(colour: Colour, style: int) -> dict[str, Any]:
    """Return the matplotlib properties of a line; dashes and marker distinguish lines without colour."""
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
