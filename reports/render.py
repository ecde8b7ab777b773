"""Page to HTML: one file, nothing loaded from anywhere, locked down by a Content-Security-Policy of hashes."""

from __future__ import annotations

import base64
import hashlib
import os
import re
import tempfile
from functools import partial
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from diagnostics.errors import StoreError
from reports import palette
from reports.figures import figure_svgs, swatch_svg
from reports.records import Block, Figure, Page, Table

_TEMPLATES = Path(__file__).parent / "templates"
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]")


def render_page(page: Page) -> str:
    """The whole HTML document. The same page gives the same text."""
    css, js = stylesheet(), (_TEMPLATES / "report.js").read_text(encoding="utf-8")
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
        css=Markup(css),
        js=Markup(js),
        policy=content_policy(css, js),
        kind=_kind,
        placed=_placed,
        svgs=_svgs,
        swatches=_swatches,
    )
    return html.strip() + "\n"


def stylesheet() -> str:
    """Colours of light, dark and print, the classes that paint the figures, and the page's own rules."""
    light, dark = palette.variables(palette.PLACEHOLDERS), palette.variables(palette.DARK)
    colours = (
        f":root{{{light}}}\n@media (prefers-color-scheme: dark){{:root{{{dark}}}}}\n@media print{{:root{{{light}}}}}\n"
    )
    return colours + palette.rules() + "\n" + (_TEMPLATES / "report.css").read_text(encoding="utf-8")


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
    """Characters that HTML forbids become the replacement character; everything else is left to the escaping."""
    if isinstance(value, Markup) or not isinstance(value, str):
        return value
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", value)


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


def _svgs(figure: Figure) -> tuple[Markup, ...]:
    return tuple(Markup(svg) for svg in figure_svgs(figure))


def _swatches(figure: Figure) -> tuple[tuple[str, Markup], ...]:
    draw = partial(swatch_svg, kind=figure.kind)
    return tuple(
        (line.label, Markup(draw(line, prefix=f"{figure.figure_id}-key{i}"))) for i, line in enumerate(figure.legend)
    )
