"""Render a page as one self-contained HTML file. A Content-Security-Policy allows only its own style and script."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from xml.etree import ElementTree

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from oversharp.diagnostics.records.cells import escape_bidi
from oversharp.diagnostics.records.errors import StoreError
from oversharp.reports.numbers import MINUS, NARROW
from oversharp.reports.pictures import palette
from oversharp.reports.pictures.drawing import figure_svgs, swatch_svg
from oversharp.reports.pictures.waterfall import Waterfall
from oversharp.reports.records import Block, Cell, Colour, Decision, Figure, Missing, Page, Section, Table, Trajectory
from oversharp.reports.sections.downloads import pack_text

_SPARK_WIDTH, _SPARK_HEIGHT, _SPARK_EDGE = 72, 22, 3
_DEFS = re.compile(r"<defs>(.*?)</defs>", re.DOTALL)  # matches only pictures, because other text is escaped
_DEFINITION = re.compile(r'<(marker|g) [^>]*?\bid="(\w+)".*?</\1>', re.DOTALL)
_TEMPLATES = Path(__file__).parent / "templates"
_SHARE = re.compile(r"(\d+) / (\d+)")
_EXACT = 1e-9
_NUMBER = re.compile(rf"([+{MINUS}-]?\d[\d{NARROW}]*)(\.\d+)?(?:e([{MINUS}-]?\d{{1,2}}))?(?![0-9A-Za-z])")
_BLANK = re.compile(r">\n(?:[ ]*\n)+(?=<)")  # blank lines between tags; those of responses are kept
_COMMAND = re.compile(r"`([^`]+)`")
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]")


def render_page(page: Page, *, extra_rules: str = "") -> str:
    """Return the HTML document. ``extra_rules`` are additional styles. The same page gives the same HTML."""
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
        shared=_extract_shared,
        kind=_kind,
        placed=_place_blocks,
        svgs=_svgs,
        swatches=partial(_swatches, {}),
        parsed_columns=parsed_columns,
        text_columns=text_columns,
        sort_key=sort_key,
        sparkline=_sparkline,
        packed_texts=_packed_texts,
        pictures=_pictures,
        missing_of=_missing_of,
        coded=_mark_commands,
    )
    return _BLANK.sub(">\n", html).strip() + "\n"


def stylesheet(more: str = "") -> str:
    """Return the stylesheet: colours for light, dark and print, classes of figures, rules of the page, and ``more``."""
    light, dark = palette.variables(palette.PLACEHOLDERS), palette.variables(palette.DARK)
    colours = (
        f":root{{{light}}}\n@media (prefers-color-scheme: dark){{:root{{{dark}}}}}\n@media print{{:root{{{light}}}}}\n"
    )
    own = (_TEMPLATES / "report.css").read_text(encoding="utf-8")
    return f"{colours}{palette.rules()}\n{own}{more}"


def content_policy(css: str, js: str) -> str:
    """Return a policy that allows only this stylesheet and this script."""
    return (
        f"default-src 'none'; style-src '{_source_hash(css)}'; script-src '{_source_hash(js)}'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )


def _source_hash(text: str) -> str:
    digest = hashlib.sha256(text.encode("utf-8")).digest()
    return f"sha256-{base64.b64encode(digest).decode('ascii')}"


def write_atomically(path: Path, text: str) -> Path:
    """Write ``text`` to a temporary file next to ``path`` and rename it. Raise ``StoreError`` on failure."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
                file.write(text)
            os.chmod(temporary, 0o644)  # mkstemp creates files that only the owner can read
            os.replace(temporary, path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise StoreError(f"{path}: cannot write the report ({error.strerror}); pass another --out") from error
    return path


def _printable(value: object) -> object:
    """Replace characters that HTML forbids, and spell out bidirectional controls. Autoescaping handles the rest."""
    if isinstance(value, Markup) or not isinstance(value, str):
        return value
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", escape_bidi(value))


def _kind(block: Block) -> str:
    return type(block).__name__


def _place_blocks(blocks: tuple[Block, ...]) -> tuple[tuple[Block, str], ...]:
    """Return the blocks with their positions in a grid of two columns: "lone" or "".

    Half-width blocks share rows. With an odd number of them, the last one is "lone": it has a whole row, with its data
    next to it if it is a figure.
    """
    halves = [i for i, block in enumerate(blocks) if _is_half(block)]
    lone = halves[-1] if len(halves) % 2 and isinstance(blocks[halves[-1]], Figure) else None
    return tuple((block, "lone" if i == lone else "") for i, block in enumerate(blocks))


def _is_half(block: Block) -> bool:
    if isinstance(block, Figure):
        return len(block.panels) == 1
    return isinstance(block, Table) and block.narrow


def text_columns(table: Table) -> int:
    """Return the number of text columns at the left, at most 3.

    The table gets a class with this number, so that its cells need no class. This makes the HTML smaller.
    """
    first = next((i for i, column in enumerate(table.columns) if column.numeric), len(table.columns))
    return min(first, 3)


def parsed_columns(table: Table) -> tuple[bool, ...]:
    """Return for each column whether the page's script can compute its sort keys from the text of the cells."""
    return tuple(_is_parsed([row[i] for row in table.rows]) for i in range(len(table.columns)))


def _is_parsed(cells: list[Cell]) -> bool:
    return any(
        all(_agrees(cell, factor) if cell.sort is not None else _leading(cell.text) is None for cell in cells)
        for factor in (1.0, 100.0)
    )


def _agrees(cell: Cell, factor: float) -> bool:
    """Return whether the first number of the text equals the sort key, up to the printed precision."""
    leading = _leading(cell.text)
    if leading is None or cell.sort is None:
        return False
    value, digit = leading
    return abs(value - factor * cell.sort) <= 0.51 * digit


def _leading(text: str) -> tuple[float, float] | None:
    """Return the number or share at the start of a text, and the value of one unit in its last digit.

    ``report.js`` uses the same rule.

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
    """Return a sort key as text, with six significant digits.

    >>> sort_key(0.26789123456), sort_key(40.0)
    ('0.267891', '40')
    """
    return f"{value:.6g}"


def _extract_shared(html: Markup) -> Shared:
    made = extract_shared(str(html))
    return replace(made, html=Markup(made.html), definitions=Markup(made.definitions))


def _svgs(figure: Figure) -> tuple[Markup, ...]:
    return tuple(map(Markup, figure_svgs(figure)))


def _swatches(drawn: dict[str, str], figure: Figure) -> tuple[tuple[str, Markup], ...]:
    """Return the labels of the legend with their line samples. Repeated samples refer to the first one in the page."""
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
    """Encode texts for the page's script, as base64 of their gzipped JSON."""
    return pack_text(json.dumps(texts, ensure_ascii=False))


def _missing_of(section: Section) -> tuple[Missing, ...]:
    """Return the missing blocks of a section if it has no other blocks. Such a section is rendered as one line."""
    lacking = tuple(block for block in section.blocks if isinstance(block, Missing) and block.label)
    return lacking if len(lacking) == len(section.blocks) else ()


def _mark_commands(text: str) -> Markup:
    """Escape a text, and mark up commands in backticks as code.

    >>> str(_mark_commands("run `a < b`"))
    'run <code>a &lt; b</code>'
    """
    return Markup(_COMMAND.sub(r"<code>\1</code>", str(escape(str(_printable(text))))))


def _pictures(decision: Decision) -> str:
    """Return the layout of the figures on the first screen, for a CSS class.

    It is the number of panels per row, at most 4, or "bases" if each base has a separate panel. Waterfall charts are on
    a separate row.
    """
    others = [figure for figure in decision.figures if not any(isinstance(panel, Waterfall) for panel in figure.panels)]
    panels = [len(figure.panels) for figure in others]
    return "bases" if len(panels) > 1 and panels[0] > 1 else str(min(sum(panels), 4))


def _sparkline(trajectories: tuple[Trajectory, ...]) -> Markup:
    return Markup(sparkline_svg(trajectories))


@dataclass(frozen=True, kw_only=True)
class Shared:
    """HTML of a page whose pictures refer to shared ``definitions``.

    The definitions must be in a picture that is always displayed, because browsers ignore markers in hidden elements.
    ``rules`` are the styles that add markers to lines.
    """

    html: str
    definitions: str
    rules: str


def extract_shared(html: str) -> Shared:
    """Extract the distinct definitions from the pictures in ``html``, in order of first use.

    >>> picture = '<svg><defs><marker id="m1"><path d="z"/></marker></defs><path class="m1"/></svg>'
    >>> made = extract_shared(picture + picture)
    >>> made.html
    '<svg><path class="m1"/></svg><svg><path class="m1"/></svg>'
    >>> made.definitions, made.rules
    ('<marker id="m1"><path d="z"/></marker>', '.m1{marker:url(#m1)}')
    """
    by_id: dict[str, re.Match[str]] = {}
    for inside in _DEFS.findall(html):
        for match in _DEFINITION.finditer(inside):
            by_id.setdefault(match.group(2), match)
    markers = [name for name, match in by_id.items() if match.group(1) == "marker"]
    return Shared(
        html=_DEFS.sub("", html),
        definitions="".join(match.group(0) for match in by_id.values()),
        rules="".join(f".{name}{{marker:url(#{name})}}" for name in markers),
    )


def sparkline_svg(trajectories: Sequence[Trajectory]) -> str:
    """Return a small line chart of success rates as SVG, with a dot at the last checkpoint.

    Its y axis is from 0 to the maximum, and checkpoints are equally spaced. Screen readers skip it, because the table
    of counts has the values. "" if no series has two checkpoints.
    """
    drawn = [trajectory for trajectory in trajectories if len(trajectory.shares) > 1]
    if not drawn:
        return ""
    svg = ElementTree.Element("svg", {"viewBox": f"0 0 {_SPARK_WIDTH} {_SPARK_HEIGHT}", "aria-hidden": "true"})
    _add_path(svg, f"M{_SPARK_EDGE} {_SPARK_HEIGHT - _SPARK_EDGE}h{_SPARK_WIDTH - 2 * _SPARK_EDGE}", "grid", 1.0)
    largest = max(share for trajectory in drawn for share in trajectory.shares) or 1.0
    for trajectory in drawn:
        step = (_SPARK_WIDTH - 2 * _SPARK_EDGE) / (len(trajectory.shares) - 1)
        heights = [
            _SPARK_HEIGHT - _SPARK_EDGE - share / largest * (_SPARK_HEIGHT - 2 * _SPARK_EDGE)
            for share in trajectory.shares
        ]
        points = [f"{round(_SPARK_EDGE + i * step, 1):g} {round(y, 1):g}" for i, y in enumerate(heights)]
        _add_path(svg, f"M{' '.join(points)}", trajectory.colour, 1.5)
        x, y = points[-1].split()
        ElementTree.SubElement(svg, "circle", {"cx": x, "cy": y, "r": "2", "class": f"f-{trajectory.colour}"})
    return ElementTree.tostring(svg, encoding="unicode").replace(" />", "/>")


def _add_path(svg: ElementTree.Element, path: str, colour: Colour, width: float) -> None:
    look = {"d": path, "fill": "none", "class": f"s-{colour}", "stroke-width": f"{width:g}"}
    ElementTree.SubElement(svg, "path", look)
