"""Read records of JSON Lines, Parquet and CSV files.

Lines of JSON Lines can be decoded to a msgspec class of their fields, which is faster than a ``dict``. Lines that do
not match the class are decoded to a ``dict``.
"""

from __future__ import annotations

import codecs
import csv
import io
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import msgspec
import numpy as np

from oversharp.diagnostics.ingest.formats.contract import Fault, Recorded
from oversharp.diagnostics.ingest.formats.documents import document_records
from oversharp.diagnostics.ingest.formats.fields import BadField
from oversharp.diagnostics.ingest.formats.opening import (
    MOST_BYTES,
    is_compressed,
    open_dump,
    refuse_stand_in,
    too_large,
    without_compression,
)
from oversharp.diagnostics.records.errors import ImportFileError, first_line

if TYPE_CHECKING:
    import pyarrow

NOT_JSON = "not valid JSON (truncated?)"
NESTED = "JSON that is nested too deeply"
LONG_NUMBER = "JSON with a number of thousands of digits"
NOT_UTF8 = "not UTF-8 text"
NOT_AN_OBJECT = "a JSON list, text or number, not an object with named fields"
#: Number of records used to detect the format. One is not enough: the first may be broken, or an added header.
RECORDS_ASKED = 20
ROWS_PER_BATCH = 1024
#: Number of bytes decoded at once, rounded to the next end of a line. They fit into the processor cache.
_BLOCK_BYTES = 1 << 18
_NEWLINE, _OPEN, _CLOSE = b"\n{}"

#: Errors of msgspec for a line that is not JSON, does not match the class, is not UTF-8, or is nested too deeply.
_UNFIT = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_decode = msgspec.json.Decoder().decode

T = TypeVar("T")


class Block(NamedTuple, Generic[T]):
    """Consecutive records of the class of the fields, and the number of the first line."""

    first: int
    records: list[T]


_TABULAR = {".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl", ".parquet": "parquet", ".csv": "csv"}


def records(
    path: Path, *, columns: Sequence[str] | None = None, rows_at_once: int = ROWS_PER_BATCH
) -> Iterator[tuple[int, dict[str, Any]] | Fault]:
    """Yield every record with its line or row number, from 1.

    For Parquet, ``columns`` are the columns to read, with dots for fields of structs, and ``rows_at_once`` is the batch
    size. Raises ``ImportFileError`` for an unreadable file.
    """
    kind = _layout(path)
    if kind == "parquet":
        return _parquet(path, columns, rows_at_once)
    return _csv(path) if kind == "csv" else _each(_jsonl(path, dict))


def read_each(
    path: Path,
    samples_of: Callable[[int, dict[str, Any]], Iterable[Recorded | Fault]],
    *,
    columns: Sequence[str] | None = None,
    rows_at_once: int = ROWS_PER_BATCH,
) -> Iterator[Recorded | Fault]:
    """Yield the samples that ``read`` returns for each record. A ``BadField`` becomes a fault.

    Raises ``ImportFileError`` for an unreadable file.
    """
    for record in records(path, columns=columns, rows_at_once=rows_at_once):
        if isinstance(record, Fault):
            yield record
            continue
        line, fields = record
        try:
            yield from samples_of(line, fields)
        except BadField as bad:
            yield Fault(line, str(bad))


def read_one_each(path: Path, sample_of: Callable[[int, dict[str, Any]], Recorded]) -> Iterator[Recorded | Fault]:
    """Yield one sample per record. Otherwise like ``read_each``."""
    return read_each(path, lambda line, fields: (sample_of(line, fields),))


def typed_records(path: Path, kind: type[T]) -> Iterator[tuple[int, T | dict[str, Any]] | Fault]:
    """Yield records like ``records``, but decode lines of JSON Lines to the msgspec class ``kind``.

    Lines whose types do not match are decoded to a ``dict``. Fields that ``kind`` lacks are skipped.
    """
    return _each(record_blocks(path, kind))


def record_blocks(path: Path, kind: type[T]) -> Iterator[Block[T] | tuple[int, T | dict[str, Any]] | Fault]:
    """Yield the same records as ``typed_records``, with lines that match ``kind`` in blocks if possible."""
    return _jsonl(path, kind) if _layout(path) == "jsonl" else records(path)


def _each(
    blocks: Iterable[Block[T] | tuple[int, T | dict[str, Any]] | Fault],
) -> Iterator[tuple[int, T | dict[str, Any]] | Fault]:
    for item in blocks:
        if isinstance(item, Block):
            yield from enumerate(item.records, start=item.first)
        else:
            yield item


def has_records(path: Path) -> bool:
    """Return whether the suffix is JSON Lines, Parquet or CSV, or compressed JSON Lines or CSV."""
    return _layout(path) is not None


def _layout(path: Path) -> str | None:
    """Return the layout of a file by its suffix; None if unknown, such as compressed Parquet."""
    layout = _TABULAR.get(without_compression(path).suffix.lower())
    return None if layout == "parquet" and is_compressed(path) else layout


def first_records(path: Path, at_most: int) -> Iterator[Mapping[str, Any]]:
    """Yield the first readable records.

    Raises ``ImportFileError`` with the reason if no record is readable.
    """
    n_read, first_fault = 0, None
    try:
        for record in records(path, rows_at_once=1):
            if isinstance(record, Fault):
                first_fault = first_fault or record
                continue
            n_read += 1
            yield record[1]
            if n_read == at_most:
                return
    except ImportFileError:
        if not n_read:
            raise
    if not n_read:
        raise ImportFileError(f"{path}: {_why_no_record(path, first_fault)}")


def first_record(path: Path) -> Mapping[str, Any]:
    """Return the first readable record; empty if there is none."""
    try:
        return next(first_records(path, 1)) if has_records(path) else {}
    except ImportFileError:
        return {}


def _why_no_record(path: Path, first: Fault | None) -> str:
    """Return the reason why no record of a file is readable, given its first fault."""
    with open_dump(path) as content:
        start = content.read(4096)
    if first is None:
        return "has no records" if start.strip() else "is empty"
    if not start.strip(b"\0"):
        return "has only NUL bytes; copy it again"
    if b"\0" in start or start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return f"{NOT_UTF8} (UTF-16?); save it as UTF-8"
    return f"no readable record; line {first.line}: {first.why}"


def _jsonl(path: Path, kind: type[T]) -> Iterator[Block[T] | tuple[int, T | dict[str, Any]] | Fault]:
    decoder = msgspec.json.Decoder(kind)
    refuse_stand_in(path)
    try:
        document = document_records(path)
        if document is not None:
            for number, record in enumerate(document, start=1):
                yield _decode_record(number, record, decoder)
            return
        yield from _decode_lines(path, decoder)
    except OSError as error:
        raise ImportFileError(f"{path}: cannot be read ({error.strerror})") from error


def _decode_lines(
    path: Path, decoder: msgspec.json.Decoder[T]
) -> Iterator[Block[T] | tuple[int, T | dict[str, Any]] | Fault]:
    n_done, longest = 0, MOST_BYTES if is_compressed(path) else -1
    with open_dump(path) as lines:
        while block := lines.read(_BLOCK_BYTES) + lines.readline(longest):
            if 0 < longest <= len(block):
                raise too_large(path)
            n_lines, is_plain = _count_lines(block)
            first, n_done = n_done + 1, n_done + n_lines
            try:
                records = decoder.decode_lines(block) if is_plain else []
            except _UNFIT:
                records = []
            if len(records) == n_lines:
                yield Block(first, records)
            else:
                yield from _decode_each(block, first, decoder)


def _decode_record(number: int, record: Any, decoder: msgspec.json.Decoder[Any]) -> tuple[int, Any] | Fault:
    if not isinstance(record, msgspec.Raw):
        return (number, record) if isinstance(record, dict) else Fault(number, NOT_AN_OBJECT)
    text = bytes(record)
    if not _is_utf8(text):
        return Fault(number, NOT_UTF8)
    try:
        return number, decoder.decode(text)
    except _UNFIT:
        return _unfit(number, text)


def _count_lines(block: bytes) -> tuple[int, bool]:
    """Return the number of lines of a block, and whether each is one JSON object in valid UTF-8.

    The test is that every line begins with ``{`` and ends with ``}``: a line break inside an object cannot follow
    ``}``, because a comma or bracket comes first. msgspec does not check this, nor the UTF-8 of skipped fields.
    """
    lines = block.removesuffix(b"\n")
    characters = np.frombuffer(lines, dtype=np.uint8)
    end_N = np.flatnonzero(characters == _NEWLINE)
    is_plain = lines.startswith(b"{") and lines.endswith(b"}") and _is_utf8(lines)
    if is_plain:
        is_plain = bool((characters[end_N - 1] == _CLOSE).all() and (characters[end_N + 1] == _OPEN).all())
    return len(end_N) + 1, is_plain


def _is_utf8(text: bytes) -> bool:
    if text.isascii():
        return True
    try:
        text.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _decode_each(
    block: bytes, first: int, decoder: msgspec.json.Decoder[T]
) -> Iterator[tuple[int, T | dict[str, Any]] | Fault]:
    """Decode the lines of a block individually. ``first`` is the number of its first line."""
    for number, line in enumerate(block.removesuffix(b"\n").split(b"\n"), start=first):
        if not _is_utf8(line):
            yield Fault(number, NOT_UTF8)
            continue
        try:
            record = decoder.decode(line)
        except _UNFIT:
            if line.strip():
                yield _unfit(number, line)
        else:
            yield number, record


def _unfit(number: int, line: bytes) -> tuple[int, dict[str, Any]] | Fault:
    """Return the fields of a line that does not match the class as a ``dict``, or a fault."""
    value = parse_json(line.removeprefix(codecs.BOM_UTF8) if number == 1 else line)
    if isinstance(value, str):
        return Fault(number, value)
    return (number, value[0]) if isinstance(value[0], dict) else Fault(number, NOT_AN_OBJECT)


def fault_of_last_line(path: Path, n_bytes: int) -> str | None:
    """Return the fault that the last line had when the file was ``n_bytes`` long, or None.

    The line may be complete now.
    """
    if _layout(path) != "jsonl" or is_compressed(path):
        return None
    with path.open("rb") as content:
        end, tail = n_bytes, b""
        while end and b"\n" not in tail:
            start = max(0, end - _BLOCK_BYTES)
            content.seek(start)
            tail, end = content.read(end - start) + tail, start
    last = tail.rpartition(b"\n")[2]
    value = parse_json(last) if last.strip() else None
    return value if isinstance(value, str) else None


def parse_json(text: bytes) -> tuple[Any] | str:
    r"""Return the value of a JSON text in a tuple, or the reason why it is unreadable as a text.

    Accepts NaN and lone surrogates: JSON forbids them, but Python writes them.

    >>> parse_json(rb'{"text": "a\ud800b", "score": NaN}')
    ({'text': 'a?b', 'score': nan},)
    """
    try:
        return (_decode(text),)
    except _UNFIT:
        pass
    try:
        value = json.loads(text.decode("utf-8"))
        if rb"\ud" in text or rb"\uD" in text:
            value = json.loads(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))
        return (value,)
    except UnicodeDecodeError:
        return NOT_UTF8
    except RecursionError:
        return NESTED
    except json.JSONDecodeError:
        return NOT_JSON
    except ValueError:  # Python limits the number of digits because the conversion takes quadratic time
        return LONG_NUMBER


def read_json_object(path: Path) -> dict[str, Any]:
    """Return the object in a JSON file.

    Raises ``ImportFileError`` for an unreadable file, or a value that is not an object.
    """
    try:
        document = parse_json(path.read_bytes())
    except OSError as error:
        raise ImportFileError(f"{path}: cannot be read ({error.strerror})") from error
    if isinstance(document, str) or not isinstance(document[0], dict):
        fault = document if isinstance(document, str) else "not an object"
        raise ImportFileError(f"{path}: {fault}; copy it again")
    return dict(document[0])


def _parquet(
    path: Path, columns: Sequence[str] | None, rows_at_once: int
) -> Iterator[tuple[int, dict[str, Any]] | Fault]:
    return parquet_parts(path, columns, lambda first, part: enumerate(rows_of(part), start=first), rows_at_once)


def parquet_parts(
    path: Path,
    columns: Sequence[str] | None,
    convert: Callable[[int, pyarrow.RecordBatch], Iterable[T]],
    rows_at_once: int = ROWS_PER_BATCH,
) -> Iterator[T]:
    """Yield the results of ``convert`` for each batch of a Parquet file and the number of its first row.

    Missing ``columns`` are ignored. Raises ``ImportFileError`` for an unreadable file.
    """
    import pyarrow
    import pyarrow.parquet

    refuse_stand_in(path)
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            _require_once(path, file.schema_arrow.names)
            first = 1
            for part in file.iter_batches(batch_size=rows_at_once, columns=columns):
                yield from convert(first, part)
                first += len(part)
    except MemoryError as error:  # decoding a dictionary can repeat a long text in every row
        raise ImportFileError(f"{path}: {rows_at_once:,} of its rows exceed the memory; split the file") from error
    # OverflowError and OSError: invalid dates
    except (pyarrow.ArrowException, ValueError, OverflowError, OSError) as error:
        why = first_line(error)
        raise ImportFileError(f"{path}: not a readable Parquet file ({why}); copy it again") from error


def rows_of(batch: pyarrow.RecordBatch) -> Iterator[dict[str, Any]]:
    """Yield the rows of a batch like ``to_pylist``, but share texts that are dictionary-encoded."""
    columns = [_values(column) for column in batch.columns]
    return (dict(zip(batch.schema.names, row, strict=True)) for row in zip(*columns, strict=True))


def _values(column: pyarrow.Array) -> list[Any]:
    import pyarrow

    if not isinstance(column, pyarrow.DictionaryArray) or len(column.dictionary) > len(column):
        return column.to_pylist()
    values = column.dictionary.to_pylist()
    return [None if place is None else values[place] for place in column.indices.to_pylist()]


def _csv(path: Path) -> Iterator[tuple[int, dict[str, Any]] | Fault]:
    csv.field_size_limit(2**31 - 1)  # a response may be megabytes long
    done = 0
    refuse_stand_in(path)
    try:
        # decode invalid UTF-8 to lone surrogates, so that only the affected row is unusable
        with io.TextIOWrapper(open_dump(path), encoding="utf-8-sig", errors="surrogateescape", newline="") as lines:
            reader = csv.DictReader(lines, strict=True)
            if not all(_is_text(name) and "\0" not in name for name in reader.fieldnames or ()):
                raise ImportFileError(f"{path}: {NOT_UTF8} in its header (UTF-16?); save it as UTF-8")
            # spreadsheets may have unnamed columns
            _require_once(path, [name for name in reader.fieldnames or () if name])
            done = reader.line_num
            for fields in reader:
                done = reader.line_num
                if None in fields or None in fields.values():
                    yield Fault(done, "a CSV line with more or fewer fields than the header")
                elif not all(map(_is_text, fields.values())):
                    yield Fault(done, NOT_UTF8)
                else:
                    yield done, fields
    except csv.Error as error:  # stop: the rest of the file may be inside a quoted field
        raise ImportFileError(
            f"{path}: not a readable CSV file: line {done + 1}: {error} (an unclosed quote?)"
        ) from error
    except OSError as error:
        raise ImportFileError(f"{path}: cannot be read ({error.strerror})") from error


def _require_once(path: Path, names: Sequence[str]) -> None:
    """Raise ``ImportFileError`` for several columns with the same name."""
    duplicates = sorted(name for name, n in Counter(names).items() if n > 1)
    if duplicates:
        raise ImportFileError(
            f"{path}: has several columns named {', '.join(duplicates)}; rename the duplicates or remove them"
        )


def _is_text(value: str) -> bool:
    if value.isascii():
        return True
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
