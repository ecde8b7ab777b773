"""JSON files that hold no record a line: one array, objects over several lines, a table of columns and rows."""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from oversharp.diagnostics.ingest.formats.opening import MOST_BYTES, is_compressed, open_dump, too_large, whole_content

T = TypeVar("T")
_array = msgspec.json.Decoder(list[msgspec.Raw]).decode
_UNFIT = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
#: The fields of a table of W&B (``*.table.json``), and of pandas' ``to_json(orient="split")``.
_COLUMNS, _ROWS = "columns", "data"


def document_records(path: Path) -> list[msgspec.Raw] | list[Any] | None:
    """Return the records of a file that is no record a line, undecoded where that can be; None for any other file.

    Raises ``OSError`` and ``ImportFileError`` where it cannot be read.
    """
    if not _may_be_document(path):
        return None
    content = whole_content(path).removeprefix(codecs.BOM_UTF8)
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
    """Return whether the first lines are the beginning of a document and not of a file with a record a line."""
    with open_dump(path) as lines:
        limit = MOST_BYTES if is_compressed(path) else -1
        filled = (line for line in iter(lambda: lines.readline(limit), b"") if line.strip())
        first = next(filled, b"").removeprefix(codecs.BOM_UTF8).strip()
        if 0 < limit <= len(first):
            raise too_large(path)
        second = next(filled, b"").lstrip()
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
    """Return the JSON values that follow each other in a text; None where it holds anything else."""
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
    """Return the place of the next character that is no white space."""
    while place < len(text) and text[place].isspace():
        place += 1
    return place


def _storable(value: Any, text: str) -> Any:
    """Return a value of a text; half a surrogate pair, which no file can hold, becomes a question mark."""
    if "\\ud" not in text and "\\uD" not in text:
        return value
    return json.loads(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))


def _rows(value: Any) -> Iterator[Any]:
    """Yield the rows of a table, each with the names of its columns; any other value as it is."""
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
