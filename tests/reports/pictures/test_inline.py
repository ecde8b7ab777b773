"""Canvases as SVG that may stand inline under a policy that forbids inline styles."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from typing import Any
from xml.etree import ElementTree

import matplotlib.image
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas

from oversharp.reports.pictures.canvas import empty_canvas, report_style
from oversharp.reports.pictures.inline import inline_svg
from oversharp.reports.pictures.palette import PLACEHOLDERS

#: Blue circles on the surface, as lines have them.
MARKED: dict[str, Any] = {
    "color": PLACEHOLDERS["c1"], "markeredgecolor": PLACEHOLDERS["surface"], "markeredgewidth": 0.9, "markersize": 6,
    "marker": "o",
}  # fmt: skip
INK, BLUE, MUTED = (PLACEHOLDERS[name] for name in ("ink", "c1", "muted"))


@pytest.fixture
def axes() -> Iterator[Axes]:
    """The whole of a canvas of 100 × 50 points, whose data are points from the lower left corner."""
    with report_style():
        one = empty_canvas(100, 50).add_axes((0, 0, 1, 1))
        one.set(xlim=(0, 100), ylim=(0, 50))
        one.set_axis_off()
        yield one


def drawn(axes: Axes) -> str:
    canvas = axes.figure
    assert isinstance(canvas, Canvas)
    svg = inline_svg(canvas)
    ElementTree.fromstring(svg)
    return svg.removeprefix('<svg viewBox="0 0 1000 500" aria-hidden="true">').removesuffix("</svg>")


def test_lines_run_down_from_the_top_in_tenths_and_in_relative_steps(axes: Axes) -> None:
    axes.plot((10, 30, 30.04, 31), (50, 50, 44.5, 44), color=BLUE, linewidth=1.9)
    assert drawn(axes) == '<path d="M100 0l200 0 0 55 10 5" class="s-c1" stroke-width="19"/>'


def test_lines_of_one_look_share_a_path_and_dashes_are_told(axes: Axes) -> None:
    for y in (10, 20):
        axes.plot((0, 9), (y, y), color=MUTED, linewidth=1, linestyle=(0, (4, 1.5)))
    assert (
        drawn(axes) == '<path d="M0 400l90 0M0 300l90 0" class="s-muted" stroke-width="10" stroke-dasharray="40 15"/>'
    )


def test_markers_of_one_look_name_a_shape_that_is_told_once(axes: Axes) -> None:
    axes.plot((10, 20), (40, 40), linestyle="none", **MARKED)
    axes.plot((10, 20), (30, 30), linestyle="none", **MARKED)
    svg = drawn(axes)
    circle = '<path class="f-c1 s-surface" stroke-width="9" d="M-30 0a30 30 0 1 1 0 1z"/></marker>'
    (name,) = re.findall(rf'<defs><marker markerUnits="userSpaceOnUse" id="(m\w+)">{circle}</defs>', svg)
    assert svg.endswith(f'</defs><path d="M100 100l100 0M100 200l100 0" class="{name}"/>')


def test_a_line_carries_its_markers_and_one_marker_is_drawn_by_itself(axes: Axes) -> None:
    axes.plot((10, 20), (40, 40), linewidth=1.9, **MARKED)
    (name,) = re.findall(r'id="(\w+)"', drawn(axes))
    assert drawn(axes).endswith(f'<path d="M100 100l100 0" class="s-c1 {name}" stroke-width="19"/>')
    axes.lines[0].remove()
    axes.plot(10, 40, **MARKED)
    assert drawn(axes) == '<path d="M70 100a30 30 0 1 1 0 1z" class="f-c1 s-surface" stroke-width="9"/>'


def test_bands_are_faint_fills_without_an_edge(axes: Axes) -> None:
    axes.fill_between((10, 20), (10, 10), (30, 40), color=BLUE, alpha=0.14, linewidth=0)
    svg = drawn(axes)
    assert re.fullmatch(r'<path d="M[^"]+z" class="f-c1" fill-opacity="0.14"/>', svg)


def test_cells_are_runs_of_one_colour_and_transparent_ones_are_not_there(axes: Axes) -> None:
    """Two rows of four cells, 25 × 25 points: the strokes lie on the middle of their row."""
    from matplotlib.colors import ListedColormap, to_rgba

    shades = ListedColormap([(0, 0, 0, 0), to_rgba(BLUE, 0.5), to_rgba(INK)])
    axes.pcolormesh([0, 25, 50, 75, 100], [50, 25, 0], [[1, 1, 0, 2], [1, 1, 1, 1]], cmap=shades, vmin=0, vmax=2)
    assert drawn(axes) == (
        '<g transform="matrix(250 0 0 250 0 125)" shape-rendering="crispEdges">'
        '<path d="M0 0h2M0 1h4" class="s-c1" stroke-opacity="0.5"/><path d="M3 0h1" class="s-ink"/></g>'
    )


def test_of_a_symmetric_map_the_half_above_the_diagonal_stands_twice(axes: Axes) -> None:
    from matplotlib.colors import ListedColormap, to_rgba

    shades = ListedColormap([(0, 0, 0, 0), to_rgba(BLUE, 0.5), to_rgba(INK)])
    axes.pcolormesh([0, 25, 50], [50, 25, 0], [[2, 1], [1, 0]], cmap=shades, vmin=0, vmax=2)
    half, used = drawn(axes).split("</defs>")
    (name,) = re.findall(r'id="(h\w+)"><path d="M1 0h1" class="s-c1" stroke-opacity="0.5"/></g>$', half)
    # a stroke from (1, 0) to (2, 0) is the cell from −½ to ½ of its height; turned, it runs down from there
    turned = f'<use href="#{name}" transform="matrix(0 1 1 0 .5 -.5)"/>'
    assert f'<use href="#{name}"/>{turned}<path d="M0 0h1" class="s-ink"/></g>' in used


def test_text_stays_text_above_all_shapes_and_its_look_is_said_once(axes: Axes) -> None:
    axes.text(10, 40, "pass@k <b> $x$", ha="right", va="baseline", color=INK, fontsize=11.5)
    axes.text(20, 30, "−1", ha="right", va="baseline", color=INK, fontsize=11.5)
    axes.plot((0, 1), (0, 1), color=INK)
    group = '<g class="f-ink" text-anchor="end" font-size="115">'
    texts = '<text x="100" y="100">pass@k &lt;b&gt; $x$</text><text x="200" y="200">−1</text></g>'
    assert drawn(axes).endswith(group + texts)


def test_a_title_makes_it_a_picture_with_a_description(axes: Axes) -> None:
    svg = inline_svg(axes.figure, title="Kernel", description="<A> & B", points="a;;1")  # type: ignore[arg-type]
    assert svg == ('<svg viewBox="0 0 1000 500" role="img" aria-label="&lt;A&gt; &amp; B" data-points="a;;1"/>')


def test_rounding_does_not_add_up_along_a_path(axes: Axes, path_points: Callable[[str], Any]) -> None:
    rng = random.Random(3)
    xs, ys = ([rng.uniform(0, most) for _ in range(300)] for most in (100, 50))
    axes.plot(xs, ys, color=BLUE)
    (path,) = re.findall(r' d="([^"]+)"', drawn(axes))
    read = np.array(path_points(path))
    assert np.abs(read - np.column_stack((xs, 50 - np.array(ys)))).max() < 0.051


@pytest.mark.parametrize("colour", ["#123456", "red"])
def test_a_colour_without_a_theme_is_refused(axes: Axes, colour: str) -> None:
    axes.plot((0, 1), (0, 1), color=colour)
    with pytest.raises(ValueError, match="a colour that is not in the theme"):
        drawn(axes)


def test_what_no_picture_has_is_refused(axes: Axes) -> None:
    turned = axes.text(1, 1, "up", rotation=90)
    with pytest.raises(NotImplementedError, match="'up': rotated"):
        drawn(axes)
    turned.remove()
    axes.add_artist(matplotlib.image.AxesImage(axes, data=np.zeros((2, 2)), extent=(0, 2, 0, 2)))
    with pytest.raises(NotImplementedError):
        drawn(axes)
