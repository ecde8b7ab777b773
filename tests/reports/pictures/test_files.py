"""Pictures as files: complete without the page around them, and the same as PNG."""

from __future__ import annotations

import io
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib import image

from diagnostics.measures.contract import Measure
from diagnostics.store import Store
from reports.pictures.change_map import ChangeMap
from reports.pictures.files import Picture, figure_pictures, page_figures, report_figures
from reports.pictures.heatmap import HeatPanel
from reports.pictures.palette import PLACEHOLDERS
from reports.pictures.raster import PIXELS_PER_UNIT, svg_png
from reports.records import Figure, Folded, Line, Page, Panel, Table

SVG = "{http://www.w3.org/2000/svg}"
EMPTY = Table(title="", columns=(), rows=())


def figure(*panels: Panel, title: str = "Title", **more: object) -> Figure:
    return Figure(
        figure_id="f", title=title, caption="", x_label="step", y_label="y", panels=panels, table=EMPTY, **more
    )  # type: ignore[arg-type]


def line(**more: object) -> Line:
    made = Line(label="grpo", x=(0.0, 10.0, 20.0), y=(0.1, 0.5, 0.4), colour="c1", style=0)
    return replace(made, **more)  # type: ignore[arg-type]


def pixels(picture: Picture) -> np.ndarray:
    """Height × width × RGB, from 0 to 1."""
    return image.imread(io.BytesIO(svg_png(picture.svg)), format="png")[:, :, :3]


def shares(picture: Picture, colour: str) -> float:
    """The share of pixels that have a colour of the palette."""
    rgb = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return float((np.abs(pixels(picture) - rgb).max(axis=2) < 0.01).mean())


def test_every_figure_of_the_page_is_there_once_and_folded_ones_too(page: Page) -> None:
    figures = page_figures(page)
    assert figures[0] is page.headline.figure
    assert len({one.figure_id for one in figures}) == len(figures) > 5
    folded = [block for section in page.sections for block in section.blocks if isinstance(block, Folded)]
    inside = [block for fold in folded for block in fold.blocks if isinstance(block, Figure)]
    assert all(one in figures for one in inside)


def test_a_picture_stands_alone(page: Page) -> None:
    for one in page_figures(page):
        pictures = figure_pictures(one)
        assert [picture.panel for picture in pictures] == [panel.title for panel in one.panels]
        for picture in pictures:
            root = ElementTree.fromstring(picture.svg)
            assert root.tag == f"{SVG}svg"
            texts = " ".join(element.text or "" for element in root.iter(f"{SVG}text"))
            assert one.title.split()[0] in texts
            assert all(label.label.split()[0] in texts for label in one.legend)
            assert not [element for element in root.iter() if "class" in element.attrib or "style" in element.attrib]
            ids = [element.attrib["id"] for element in root.iter() if "id" in element.attrib]
            assert len(ids) == len(set(ids))
            references = [element.attrib["href"] for element in root.iter(f"{SVG}use")]
            assert {reference[1:] for reference in references} <= set(ids)


def test_every_figure_of_a_report_can_be_drawn_as_png(page: Page) -> None:
    for one in page_figures(page):
        for picture in figure_pictures(one):
            root = ElementTree.fromstring(picture.svg)
            height, width, _ = pixels(picture).shape
            assert width == round(float(root.attrib["width"])) * PIXELS_PER_UNIT
            assert height == round(float(root.attrib["height"])) * PIXELS_PER_UNIT


def test_a_line_runs_where_its_values_are() -> None:
    """The blue of a line that rises is low at the left and high at the right."""
    (picture,) = figure_pictures(figure(Panel(title="", lines=(line(y=(0.0, 0.5, 1.0)),))))
    seen = pixels(picture)
    rgb = np.array([int(PLACEHOLDERS["c1"][i : i + 2], 16) for i in (1, 3, 5)]) / 255
    rows, columns = np.nonzero(np.abs(seen - rgb).max(axis=2) < 0.01)
    inside = rows < 300 * PIXELS_PER_UNIT * 0.9  # the legend stands below
    left = rows[inside & (columns < seen.shape[1] * 0.3)]
    right = rows[inside & (columns > seen.shape[1] * 0.8)]
    assert right.mean() < left.mean()


def test_dashes_bands_and_markers_reach_the_png() -> None:
    plain, dashed = (figure_pictures(figure(Panel(title="", lines=(line(style=style),))))[0] for style in (0, 1))
    assert shares(dashed, PLACEHOLDERS["c1"]) < shares(plain, PLACEHOLDERS["c1"])
    banded = figure_pictures(figure(Panel(title="", lines=(line(low=(0.0, 0.3, 0.2), high=(0.3, 0.7, 0.6)),))))[0]
    assert shares(banded, PLACEHOLDERS["surface"]) < shares(plain, PLACEHOLDERS["surface"]) - 0.02


def test_a_heat_map_has_its_colours_in_the_png() -> None:
    cells = ((1.0, -1.0), (-1.0, 1.0))
    panel = HeatPanel(title="base", lines=(), cells=cells, groups=(("1", 2),), marked=(True, False))
    (picture,) = figure_pictures(figure(panel))
    blue, orange, green = (shares(picture, PLACEHOLDERS[name]) for name in ("c1", "c2", "c3"))
    assert blue == pytest.approx(orange, rel=0.1)
    assert blue > 0.2
    assert green > 0.001


def test_a_change_map_writes_its_numbers_in_the_png() -> None:
    panel = ChangeMap(
        title="", lines=(), columns=("10", "20"), rows=("1",), cells=((-8.0, None),), sure=((True, False),), scale=10.0
    )
    (picture,) = figure_pictures(figure(panel))
    assert shares(picture, PLACEHOLDERS["ink"]) > 0.001


def test_long_titles_and_legends_are_wrapped_and_names_in_other_scripts_drawn() -> None:
    long = "a title that is much longer than a picture is wide, " * 3
    lines = (line(label="a series with a name that goes on and on and on " * 2), line(label="模型 <&>", style=1))
    (picture,) = figure_pictures(figure(Panel(title="", lines=lines), title=long))
    root = ElementTree.fromstring(picture.svg)
    texts = [element.text or "" for element in root.iter(f"{SVG}text")]
    assert max(map(len, texts)) <= 52
    assert "模型 <&>" in texts
    assert pixels(picture).shape[0] > 300 * PIXELS_PER_UNIT


@pytest.mark.parametrize(
    "inner",
    ['<circle r="1"/>', '<path d="M0 0S1 1 2 2"/>', '<g transform="rotate(3)"/>', '<rect filter="x"/>'],
)
def test_what_the_pictures_do_not_have_is_refused(inner: str) -> None:
    with pytest.raises(ValueError, match="cannot be drawn"):
        svg_png(f'<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9" viewBox="0 0 9 9">{inner}</svg>')


def test_series_that_were_audited_differently_are_drawn_and_not_compared(
    session_store: Any, measures: tuple[Measure, ...], tmp_path: Path
) -> None:
    unlike = Path(shutil.copy(session_store.path, tmp_path))
    with Store.open(unlike) as store:
        store._database.rows("DELETE FROM audit_problems WHERE audit_id = 'audit-iac' AND position = 11")
    drawn = []
    for path in (session_store.path, unlike):
        with Store.open(path, read_only=True) as store:
            figures = report_figures(store, measures, store_name="audit.duckdb", series=("grpo", "iac"))
        drawn.append({figure.figure_id for figure in figures})
    compared = {name for name in drawn[0] if name.startswith("compare")}
    assert compared
    assert drawn[1] == drawn[0] - compared
