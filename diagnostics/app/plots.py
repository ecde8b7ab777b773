"""Writes the report's pictures as files: one per figure and panel."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from diagnostics.export.contract import PictureFormat
from diagnostics.measures import all_measures
from diagnostics.records.names import slug, slugs
from diagnostics.records.progress import ProgressSink
from diagnostics.store import Store

if TYPE_CHECKING:
    from reports.records import Figure

INDEX = "README.md"
_NUMBERED = re.compile(r"(.+)-\d+")


def write_plots(
    store: Store,
    series: tuple[str, ...],
    formats: Sequence[PictureFormat],
    folder: Path,
    progress: ProgressSink,
) -> int:
    """Write every picture in every format into ``folder``, with an index of titles and captions.

    Returns the number of pictures.
    """
    from reports.page import build_page, page_figures, read_context  # they bring matplotlib
    from reports.pictures.files import figure_pictures

    context = read_context(store, tuple(all_measures().values()), store_name=store.path.name, series=series)
    figures = page_figures(build_page(context))
    names = slugs(_name(figure, panel.title) for figure in figures for panel in figure.panels)
    lines = ["# Figures", ""]
    with progress.stage("plots", len(figures)) as advance:
        for figure in figures:
            for picture in figure_pictures(figure, formats):
                name = names[_name(figure, picture.panel)]
                for kind, written in picture.files.items():
                    (folder / f"{name}.{kind}").write_bytes(written)
                title = ": ".join(filter(None, (figure.title, picture.panel)))
                caption = " ".join(filter(None, (figure.finding, figure.caption, *figure.notes)))
                end = "" if title.endswith("?") else "."
                lines.append(f"- [{name}.{formats[0]}]({name}.{formats[0]}) **{title}{end}** {caption}".rstrip())
            advance(1)
    (folder / INDEX).write_text("\n".join(lines) + "\n", encoding="utf-8")
    return len(names)


def _name(figure: Figure, panel: str) -> str:
    """A name that says what the picture shows: figures that are only numbered are named by their title."""
    numbered = _NUMBERED.fullmatch(figure.figure_id)
    name = f"{numbered[1]} {figure.title}" if numbered else figure.figure_id.removeprefix("measure-")
    return slug(f"{name} {panel}")
