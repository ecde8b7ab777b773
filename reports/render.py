"""Page to HTML: one file, nothing loaded from anywhere, locked down by a Content-Security-Policy of hashes."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from oversharp.diagnostics.records.cells import upright
from oversharp.diagnostics.records.errors import StoreError
from oversharp.reports.numbers import MINUS, NARROW
from oversharp.reports.pictures import palette
from oversharp.reports.pictures.drawing import figure_svgs, swatch_svg
from oversharp.reports.pictures.shared import Shared, shared
from oversharp.reports.pictures.sparkline import sparkline_svg
from oversharp.reports.pictures.waterfall import Waterfall
from oversharp.reports.records import Block, Cell, Course, Decision, Figure, Missing, Page, Section, Table
from oversharp.reports.sections.downloads import packed

_TEMPLATES = Path(__file__).parent / "templates"
_SHARE = re.compile(r"(\d+) / (\d+)")
_EXACT = 1e-9
_NUMBER = re.compile(rf"([+{MINUS}-]?\d[\d{NARROW}]*)(\.\d+)?(?:e([{MINUS}-]?\d{{1,2}}))?(?![0-9A-Za-z])")
_BLANK = re.compile(r">\n(?:[ ]*\n)+(?=<)")  # between tags alone: a response keeps its lines
_COMMAND = re.compile(r"`([^`]+)`")
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]")


def render_page(page: Page, *, extra_rules: str = "") -> str:
    """The whole HTML document, with styles besides the report's. The same page gives the same text."""
    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_printable,
    )
    html = environment.get_template("report.html.j2").render(
        page=page,
        js=Markup((_TEMPLATES / "report.js").read_text(encoding="utf-8")),
        stylesheet=lambda of_figures: Markup(stylesheet(of_figures + extra_rules)),
        content_policy=content_policy,
        shared=_shared,
        kind=_kind,
        placed=_placed,
        svgs=_svgs,
        swatches=partial(_swatches, {}),
        parsed_columns=parsed_columns,
        text_columns=text_columns,
        sort_key=sort_key,
        sparkline=_sparkline,
        packed_texts=_packed_texts,
        pictures=_pictures,
        missing_of=_missing_of,
        coded=_coded,
    )
    return _BLANK.sub(">\n", html).strip() + "\n"


def stylesheet(more: str = "") -> str:
    """Colours of light, dark and print, the classes that paint the figures, the page's own rules, and ``more``."""
    light, dark = palette.variables(palette.PLACEHOLDERS), palette.variables(palette.DARK)
    colours = (
        f":root{{{light}}}\n@media (prefers-color-scheme: dark){{:root{{{dark}}}}}\n@media print{{:root{{{light}}}}}\n"
    )
    own = (_TEMPLATES / "report.css").read_text(encoding="utf-8")
    return f"{colours}{palette.rules()}\n{own}{more}"


def content_policy(css: str, js: str) -> str:
    """Nothing may load or run but this very stylesheet and this very script."""
    return (
        f"default-src 'none'; style-src '{_source_hash(css)}'; script-src '{_source_hash(js)}'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )


def _source_hash(text: str) -> str:
    digest = hashlib.sha256(text.encode("utf-8")).digest()
    return f"sha256-{base64.b64encode(digest).decode('ascii')}"


def write_atomically(path: Path, text: str) -> Path:
    """Write ``text`` beside ``path`` and move it into place: readers see the old file or the new one."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
                file.write(text)
            os.chmod(temporary, 0o644)  # mkstemp makes private files; a report is made to be shared
            os.replace(temporary, path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise StoreError(f"{path}: cannot write the report ({error.strerror}); pass another --out") from error
    return path


def _printable(value: object) -> object:
    """Characters that HTML forbids become the replacement character, those that turn a text round are written out.

    Everything else is left to the escaping.
    """
    if isinstance(value, Markup) or not isinstance(value, str):
        return value
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", upright(value))


def _kind(block: Block) -> str:
    return type(block).__name__


def _placed(blocks: tuple[Block, ...]) -> tuple[tuple[Block, str], ...]:
    """Blocks with their place in a two-column grid: half-width ones share rows.

    The odd one takes a whole row and shows its data beside it, so that no half stays blank.
    """
    halves = [i for i, block in enumerate(blocks) if _is_half(block)]
    lone = halves[-1] if len(halves) % 2 and isinstance(blocks[halves[-1]], Figure) else None
    return tuple((block, "lone" if i == lone else "") for i, block in enumerate(blocks))


def _is_half(block: Block) -> bool:
    if isinstance(block, Figure):
        return len(block.panels) == 1
    return isinstance(block, Table) and block.narrow


def text_columns(table: Table) -> int:
    """How many columns of text stand first, at most 3: the table's class says so in place of each of their cells."""
    first = next((i for i, column in enumerate(table.columns) if column.numeric), len(table.columns))
    return min(first, 3)


def parsed_columns(table: Table) -> tuple[bool, ...]:
    """Columns whose sort keys the page's script can read off the text: they are not written a second time."""
    return tuple(_is_parsed([row[i] for row in table.rows]) for i in range(len(table.columns)))


def _is_parsed(cells: list[Cell]) -> bool:
    return any(
        all(_agrees(cell, factor) if cell.sort is not None else _leading(cell.text) is None for cell in cells)
        for factor in (1.0, 100.0)
    )


def _agrees(cell: Cell, factor: float) -> bool:
    """Whether the number at the start of the text is the sort key, as exactly as the text tells it."""
    found = _leading(cell.text)
    if found is None or cell.sort is None:
        return False
    value, digit = found
    return abs(value - factor * cell.sort) <= 0.51 * digit


def _leading(text: str) -> tuple[float, float] | None:
    """The number that a text begins with, or the share it states, and the worth of the last digit.

    The script of the page knows the same rule.

    >>> _leading("−0.25 [−0.30, −0.20]"), _leading("6 / 8"), _leading("none")
    ((-0.25, 0.01), (0.75, 1e-09), None)
    >>> _leading("058e385ca74b40db"), _leading("1e999")  # an id, and more than a float holds
    (None, None)
    """
    if (share := _SHARE.fullmatch(text)) is not None and int(share.group(2)):
        return int(share.group(1)) / int(share.group(2)), _EXACT
    match = _NUMBER.match(text)
    if match is None:
        return None
    mantissa, decimals, exponent = match.group(1), match.group(2) or "", match.group(3) or "0"
    plain = f"{mantissa}{decimals}".replace(NARROW, "").replace(MINUS, "-")
    power = 10.0 ** int(exponent.replace(MINUS, "-"))
    return float(plain) * power, 10.0 ** -max(len(decimals) - 1, 0) * power


def sort_key(value: float) -> str:
    """A number to sort by, in as many digits as the order needs.

    >>> sort_key(0.26789123456), sort_key(40.0)
    ('0.267891', '40')
    """
    return f"{value:.6g}"


def _shared(html: Markup) -> Shared:
    made = shared(str(html))
    return replace(made, html=Markup(made.html), definitions=Markup(made.definitions))


def _svgs(figure: Figure) -> tuple[Markup, ...]:
    return tuple(map(Markup, figure_svgs(figure)))


def _swatches(drawn: dict[str, str], figure: Figure) -> tuple[tuple[str, Markup], ...]:
    """Labels with their pictures. Each is drawn in full where it stands first, and is used again after that."""
    made = []
    for line in figure.legend:
        svg = swatch_svg(line, kind=figure.kind)
        if svg in drawn:
            made.append((line.label, Markup(f'<svg aria-hidden="true"><use href="#{drawn[svg]}"/></svg>')))
        else:
            drawn[svg] = f"w{len(drawn)}"
            made.append((line.label, Markup(svg.replace("<svg ", f'<svg id="{drawn[svg]}" ', 1))))
    return tuple(made)


def _packed_texts(texts: tuple[str, ...]) -> str:
    """A list of texts for the page's script: base64 of the gzip of its JSON."""
    return packed(json.dumps(texts, ensure_ascii=False))


def _missing_of(section: Section) -> tuple[Missing, ...]:
    """What a section lacks, where it holds nothing else: then it is a line."""
    lacking = tuple(block for block in section.blocks if isinstance(block, Missing) and block.label)
    return lacking if len(lacking) == len(section.blocks) else ()


def _coded(text: str) -> Markup:
    """Text whose commands stand between backticks.

    >>> str(_coded("run `a < b`"))
    'run <code>a &lt; b</code>'
    """
    return Markup(_COMMAND.sub(r"<code>\1</code>", str(escape(str(_printable(text))))))


def _pictures(decision: Decision) -> str:
    """How many panels stand side by side on the first screen: up to 4, or "bases" where each base has its own.

    Waterfalls have a row of their own.
    """
    beside = [one for one in decision.figures if not any(isinstance(panel, Waterfall) for panel in one.panels)]
    panels = [len(figure.panels) for figure in beside]
    return "bases" if len(panels) > 1 and panels[0] > 1 else str(min(sum(panels), 4))


def _sparkline(courses: tuple[Course, ...]) -> Markup:
    return Markup(sparkline_svg(courses))
