"""Runs beside their base drawn sharper, as pictures: everything inside, and every name where it can be read."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree

import pytest

from oversharp.reports.pictures.drawing import draw_panel, figure_svgs
from oversharp.reports.pictures.files import figure_pictures
from oversharp.reports.pictures.plane import NAME_PT, Plane, Spot, WantedName, place_names
from oversharp.reports.records import Figure, Line


def names(svg: str) -> list[str]:
    return [element.text or "" for element in ElementTree.fromstring(svg).iter("text")]


def test_a_greedy_end_far_below_stands_on_the_edge_and_says_how_far(
    figure: Callable[..., Figure], plane: Plane
) -> None:
    near, far = (replace(plane, greedy=Spot(name="greedy", x=0.5, y=y)) for y in (0.6, 0.1))
    (near_svg,), (far_svg,) = figure_svgs(figure(near)), figure_svgs(figure(far))
    assert "greedy" in names(near_svg)
    assert "greedy ↓ 0.10" in names(far_svg)
    ticks = [float(name) for name in names(far_svg) if re.fullmatch(r"[\d.]+", name)]
    assert min(ticks) > 0.2, "the axis ends above it"


def test_all_that_is_drawn_lies_inside_the_frame(
    figure: Callable[..., Figure], plane: Plane, path_points: Callable[[str], Any]
) -> None:
    wide = ((-1.0, 2.0), (2.0, 2.0), (2.0, -1.0), (-1.0, -1.0))
    (svg,) = figure_svgs(figure(replace(plane, band=wide, greedy=Spot(name="greedy", x=0.5, y=0.1))))
    width, height = map(float, re.findall(r'viewBox="0 0 (\d+) (\d+)"', svg)[0])
    for path in re.findall(r'd="(M[^"]+)"', svg.split("</defs>")[-1]):
        assert all(0 <= x <= width and 0 <= y <= height for x, y in path_points(path))


def test_planes_beside_each_other_have_axes_of_one_length_and_of_probabilities(
    figure: Callable[..., Figure], plane: Plane
) -> None:
    """A walk of a hundredth must not look like one of three tenths."""
    walk = Line(label="iac", x=(0.97, 0.98, 0.97), y=(0.99, 0.99, 1.0), colour="c2", style=0)
    small = Plane(title="", lines=(walk,), names=(("base", "", "step 40"),), description="iac stays.")
    both, alone = figure(plane, small), figure(small)
    limits = []
    for whole, panel in ((both, plane), (both, small), (alone, small)):
        frame = draw_panel(whole, panel)
        limits.append((*frame.x.limits, *frame.y.limits))
    wide, beside, by_itself = limits
    for low, high in ((0, 1), (2, 3)):
        length = wide[high] - wide[low]
        assert beside[high] - beside[low] == pytest.approx(length)
        assert beside[low] < by_itself[low]
        assert by_itself[high] <= beside[high] <= 1 + 0.1 * length, "what no probability can be is no room"
    assert by_itself[1] - by_itself[0] == pytest.approx(0.0114)


def test_no_tick_is_below_0_or_above_1_where_nothing_was_ever_solved_or_all_was(figure: Callable[..., Figure]) -> None:
    for at in (0.0, 1.0):
        still = Line(label="grpo", x=(at, at), y=(at, at), colour="c1", style=0)
        stays = Plane(title="", lines=(still,), names=(("base", "step 40"),), description="It stays.")
        frame = draw_panel(figure(stays), stays)
        assert frame.x.limits[0] < at < frame.x.limits[1]
        ticks = [*frame.x.ticks, *frame.y.ticks]
        assert at in ticks
        assert 0.0 <= min(ticks) <= max(ticks) <= 1.0


def test_only_a_ring_is_drawn_in_ink(figure: Callable[..., Figure], plane: Plane) -> None:
    (plain,), (ringed,) = (
        figure_svgs(figure(one)) for one in (plane, replace(plane, ringed=(Spot(name="step 20", x=0.5, y=0.7),)))
    )
    assert "s-ink" not in plain
    assert ringed.count("s-ink") == 1
    assert "step 20" in names(ringed)


def test_names_that_have_to_stand_keep_clear_of_each_other_and_the_rest_give_way() -> None:
    crowd = [WantedName(text=f"T=0.{i}", x=100.0 + 4 * i, y=100.0, colour="ink") for i in range(5)]
    rest = [replace(one, text="40", must=False) for one in crowd]
    points = [(one.x, one.y) for one in crowd]
    placed = place_names([*crowd, *rest], frame=(0, 0, 250, 250), points=points)
    assert [one.wanted.text for one in placed if one.wanted.must] == [one.text for one in crowd]
    assert len(placed) < len(crowd) + len(rest)
    spans = [(one.left, one.left + 0.6 * NAME_PT * len(one.wanted.text), one.middle) for one in placed]
    for (left, right, middle), (other_left, other_right, other) in itertools.combinations(spans, 2):
        assert right <= other_left or other_right <= left or abs(middle - other) >= NAME_PT


@pytest.mark.slow
def test_a_file_says_under_the_picture_what_it_shows(figure: Callable[..., Figure], plane: Plane) -> None:
    finding = "Better than sharpening: with the same pass@64, pass@1 is 5.0 points above that of the base."
    (told,) = figure_pictures(figure(plane, finding=finding))
    (silent,) = figure_pictures(figure(plane))
    texts = [
        element.text or ""
        for element in ElementTree.fromstring(told.files["svg"]).iter()
        if element.tag.endswith("text")
    ]
    assert finding in " ".join(texts)
    assert len(told.files["png"]) > len(silent.files["png"])


def test_a_plane_wants_a_name_for_every_point() -> None:
    line = Line(label="run", x=(0.3, 0.5), y=(0.9, 0.7), colour="c1", style=0)
    with pytest.raises(ValueError, match="one name per point"):
        Plane(title="run", lines=(line,), names=(("base",),))
