"""Sparkline of the success rate of one problem over the checkpoints."""

from __future__ import annotations

from collections.abc import Sequence
from xml.etree import ElementTree

from oversharp.reports.records import Colour, Course

WIDTH, HEIGHT, EDGE = 72, 22, 3


def sparkline_svg(courses: Sequence[Course]) -> str:
    """Return a line from 0 to the maximum success rate, checkpoints equally spaced, with a dot at the last.

    Decorative, because the table of counts has the values. Empty if no series has two checkpoints.
    """
    drawn = [course for course in courses if len(course.shares) > 1]
    if not drawn:
        return ""
    svg = ElementTree.Element("svg", {"viewBox": f"0 0 {WIDTH} {HEIGHT}", "aria-hidden": "true"})
    _line(svg, f"M{EDGE} {HEIGHT - EDGE}h{WIDTH - 2 * EDGE}", "grid", 1.0)
    largest = max(share for course in drawn for share in course.shares) or 1.0
    for course in drawn:
        step = (WIDTH - 2 * EDGE) / (len(course.shares) - 1)
        heights = [HEIGHT - EDGE - share / largest * (HEIGHT - 2 * EDGE) for share in course.shares]
        points = [f"{round(EDGE + i * step, 1):g} {round(y, 1):g}" for i, y in enumerate(heights)]
        _line(svg, f"M{' '.join(points)}", course.colour, 1.5)
        x, y = points[-1].split()
        ElementTree.SubElement(svg, "circle", {"cx": x, "cy": y, "r": "2", "class": f"f-{course.colour}"})
    return ElementTree.tostring(svg, encoding="unicode").replace(" />", "/>")


def _line(svg: ElementTree.Element, path: str, colour: Colour, width: float) -> None:
    look = {"d": path, "fill": "none", "class": f"s-{colour}", "stroke-width": f"{width:g}"}
    ElementTree.SubElement(svg, "path", look)
