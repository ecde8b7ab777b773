"""Maps of cosines and of changes."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from oversharp.reports.pictures.drawing import figure_svgs
from oversharp.reports.pictures.maps import CHANGE_OPACITY, COSINE_OPACITY, EDGES, levels
from oversharp.reports.records import ChangeMap, Figure, HeatMap


def texts_of(svg: str) -> list[str]:
    return re.findall(r">([^<]+)</text>", svg)


def test_sign_is_colour_and_size_is_shade(figure: Callable[..., Figure], heat_map: HeatMap) -> None:
    assert levels(np.array([[*EDGES, 0.049, -0.05, -1.0]]), 1.0).tolist() == [[1, 2, 3, 4, 5, 0, -1, -5]]
    assert levels(np.array([[-7.0, 0.4]]), 10.0).tolist() == [[-4, 0]]
    half, cells, key = re.findall(r"<g (?:id|transform)=.+?</g>", figure_svgs(figure(heat_map))[0])
    assert re.findall(r'd="([^"]+)" class="(s-c\d)"(?: stroke-opacity="([\d.]+)")?', half + cells) == [
        ("M1 0h1", "s-c1", "0.52"),
        ("M2 0h1", "s-c2", "0.32"),
        ("M0 0h1M1 1h1M2 2h1", "s-c1", ""),
    ]
    assert key.count("<path") == 2 * len(COSINE_OPACITY)


def test_the_cells_fill_the_frame_and_the_key_spans_the_scale(figure: Callable[..., Figure], heat_map: HeatMap) -> None:
    """Three cells in 316 points: a stroke is a third of that wide, and the first lies half of it below the top."""
    (svg,) = figure_svgs(figure(heat_map))
    cells, key = re.findall(r'<g transform="matrix\(([^)]+)\)"', svg)
    assert cells == "1053.33 0 0 1053.33 520 766.667"
    # the mesh of the key runs along its columns: eleven shades from left to right
    assert [float(number) for number in key.split()[:4]] == pytest.approx([0, -120, 3160 / 11, 0], abs=1e-3)
    assert texts_of(svg)[-3:] == ["−1", "0", "+1"]


def test_marks_stand_beside_the_rows_and_above_the_columns(figure: Callable[..., Figure], heat_map: HeatMap) -> None:
    (svg,) = figure_svgs(figure(heat_map))
    (strips,) = re.findall(r'd="([^"]+)" class="s-c3" stroke-width="70"', svg)
    assert strips == "M465 240l0 1053M465 2347l0 1053M520 185l1053 0M2627 185l1053 0"


def test_names_stand_at_the_middle_of_their_group_and_do_not_crowd(
    figure: Callable[..., Figure], heat_map: HeatMap
) -> None:
    assert texts_of(figure_svgs(figure(heat_map))[0])[:2] == ["1", "2"]
    many = replace(
        heat_map, cells=((0.0,) * 60,) * 60, groups=tuple((str(i), 1) for i in range(60)), marked=(False,) * 60
    )
    (svg,) = figure_svgs(figure(many))
    assert texts_of(svg)[:-3] == [str(i) for i in range(0, 60, 3)]


def test_a_large_kernel_stays_small(figure: Callable[..., Figure], heat_map: HeatMap) -> None:
    cells = tuple(tuple(1.0 if i == j else ((i * 37 + j * 37) % 21 - 10) / 10 for j in range(96)) for i in range(96))
    panel = replace(heat_map, cells=cells, groups=(("1", 96),), marked=(True,) * 96)
    assert len(figure_svgs(figure(panel))[0]) < 50_000


def test_cells_show_whole_points_where_they_fit_and_a_dash_where_unknown(
    figure: Callable[..., Figure], changes: ChangeMap
) -> None:
    (svg,) = figure_svgs(figure(changes))
    assert [text for text in texts_of(svg) if text[0] in "−+–0"][:6] == ["−8", "−8", "–", "+3", "0", "0"]
    columns = tuple(map(str, range(40)))
    many = replace(changes, columns=columns, rows=("1",), cells=((-8.0,) * 40,), sure=((False,) * 40,))
    assert "−8" not in texts_of(figure_svgs(figure(many))[0])
    assert max(CHANGE_OPACITY) <= 0.5, "ink stays readable on the darkest shade"


@pytest.mark.slow
def test_maps_of_three_series_are_small_and_need_no_key_where_cells_have_numbers(
    figure: Callable[..., Figure], changes: ChangeMap
) -> None:
    def drawn(n: int, panel: ChangeMap = changes) -> tuple[list[str], float]:
        svg = figure_svgs(figure(*[panel] * n))[0]
        return texts_of(svg), float(re.findall(r'viewBox="0 0 ([0-9.]+)', svg)[0])

    (large, width), (small, small_width) = drawn(2), drawn(3)
    assert "+10" in large
    assert "+10" not in small
    assert {"−8", "+3", "–"} <= set(small)
    assert small_width / width == pytest.approx(284 / 380)
    many = replace(changes, columns=tuple(map(str, range(40))), cells=((-8.0,) * 40,) * 2, sure=((False,) * 40,) * 2)
    assert "+10" in drawn(3, many)[0]


def test_a_corner_points_up_for_a_rise_and_down_for_a_fall(figure: Callable[..., Figure], changes: ChangeMap) -> None:
    """Cells are 115.6 × 24 points from (19.2, 24) on: the right edge of the first column lies at 134.8."""
    (svg,) = figure_svgs(figure(changes))
    (corners,) = re.findall(r'<path d="([^"]+)" class="f-ink"', svg)
    assert corners == "M1348 480l0-60-60 60zM1348 480l0 60-60-60z"


def test_a_row_is_outlined_and_named_and_many_rows_share_the_height(
    figure: Callable[..., Figure], changes: ChangeMap
) -> None:
    """Rows of 24 points from 24 on: the second lies between 48 and 72, 346.8 points wide."""
    (svg,) = figure_svgs(figure(replace(changes, outlined=1)))
    (frame,) = re.findall(r'<path d="([^"]+)" class="s-ink" stroke-width="22"', svg)
    assert frame == "M192 480l3468 0 0 240-3468 0z"
    steps = tuple(map(str, range(0, 800, 20)))
    many = replace(changes, rows=steps, cells=((-8.0,) * 3,) * 40, sure=((False,) * 3,) * 40, outlined=25)
    (svg,) = figure_svgs(figure(many))
    assert float(re.findall(r'viewBox="0 0 3800 ([\d.]+)"', svg)[0]) == 10 * (24 + 288 + 44 + 12 + 20)
    names = [text for text in texts_of(svg) if text in steps]
    assert "500" in names, "the outlined row has its name"
    assert 10 < len(names) < 22
    assert "−8" not in texts_of(svg)


def test_rows_that_do_not_add_up_and_cells_that_do_not_fit_their_names_are_refused(
    heat_map: HeatMap, changes: ChangeMap
) -> None:
    with pytest.raises(ValueError, match="3 rows, but marks, groups or columns"):
        replace(heat_map, groups=(("1", 2),))
    with pytest.raises(ValueError, match="2 rows and widths"):
        replace(changes, columns=("10", "20"))
