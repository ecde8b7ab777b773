"""The picture of a matrix of cosines."""

from __future__ import annotations

import re
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from reports.pictures.heatmap import EDGES, LEFT, OPACITY, SIDE, TOP, HeatPanel, heat_svg, shade

PANEL = HeatPanel(
    title="base",
    lines=(),
    description="Three <gradients>.",
    cells=((1.0, 0.5, -0.3), (0.5, 1.0, 0.0), (-0.3, 0.0, 1.0)),
    groups=(("1", 2), ("2", 1)),
    marked=(True, False, True),
)


def svg_of(panel: HeatPanel = PANEL) -> str:
    return heat_svg(panel, prefix="heat-0", title="Kernel: base")


def test_equal_neighbours_are_one_rectangle_and_zero_is_the_page() -> None:
    row = replace(PANEL, cells=((0.9, 0.9, 0.9),) * 3)
    assert re.findall(r'd="([^"]+)"[^>]*stroke-opacity', svg_of(row)) == ["M0 0h3M0 1h3M0 2h3"]
    nothing = replace(PANEL, cells=((0.0, 0.0, 0.0),) * 3)
    assert not re.findall(r'<path d="[^"]+"[^>]*stroke-opacity', svg_of(nothing))


def test_the_strokes_of_the_cells_fill_the_frame() -> None:
    """Three cells a side: a stroke is a third of the side wide, and the first lies half of that below the top."""
    (place,) = re.findall(r'transform="translate\(([\d.]+) ([\d.]+)\)scale\(([\d.]+)\)"', svg_of())
    left, top, side = map(float, place)
    assert (left, side) == (LEFT, pytest.approx(SIDE / 3, abs=1e-3))
    assert top == pytest.approx(TOP + SIDE / 6, abs=1e-3)


def test_sign_is_colour_and_size_is_shade() -> None:
    assert shade(0.5) == ("c1", 0.52)
    assert shade(-0.3) == ("c2", 0.32)
    assert shade(0.049) is None
    assert [shade(edge) for edge in EDGES] == [("c1", opacity) for opacity in OPACITY]
    drawn = set(re.findall(r'class="(s-c[12])" stroke-opacity="([\d.]+)"', svg_of()))
    assert drawn == {("s-c1", "1"), ("s-c1", "0.52"), ("s-c2", "0.32")}


def test_it_has_a_name_a_description_and_no_style() -> None:
    svg = svg_of()
    assert 'role="img" aria-labelledby="heat-0-title heat-0-desc"' in svg
    assert '<title id="heat-0-title">Kernel: base</title><desc id="heat-0-desc">Three &lt;gradients&gt;.</desc>' in svg
    assert "style=" not in svg
    assert "#" not in svg
    ElementTree.fromstring(svg)


def test_names_stand_at_the_middle_of_their_group_and_do_not_crowd() -> None:
    assert re.findall(r">(\d+)</text>", svg_of())[:2] == ["1", "2"]
    many = HeatPanel(
        title="",
        lines=(),
        cells=((0.0,) * 60,) * 60,
        groups=tuple((str(i), 1) for i in range(60)),
        marked=(False,) * 60,
    )
    assert re.findall(r'text-anchor="end"[^>]*>(\d+)</text>', svg_of(many)) == [str(i) for i in range(0, 60, 3)]


def test_a_large_kernel_stays_small() -> None:
    cells = tuple(tuple(1.0 if i == j else ((i * 37 + j * 37) % 21 - 10) / 10 for j in range(96)) for i in range(96))
    panel = HeatPanel(title="", lines=(), cells=cells, groups=(("1", 96),), marked=(True,) * 96)
    assert len(svg_of(panel)) < 100_000


def test_rows_that_do_not_add_up_are_refused() -> None:
    with pytest.raises(ValueError, match="3 rows, but marks, groups or columns differ"):
        replace(PANEL, groups=(("1", 2),))
