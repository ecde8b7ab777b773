"""Figures that show what another one shows already: one of them is drawn, the others say so and keep their data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from oversharp.reports.records import Block, Constant, Figure, Folded, Section

#: Of a figure: the units of its axis, and of every line its panel, name and points.
_Points = tuple[object, ...]


def without_twins(sections: Sequence[Section]) -> tuple[Section, ...]:
    """The sections with every figure once, the first of those that have the same points in the same unit.

    The same points with the opposite meaning, kept beside lost, count as the same where both are shares.
    """
    seen: dict[_Points, str] = {}
    return tuple(replace(one, blocks=tuple(_once(block, seen) for block in one.blocks)) for one in sections)


def _once(block: Block, seen: dict[_Points, str]) -> Block:
    if isinstance(block, Folded):
        return replace(block, blocks=tuple(_once(inner, seen) for inner in block.blocks))
    if not isinstance(block, Figure) or not any(line.x for panel in block.panels for line in panel.lines):
        return block
    points, opposite = _points(block, opposite=False), _points(block, opposite=True)
    same, other = seen.get(points), seen.get(opposite)
    if same is None and (other is None or block.y_range != (0.0, 1.0)):
        seen[points] = block.title
        return block
    said = f"the points of «{same}»" if same is not None else f"1 minus the points of «{other}»"
    return Constant(
        title=block.title, text=f"{block.caption} Here these are {said}, and are not drawn twice.", table=block.table
    )


def _points(figure: Figure, *, opposite: bool) -> _Points:
    def of(y: float) -> float:
        return round(1.0 - y, 12) if opposite else round(y, 12)

    lines = tuple(
        (panel.title, line.label, line.x, tuple(map(of, line.y))) for panel in figure.panels for line in panel.lines
    )
    return (figure.x_label, lines)
