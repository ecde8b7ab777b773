"""Records of JSON Lines, Parquet and CSV files.

A line of JSON Lines may be asked for as a class of its fields, which is less work than a ``dict`` whose fields are
looked at one by one. A line that does not fit the class comes as a ``dict`` all the same.
"""

from __future__ import annotations

import codecs
import csv
import io
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

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

NOT_JSON = "not valid JSON (cut short?)"
NESTED = "JSON that is nested too deep to be read"
LONG_NUMBER = "JSON with a number of thousands of digits"
NOT_UTF8 = "not UTF-8 text"
NOT_AN_OBJECT = "a JSON list, text or number, not an object with named fields"
#: Records of a file that are tried for recognition: the first may be broken, or an added header.
RECORDS_ASKED = 20
ROWS_PER_BATCH = 1024
#: Bytes that are decoded at once, up to the next end of a line: few enough for the processor's cache.
_BLOCK_BYTES = 1 << 18
_NEWLINE, _OPEN, _CLOSE = b"\n{}"

#: What msgspec says of a line that is no JSON, has other fields, holds a text that is not UTF-8, or is nested too deep.
_UNFIT = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_decode = msgspec.json.Decoder().decode

T = TypeVar("T")

_TABULAR = {".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl", ".parquet": "parquet", ".csv": "csv"}


def records(
    path: Path, *, columns: Sequence[str] | None = None, rows_at_once: int = ROWS_PER_BATCH
) -> Iterator[tuple[int, dict[str, Any]] | Fault]:
    """Yield every record with its line or row, from 1. Raises ``ImportFileError`` for an unreadable file.

    Of Parquet files only ``columns`` are read, dots reach into structs, and ``rows_at_once`` lie in memory.
    """
    kind = _layout(path)
    if kind == "parquet":
        return _parquet(path, columns, rows_at_once)
    return _csv(path) if kind == "csv" else _jsonl(path, dict)


def read_each(
    path: Path,
    samples_of: Callable[[int, dict[str, Any]], Iterable[Recorded | Fault]],
    *,
    columns: Sequence[str] | None = None,
    rows_at_once: int = ROWS_PER_BATCH,
) -> Iterator[Recorded | Fault]:
    """Yield the samples of every record, given its line and fields; a ``BadField`` becomes a fault of its line.

    Raises ``ImportFileError`` as ``records`` does.
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
    """Yield one sample per record, as ``read_each``."""
    return read_each(path, lambda line, fields: (sample_of(line, fields),))


def typed_records(path: Path, kind: type[T]) -> Iterator[tuple[int, T | dict[str, Any]] | Fault]:
    """As ``records``; a line of JSON Lines whose fields have the types of ``kind``, a class of msgspec, comes as one.

    Fields that ``kind`` does not have are passed over.
    """
    return _jsonl(path, kind) if _layout(path) == "jsonl" else records(path)


def holds_records(path: Path) -> bool:
    """Return whether the suffix is one of JSON Lines, Parquet or CSV, compressed too where it is text."""
    return _layout(path) is not None


def _layout(path: Path) -> str | None:
    """Return the layout of a file by its name; None for an unknown one, such as compressed Parquet."""
    layout = _TABULAR.get(without_compression(path).suffix.lower())
    return None if layout == "parquet" and is_compressed(path) else layout


def first_records(path: Path, at_most: int) -> Iterator[Mapping[str, Any]]:
    """Yield the first records that can be read. Raises ``ImportFileError``, with the cause, if there is none."""
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
    """Return the first record that can be read; empty if there is none or the file holds no records."""
    try:
        return next(first_records(path, 1)) if holds_records(path) else {}
    except ImportFileError:
        return {}


def _why_no_record(path: Path, first: Fault | None) -> str:
    """Return why no record of a file can be read, given its first fault."""
    with open_dump(path) as content:
        start = content.read(4096)
    if first is None:
        return "holds no record" if start.strip() else "is empty"
    if not start.strip(b"\0"):
        return "holds NUL bytes and no text; copy it again"
    if b"\0" in start or start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return f"{NOT_UTF8} (UTF-16?); save it as UTF-8"
    return f"no readable record; line {first.line}: {first.why}"


def _jsonl(path: Path, kind: type[T]) -> Iterator[tuple[int, T | dict[str, Any]] | Fault]:
    decoder = msgspec.json.Decoder(kind)
    refuse_stand_in(path)
    try:
        document = document_records(path)
        if document is not None:
            for number, record in enumerate(document, start=1):
                yield _of_document(number, record, decoder)
            return
        yield from _by_line(path, decoder)
    except OSError as error:
        raise ImportFileError(f"{path}: cannot be read ({error.strerror})") from error


def _by_line(path: Path, decoder: msgspec.json.Decoder[T]) -> Iterator[tuple[int, T | dict[str, Any]] | Fault]:
    n_done, longest = 0, MOST_BYTES if is_compressed(path) else -1
    with open_dump(path) as lines:
        while block := lines.read(_BLOCK_BYTES) + lines.readline(longest):
            if 0 < longest <= len(block):
                raise too_large(path)
            n_lines, is_plain = _lines_of(block)
            first, n_done = n_done + 1, n_done + n_lines
            try:
                records = decoder.decode_lines(block) if is_plain else []
            except _UNFIT:
                records = []
            if len(records) == n_lines:
                yield from enumerate(records, start=first)
            else:
                yield from _lines(block, first, decoder)


def _of_document(number: int, record: Any, decoder: msgspec.json.Decoder[Any]) -> tuple[int, Any] | Fault:
    if not isinstance(record, msgspec.Raw):
        return (number, record) if isinstance(record, dict) else Fault(number, NOT_AN_OBJECT)
    text = bytes(record)
    if not _is_utf8(text):
        return Fault(number, NOT_UTF8)
    try:
        return number, decoder.decode(text)
    except _UNFIT:
        return _unfit(number, text)


def _lines_of(block: bytes) -> tuple[int, bool]:
    """Return how many lines a block has, and whether as many objects in it are one in each line.

    They are where every line begins with ``{`` and ends with ``}``: an object over two lines cannot be broken there, as
    after ``}`` a comma or another bracket follows. msgspec looks neither at that nor at texts that nobody asks for,
    which must be UTF-8 too.
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


def _lines(
    block: bytes, first: int, decoder: msgspec.json.Decoder[T]
) -> Iterator[tuple[int, T | dict[str, Any]] | Fault]:
    """Yield the lines of a block of which some do not fit; the number of its first line is ``first``."""
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
    """Return number and fields of a line that does not fit the class of its fields; a fault of one without fields."""
    value = parse_json(line.removeprefix(codecs.BOM_UTF8) if number == 1 else line)
    if isinstance(value, str):
        return Fault(number, value)
    return (number, value[0]) if isinstance(value[0], dict) else Fault(number, NOT_AN_OBJECT)


def fault_of_last_line(path: Path, n_bytes: int) -> str | None:
    """Return the fault of the last line when the file had ``n_bytes`` and was still growing; None without one."""
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
    r"""Return the value of a line, or file, of JSON in a tuple; the fault as a text where it is no JSON.

    Accepts NaN and half a surrogate pair, which Python writes and JSON lacks.

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
    except ValueError:  # Python refuses to convert it, since that takes the square of its length
        return LONG_NUMBER


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
    """Yield the results of ``convert`` for batches of a Parquet file's rows, given the number of the first row.

    Reads those of ``columns`` that the file has. Raises ``ImportFileError`` as ``records``.
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
    except MemoryError as error:  # a text that is held once and meant in every row fills it from a file of kilobytes
        raise ImportFileError(f"{path}: {rows_at_once:,} of its rows do not fit into the memory; split it") from error
    except (pyarrow.ArrowException, ValueError, OverflowError, OSError) as error:  # of dates no calendar has, too
        why = first_line(error)
        raise ImportFileError(f"{path}: not a readable Parquet file ({why}); cut short? copy it again") from error


def rows_of(batch: pyarrow.RecordBatch) -> Iterator[dict[str, Any]]:
    """Yield the rows of a batch as ``to_pylist`` has them; a text that is held once for many of them stays one."""
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
        # a byte that is no UTF-8 becomes half a surrogate pair, which no UTF-8 text holds: its row alone is lost
        with io.TextIOWrapper(open_dump(path), encoding="utf-8-sig", errors="surrogateescape", newline="") as lines:
            reader = csv.DictReader(lines, strict=True)
            if not all(_is_text(name) and "\0" not in name for name in reader.fieldnames or ()):
                raise ImportFileError(f"{path}: {NOT_UTF8} in its header (UTF-16?); save it as UTF-8")
            _require_once(path, [name for name in reader.fieldnames or () if name])  # spreadsheets leave some unnamed
            done = reader.line_num
            for fields in reader:
                done = reader.line_num
                if None in fields or None in fields.values():
                    yield Fault(done, "a CSV line with more or fewer fields than the header")
                elif not all(map(_is_text, fields.values())):
                    yield Fault(done, NOT_UTF8)
                else:
                    yield done, fields
    except csv.Error as error:  # the rest may be inside a field
        raise ImportFileError(
            f"{path}: not a readable CSV file: stopped at line {done + 1}: {error} (a quote left open?)"
        ) from error
    except OSError as error:
        raise ImportFileError(f"{path}: cannot be read ({error.strerror})") from error


def _require_once(path: Path, names: Sequence[str]) -> None:
    """Raise ``ImportFileError`` for several columns of one name."""
    twice = sorted(name for name, n in Counter(names).items() if n > 1)
    if twice:
        raise ImportFileError(
            f"{path}: has several columns named {', '.join(twice)}; rename or remove all but one each"
        )


def _is_text(value: str) -> bool:
    if value.isascii():
        return True
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
