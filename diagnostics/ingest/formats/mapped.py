"""Any JSON, JSON Lines, Parquet or CSV whose fields are named: --map prompt=…,response=…,reward=….

Ours are prompt and response, which every record must have, and gold, reward, step, problem, index, answer, n_tokens,
finish_reason, task, cluster (related problems share one) and greedy. Paths reach into objects and lists (``paths``): a
list on the way to the response gives a sample for each element. A list of chat messages becomes one text, but of the
response only the last turn of the assistant counts. A response that is null is an empty one. The step may be a name
such as ``checkpoint-40`` or ``base``, and may also be in the name of the file or its folder.

For tools that have no importer of their own; OpenRLHF 0.11 is none of these, it writes no samples to the disk (only to
W&B and TensorBoard).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta, defstruct

from oversharp.diagnostics.ingest.formats.contract import (
    Fault,
    FilePlace,
    Importer,
    ReadOptions,
    Recorded,
    RecordedRows,
)
from oversharp.diagnostics.ingest.formats.fields import (
    BadField,
    FilledText,
    PlainNumber,
    PlainWhole,
    chat_text,
    chosen_reward,
    ending,
    final_turn,
    gold_text,
    message_text,
    numeric,
    optional_text,
    step_number,
    text,
    whole,
)
from oversharp.diagnostics.ingest.formats.paths import has_value, is_plain, parts_of, samples_in
from oversharp.diagnostics.ingest.formats.rows import RECORDS_ASKED, parquet_parts, records, rows_of, typed_records
from oversharp.diagnostics.records.errors import ConfigError, ImportFileError
from oversharp.diagnostics.records.names import nearest_names
from oversharp.diagnostics.series.step_names import step_of_file

if TYPE_CHECKING:
    import pyarrow

_Text = FilledText | Annotated[int, Meta(ge=-(2**53), le=2**53)]
#: Our fields, and the types that theirs have in most dumps.
_TYPES: Mapping[str, Any] = {
    "prompt": str,
    "response": str,
    "gold": _Text,
    "reward": PlainNumber,
    "step": PlainWhole | FilledText,
    "problem": _Text,
    "index": PlainWhole,
    "answer": _Text,
    "n_tokens": PlainWhole,
    "finish_reason": str | bool,
    "task": _Text,
    "cluster": _Text,
    "greedy": PlainNumber,
}
_NEEDED = ("prompt", "response")
#: Objects inside each other in which a list of records is looked for.
_DEEPEST = 3


def place(path: Path) -> FilePlace:
    """Return the step in the name of the file or of its folder."""
    return FilePlace(step=step_of_file(path))


def read_samples(path: Path, options: ReadOptions) -> Iterator[Recorded | Fault]:
    """Yield one sample per record. Raises ``ImportFileError`` without names of the prompt and response fields."""
    for item in parts(path, options):
        if isinstance(item, Recorded | Fault):
            yield item
        else:
            yield from item.records()


def parts(path: Path, options: ReadOptions) -> Iterator[Recorded | Fault | RecordedRows]:
    """Yield the same, rows of Parquet together where they can be."""
    names = dict(options.fields)
    if options.reward is not None:
        names["reward"] = options.reward
    if not names.keys() >= set(_NEEDED):
        raise ImportFileError(f"{path}: its fields have no meaning yet; pass --map prompt=…,response=…,reward=…")
    if path.suffix.lower() == ".parquet" and all(map(is_plain, names.values())):
        fields = list(dict.fromkeys(names.values()))
        yield from parquet_parts(path, fields, lambda first, part: _part(first, part, names))
        return
    kind = _kind(names)
    for record in records(path) if kind is None else typed_records(path, kind):
        if isinstance(record, Fault):
            yield record
        elif isinstance(record[1], dict):
            yield from _samples(record[0], record[1], names)
        else:
            yield _plain(record[0], record[1], names)


def _kind(names: Mapping[str, str]) -> type[Any] | None:
    """Lines whose fields have these names; None where a name is a path, or is used twice."""
    if not all(map(is_plain, names.values())) or len(set(names.values())) < len(names):
        return None
    needed = [(ours, _TYPES[ours]) for ours in _NEEDED]
    rewarded = [("reward", _TYPES["reward"] | None)] if "reward" in names else []  # a line without it is a fault
    optional = [(ours, _TYPES[ours] | None, None) for ours in names if ours not in (*_NEEDED, "reward")]
    unnamed = dict.fromkeys(_TYPES.keys() - names.keys())
    return defstruct("Line", [*needed, *rewarded, *optional], rename=dict(names), namespace=unnamed, gc=False)


def _part(first: int, part: pyarrow.RecordBatch, names: Mapping[str, str]) -> Iterable[Recorded | Fault | RecordedRows]:
    """Yield the rows of Parquet, as columns where all values are of the usual types."""
    columns = _columns(part, names)
    if columns is None:
        rows = enumerate(rows_of(part), start=first)
        return (sample for line, fields in rows for sample in _samples(line, fields, names))
    return [RecordedRows(first=first, columns=columns)]


def _columns(part: pyarrow.RecordBatch, names: Mapping[str, str]) -> dict[str, pyarrow.Array] | None:
    """Those of a part that are named; None where one that must be there is not, or holds something else."""
    import pyarrow

    from oversharp.diagnostics.ingest.formats.columns import READ_COLUMN, plain_column

    counted = Counter(part.schema.names)
    columns: dict[str, pyarrow.Array] = {}
    for ours, name in names.items():
        if counted[name] == 1:
            column = READ_COLUMN[ours](plain_column(part.column(name)))
            if column is None:
                return None
            columns[ours] = column
        elif counted[name] or ours in (*_NEEDED, "reward"):
            return None
    columns.setdefault("greedy", pyarrow.repeat(False, len(part)))
    return columns


def _plain(line: int, fields: Any, names: Mapping[str, str]) -> Recorded | Fault:
    step, finish = fields.step, fields.finish_reason
    try:
        if isinstance(step, str):
            step = step_number(step, names["step"])
        if finish is not None:
            finish = ending(finish, names["finish_reason"])
    except BadField as bad:
        return Fault(line, str(bad))
    return Recorded(
        line,
        fields.prompt,
        fields.response,
        _as_text(fields.gold),
        None if fields.reward is None else float(fields.reward),
        step,
        _as_text(fields.problem),
        fields.index,
        _as_text(fields.answer),
        fields.greedy == 1.0,
        fields.n_tokens,
        finish,
        task=_as_text(fields.task),
        cluster=_as_text(fields.cluster),
    )


def _as_text(value: str | int | None) -> str | None:
    return str(value) if isinstance(value, int) else value


def _samples(line: int, fields: dict[str, Any], names: Mapping[str, str]) -> Iterator[Recorded | Fault]:
    """Yield the samples of a record: one, or one for each element of the lists that hold its responses."""
    for record in inner_records(fields, names):
        if all(map(is_plain, names.values())) and not isinstance(record.get(names["response"]), list):
            yield _sample(line, record, names)
            continue
        try:
            several = list(samples_in(record, names))
        except BadField as bad:
            yield Fault(line, str(bad))
            continue
        absent = {theirs for theirs in names.values() if is_plain(theirs) and theirs not in record}
        for values in several:
            flat = {names[ours]: value for ours, value in values.items() if names[ours] not in absent}
            yield _sample(line, flat, names)


def _path_of_samples(names: Mapping[str, str]) -> str:
    """Return the path of the responses, or of their counts where only these are named."""
    return names["response"] if "response" in names else names["n"]


def inner_records(fields: dict[str, Any], names: Mapping[str, str]) -> Sequence[dict[str, Any]]:
    """Return the record, or the objects of its one list that have a response, with the record's other fields.

    >>> [*inner_records({"step": 3, "results": [{"text": "4"}, {"text": "5"}]}, {"response": "text"})]
    [{'step': 3, 'text': '4'}, {'step': 3, 'text': '5'}]
    """
    theirs = _path_of_samples(names)
    if theirs in fields or parts_of(theirs)[0] in fields:
        return [fields]
    lists = [
        (name, inner) for name, value in fields.items() for inner in _record_lists(value, parts_of(theirs)[0], _DEEPEST)
    ]
    if len(lists) != 1:
        return [fields]
    holder, inner = lists[0]
    outer = {name: value for name, value in fields.items() if name != holder}
    return [{**outer, **record} for record in inner]


def _record_lists(value: Any, field: str, depth: int) -> Iterator[list[dict[str, Any]]]:
    """Yield the lists of objects of which some have a field, in objects down to a depth."""
    if isinstance(value, dict) and depth:
        for inner in value.values():
            yield from _record_lists(inner, field, depth - 1)
        return
    is_list = isinstance(value, list) and value and all(isinstance(item, dict) for item in value)
    if is_list and any(field in item for item in value):
        yield value


def _sample(line: int, fields: dict[str, Any], names: Mapping[str, str]) -> Recorded | Fault:
    get = names.get
    try:
        reward = chosen_reward(fields, names["reward"], "") if "reward" in names else None
        return Recorded(
            line=line,
            prompt=_prompt(fields, names),
            response=_response(fields, names["response"], rewarded=reward is not None),
            gold=gold_text(fields, get("gold")),
            reward=reward,
            step=step_number(fields.get(names["step"]), names["step"]) if "step" in names else None,
            problem=optional_text(fields, get("problem")),
            index=whole(fields, get("index")),
            answer=optional_text(fields, get("answer")),
            greedy=numeric(fields, get("greedy")) == 1.0,
            n_tokens=whole(fields, get("n_tokens")),
            finish_reason=ending(fields.get(get("finish_reason", "")), get("finish_reason", "")),
            task=optional_text(fields, get("task")),
            cluster=optional_text(fields, get("cluster")),
        )
    except BadField as bad:
        return Fault(line, str(bad))


def _prompt(fields: Mapping[str, Any], names: Mapping[str, str]) -> str:
    """Return the prompt; of a chat that holds the response too, what comes before that."""
    theirs = names["prompt"]
    if theirs != names["response"]:
        return text(fields, theirs)
    last = final_turn(fields.get(theirs))
    if last is None:
        raise BadField(f"{theirs} is prompt and response, and no chat with a turn of the assistant")
    if last == 0:
        raise BadField(f"{theirs} has no message before the last turn of the assistant")
    return chat_text(fields[theirs][:last], theirs)


def _response(fields: Mapping[str, Any], theirs: str, *, rewarded: bool) -> str:
    """Return the response; empty where it is null and has a reward: that sample was drawn, and counts."""
    value = fields.get(theirs)
    if value is None and rewarded:
        return ""
    last = final_turn(value)
    if value is None or last is None:
        return text(fields, theirs)
    content = value[last].get("content")
    return "" if content is None else message_text(content, theirs)


def holds_response(path: Path, names: Mapping[str, str]) -> bool:
    """Return whether one of the first records has the response field; files of settings or averages have none."""
    read = (item for item in records(path, rows_at_once=RECORDS_ASKED) if not isinstance(item, Fault))
    try:
        first = [record for _, record in islice(read, RECORDS_ASKED)]
    except ImportFileError:
        return True  # the import says what is wrong with it
    return any(has_value(item, _path_of_samples(names)) for record in first for item in inner_records(record, names))


def require_fields(paths: Sequence[Path], names: Mapping[str, str]) -> None:
    """Raise ``ConfigError`` where no record of any file has one of the fields; reading stops once all were seen."""
    missing = dict(names)
    seen: set[str] = set()
    for path in paths:
        with suppress(ImportFileError):  # a file that breaks off later: the import says so
            for record in records(path):
                if not missing:
                    return
                if isinstance(record, Fault):
                    continue
                inner = inner_records(record[1], names)
                seen |= inner[0].keys()
                missing = {
                    ours: theirs
                    for ours, theirs in missing.items()
                    if not any(has_value(record_inside, theirs) for record_inside in inner)
                }
    if not missing:
        return
    if seen:
        ours, theirs = next(iter(missing.items()))
        raise ConfigError(f"--map {ours}={theirs}: no record has that field; {nearest_names(theirs, seen)}")


IMPORTER = Importer(
    name="mapped",
    title="any JSON Lines, Parquet or CSV whose fields are named",
    suffixes=(".jsonl", ".ndjson", ".json", ".parquet", ".csv"),
    recognises=lambda path, record: False,
    place=place,
    read_samples=read_samples,
    parts=parts,
)
