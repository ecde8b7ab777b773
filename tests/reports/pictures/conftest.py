"""Figure records with numbers known by hand."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from oversharp.reports.pictures.plane import Plane, Spot
from oversharp.reports.records import ChangeMap, Figure, HeatMap, Line, Panel, Table

Make = Callable[..., Figure]

LINE = Line(
    label="grpo", x=(1, 2, 4), y=(0.5, 0.7, 0.9), low=(0.4, 0.6, None), high=(0.6, 0.8, None), colour="c1", style=1
)


@pytest.fixture
def figure() -> Make:
    """A figure of the given panels, by default one with one line; other fields by name."""

    def make(*panels: Panel, **fields: object) -> Figure:
        given: dict[str, object] = {
            "figure_id": "fig", "title": "Coverage", "caption": "", "x_label": "k", "y_label": "pass@k (probability)",
            "panels": panels or (Panel(title="", lines=(LINE,), description="grpo rises"),),
            "table": Table(title="data", columns=(), rows=()),
        }  # fmt: skip
        return Figure(**(given | fields))  # type: ignore[arg-type]

    return make


@pytest.fixture
def heat_map() -> HeatMap:
    cells = ((1.0, 0.5, -0.3), (0.5, 1.0, 0.0), (-0.3, 0.0, 1.0))
    said = {"title": "base", "lines": (), "description": "Three <gradients>."}
    return HeatMap(**said, cells=cells, groups=(("1", 2), ("2", 1)), marked=(True, False, True))


@pytest.fixture
def changes() -> ChangeMap:
    cells, sure = ((-8.0, -8.5, None), (3.0, 0.1, 0.0)), ((True, False, False), (True, False, False))
    said = {"title": "grpo", "lines": (), "description": "A <map>."}
    return ChangeMap(**said, columns=("10", "20", "30"), rows=("4", "1"), cells=cells, sure=sure, scale=10.0)


@pytest.fixture
def plane() -> Plane:
    """A run of three checkpoints beside its base at two lower temperatures."""
    colder = Line(label="base", x=(0.3, 0.4, 0.5), y=(0.9, 0.85, 0.7), colour="muted", style=1)
    run = Line(label="grpo", x=(0.3, 0.5, 0.6), y=(0.9, 0.7, 0.65), colour="c1", style=0)
    return Plane(
        title="", lines=(colder, run), names=(("base", "T=0.6", "T=0.3"), ("", "20", "step 40")),
        description="grpo leaves its base.", curve=tuple(zip(colder.x, colder.y, strict=True)),
        higher_t=((Spot(name="step 40", x=0.6, y=0.65), Spot(name="T=1.2", x=0.5, y=0.75), "c1"),),
    )  # fmt: skip


@pytest.fixture
def path_points() -> Callable[[str], list[tuple[float, float]]]:
    """Absolute end points, in points, of a path with relative lines in tenths, as a browser would read it."""

    def points(path: str) -> list[tuple[float, float]]:
        found: list[tuple[float, float]] = []
        for command, rest in re.findall(r"([Mla])([^Mlaz]*)", path):
            numbers = [float(text) for text in re.findall(r"-?\d+\.?\d*", rest)]
            size = 7 if command == "a" else 2
            for i in range(0, len(numbers), size):
                x, y = numbers[i : i + size][-2:]
                before = (0.0, 0.0) if command == "M" else found[-1]
                found.append((before[0] + x / 10, before[1] + y / 10))
        return found

    return points
