"""What the page's script says of the points of a picture."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

from oversharp.reports.pictures.drawing import figure_svgs
from oversharp.reports.pictures.plane import Plane
from oversharp.reports.records import ChangeMap, Figure, HeatMap, Panel
from tests.reports.pictures.conftest import LINE


def points(figure: Figure) -> list[str]:
    (svg,) = figure_svgs(figure)
    found = re.findall(r'data-points="([^"]*)"', svg)
    return found[0].split("|") if found else []


def test_lines_give_their_values_and_the_frame_that_places_them(figure: Callable[..., Figure]) -> None:
    other = replace(LINE, label="i|a;c", y=(0.1234567, -0.5, 1e-6))
    frame, grpo, iac = points(figure(Panel(title="", lines=(LINE, other)), log_x=True))
    left, top, right, bottom, *ends = map(float, frame.split())
    assert (left, right) == (48.0, 368.0)
    assert 0 < top < bottom < 256
    assert ends[0] < 1 < 4 < ends[1]
    assert ends[4:] == [1, 0], "a logarithmic axis across, a linear one up"
    assert grpo == "grpo;1 2 4;0.5 0.7 0.9"
    assert iac == "i a c;;0.1235 -0.5 1e-06", "the xs are those of the line before"


def test_cells_and_points_of_a_plane_have_their_place_and_their_names(
    figure: Callable[..., Figure], changes: ChangeMap, plane: Plane
) -> None:
    """Cells of the map are 115.6 × 24 points from (19.2, 24) on."""
    first, _ = points(figure(changes))
    assert first == "4;77.0,36.0,k = 10,−8.0 points;192.6,36.0,k = 20,−8.5 points;308.2,36.0,k = 30,unknown"
    _, run = points(figure(plane))
    assert [part.split(",")[2:] for part in run.split(";")[1:]] == [
        ["", "0.3 across and 0.9 up"],
        ["20", "0.5 across and 0.7 up"],
        ["step 40", "0.6 across and 0.65 up"],
    ]


def test_a_kernel_and_a_noisy_curve_are_left_to_their_tables(figure: Callable[..., Figure], heat_map: HeatMap) -> None:
    assert points(figure(heat_map)) == []
    noisy = replace(LINE, x=tuple(range(400)), y=(0.5,) * 400, low=(), high=())
    assert points(figure(Panel(title="", lines=(noisy,)))) == []
