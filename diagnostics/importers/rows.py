"""Records of JSON Lines, Parquet and CSV files, and the ways in which their fields can be wrong."""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson

from diagnostics.errors import ImportFileError
from diagnostics.importers.contract import Fault
from diagnostics.types import FinishReason

NOT_JSON = "not valid JSON (cut short?)"
NOT_UTF8 = "not UTF-8 text"
NOT_AN_OBJECT = "JSON, but not an object"
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


def first_record(path: Path) -> Mapping[str, Any]:
    """The first record that can be read; empty if there is none or the file holds no records."""
    if path.suffix.lower() not in _TABULAR:
        return {}
    try:
        return next((one[1] for one in records(path, rows_at_once=1) if not isinstance(one, Fault)), {})
    except ImportFileError:
        return {}


def _jsonl(path: Path) -> Iterator[tuple[int, dict[str, Any]] | Fault]:
    try:
        with path.open("rb", buffering=_BUFFER_BYTES) as lines:
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
    try:
        with path.open(encoding="utf-8-sig", newline="") as lines:
            reader = csv.DictReader(lines, strict=True)
            for fields in reader:
                if None in fields or None in fields.values():
                    yield Fault(reader.line_num, "a CSV line with more or fewer fields than the header")
                else:
                    yield reader.line_num, fields
    except UnicodeDecodeError as error:
        raise ImportFileError(f"{path}: not UTF-8 text; save it as UTF-8") from error
    except (csv.Error, OSError) as error:
        raise ImportFileError(f"{path}: not a readable CSV file ({error})") from error


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
