"""Pictures that may stand inline under a policy that forbids inline styles."""

from __future__ import annotations

import re

import pytest

from reports.figures import figure_svgs, swatch_svg, tick_texts
from reports.records import Figure, Line, Panel, Table
from reports.svg import clean_svg

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
    ticks = [re.findall(r'text-anchor="end"[^>]*>([^<]+)<', svg) for svg in figure_svgs(figure(panels=panels))]
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
    assert 'd="M 1.23 -0.5 L 3 0"' in clean('<path d="M 1.2345678 -0.50 L 3.0001 -0.0001"/>')


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
