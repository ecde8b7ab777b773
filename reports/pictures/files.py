"""The report's pictures as files of their own: with title and legend, in the light theme, without a style sheet."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from xml.etree import ElementTree

from diagnostics.measures.contract import Measure
from reports.context import Context
from reports.evidence.kernels import read_kernels
from reports.evidence.problem_details import read_problem_details
from reports.evidence.source import Frames, read_source
from reports.page import build_page
from reports.pictures.drawing import figure_svgs, swatch_svg
from reports.pictures.palette import PLACEHOLDERS
from reports.records import Block, Colour, Figure, Folded, Page

_MARGIN, _GAP = 10.0, 8.0
_ROW = 18.0  # of a title or a legend
_TITLE_SIZE, _TEXT_SIZE = 13.0, 12.0
_SWATCH_WIDTH, _SWATCH_HEIGHT = 34.0, 14.0
_CHARACTERS = 52  # of a title, in the width of a picture
_FONTS = "Segoe UI, Roboto, Liberation Sans, DejaVu Sans, Arial, sans-serif"
_PAINTS = {"f": "fill", "s": "stroke"}


@dataclass(frozen=True, kw_only=True)
class Picture:
    """One panel of a figure. ``panel`` is its title, empty where it has none; ``svg`` is a whole document."""

    panel: str
    svg: str


def report_figures(
    store: Frames, measures: Sequence[Measure], *, store_name: str, series: tuple[str, ...]
) -> tuple[Figure, ...]:
    """Every figure of the report on ``series``, in reading order; what was audited differently is not compared.

    Raises ``StoreError`` without an audit of one of them.
    """
    source = read_source(store, store_name, series)
    context = Context(
        source=source,
        measures={measure.name: measure for measure in measures},
        details=read_problem_details(store, source),
        kernels={one.name: read_kernels(store, one) for one in source.series},
    )
    return page_figures(build_page(context))


def page_figures(page: Page) -> tuple[Figure, ...]:
    """The figures of a page in reading order, those in folded parts included."""
    blocks: list[Block] = [page.headline.figure, *(block for section in page.sections for block in section.blocks)]
    return tuple(_figures(blocks))


def _figures(blocks: Sequence[Block]) -> Iterator[Figure]:
    for block in blocks:
        if isinstance(block, Figure):
            yield block
        elif isinstance(block, Folded):
            yield from _figures(block.blocks)


def figure_pictures(figure: Figure) -> tuple[Picture, ...]:
    """A picture per panel of ``figure``, each a document that stands alone."""
    return tuple(
        Picture(panel=panel.title, svg=_document(figure, panel.title, svg))
        for panel, svg in zip(figure.panels, figure_svgs(replace(figure, figure_id="p")), strict=True)
    )


def _document(figure: Figure, panel: str, inner: str) -> str:
    """Title, picture and legend, one under the other on a plain ground."""
    picture = ElementTree.fromstring(inner)
    width, height = (float(size) for size in picture.attrib["viewBox"].split()[2:])
    root = ElementTree.Element("svg", {"font-family": _FONTS, "stroke-linejoin": "round"})
    ground = ElementTree.SubElement(root, "rect", {"x": "0", "y": "0", "class": "f-surface"})
    bottom = _MARGIN
    for text in textwrap.wrap(figure.title, _CHARACTERS):
        bottom = _text(root, _MARGIN, bottom, text, size=_TITLE_SIZE, colour="ink")
    for text in textwrap.wrap(panel, _CHARACTERS):
        bottom = _text(root, _MARGIN, bottom, text, size=_TEXT_SIZE, colour="muted")
    bottom += _GAP
    _placed(root, picture, _MARGIN, bottom)
    bottom += height + _GAP
    for number, line in enumerate(figure.legend):
        swatch = ElementTree.fromstring(swatch_svg(line, kind=figure.kind, prefix=f"k{number}"))
        _placed(root, swatch, _MARGIN, bottom + (_ROW - _SWATCH_HEIGHT) / 2)
        for text in textwrap.wrap(line.label, _CHARACTERS - 4):
            bottom = _text(root, _MARGIN + _SWATCH_WIDTH + 6, bottom, text, size=_TEXT_SIZE, colour="ink")
    size = {"width": f"{width + 2 * _MARGIN:g}", "height": f"{bottom + _MARGIN:g}"}
    ground.attrib.update(size)
    root.attrib.update(
        {"xmlns": "http://www.w3.org/2000/svg", "viewBox": f"0 0 {size['width']} {size['height']}", **size}
    )
    _painted(root)
    return ElementTree.tostring(root, encoding="unicode") + "\n"


def _placed(root: ElementTree.Element, picture: ElementTree.Element, x: float, y: float) -> None:
    """What ``picture`` holds, moved to ``x``, ``y``."""
    group = ElementTree.SubElement(root, "g", {"transform": f"translate({x:g} {y:g})"})
    group.extend(child for child in picture if child.tag not in ("title", "desc"))
    root[:0] = [child for child in picture if child.tag in ("title", "desc")]


def _text(root: ElementTree.Element, x: float, top: float, text: str, *, size: float, colour: Colour) -> float:
    """One row of text; returns where the next begins."""
    place = {"x": f"{x:g}", "y": f"{top + 0.75 * _ROW:g}", "font-size": f"{size:g}", "class": f"f-{colour}"}
    ElementTree.SubElement(root, "text", place).text = text
    return top + _ROW


def _painted(root: ElementTree.Element) -> None:
    """Colours in place of classes: drawing programs do not know the report's style sheet."""
    for element in root.iter():
        for name in element.attrib.pop("class", "").split():
            kind, _, colour = name.partition("-")
            element.set(_PAINTS[kind], PLACEHOLDERS[colour])  # type: ignore[index]
