"""Read JSON files that do not have one record per line.

These are arrays, objects over several lines, and tables with a list of columns and a list of rows.
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from oversharp.diagnostics.ingest.formats.opening import MOST_BYTES, is_compressed, open_dump, read_whole, too_large

T = TypeVar("T")
_array = msgspec.json.Decoder(list[msgspec.Raw]).decode
_UNFIT = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
#: Fields of a table by W&B (``*.table.json``) or by pandas (``to_json(orient="split")``).
_COLUMNS, _ROWS = "columns", "data"


def document_records(path: Path) -> list[msgspec.Raw] | list[Any] | None:
    """Return the records of a JSON document; None for a file with one record per line.

    The records are undecoded if possible. Raises ``OSError`` and ``ImportFileError`` for an unreadable file.
    """
    if not _may_be_document(path):
        return None
    content = read_whole(path).removeprefix(codecs.BOM_UTF8)
    try:
        return list(_array(content))
    except _UNFIT:
        pass
    values = _values(content)
    if values is None:
        return None
    if len(values) == 1 and isinstance(values[0], list):
        return list(values[0])
    return [record for value in values for record in _rows(value)]


def _may_be_document(path: Path) -> bool:
    """Return whether the file is a JSON document, not one record per line, judged by its first lines."""
    with open_dump(path) as lines:
        limit = MOST_BYTES if is_compressed(path) else -1
        not_blank = (line for line in iter(lambda: lines.readline(limit), b"") if line.strip())
        first = next(not_blank, b"").removeprefix(codecs.BOM_UTF8).strip()
        if 0 < limit <= len(first):
            raise too_large(path)
        second = next(not_blank, b"").lstrip()
    if first.startswith(b"["):
        return not second or not _is_json(first)
    if first.startswith(b"{"):
        if not second:
            return b'"columns"' in first and b'"data"' in first
        return not second.startswith(b"{") and not _is_json(first)
    return False


def _is_json(text: bytes) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _values(content: bytes) -> list[Any] | None:
    """Return the consecutive JSON values of a text; None if it contains anything else."""
    decoder = json.JSONDecoder()
    try:
        text = content.decode("utf-8")
        values, end = [], _skip_space(text, 0)
        while end < len(text):
            value, end = decoder.raw_decode(text, end)
            values.append(_storable(value, text))
            end = _skip_space(text, end)
    except (ValueError, RecursionError):
        return None
    return values


def _skip_space(text: str, place: int) -> int:
    """Return the position of the next character that is not white space."""
    while place < len(text) and text[place].isspace():
        place += 1
    return place


def _storable(value: Any, text: str) -> Any:
    """Replace lone surrogates in all texts of a value, which UTF-8 cannot encode, with question marks."""
    if "\\ud" not in text and "\\uD" not in text:
        return value
    return json.loads(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))


def _rows(value: Any) -> Iterator[Any]:
    """Yield the rows of a table as dicts. Any other value is yielded unchanged."""
    if not _is_table(value):
        yield value
        return
    names = value[_COLUMNS]
    for row in value[_ROWS]:
        yield dict(zip(names, row, strict=True)) if isinstance(row, list) and len(row) == len(names) else row


def _is_table(value: Any) -> bool:
    if not isinstance(value, Mapping):
        return False
    names, rows = value.get(_COLUMNS), value.get(_ROWS)
    return (
        isinstance(names, list)
        and all(isinstance(name, str) for name in names)
        and len(set(names)) == len(names) > 0
        and isinstance(rows, list)
        and all(isinstance(row, list) for row in rows)
    )
