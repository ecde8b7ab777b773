"""Figure records as pictures."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree

import pytest

from oversharp.reports.pictures.drawing import figure_svgs, swatch_svg, tick_texts
from oversharp.reports.pictures.plane import Plane
from oversharp.reports.records import ChangeMap, Figure, HeatMap, Line, Panel


@pytest.mark.slow
def test_nothing_but_classes_paints_and_only_what_pages_share_has_an_id(
    figure: Callable[..., Figure], heat_map: HeatMap, changes: ChangeMap, plane: Plane
) -> None:
    clouds = Line(label="", x=(0.0, 1.0), y=(1.0, 0.0), colour="c2", style=0, sizes=(1.0, 4.0))
    kinds = (figure(), figure(Panel(title="", lines=(clouds,)), kind="scatter"), figure(heat_map), figure(changes))
    kinds = (*kinds, figure(plane))
    for kind in kinds:
        (svg,) = figure_svgs(kind)
        root = ElementTree.fromstring(svg)
        assert {element.tag for element in root.iter()} <= {"svg", "g", "path", "text", "defs", "marker", "use"}
        names = {name for element in root.iter() for name in element.attrib}
        assert not names & {"style", "fill", "stroke"}
        assert all(element.attrib.get("href", "#").startswith("#") for element in root.iter())
        shared = set(root.findall("defs/*"))
        assert {element for element in root.iter() if "id" in element.attrib} == shared
        assert root.attrib["role"] == "img"
        assert svg == figure_svgs(kind)[0]


def test_a_picture_is_named_by_figure_and_panel(figure: Callable[..., Figure]) -> None:
    panels = (Panel(title="", lines=figure().panels[0].lines, description="grpo rises"),)
    (svg,) = figure_svgs(figure(*panels))
    assert svg.startswith('<svg viewBox="0 0 3800 2560" role="img" aria-label="grpo rises" data-points=')
    (named,) = figure_svgs(figure(replace(panels[0], title="iac", description="")))
    assert 'aria-label="Coverage: iac"' in named


def test_a_line_runs_through_its_values_with_its_band_and_markers(
    figure: Callable[..., Figure], path_points: Callable[[str], Any]
) -> None:
    """x from 1 to 4 with 3 % of air, y from 0 to 0.9 with 4 % above: (1, 0.5) lies at 48 + 320 · 0.09 / 3.18."""
    (svg,) = figure_svgs(figure())
    ((line, marker),) = re.findall(r'<path d="([^"]+)" class="s-c1 (m\w+)"[^>]*stroke-dasharray="[^"]+"', svg)
    points = path_points(line)
    assert points[0] == pytest.approx((48 + 320 * 0.09 / 3.18, 212 - 184 * 0.5 / 0.936), abs=0.06)
    assert points[2] == pytest.approx((48 + 320 * 3.09 / 3.18, 212 - 184 * 0.9 / 0.936), abs=0.06)
    assert len(re.findall(r'class="f-c1" fill-opacity="0.14"', svg)) == 1
    assert len(points) == 3
    assert re.search(rf'id="{marker}"><path class="f-c1 s-surface"', svg), "the line carries them at each of its points"


def test_a_picture_takes_few_bytes(figure: Callable[..., Figure]) -> None:
    """A page holds hundreds: two lines of nine points with their bands, whose markers alone would take 600 bytes."""
    xs = tuple(float(20 * i) for i in range(9))
    lines = tuple(
        Line(label="", x=xs, y=tuple(0.01 * (x % 7) + i for x in xs), colour=colour, style=i)
        for i, colour in enumerate(("c1", "c2"))
    )
    (svg,) = figure_svgs(figure(Panel(title="", lines=lines)))
    assert len(re.sub(r"<defs>.*</defs>| data-points=\"[^\"]*\"", "", svg)) < 1300


def test_a_long_line_is_solid_and_carries_few_markers(
    figure: Callable[..., Figure], path_points: Callable[[str], Any]
) -> None:
    xs = tuple(float(i) for i in range(100))
    (svg,) = figure_svgs(figure(Panel(title="", lines=(Line(label="", x=xs, y=xs, colour="c1", style=1),))))
    assert "stroke-dasharray" not in svg
    (markers,) = re.findall(r'<path d="([^"]+)" class="m\w+"', svg)
    assert len(path_points(markers)) == 9


def test_lines_keep_the_order_of_their_points(figure: Callable[..., Figure], path_points: Callable[[str], Any]) -> None:
    """Checkpoints in training order may go back in x."""
    back = Line(label="", x=(1.0, 3.0, 2.0), y=(0.1, 0.2, 0.3), colour="c1", style=0)
    (svg,) = figure_svgs(figure(Panel(title="", lines=(back,))))
    (path,) = re.findall(r'<path d="([^"]+)" class="s-c1 m\w+"', svg)
    xs = [x for x, _ in path_points(path)]
    assert xs[0] < xs[2] < xs[1]


def test_large_bubbles_lie_below_small_ones(figure: Callable[..., Figure], path_points: Callable[[str], Any]) -> None:
    clouds = Line(label="", x=(0.0, 1.0), y=(1.0, 0.0), colour="c2", style=0, sizes=(1.0, 4.0))
    (svg,) = figure_svgs(figure(Panel(title="", lines=(clouds,)), kind="scatter"))
    assert re.findall(r'd="M[^"]+?a([\d.]+) ', svg) == ["50", "25"]


def test_lines_differ_by_dashes_and_markers_not_by_colour_alone() -> None:
    line = Line(label="", x=(0,), y=(0,), colour="c1", style=0)
    assert len({swatch_svg(replace(line, style=style), kind="line") for style in range(6)}) == 6
    assert "<path" in swatch_svg(line, kind="scatter")


def test_panels_share_their_axis(figure: Callable[..., Figure]) -> None:
    high = Line(label="iac", x=(1, 4), y=(0.1, 3.0), colour="c2", style=0)
    svgs = figure_svgs(figure(Panel(title="a", lines=figure().panels[0].lines), Panel(title="b", lines=(high,))))
    groups = [re.findall(r'<g [^>]*text-anchor="end"[^>]*>(.+?)</g>', svg) for svg in svgs]
    ticks = [re.findall(r">([^<]+)<", "".join(group)) for group in groups]
    assert ticks[0] == ticks[1]
    assert "3" in ticks[0]


@pytest.mark.slow
@pytest.mark.xdist_group("html")
def test_every_picture_of_a_page_lies_inside_its_frame(html: str, path_points: Callable[[str], Any]) -> None:
    """Nothing is clipped, so nothing may be drawn beyond the edge."""
    found = list(re.finditer(r'<svg viewBox="0 0 ([\d.]+) ([\d.]+)" role="img".+?</svg>', html))
    assert len(found) > 5
    for match in found:
        width, height = float(match[1]) / 10, float(match[2]) / 10
        for path in re.findall(r'<path d="(M[^h"]+)"', match[0]):
            assert all(-1 <= x <= width + 1 and -1 <= y <= height + 1 for x, y in path_points(path))


@pytest.mark.parametrize(
    "values", [[2.05e-4, 2.10e-4, 2.15e-4], [1000.0001, 1000.0002], [1e4, 2e4, 3e4], [-1e6, 0, 1e6]]
)
def test_ticks_of_any_size_stay_distinct_and_true(values: list[float]) -> None:
    texts = tick_texts(values, (min(values), max(values)))
    assert len(set(texts.values())) == len(values)
    read = [float(text.replace("\N{MINUS SIGN}", "-")) for text in texts.values()]
    assert read == pytest.approx(values, rel=1e-9)


def test_ticks_outside_of_the_axis_are_left_out() -> None:
    assert list(tick_texts([-0.5, 0.0, 0.5, 1.0], (0.0, 0.9))) == [0.0, 0.5]
