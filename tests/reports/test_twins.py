"""Figures that show the same points as another one."""

from __future__ import annotations

from dataclasses import replace

from oversharp.reports.page import without_twins
from oversharp.reports.records import Constant, Figure, Folded, Line, Panel, Section, Table


def figure_of(y: tuple[float, ...]) -> Figure:
    line = Line(label="grpo", x=(0.0, 10.0), y=y, colour="c1", style=0)
    return Figure(
        figure_id="f", title="", caption="", x_label="step", y_label="", panels=(Panel(title="", lines=(line,)),),
        table=Table(title="data", columns=(), rows=()),
    )  # fmt: skip


def test_a_figure_is_drawn_once_and_its_twin_says_whose_points_it_has() -> None:
    lost = replace(figure_of(y=(0.0, 0.25)), title="Lost", y_range=(0.0, 1.0))
    forgotten, kept = (
        replace(lost, title="Forgotten"),
        replace(figure_of(y=(1.0, 0.75)), title="Kept", y_range=(0.0, 1.0)),
    )
    other = replace(figure_of(y=(0.0, 0.3)), title="Other")
    unbounded = replace(kept, title="Unbounded", y_range=None)  # 1 minus its values means nothing
    inside = Folded(title="more", summary="", blocks=(forgotten, unbounded))
    sections = [
        Section(section_id=s, title=s, lead=(), blocks=b) for s, b in (("a", (lost, kept)), ("b", (inside, other)))
    ]
    (first, second) = without_twins(sections)
    assert [type(block) for block in first.blocks] == [Figure, Constant]
    assert "1 minus those of «Lost»" in first.blocks[1].text  # type: ignore[union-attr]
    folded, last = second.blocks
    assert isinstance(folded, Folded)
    assert [type(block) for block in folded.blocks] == [Constant, Figure]
    assert "The values are those of «Lost»" in folded.blocks[0].text  # type: ignore[union-attr]
    assert folded.blocks[0].table == forgotten.table  # type: ignore[union-attr]
    assert last == other
