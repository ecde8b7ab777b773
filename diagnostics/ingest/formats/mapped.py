"""Any JSON Lines, Parquet or CSV whose fields are named: --map prompt=…,response=…,reward=….

Ours are prompt and response, which every record must have, and gold, reward, step, problem, index, answer, n_tokens,
finish_reason, task, cluster (related problems share one) and greedy. Dots reach into objects, and numbers into lists:
``doc.question``, ``messages.0.content``; a field whose own name has dots is found first. A list of chat messages
becomes one text. The step may also be the number that the file's name ends with (``40.jsonl``, ``step_40.csv``,
``checkpoint-40.parquet``), or that of its folder.

For tools that have no importer of their own; OpenRLHF 0.11 is none of these, it writes no samples to the disk (only to
W&B and TensorBoard).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta, defstruct

from diagnostics.ingest.formats.contract import Fault, FilePlace, Importer, ReadOptions, Recorded, RecordedRows
from diagnostics.ingest.formats.fields import (
    BadField,
    FilledText,
    PlainNumber,
    PlainWhole,
    chosen_reward,
    finish_reason,
    known_finish,
    numeric,
    optional_text,
    text,
    whole,
)
from diagnostics.ingest.formats.rows import parquet_parts, records, rows_of, typed_records
from diagnostics.records.errors import ConfigError, ImportFileError
from diagnostics.records.names import nearest_names

if TYPE_CHECKING:
    import pyarrow

_Text = FilledText | Annotated[int, Meta(ge=-(2**53), le=2**53)]
#: Our fields, and the types that theirs have in most dumps.
_TYPES: Mapping[str, Any] = {
    "prompt": str,
    "response": str,
    "gold": _Text,
    "reward": PlainNumber,
    "step": PlainWhole,
    "problem": _Text,
    "index": PlainWhole,
    "answer": _Text,
    "n_tokens": PlainWhole,
    "finish_reason": str,
    "task": _Text,
    "cluster": _Text,
    "greedy": PlainNumber,
}
_NEEDED = ("prompt", "response")
_STEP = re.compile(r"(?:\A|[_-])(\d{1,9})\Z", re.ASCII)


def place(path: Path) -> FilePlace:
    """The step that the name of the file or of its folder ends with."""
    steps = (_STEP.search(name) for name in (path.stem, path.absolute().parent.name))
    return FilePlace(step=next((int(step[1]) for step in steps if step), None))


def read(path: Path, options: ReadOptions) -> Iterator[Recorded | Fault]:
    """One sample per record. Raises ``ImportFileError`` if nothing tells where the prompt and the response are."""
    for item in parts(path, options):
        if isinstance(item, Recorded | Fault):
            yield item
        else:
            yield from item.records()


def parts(path: Path, options: ReadOptions) -> Iterator[Recorded | Fault | RecordedRows]:
    """The same, rows of Parquet together where they can be."""
    names = dict(options.fields)
    if options.reward is not None:
        names["reward"] = options.reward
    if not names.keys() >= set(_NEEDED):
        raise ImportFileError(f"{path}: its fields have no meaning yet; pass --map prompt=…,response=…,reward=…")
    if path.suffix.lower() == ".parquet" and not any("." in name for name in names.values()):
        fields = list(dict.fromkeys(names.values()))
        yield from parquet_parts(path, fields, lambda first, part: _part(first, part, names))
        return
    kind = _kind(names)
    for record in records(path) if kind is None else typed_records(path, kind):
        if isinstance(record, Fault):
            yield record
        elif isinstance(record[1], dict):
            yield _sample(record[0], record[1], names)
        else:
            yield _plain(*record)


def _kind(names: Mapping[str, str]) -> type[Any] | None:
    """Lines whose fields have these names; None where a name reaches into an object, or stands for two of ours."""
    if any("." in name for name in names.values()) or len(set(names.values())) < len(names):
        return None
    needed = [(ours, _TYPES[ours]) for ours in _NEEDED]
    rewarded = [("reward", _TYPES["reward"] | None)] if "reward" in names else []  # a line without it is a fault
    optional = [(ours, _TYPES[ours] | None, None) for ours in names if ours not in (*_NEEDED, "reward")]
    unnamed = dict.fromkeys(_TYPES.keys() - names.keys())
    return defstruct("Line", [*needed, *rewarded, *optional], rename=dict(names), namespace=unnamed, gc=False)


def _part(first: int, part: pyarrow.RecordBatch, names: Mapping[str, str]) -> Iterable[Recorded | Fault | RecordedRows]:
    """Rows of Parquet, as columns where all values are of the usual types."""
    columns = _columns(part, names)
    if columns is None:
        return (_sample(line, fields, names) for line, fields in enumerate(rows_of(part), start=first))
    return [RecordedRows(first=first, columns=columns)]


def _columns(part: pyarrow.RecordBatch, names: Mapping[str, str]) -> dict[str, pyarrow.Array] | None:
    """Those of a part that are named; None where one that must be there is not, or holds something else."""
    import pyarrow

    from diagnostics.ingest.formats.columns import READ_COLUMN, plain_column

    held = Counter(part.schema.names)
    columns: dict[str, pyarrow.Array] = {}
    for ours, name in names.items():
        if held[name] == 1:
            column = READ_COLUMN[ours](plain_column(part.column(name)))
            if column is None:
                return None
            columns[ours] = column
        elif held[name] or ours in (*_NEEDED, "reward"):
            return None
    columns.setdefault("greedy", pyarrow.repeat(False, len(part)))
    return columns


def _plain(line: int, fields: Any) -> Recorded:
    return Recorded(
        line,
        fields.prompt,
        fields.response,
        _as_text(fields.gold),
        None if fields.reward is None else float(fields.reward),
        fields.step,
        _as_text(fields.problem),
        fields.index,
        _as_text(fields.answer),
        fields.greedy == 1.0,
        fields.n_tokens,
        known_finish(fields.finish_reason),
        task=_as_text(fields.task),
        cluster=_as_text(fields.cluster),
    )


def _as_text(value: str | int | None) -> str | None:
    return str(value) if isinstance(value, int) else value


def _sample(line: int, fields: dict[str, Any], names: Mapping[str, str]) -> Recorded | Fault:
    for name in names.values():
        if "." in name and name not in fields:
            fields[name] = _dig(fields, name.split("."))
    get = names.get
    try:
        return Recorded(
            line=line,
            prompt=text(fields, names["prompt"]),
            response=text(fields, names["response"]),
            gold=optional_text(fields, get("gold")),
            reward=chosen_reward(fields, names["reward"], "") if "reward" in names else None,
            step=whole(fields, get("step")),
            problem=optional_text(fields, get("problem")),
            index=whole(fields, get("index")),
            answer=optional_text(fields, get("answer")),
            greedy=numeric(fields, get("greedy")) == 1.0,
            n_tokens=whole(fields, get("n_tokens")),
            finish_reason=finish_reason(fields, get("finish_reason")),
            task=optional_text(fields, get("task")),
            cluster=optional_text(fields, get("cluster")),
        )
    except BadField as bad:
        return Fault(line, str(bad))


def require_fields(paths: Sequence[Path], names: Mapping[str, str]) -> None:
    """Raise ``ConfigError`` where no record of any file has one of the fields; reading stops once all were seen."""
    missing = dict(names)
    seen: set[str] = set()
    for path in paths:
        if not missing:
            return
        for record in records(path):
            if isinstance(record, Fault):
                continue
            seen |= record[1].keys()
            missing = {
                ours: theirs
                for ours, theirs in missing.items()
                if theirs not in record[1] and _dig(record[1], theirs.split(".")) is None
            }
            if not missing:
                return
    if seen:
        ours, theirs = next(iter(missing.items()))
        raise ConfigError(f"--map {ours}={theirs}: no record has that field; {nearest_names(theirs, seen)}")


def _dig(value: Any, parts: Sequence[str]) -> Any:
    """What lies at the end of a path; None where it breaks off.

    >>> _dig({"doc": {"question": "2+2?"}, "outputs": ["4"]}, ["doc", "question"])
    '2+2?'
    >>> _dig({"outputs": ["4"]}, ["outputs", "0"]), _dig({"doc": "text"}, ["doc", "question"])
    ('4', None)
    """
    for part in parts:
        if isinstance(value, dict):
            value = value.get(part)
        elif isinstance(value, list) and part.isdecimal() and int(part) < len(value):
            value = value[int(part)]
        else:
            return None
    return value


IMPORTER = Importer(
    name="mapped",
    title="any JSON Lines, Parquet or CSV whose fields are named",
    suffixes=(".jsonl", ".ndjson", ".json", ".parquet", ".csv"),
    recognises=lambda path, record: False,
    place=place,
    read=read,
    parts=parts,
)
