"""Replace figures whose points another figure already shows by a reference, and keep their data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from oversharp.reports.records import Block, Constant, Figure, Folded, Section

#: Axis label of a figure, and panel, label and points of each line.
_Points = tuple[object, ...]


def without_twins(sections: Sequence[Section]) -> tuple[Section, ...]:
    """Return the sections with only the first of the figures that have the same points and unit.

    Complementary shares (1 − y, such as kept and lost) are duplicates too.
    """
    seen: dict[_Points, str] = {}
    return tuple(
        replace(section, blocks=tuple(_replace_twin(block, seen) for block in section.blocks)) for section in sections
    )


def _replace_twin(block: Block, seen: dict[_Points, str]) -> Block:
    if isinstance(block, Folded):
        return replace(block, blocks=tuple(_replace_twin(inner, seen) for inner in block.blocks))
    if not isinstance(block, Figure) or not any(line.x for panel in block.panels for line in panel.lines):
        return block
    points, opposite = _points(block, opposite=False), _points(block, opposite=True)
    same, other = seen.get(points), seen.get(opposite)
    if same is None and (other is None or block.y_range != (0.0, 1.0)):
        seen[points] = block.title
        return block
    same_points = f"the points of «{same}»" if same is not None else f"1 minus the points of «{other}»"
    return Constant(
        title=block.title, text=f"{block.caption} These are {same_points} and are not drawn again.", table=block.table
    )


def _points(figure: Figure, *, opposite: bool) -> _Points:
    def flip(y: float) -> float:
        return round(1.0 - y, 12) if opposite else round(y, 12)

    lines = tuple(
        (panel.title, line.label, line.x, tuple(map(flip, line.y))) for panel in figure.panels for line in panel.lines
    )
    return (figure.x_label, lines)
