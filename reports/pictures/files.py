"""Export pictures with title and legend, in the light theme, as SVG, PNG and PDF."""

from __future__ import annotations

import io
import textwrap
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from matplotlib.artist import Artist
from matplotlib.figure import Figure as Canvas
from matplotlib.lines import Line2D

from oversharp.diagnostics.records.types import PICTURE_FORMATS, PictureFormat
from oversharp.reports.pictures.canvas import POINTS_PER_INCH, line_look, report_style
from oversharp.reports.pictures.drawing import draw_panel
from oversharp.reports.pictures.palette import PLACEHOLDERS
from oversharp.reports.records import Colour, Figure, Panel

#: Pixels of a PNG per unit of the picture, which is about 400 units wide.
PIXELS_PER_UNIT = 3
_MARGIN_PT, _ROW_PT = 10.0, 18.0
_TITLE_PT, _TEXT_PT = 13.0, 12.0
_CHARACTERS = 52  # characters per line of a title
_SMALL_PT, _SMALL_CHARACTERS = 10.5, 64  # font size, and characters per line, of the text below the picture


@dataclass(frozen=True, kw_only=True)
class Picture:
    """One panel of a figure. It has a title, which may be empty, and the contents of its files by format."""

    panel: str
    files: Mapping[PictureFormat, bytes]


def figure_pictures(figure: Figure, formats: Sequence[PictureFormat] = PICTURE_FORMATS) -> Iterator[Picture]:
    """Yield a picture per panel of ``figure``, in each of ``formats``. Equal figures give equal bytes."""
    for panel in figure.panels:
        with warnings.catch_warnings(), report_style():
            canvas = draw_panel(figure, panel).canvas
            warnings.filterwarnings("ignore", message="Glyph .* missing")  # the font may lack letters of a name
            _add_title(canvas, figure, panel)
            _add_legend(canvas, figure, below=_add_finding(canvas, figure))
            metadata: Mapping[PictureFormat, dict[str, str | None]] = {
                "svg": {"Title": figure.title, "Description": panel.description, "Date": None},
                "png": {"Software": None},
                "pdf": {"Title": figure.title, "Subject": panel.description, "CreationDate": None},
            }
            files = {kind: _save_canvas(canvas, kind, metadata[kind]) for kind in formats}
            yield Picture(panel=panel.title, files=files)


def _add_title(canvas: Canvas, figure: Figure, panel: Panel) -> None:
    """Add the titles of figure and panel above the picture."""
    height = canvas.bbox.height
    rows: list[tuple[str, float, Colour]] = [
        (text, _TITLE_PT, "ink") for text in textwrap.wrap(figure.title, _CHARACTERS)
    ]
    rows += [(text, _TEXT_PT, "muted") for text in textwrap.wrap(panel.title, _CHARACTERS)]
    for i, (text, size, colour) in enumerate(reversed(rows)):
        canvas.text(0.01, 1 + (_MARGIN_PT + i * _ROW_PT) / height, text, fontsize=size, color=PLACEHOLDERS[colour])


def _add_finding(canvas: Canvas, figure: Figure) -> float:
    """Add the figure's finding as text below the picture. Return the text's height as a share of the picture's."""
    height = canvas.bbox.height
    rows = textwrap.wrap(figure.finding, _SMALL_CHARACTERS)
    for i, text in enumerate(rows):
        canvas.text(0.01, -(i + 1) * _ROW_PT / height, text, fontsize=_SMALL_PT, color=PLACEHOLDERS["ink"])
    return (len(rows) + 0.5) * _ROW_PT / height if rows else 0.0


def _add_legend(canvas: Canvas, figure: Figure, *, below: float) -> None:
    """Add the legend below the picture and its text, with one row per line of the plot."""
    handles: list[Artist] = []
    for line in figure.legend:
        label = textwrap.fill(line.label, _CHARACTERS - 4)
        look = line_look(line.colour, line.style) | ({} if figure.kind == "line" else {"linestyle": "none"})
        handles.append(Line2D([], [], label=label, **look))
    if handles:
        canvas.legend(handles=handles, loc="upper left", bbox_to_anchor=(0, -below), frameon=False, borderpad=0)


def _save_canvas(canvas: Canvas, kind: PictureFormat, metadata: dict[str, str | None]) -> bytes:
    """Save everything drawn, with a margin, on a plain background."""
    buffer = io.BytesIO()
    canvas.savefig(
        buffer,
        format=kind,
        dpi=POINTS_PER_INCH * PIXELS_PER_UNIT,
        bbox_inches="tight",
        pad_inches=_MARGIN_PT / POINTS_PER_INCH,
        facecolor=PLACEHOLDERS["surface"],
        metadata=metadata,
    )
    return buffer.getvalue()
