"""Placeholder colours for matplotlib. The stylesheet replaces them by the colours of light, dark and print."""

from __future__ import annotations

from oversharp.reports.records import Colour

#: CSS variable → placeholder, which is the colour of the light theme. All placeholders are distinct.
PLACEHOLDERS: dict[Colour, str] = {
    "c1": "#0b66a8",
    "c2": "#c24e00",
    "c3": "#00795a",
    "c4": "#a8457f",
    "c5": "#8a6d00",
    "c6": "#3a86b7",
    "c7": "#6b4fbb",
    "c8": "#5c5c5c",
    "q1": "#a87400",
    "q2": "#c85a3c",
    "q3": "#bf3468",
    "q4": "#8f2d8f",
    "q5": "#5a2fa0",
    "q6": "#2b2a7a",
    "ink": "#1c2430",
    "muted": "#626d7c",
    "grid": "#e3e7ec",
    "surface": "#ffffff",
}

#: CSS variable → colour of the dark theme.
DARK: dict[Colour, str] = {
    "c1": "#5fb0f0",
    "c2": "#ff9457",
    "c3": "#3fc79a",
    "c4": "#ee8fc4",
    "c5": "#e0c04a",
    "c6": "#8fd0f5",
    "c7": "#b7a2ff",
    "c8": "#b5b5b5",
    "q1": "#f5c451",
    "q2": "#ff9e78",
    "q3": "#ff7fa6",
    "q4": "#e184e1",
    "q5": "#b69cff",
    "q6": "#8fa4ff",
    "ink": "#e6eaf0",
    "muted": "#9aa6b5",
    "grid": "#2c3542",
    "surface": "#161c25",
}


def variables(colours: dict[Colour, str]) -> str:
    """Return the CSS declarations of these variables.

    >>> variables({"ink": "#000000"})
    '--ink:#000000;'
    """
    return "".join(f"--{name}:{value};" for name, value in colours.items())


def rules() -> str:
    """Return CSS classes for fills and strokes.

    SVG attributes cannot use ``var()``, and the Content-Security-Policy forbids inline styles.
    """
    return "".join(f".f-{name}{{fill:var(--{name})}}.s-{name}{{stroke:var(--{name})}}" for name in PLACEHOLDERS)
