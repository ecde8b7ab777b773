"""Axes as strokes and texts: places in points, ticks inside the limits, logarithms and layers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from matplotlib.figure import Figure as Canvas

from oversharp.reports.pictures.canvas import empty_canvas, report_style
from oversharp.reports.pictures.frame import TICK_PT, Frame, Scale
from oversharp.reports.pictures.inline import inline_svg


@pytest.fixture
def canvas() -> Iterator[Canvas]:
    with report_style():
        yield empty_canvas(200, 100)


def frame_of(canvas: Canvas, x: Scale, y: Scale, **more: Any) -> Frame:
    """A frame from 20 to 120 points from the left, and from 10 to 60 points from the top."""
    return Frame(canvas, place_pt=(20, 10, 100, 50), x=x, y=y, **more)


def paths(canvas: Canvas) -> list[tuple[str, str]]:
    return re.findall(r'<path d="([^"]+)" class="([^"]+)"', inline_svg(canvas))


def test_ticks_are_strokes_of_one_path_and_only_within_the_limits(canvas: Canvas) -> None:
    ticks = {-1.0: "−1", 0.0: "0", 5.0: "5", 10.0: "10", 11.0: "11"}
    frame_of(canvas, Scale(limits=(0, 10), ticks=ticks, tick_pt=TICK_PT), Scale(limits=(0, 1)), spines=())
    assert paths(canvas) == [("M200 600l0 35M700 600l0 35M1200 600l0 35", "s-muted")]
    assert re.findall(r'<text x="(\d+)" y="\d+">(\d+)</text>', inline_svg(canvas)) == [
        ("200", "0"), ("700", "5"), ("1200", "10")
    ]  # fmt: skip


def test_an_axis_may_be_inverted_and_has_a_grid_and_a_label(canvas: Canvas) -> None:
    """Row 1 of 5 is a fifth of the height below the top."""
    frame_of(
        canvas, Scale(limits=(0, 1)), Scale(limits=(5, 0), ticks={1.0: "a"}, label="rows", has_grid=True), spines=()
    )
    assert paths(canvas) == [("M200 200l1000 0", "s-grid")]
    texts = re.findall(r'<text x="(\d+)" y="\d+"[^>]*>(\w+)</text>', inline_svg(canvas))
    assert texts == [("165", "a"), ("40", "rows")], "the tick's label ends 3.5 points left of the frame"


def test_a_logarithmic_axis_has_equal_steps_for_equal_ratios(canvas: Canvas) -> None:
    frame = frame_of(canvas, Scale(limits=(1, 16), log_base=2), Scale(limits=(1e-2, 1e2), log_base=10))
    assert frame.to_page.transform((4.0, 1.0)) == pytest.approx((70.0, 65.0)), "the middle, from the lower left corner"


def test_spines_are_drawn_where_asked(canvas: Canvas) -> None:
    frame_of(canvas, Scale(limits=(0, 1)), Scale(limits=(0, 1)), spines=("left", "bottom"))
    assert paths(canvas) == [("M200 600l0-500M200 600l1000 0", "s-muted")]


@pytest.mark.parametrize(
    ("layer", "order"), [(0, ["f-c1", "s-muted", "s-muted"]), (10, ["s-muted", "f-c1", "s-muted"])]
)
def test_a_frame_of_a_higher_layer_is_drawn_later(canvas: Canvas, layer: float, order: list[str]) -> None:
    """An area is below the spines of its layer, and above those of the lower layer."""
    frame_of(canvas, Scale(limits=(0, 1)), Scale(limits=(0, 1)))
    upper = frame_of(canvas, Scale(limits=(0, 1)), Scale(limits=(0, 1)), layer=layer)
    upper.area([(0, 0), (1, 0), (1, 1)], "c1")
    drawn = [look for path, look in paths(canvas) for _ in range(path.count("M"))]
    assert drawn == order


def test_text_is_moved_by_points(canvas: Canvas) -> None:
    frame = frame_of(canvas, Scale(limits=(0, 10)), Scale(limits=(0, 10)), spines=())
    frame.text(5, 5, "here", offset_pt=(3, -7), va="baseline", fontsize=10)
    assert '<text x="730" y="420" ' in inline_svg(canvas)
