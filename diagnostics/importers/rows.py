"""Records of JSON Lines, Parquet and CSV files, and the ways in which their fields can be wrong."""

from __future__ import annotations

import codecs
import csv
import json
import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import orjson

from diagnostics.errors import ImportFileError
from diagnostics.importers.contract import Fault
from diagnostics.types import FinishReason

NOT_JSON = "not valid JSON (cut short?)"
NOT_UTF8 = "not UTF-8 text"
NOT_AN_OBJECT = "JSON, but not an object"
ONE_ARRAY = "one JSON array, not a record a line; write JSON Lines"
ONE_OBJECT = "one JSON object over several lines, not a record a line; write JSON Lines"
ROWS_PER_BATCH = 1024
_BUFFER_BYTES = 1 << 20
#: A larger number is no step, count or index, and no column holds it.
LARGEST_WHOLE = 2**31 - 1

_TABULAR = {".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl", ".parquet": "parquet", ".csv": "csv"}


def records(
    path: Path, *, columns: Sequence[str] | None = None, rows_at_once: int = ROWS_PER_BATCH
) -> Iterator[tuple[int, dict[str, Any]] | Fault]:
    """Every record with its line or row, from 1. Raises ``ImportFileError`` where the file cannot be opened or read.

    Of Parquet files only ``columns`` are read, dots reach into structs, and ``rows_at_once`` lie in memory.
    """
    kind = _TABULAR.get(path.suffix.lower())
    if kind == "parquet":
        return _parquet(path, columns, rows_at_once)
    return _csv(path) if kind == "csv" else _jsonl(path)


def holds_records(path: Path) -> bool:
    """Whether the suffix is one of JSON Lines, Parquet or CSV."""
    return path.suffix.lower() in _TABULAR


def first_records(path: Path, at_most: int) -> Iterator[Mapping[str, Any]]:
    """The first records that can be read. Raises ``ImportFileError``, with the cause, if there is none."""
    found, first_fault = 0, None
    try:
        for one in records(path, rows_at_once=1):
            if isinstance(one, Fault):
                first_fault = first_fault or one
                continue
            found += 1
            yield one[1]
            if found == at_most:
                return
    except ImportFileError:
        if not found:
            raise
    if not found:
        raise ImportFileError(f"{path}: {_why_no_record(path, first_fault)}")


def first_record(path: Path) -> Mapping[str, Any]:
    """The first record that can be read; empty if there is none or the file holds no records."""
    try:
        return next(first_records(path, 1)) if holds_records(path) else {}
    except ImportFileError:
        return {}


def _why_no_record(path: Path, first: Fault | None) -> str:
    """What is wrong with a file of which no record can be read, given its first fault."""
    with path.open("rb") as content:
        start = content.read(4096)
    if first is None:
        return "holds no record" if start.strip() else "is empty"
    if not start.strip(b"\0"):
        return "holds NUL bytes and no text; copy it again"
    if b"\0" in start or start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return f"{NOT_UTF8} (UTF-16?); save it as UTF-8"
    if start.removeprefix(codecs.BOM_UTF8).split(b"\n", 1)[0].strip() == b"{":
        return ONE_OBJECT
    return f"no readable record; line {first.line}: {first.why}"


def _jsonl(path: Path) -> Iterator[tuple[int, dict[str, Any]] | Fault]:
    try:
        with path.open("rb", buffering=_BUFFER_BYTES) as lines:
            if _is_one_array(lines):
                raise ImportFileError(f"{path}: {ONE_ARRAY}")
            for number, line in enumerate(lines, start=1):
                try:
                    fields = orjson.loads(line)
                except orjson.JSONDecodeError:
                    if not line.strip():
                        continue
                    parsed = _lenient(line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line)
                    if isinstance(parsed, str):
                        yield Fault(number, parsed)
                        continue
                    fields = parsed[0]
                if isinstance(fields, dict):
                    yield number, fields
                else:
                    yield Fault(number, NOT_AN_OBJECT)
    except OSError as error:
        raise ImportFileError(f"{path}: cannot be read ({error.strerror})") from error


def _is_one_array(content: BinaryIO) -> bool:
    """Whether a file is one array and not a record a line. It is left at its start.

    From ``[`` to ``]`` alone is not enough: the first and the last of many lines may be lists by mistake.
    """
    first = content.readline().removeprefix(codecs.BOM_UTF8)
    while first and not first.strip():
        first = content.readline()
    is_array = False
    if first.lstrip().startswith(b"["):
        has_more = any(line.strip() for line in content)
        is_array = _last_bytes(content).endswith(b"]") and not (has_more and _is_json(first))
    content.seek(0)
    return is_array


def _last_bytes(content: BinaryIO) -> bytes:
    end = content.seek(0, os.SEEK_END)
    content.seek(max(0, end - 4096))
    return content.read().rstrip()


def _is_json(line: bytes) -> bool:
    try:
        orjson.loads(line)
    except orjson.JSONDecodeError:
        return not isinstance(_lenient(line), str)
    return True


def fault_of_last_line(path: Path, n_bytes: int) -> str | None:
    """What was wrong with the last line when the file had ``n_bytes`` and a tool was still writing; None if nothing."""
    if _TABULAR.get(path.suffix.lower()) != "jsonl":
        return None
    with path.open("rb") as content:
        end, tail = n_bytes, b""
        while end and b"\n" not in tail:
            start = max(0, end - _BUFFER_BYTES)
            content.seek(start)
            tail, end = content.read(end - start) + tail, start
    last = tail.rpartition(b"\n")[2]
    try:
        orjson.loads(last)
    except orjson.JSONDecodeError:
        parsed = _lenient(last) if last.strip() else None
        return parsed if isinstance(parsed, str) else None
    return None


def _lenient(line: bytes) -> tuple[Any] | str:
    r"""What Python writes and JSON does not know, NaN, Infinity and half a surrogate pair, is read; else why not.

    >>> _lenient(rb'{"text": "a\ud800b", "score": NaN}')
    ({'text': 'a?b', 'score': nan},)
    """
    try:
        parsed = json.loads(line.decode("utf-8"))
        if rb"\ud" in line or rb"\uD" in line:
            parsed = json.loads(json.dumps(parsed, ensure_ascii=False).encode("utf-8", "replace"))
        return (parsed,)
    except UnicodeDecodeError:
        return NOT_UTF8
    except (ValueError, RecursionError):
        return NOT_JSON


def _parquet(
    path: Path, columns: Sequence[str] | None, rows_at_once: int
) -> Iterator[tuple[int, dict[str, Any]] | Fault]:
    import pyarrow
    import pyarrow.parquet

    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            number = 0
            for batch in file.iter_batches(batch_size=rows_at_once, columns=columns):
                for fields in batch.to_pylist():
                    number += 1
                    yield number, fields
    except (pyarrow.ArrowException, ValueError, OverflowError, OSError) as error:  # of dates no calendar has, too
        first = (str(error).splitlines() or [type(error).__name__])[0][:150]
        raise ImportFileError(f"{path}: not a readable Parquet file ({first}); cut short? copy it again") from error


def _csv(path: Path) -> Iterator[tuple[int, dict[str, Any]] | Fault]:
    csv.field_size_limit(2**31 - 1)  # a response may be megabytes long
    done = 0
    try:
        # a byte that is no UTF-8 becomes half a surrogate pair, which no UTF-8 text holds: its row alone is lost
        with path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as lines:
            reader = csv.DictReader(lines, strict=True)
            if not all(_is_text(name) and "\0" not in name for name in reader.fieldnames or ()):
                raise ImportFileError(f"{path}: {NOT_UTF8} in its header (UTF-16?); save it as UTF-8")
            done = reader.line_num
            for fields in reader:
                done = reader.line_num
                if None in fields or None in fields.values():
                    yield Fault(done, "a CSV line with more or fewer fields than the header")
                elif not all(map(_is_text, fields.values())):
                    yield Fault(done, NOT_UTF8)
                else:
                    yield done, fields
    except csv.Error as error:  # what follows cannot be told from the inside of a field
        raise ImportFileError(
            f"{path}: not a readable CSV file: stopped at line {done + 1}: {error} (a quote left open?)"
        ) from error
    except OSError as error:
        raise ImportFileError(f"{path}: cannot be read ({error.strerror})") from error


def _is_text(value: str) -> bool:
    if value.isascii():
        return True
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


# ---------------------------------------------------------------- fields


#: What a CSV file has for right and wrong.
_WORDS = {"true": 1.0, "false": 0.0}


class BadField(ValueError):  # noqa: N818 - never leaves an importer: it becomes a Fault
    """A field that cannot be used; the message is the fault's."""


def text(fields: Mapping[str, Any], name: str) -> str:
    """A text, or the texts of chat messages. Raises ``BadField`` where it is missing or of another kind."""
    value = fields.get(name)
    if isinstance(value, str):
        return value
    if value is None:
        raise BadField(f"no {name}")
    if isinstance(value, list) and value and all(isinstance(one, Mapping) for one in value):
        return chat_text(value, name)
    raise BadField(f"{name} is not text")


def chat_text(messages: list[Mapping[str, Any]], name: str) -> str:
    """One message's content, or all with their roles before them.

    >>> chat_text([{"role": "user", "content": "2+2?"}], "prompt")
    '2+2?'
    >>> chat_text([{"role": "system", "content": "Add."}, {"role": "user", "content": "2+2?"}], "prompt")
    'system: Add.\\n\\nuser: 2+2?'
    """
    contents = [_content(message.get("content"), name) for message in messages]
    if len(messages) == 1:
        return contents[0]
    roles = [message.get("role", "?") for message in messages]
    return "\n\n".join(f"{role}: {content}" for role, content in zip(roles, contents, strict=True))


def _content(content: Any, name: str) -> str:
    """A message's text; of its parts, such as texts and images, the texts."""
    if isinstance(content, list):
        texts = [part["text"] for part in content if isinstance(part, Mapping) and isinstance(part.get("text"), str)]
        content = "\n".join(texts) if texts else None
    if not isinstance(content, str):
        raise BadField(f"{name} holds a message without text")
    return content


def optional_text(fields: Mapping[str, Any], name: str) -> str | None:
    """A text or a number as text, also as the only one of a list; None where it is missing or empty."""
    value = fields.get(name)
    if value is None:
        return None
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    if isinstance(value, str):
        return value or None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return str(value) if math.isfinite(value) else None
    except (OverflowError, ValueError):  # whole numbers of hundreds of digits
        return None


def score(fields: Mapping[str, Any], name: str) -> float | None:
    """A finite number, true or false, also as text; None where it is missing. The last of a list of scores by token.

    Raises ``BadField`` for anything else.

    >>> score({"score": "True"}, "score"), score({"score": [0.0, 0.0, 1.0]}, "score"), score({}, "score")
    (1.0, 1.0, None)
    """
    value = fields.get(name)
    if type(value) is float and -math.inf < value < math.inf:
        return value
    if isinstance(value, list):
        value = value[-1] if value else None
    if value is None or value == "":
        return None
    if isinstance(value, str):
        try:
            value = _WORDS[value.lower()] if value.lower() in _WORDS else float(value)
        except ValueError:
            raise BadField(f"{name} is text, not a number") from None
    if not isinstance(value, int | float):
        raise BadField(f"{name} is not a number")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise BadField(f"{name} is NaN or infinite")
    return number


def chosen_score(fields: Mapping[str, Any], chosen: str | None, usual: str) -> float | None:
    """The score in the field that the user chose, which must be there, else in the usual one.

    Raises ``BadField``: as ``score``, and where the chosen field is missing.

    >>> chosen_score({"score": 1.5, "acc": True}, "acc", "score"), chosen_score({}, None, "score")
    (1.0, None)
    """
    if chosen is not None and chosen not in fields:
        raise BadField(f"no {chosen}")
    return score(fields, usual if chosen is None else chosen)


def whole(fields: Mapping[str, Any], name: str) -> int | None:
    """A whole number of at least 0, also where it is written as text or 40.0; None where it is missing.

    Raises ``BadField`` for anything else.
    """
    value = fields.get(name)
    if value is None or value == "":
        return None
    if type(value) is int and 0 <= value <= LARGEST_WHOLE:
        return value
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        raise BadField(f"{name} is not a whole number") from None
    if isinstance(value, bool) or not number.is_integer() or not 0 <= number <= LARGEST_WHOLE:
        raise BadField(f"{name} is not a whole number")
    return int(number)


#: How tools say that a response ended by itself, and that it was cut short.
_FINISHED: Mapping[str, FinishReason] = {
    "stop": "stop",
    "eos": "stop",
    "eos_token": "stop",
    "end_turn": "stop",
    "stop_sequence": "stop",
    "completed": "stop",
    "length": "length",
    "max_tokens": "length",
    "truncated": "length",
}


def finish_reason(fields: Mapping[str, Any], name: str) -> FinishReason | None:
    """How a response ended, in any tool's word for it; None where that is not known.

    >>> finish_reason({"status": "truncated"}, "status"), finish_reason({"status": "abort"}, "status")
    ('length', None)
    """
    value = fields.get(name)
    return _FINISHED.get(value.lower()) if isinstance(value, str) else None


_STEP = re.compile(r"\d{1,9}", re.ASCII)


def step_named(name: str, prefix: str) -> int | None:
    """The step in the name of a file or folder that is ``prefix`` and a number; None for any other.

    >>> step_named("global_step_40", "global_step_"), step_named("40", ""), step_named("latest", "")
    (40, 40, None)
    """
    number = name.removeprefix(prefix)
    return int(number) if name.startswith(prefix) and _STEP.fullmatch(number) else None


_END_TOKEN = re.compile(r"(?:<\|[a-z_]{1,30}\|>|</s>|<eos>|<end_of_turn>)\s*\Z")


def without_end_token(response: str) -> str:
    """A response whose end token was decoded with it, without it: a final answer must not depend on it.

    >>> without_end_token("It is 4.<|im_end|>")
    'It is 4.'
    """
    end = _END_TOKEN.search(response, max(0, len(response) - 64))
    return response[: end.start()] if end else response


def inner(fields: Any, name: str) -> Mapping[str, Any]:
    """An object inside another; empty where it is missing or none."""
    value = fields.get(name) if isinstance(fields, dict) else None
    return value if isinstance(value, dict) else {}


def finite(value: object) -> float | None:
    """A finite number that nothing hangs on; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        return None


def sampling_settings(fields: Mapping[str, Any], **theirs: str) -> dict[str, float | int]:
    """The sampling settings among ``fields``, those that are no numbers left out; ``theirs`` names what differs.

    >>> sampling_settings({"temperature": 1, "top_p": None, "longest": 512}, max_tokens="longest")
    {'temperature': 1.0, 'max_tokens': 512}
    """
    found: dict[str, float | int | None] = {}
    for read, names in ((score, ("temperature", "top_p")), (whole, ("top_k", "max_tokens", "seed"))):
        for name in names:
            try:
                found[name] = read(fields, theirs.get(name, name))
            except BadField:
                continue
    return {name: value for name, value in found.items() if value is not None}
