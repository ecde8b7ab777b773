"""Pictures that may stand inline under a policy that forbids inline styles."""

from __future__ import annotations

import random
import re

import pytest

from reports.pictures.drawing import figure_svgs, swatch_svg, tick_texts
from reports.pictures.svg import clean_svg
from reports.pictures.svg_compact import path_text
from reports.records import Figure, Line, Panel, Table

HEAD = '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" viewBox="0 0 9 9">'
LINE = Line(
    label="grpo", x=(1, 2, 4), y=(0.5, 0.7, 0.9), low=(0.4, 0.6, None), high=(0.6, 0.8, None), colour="c1", style=1
)


def figure(**changes: object) -> Figure:
    fields: dict[str, object] = {
        "figure_id": "fig", "title": "Coverage", "caption": "", "x_label": "k", "y_label": "pass@k (probability)",
        "panels": (Panel(title="", lines=(LINE,), description="grpo rises"),),
        "table": Table(title="data", columns=(), rows=()),
    }  # fmt: skip
    return Figure(**(fields | changes))  # type: ignore[arg-type]


def clean(body: str) -> str:
    return clean_svg(f"{HEAD}{body}</svg>", prefix="p", title="t", description="d")


def test_colours_become_classes_and_no_style_attribute_is_left() -> None:
    (svg,) = figure_svgs(figure())
    assert "style=" not in svg
    assert "#0b66a8" not in svg
    assert re.search(r'class="s-c1"', svg)


def test_the_picture_has_a_role_a_title_and_a_description() -> None:
    (svg,) = figure_svgs(figure())
    assert svg.startswith('<svg viewBox="0 0 380 256" role="img" aria-labelledby="fig-0-title fig-0-desc">')
    assert '<title id="fig-0-title">Coverage</title><desc id="fig-0-desc">grpo rises</desc>' in svg


def test_text_stays_text() -> None:
    (svg,) = figure_svgs(figure(y_label="pass@k (probability) <b> $x$"))
    assert ">pass@k (probability) &lt;b&gt; $x$</text>" in svg


def test_every_id_is_used_and_belongs_to_its_picture() -> None:
    (svg,) = figure_svgs(figure())
    ids = re.findall(r' id="([^"]+)"', svg)
    assert len(ids) == len(set(ids))
    for identity in ids:
        assert identity.startswith("fig-0-")
        assert f"#{identity}" in svg or identity in svg.split(">")[0]


def test_lines_differ_by_dashes_and_markers_not_by_colour_alone() -> None:
    pictures = {swatch_svg(line, kind="line", prefix="k") for style in range(6) for line in [_styled(style)]}
    assert len(pictures) == 6


def _styled(style: int) -> Line:
    return Line(label="", x=(0,), y=(0,), colour="c1", style=style)


def test_panels_share_their_axis() -> None:
    high = Line(label="iac", x=(1, 4), y=(0.1, 3.0), colour="c2", style=0)
    panels = (Panel(title="a", lines=(LINE,)), Panel(title="b", lines=(high,)))
    svgs = figure_svgs(figure(panels=panels))
    groups = [re.findall(r'<g [^>]*text-anchor="end"[^>]*>(.+?)</g>', svg) for svg in svgs]
    ticks = [re.findall(r">([^<]+)<", "".join(found)) for found in groups]
    assert ticks[0] == ticks[1]
    assert "3" in ticks[0]


def test_equal_figures_give_equal_bytes() -> None:
    assert figure_svgs(figure()) == figure_svgs(figure())


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("<script>1</script>", "<script>"),
        ("<foreignObject/>", "<foreignObject>"),
        ('<use xlink:href="https://example.org/x.svg#a"/>', "outside itself"),
        ('<path style="fill: #123456"/>', "colour without a theme"),
    ],
)
def test_what_is_not_known_is_refused(body: str, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        clean(body)


def test_event_handlers_are_dropped() -> None:
    assert "onclick" not in clean('<path d="M 0 0" onclick="alert(1)"/>')


def test_coordinates_are_rounded() -> None:
    assert 'd="M1.2-.5l1.8 .5"' in clean(
        '<path class="s-ink" stroke="#1c2430" d="M 1.2345678 -0.50 L 3.0001 -0.0001"/>'
    )


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


def test_neighbours_of_one_look_share_a_group_and_strokes_a_path() -> None:
    tick = '<use xlink:href="#t" x="{}" y="2" style="fill: #626d7c; stroke: #626d7c"/>'
    grid = '<path d="M 0 {0} L 9 {0}" style="fill: none; stroke: #e3e7ec"/>'
    svg = clean(
        '<defs><path id="t" d="M 0 0 L 0 3" style="stroke: #626d7c"/></defs>'
        + "".join(tick.format(x) for x in (1, 5))
        + "".join(grid.format(y) for y in (3, 6))
    )
    assert '<g class="f-muted"><use href="#p-0" x="1" y="2"/><use href="#p-0" x="5" y="2"/></g>' in svg
    assert '<path d="M0 3h9M0 6h9" fill="none" class="s-grid"/>' in svg


def test_faded_neighbours_keep_their_own_opacity() -> None:
    spot = '<path d="M {} 0 L 9 9 z" style="fill: #0b66a8; opacity: 0.5"/>'
    svg = clean(spot.format(1) + spot.format(2))
    assert svg.count('opacity="0.5"') == 2


@pytest.mark.parametrize(("end", "is_clipped"), [(8, False), (20, True)])
def test_a_clip_stays_where_it_cuts(end: int, is_clipped: bool) -> None:
    body = (
        '<defs><clipPath id="c"><rect x="0" y="0" width="9" height="9"/></clipPath></defs>'
        f'<path d="M 0 0 L {end} 5" clip-path="url(#c)" style="fill: none; stroke: #0b66a8"/>'
    )
    svg = clean(body)
    assert ("clip-path" in svg) is is_clipped
    assert ("<clipPath" in svg) is is_clipped


def test_a_shape_used_once_stands_where_it_is_used() -> None:
    svg = clean(
        '<defs><path id="band" d="M 1 -9 L 2 -8 L 1 -7 z"/></defs><use xlink:href="#band" y="9" style="fill: #0b66a8"/>'
    )
    assert '<path class="f-c1" d="M1 0l1 1-1 1z"/>' in svg
    assert "<use" not in svg


def _points(path: str) -> list[tuple[float, float]]:
    """Absolute end points of a path with relative commands, as a browser would read it."""
    x = y = 0.0
    found = []
    for command, rest in re.findall(r"([MlhvacqzCQ])([^MlhvacqzCQ]*)", path):
        numbers = [float(text) for text in re.findall(r"-?(?:\d+\.?\d*|\.\d+)", rest)]
        size = {"M": 2, "l": 2, "h": 1, "v": 1, "c": 6, "q": 4, "z": 0, "a": 7}[command]
        for i in range(0, len(numbers), size or 1):
            part = numbers[i : i + size]
            if command == "M":
                x, y = part
            elif command == "h":
                x += part[0]
            elif command == "v":
                y += part[0]
            else:
                x, y = x + part[-2], y + part[-1]
            found.append((x, y))
    return found


def test_relative_paths_lead_to_the_same_points() -> None:
    rng = random.Random(3)
    points = [(rng.uniform(-5, 400), rng.uniform(-5, 260)) for _ in range(300)]
    read = _points(path_text("M " + " L ".join(f"{x:.6f} {y:.6f}" for x, y in points)))
    assert len(read) == 300
    # rounding does not add up along the path
    assert max(abs(a - b) for one, two in zip(points, read, strict=True) for a, b in zip(one, two, strict=True)) < 0.051


def test_circles_become_two_arcs_of_their_size() -> None:
    marker = Line(label="", x=(0,), y=(0,), colour="c1", style=0)
    svg = swatch_svg(marker, kind="line", prefix="k")
    assert "a3 3 0 1 0 0-6a3 3 0 1 0 0 6z" in svg
