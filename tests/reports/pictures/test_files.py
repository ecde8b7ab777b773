"""Pictures as files: complete without the page around them, as SVG and as PNG."""

from __future__ import annotations

import io
import re
import zlib
from collections.abc import Callable
from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib import image
from matplotlib.colors import to_rgb

from oversharp.reports.pictures.files import PIXELS_PER_UNIT, Picture, figure_pictures
from oversharp.reports.pictures.palette import PLACEHOLDERS
from oversharp.reports.records import ChangeMap, Figure, HeatMap, Panel

SVG = "{http://www.w3.org/2000/svg}"


def shares(picture: Picture, colour: str) -> float:
    """The share of pixels that have a colour of the palette."""
    pixels = image.imread(io.BytesIO(picture.files["png"]), format="png")[:, :, :3]
    return float((np.abs(pixels - to_rgb(colour)).max(axis=2) < 0.01).mean())


@pytest.mark.slow
def test_a_picture_has_title_legend_and_ground_and_its_letters_are_text(figure: Callable[..., Figure]) -> None:
    long = "a title that is much longer than a picture is wide, " * 3
    first = figure().panels[0].lines[0]
    lines = (
        replace(first, label="a series with a name that goes on and on and on " * 2),
        replace(first, label="模型 <&>", style=2),
    )
    one = figure(Panel(title="grpo", lines=lines, description="what is seen"), title=long)
    (picture,) = figure_pictures(one)
    assert (picture,) == tuple(figure_pictures(one)), "equal figures give equal bytes"
    assert picture.panel == "grpo"
    root = ElementTree.fromstring(picture.files["svg"])
    texts = [element.text or "" for element in root.iter(f"{SVG}text")]
    assert max(map(len, texts)) <= 52
    assert {"grpo", "模型 <&>", "pass@k (probability)"} <= set(texts)
    assert root.findtext(f"{SVG}title") == long
    assert picture.files["pdf"].startswith(b"%PDF")
    assert b"what is seen" in picture.files["svg"]
    height, width, _ = image.imread(io.BytesIO(picture.files["png"]), format="png").shape
    assert height > 300 * PIXELS_PER_UNIT
    assert 370 * PIXELS_PER_UNIT < width < 440 * PIXELS_PER_UNIT
    assert shares(picture, PLACEHOLDERS["surface"]) > 0.5


def test_a_pdf_embeds_no_type_3_font_and_text_as_text(figure: Callable[..., Figure]) -> None:
    (picture,) = figure_pictures(figure(title="a title"), ["pdf"])
    raw = picture.files["pdf"]
    streams = re.findall(rb"stream\r?\n(.*?)\r?\nendstream", raw, flags=re.DOTALL)
    everything = raw + b"".join(inflated(stream) for stream in streams)
    assert b"/Type3" not in everything
    assert re.search(rb"/Subtype\s*/(TrueType|CIDFontType2)\b", everything)


def inflated(stream: bytes) -> bytes:
    try:
        return zlib.decompress(stream)
    except zlib.error:  # a stream that is not compressed
        return stream


@pytest.mark.slow
def test_lines_bands_and_marks_are_in_the_light_theme(figure: Callable[..., Figure]) -> None:
    (banded,) = figure_pictures(figure())
    line = replace(figure().panels[0].lines[0], low=(), high=())
    (dashed,) = figure_pictures(figure(Panel(title="", lines=(line,))))
    (plain,) = figure_pictures(figure(Panel(title="", lines=(replace(line, style=0),))))
    assert shares(dashed, PLACEHOLDERS["c1"]) < shares(plain, PLACEHOLDERS["c1"])
    assert shares(banded, PLACEHOLDERS["surface"]) < shares(dashed, PLACEHOLDERS["surface"]) - 0.02


@pytest.mark.slow
def test_maps_have_their_colours_and_numbers(
    figure: Callable[..., Figure], heat_map: HeatMap, changes: ChangeMap
) -> None:
    cells = ((1.0, -1.0), (-1.0, 1.0))
    heat, moved = figure_pictures(
        figure(replace(heat_map, cells=cells, groups=(("1", 2),), marked=(True, False)), changes)
    )
    blue, orange, green = (shares(heat, PLACEHOLDERS[name]) for name in ("c1", "c2", "c3"))
    assert blue == pytest.approx(orange, rel=0.1)
    assert blue > 0.2
    assert green > 0.001
    assert shares(moved, PLACEHOLDERS["ink"]) > 0.001
