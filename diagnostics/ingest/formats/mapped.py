"""Any JSON, JSON Lines, Parquet or CSV, with fields given by --map prompt=…,response=…,reward=….

Prompt and response are required, or ``messages``, a whole conversation: its turns before the model's first are the
prompt, and the others are the response. Optional are gold, reward, step, problem, index, answer, n_tokens,
finish_reason, task, cluster (shared by related problems) and greedy. Paths (``paths``) reach nested fields. If the path
of the response passes through a list, each element is a sample. A null response is an empty one. The step may be a name
such as ``checkpoint-40`` or ``base``, and may also be in the name of the file or its folder.

A list of chat messages becomes one text; for the response it is the last turn of the assistant. With several turns of
the assistant or with tool calls, the response is a trajectory, in any form that ``read_turns`` documents. If prompt and
response are one field, that holds only with calls or observations: other turns of the assistant may be solved examples.

Use it for tools without an importer, such as OpenRLHF 0.11, which writes samples only to W&B and TensorBoard.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from operator import attrgetter
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
    single_samples,
)
from oversharp.diagnostics.ingest.formats.fields import (
    BadField,
    FilledText,
    PlainNumber,
    PlainWhole,
    find_final_turn,
    get_gold,
    get_number,
    get_optional_text,
    get_reward,
    get_text,
    get_whole,
    join_chat,
    message_text,
    parse_ending,
    parse_step,
)
from oversharp.diagnostics.ingest.formats.paths import has_value, is_plain, parts_of, samples_in
from oversharp.diagnostics.ingest.formats.rows import (
    RECORDS_ASKED,
    Block,
    parquet_parts,
    record_blocks,
    records,
    rows_of,
)
from oversharp.diagnostics.ingest.formats.turns import as_trajectory, get_conversation, read_messages
from oversharp.diagnostics.records.errors import ConfigError, ImportFileError
from oversharp.diagnostics.records.names import nearest_names
from oversharp.diagnostics.series.step_names import step_of_file
from oversharp.diagnostics.trajectories.messages import split_prompt
from oversharp.diagnostics.trajectories.record import Turns, model_text

if TYPE_CHECKING:
    import pyarrow

_Text = FilledText | Annotated[int, Meta(ge=-(2**53), le=2**53)]
#: Our fields with their usual types.
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
#: Number of nesting levels searched for a list of records.
_DEEPEST = 3


def place(path: Path) -> FilePlace:
    """Return the step in the name of the file or of its folder."""
    return FilePlace(step=step_of_file(path))


def read_samples(path: Path, options: ReadOptions) -> Iterator[Recorded | Fault]:
    """Yield one sample per record.

    Raises ``ImportFileError`` without names of the prompt and response fields.
    """
    return single_samples(parts(path, options))


def parts(path: Path, options: ReadOptions) -> Iterator[Recorded | Fault | RecordedRows]:
    """Yield the same samples as ``read_samples``; rows of Parquet and lines as ``RecordedRows`` if possible."""
    names = dict(options.fields)
    if options.reward is not None:
        names["reward"] = options.reward
    if "messages" in names:
        names["response"] = names["messages"]  # so that paths through lists give several samples
    elif not names.keys() >= set(_NEEDED):
        raise ImportFileError(f"{path}: the fields are not named; pass --map prompt=…,response=…,reward=…")
    if path.suffix.lower() == ".parquet" and all(map(is_plain, names.values())):
        fields = list(dict.fromkeys(names.values()))
        yield from parquet_parts(path, fields, lambda first, part: _convert_batch(first, part, names))
        return
    kind = _line_class(names)
    for record in records(path) if kind is None else record_blocks(path, kind):
        if isinstance(record, Fault):
            yield record
        elif isinstance(record, Block):
            yield from _convert_block(record, names)
        elif isinstance(record[1], dict):
            yield from _samples(record[0], record[1], names)
        else:
            yield _typed_sample(record[0], record[1], names)


def _line_class(names: Mapping[str, str]) -> type[Any] | None:
    """Return a msgspec class of lines with these fields; None if a name is a path or occurs twice."""
    # a conversation is also the response, so its name occurs twice
    if not all(map(is_plain, names.values())) or len(set(names.values())) < len(names):
        return None
    needed = [(ours, _TYPES[ours]) for ours in _NEEDED]
    rewarded = [("reward", _TYPES["reward"] | None)] if "reward" in names else []  # required
    optional = [(ours, _TYPES[ours] | None, None) for ours in names if ours not in (*_NEEDED, "reward")]
    unnamed = dict.fromkeys(_TYPES.keys() - names.keys())
    return defstruct("Line", [*needed, *rewarded, *optional], rename=dict(names), namespace=unnamed, gc=False)


def _convert_batch(
    first: int, part: pyarrow.RecordBatch, names: Mapping[str, str]
) -> Iterable[Recorded | Fault | RecordedRows]:
    """Return rows of Parquet as columns if all values have the usual types, else as single samples."""
    columns = _columns(part, names)
    if columns is None:
        rows = enumerate(rows_of(part), start=first)
        return (sample for line, fields in rows for sample in _samples(line, fields, names))
    return [RecordedRows(first=first, columns=columns)]


def _columns(part: pyarrow.RecordBatch, names: Mapping[str, str]) -> dict[str, pyarrow.Array] | None:
    """Return the mapped columns of a batch; None if a required one is missing, or one has an unusual type."""
    if "messages" in names:
        return None
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


def _convert_block(block: Block[Any], names: Mapping[str, str]) -> Iterable[Recorded | Fault | RecordedRows]:
    """Return lines as columns, or as single samples if a step or finish reason is not usable."""
    from oversharp.diagnostics.ingest.formats.columns import rows_from_lists

    lists: dict[str, list[Any]] = {ours: list(map(attrgetter(ours), block.records)) for ours in names}
    convert: Mapping[str, Callable[[Any, str], Any]] = {"step": parse_step, "finish_reason": parse_ending}
    try:
        for ours in convert.keys() & names.keys():
            value_of = {value: convert[ours](value, names[ours]) for value in set(lists[ours])}
            lists[ours] = [value_of[value] for value in lists[ours]]
    except BadField:
        return [_typed_sample(line, fields, names) for line, fields in enumerate(block.records, start=block.first)]
    return [rows_from_lists(block.first, lists)]


def _typed_sample(line: int, fields: Any, names: Mapping[str, str]) -> Recorded | Fault:
    step, finish = fields.step, fields.finish_reason
    try:
        if isinstance(step, str):
            step = parse_step(step, names["step"])
        if finish is not None:
            finish = parse_ending(finish, names["finish_reason"])
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
    """Yield the samples of a record. A list of responses gives one sample per element."""
    for record in inner_records(fields, names):
        is_single = "messages" in names or not isinstance(record.get(names["response"]), list)
        if is_single and all(map(is_plain, names.values())):
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
    """Return the path of the conversations, the responses, or the counts of samples."""
    return next(names[ours] for ours in ("messages", "response", "n") if ours in names)


def inner_records(fields: dict[str, Any], names: Mapping[str, str]) -> Sequence[dict[str, Any]]:
    """Return the record; if its responses are in a nested list, return one record per element.

    Each element is merged with the other fields of the record.

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
    """Yield the lists, at most ``depth`` levels down, in which any object has ``field``."""
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
        reward = get_reward(fields, names["reward"], "") if "reward" in names else None
        prompt, response, turns = _texts(fields, names, rewarded=reward is not None)
        return Recorded(
            line=line,
            prompt=prompt,
            response=response,
            turns=turns,
            gold=get_gold(fields, get("gold")),
            reward=reward,
            step=parse_step(fields.get(names["step"]), names["step"]) if "step" in names else None,
            problem=get_optional_text(fields, get("problem")),
            index=get_whole(fields, get("index")),
            answer=get_optional_text(fields, get("answer")),
            greedy=get_number(fields, get("greedy")) == 1.0,
            n_tokens=get_whole(fields, get("n_tokens")),
            finish_reason=parse_ending(fields.get(get("finish_reason", "")), get("finish_reason", "")),
            task=get_optional_text(fields, get("task")),
            cluster=get_optional_text(fields, get("cluster")),
        )
    except BadField as bad:
        return Fault(line, str(bad))


def _texts(fields: Mapping[str, Any], names: Mapping[str, str], *, rewarded: bool) -> tuple[str, str, Turns | None]:
    """Return prompt, response and turns; turns are None if the response is one plain text."""
    theirs = names["response"]
    if "messages" in names or _is_prompt_with_calls(fields, names):
        prompt, conversation = get_conversation(fields, theirs)
        if not conversation and not rewarded:
            raise BadField(f"{theirs} has no message of the model")
        if names.get("prompt", theirs) != theirs:
            prompt = get_text(fields, names["prompt"])
        return prompt, model_text(conversation), as_trajectory(conversation)
    turns = _later_turns(fields, theirs) if names["prompt"] != theirs else None
    if turns is not None:
        return get_text(fields, names["prompt"]), model_text(turns), turns
    return _prompt(fields, names), _response(fields, theirs, rewarded=rewarded), None


def _is_prompt_with_calls(fields: Mapping[str, Any], names: Mapping[str, str]) -> bool:
    """Return whether prompt and response are one conversation in which the model called tools."""
    turns = _later_turns(fields, names["response"]) if names["prompt"] == names["response"] else None
    return turns is not None and any(turn.calls or turn.role == "tool" for turn in turns)


def _later_turns(fields: Mapping[str, Any], theirs: str) -> Turns | None:
    """Return the turns of a chat from the assistant's first; None if they are one plain text, or it is no chat."""
    value = fields.get(theirs)
    if not isinstance(value, list) or not value:
        return None
    try:
        turns = read_messages(value, theirs)
    except BadField:
        messages = [message for message in value if isinstance(message, Mapping)]
        n_replies = sum(message.get("role") == "assistant" for message in messages)
        if n_replies > 1 or any("tool_calls" in message for message in messages):
            raise
        return None  # a plain text in messages with other roles, or without
    return as_trajectory(split_prompt(turns)[1])


def _prompt(fields: Mapping[str, Any], names: Mapping[str, str]) -> str:
    """Return the prompt. If a chat includes the response, the prompt is the messages before it."""
    theirs = names["prompt"]
    if theirs != names["response"]:
        return get_text(fields, theirs)
    last = find_final_turn(fields.get(theirs))
    if last is None:
        raise BadField(f"{theirs} is mapped to prompt and response, but is not a chat with an assistant message")
    if last == 0:
        raise BadField(f"{theirs} has no message before the last assistant message")
    return join_chat(fields[theirs][:last], theirs)


def _response(fields: Mapping[str, Any], theirs: str, *, rewarded: bool) -> str:
    """Return the response; empty if it is null and has a reward, because it was generated and scored."""
    value = fields.get(theirs)
    if value is None and rewarded:
        return ""
    last = find_final_turn(value)
    if value is None or last is None:
        return get_text(fields, theirs)
    content = value[last].get("content")
    return "" if content is None else message_text(content, theirs)


def has_response(path: Path, names: Mapping[str, str]) -> bool:
    """Return whether one of the first records has the response field.

    Files of settings or averages do not.
    """
    read = (item for item in records(path, rows_at_once=RECORDS_ASKED) if not isinstance(item, Fault))
    try:
        first = [record for _, record in islice(read, RECORDS_ASKED)]
    except ImportFileError:
        return True  # the import reports this error
    return any(has_value(item, _path_of_samples(names)) for record in first for item in inner_records(record, names))


def require_fields(paths: Sequence[Path], names: Mapping[str, str]) -> None:
    """Raise ``ConfigError`` if no record of any file has a mapped field.

    Reads only until every field has occurred.
    """
    missing = dict(names)
    seen: set[str] = set()
    for path in paths:
        with suppress(ImportFileError):  # the import reports this error
            for item in records(path):
                if not missing:
                    return
                if isinstance(item, Fault):
                    continue
                inner = inner_records(item[1], names)
                seen |= inner[0].keys()
                missing = {
                    ours: theirs
                    for ours, theirs in missing.items()
                    if not any(has_value(record, theirs) for record in inner)
                }
    if not missing:
        return
    if seen:
        ours, theirs = next(iter(missing.items()))
        raise ConfigError(f"--map {ours}={theirs}: no record has that field; {nearest_names(theirs, seen)}")


IMPORTER = Importer(
    name="mapped",
    title="any JSON Lines, Parquet or CSV, fields given by --map",
    suffixes=(".jsonl", ".ndjson", ".json", ".parquet", ".csv"),
    place=place,
    read_samples=read_samples,
    parts=parts,
    untold="tokens and masks of single turns are not read",
)
