"""Files of the browser page, shared by the server and the static copy."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from oversharp.reports.pictures import palette

_FOLDER = Path(__file__).parent / "page"
#: Content security policy: the page may only load and run its own files.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'"
)
#: File name → media type.
MEDIA_TYPES: Mapping[str, str] = MappingProxyType(
    {
        "index.html": "text/html; charset=utf-8",
        "view.css": "text/css; charset=utf-8",
        "turns.js": "text/javascript; charset=utf-8",
        "view.js": "text/javascript; charset=utf-8",
    }
)


def page_files() -> dict[str, str]:
    """Return file name → text. Colours are those of the report."""
    files = {name: (_FOLDER / name).read_text(encoding="utf-8") for name in MEDIA_TYPES}
    light, dark = palette.variables(palette.PLACEHOLDERS), palette.variables(palette.DARK)
    colours = f":root{{{light}}}\n@media (prefers-color-scheme: dark){{:root{{{dark}}}}}\n"
    return {**files, "view.css": colours + files["view.css"]}
