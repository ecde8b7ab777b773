"""Write the report's pictures as files, one per figure and panel."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from oversharp.diagnostics.export.contract import PICTURE_FORMATS, FigureFormat
from oversharp.diagnostics.export.tables import ENDINGS
from oversharp.diagnostics.measures import all_measures
from oversharp.diagnostics.records.errors import ConfigError
from oversharp.diagnostics.records.names import slug, slugs
from oversharp.diagnostics.records.progress import ProgressSink
from oversharp.diagnostics.store import Store

if TYPE_CHECKING:
    from oversharp.reports.records import Figure, Table

INDEX = "README.md"
#: Similarity that a picture's name must have to be suggested.
_NEAR = 0.5
#: Prefix of a line of the index file.
_LINKED = re.compile(r"- \[[^]]+\]")
_NUMBERED = re.compile(r"(.+)-\d+")


#: Other names of pictures → names to try in order. The first existing one is used: "frontier" is the picture of pass@1
#: against pass@k, with all series if there is one.
_ALIASES = MappingProxyType({"frontier": ("compare-sharpening", "better-or-only-sharper")})


def write_plots(
    store: Store,
    series: tuple[str, ...],
    formats: Sequence[FigureFormat],
    folder: Path,
    progress: ProgressSink,
    *,
    figures: Sequence[str] = (),
    replace: bool = False,
) -> tuple[str, ...]:
    """Write the pictures in ``figures`` (default: all) into ``folder``.

    Each picture is written in every format, with title and caption. Other pictures in the folder and their index lines
    are kept. Returns the file names. Raises ``ConfigError`` for an unknown name, and for an existing file unless
    ``replace``.
    """
    from oversharp.reports.pictures.files import figure_pictures
    from oversharp.reports.pictures.latex import figure_latex

    every = report_pictures(store, series)
    asked = [name for figure in figures for name in find_pictures(every, figure)] if figures else list(every)
    names = list(dict.fromkeys(asked))
    if not replace:
        _require_absent(folder, names, formats)
    lines = []
    with progress.stage("plots", len(names)) as advance:
        for name in names:
            figure = every[name]
            (picture,) = figure_pictures(figure, [form for form in PICTURE_FORMATS if form in formats])
            for kind, written in picture.files.items():
                (folder / _file(name, kind)).write_bytes(written)
            if "latex" in formats:
                (folder / _file(name, "latex")).write_text(figure_latex(figure), encoding="utf-8")
            title = ": ".join(filter(None, (figure.title, picture.panel)))
            caption = " ".join(filter(None, (figure.finding, figure.caption, *figure.notes)))
            end = "" if title.endswith("?") else "."
            file = _file(name, formats[0])
            lines.append(f"- [{file}]({file}) **{title}{end}** {caption}".rstrip())
            advance(1)
    _write_index(folder / INDEX, lines)
    return tuple(_file(name, form) for name in names for form in formats)


def _file(name: str, form: FigureFormat) -> str:
    return f"{name}{ENDINGS['latex'] if form == 'latex' else f'.{form}'}"


def _require_absent(folder: Path, names: Sequence[str], formats: Sequence[FigureFormat]) -> None:
    for name in names:
        for form in formats:
            if (folder / _file(name, form)).exists():
                exists = f"{_file(name, form)} exists already"
                raise ConfigError(f"--figure {name}: {exists}; pass --replace to overwrite it, or another --out")


def _write_index(path: Path, lines: Sequence[str]) -> None:
    """Add lines to the index file, after those of other pictures."""
    written = tuple(link[0] for line in lines if (link := _LINKED.match(line)))
    existing = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    others = [line for line in existing if _LINKED.match(line) and not line.startswith(written)]
    path.write_text("\n".join(["# Figures", "", *others, *lines]) + "\n", encoding="utf-8")


def report_pictures(store: Store, series: tuple[str, ...] | None) -> dict[str, Figure]:
    """Return the pictures of a report by name: single-panel figures with their data.

    ``series`` are the series of the report; None means all.
    """
    from oversharp.reports.page import build_page, page_figures, read_context  # load matplotlib

    context = read_context(store, tuple(all_measures().values()), store_name=store.path.name, series=series)
    figures = page_figures(build_page(context))
    names = slugs(_name(figure, panel.title) for figure in figures for panel in figure.panels)
    return {
        names[_name(figure, panel.title)]: replace(figure, panels=(panel,), table=_table_of(figure, panel.title))
        for figure in figures
        for panel in figure.panels
    }


def _table_of(figure: Figure, panel: str) -> Table:
    """Return the table rows of one panel, or the whole table if it has no panels."""
    table, own = figure.table, [row for row in figure.table.rows if row[0].text == panel]
    is_by_series = len(figure.panels) > 1 and table.columns[0].name == "series" and bool(own)
    return replace(table, rows=tuple(own), states=(), search=()) if is_by_series else table


def find_pictures(every: Collection[str], asked: str, *, flag: str = "--figure") -> list[str]:
    """Return the names of the pictures that equal ``asked`` or start with it.

    A prefix selects several pictures, such as one per series. Raises ``ConfigError`` with ``flag`` in its message if
    there are none.

    >>> find_pictures(["pass-at-k-grpo", "pass-at-k-iac", "k-star"], "pass_at_k")
    ['pass-at-k-grpo', 'pass-at-k-iac']
    """
    name = slug(asked).replace("_", "-")
    matches = (_matching_names(every, alias) for alias in _ALIASES.get(name, (name,)))
    names = next(filter(None, matches), [])
    if not names:
        near = get_close_matches(name, [*_ALIASES, *every], n=3, cutoff=_NEAR)
        hint = f"did you mean {' or '.join(near)}? " if near else f"it has {', '.join(list(every)[:3])} and others; "
        everything = f"`oversharp export STORE --what plots` writes all {len(every)}, with their names in plots/{INDEX}"
        raise ConfigError(f"{flag} {asked}: the report has no picture of that name; {hint}{everything}")
    return names


def _matching_names(every: Collection[str], name: str) -> list[str]:
    return [name] if name in every else [picture for picture in every if picture.startswith(f"{name}-")]


def _name(figure: Figure, panel: str) -> str:
    """Return the name of a picture. The name of a numbered figure is its title."""
    numbered = _NUMBERED.fullmatch(figure.figure_id)
    name = f"{numbered[1]} {figure.title}" if numbered else figure.figure_id.removeprefix("measure-")
    if (numbered[1] if numbered else name) == "sharpening":
        series = figure.title.partition(":")[0] if numbered else ""
        name = f"{_ALIASES['frontier'][-1]} {series}"
    return slug(f"{name} {panel}")
