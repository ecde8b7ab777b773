"""TRL: ``OUTPUT_DIR/completions/completions_{step}.parquet``, with ``log_completions`` of GRPO.

Columns are ``step``, ``prompt``, ``completion``, one per reward function, extras from ``log_extra``, and ``advantage``.
Prompts and completions are texts or chat messages, which become one text. A completion with tool calls is a trajectory:
results have no ids and are matched by name and order. The file has the arguments of all tools in one record, so an
argument that is null may have been absent, and is left out. A call that TRL could not read is text in ``<tool_call>``,
and becomes an invalid call. A result ``{'error': …}`` is a failed call. The file does not mark which columns are
rewards, and does not record the weights of TRL's sum. If there is a single numeric column, it is the score; --reward
chooses among several. If a reward function returned None, the sample has no score. The gold answer is the column
``solution`` and the final answer ``answer_parsed``; TRL's ``accuracy_reward`` logs both. A file has the last batch
before logging, of training or of evaluation, which have the same file name. Problems have no id. With logging_steps
above 1, the other batches are not recorded.

Source: TRL 1.16.0, ``GRPOTrainer.log``, tested with its files; since TRL 0.28.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import structs

from oversharp.diagnostics.ingest.formats.contract import Fault, FilePlace, Importer, ReadOptions, Recorded, has_fields
from oversharp.diagnostics.ingest.formats.fields import (
    get_number,
    get_optional_text,
    get_response,
    get_text,
    get_whole,
    parse_step_name,
)
from oversharp.diagnostics.ingest.formats.rows import read_one_each
from oversharp.diagnostics.ingest.formats.turns import get_turns
from oversharp.diagnostics.records.errors import ImportFileError
from oversharp.diagnostics.trajectories.record import Turn, model_text
from oversharp.diagnostics.trajectories.transcripts import read_calls

#: Beginning of the result of a call that raised an error.
_ERROR = "{'error': "
_OWN = frozenset({"step", "prompt", "completion", "advantage"})


def place(path: Path) -> FilePlace:
    """Return the step in the file's name, and the output folder as run."""
    run = path.absolute().parent.parent.name if path.absolute().parent.name == "completions" else ""
    return FilePlace(run=run or None, step=parse_step_name(path.stem, "completions_"))


def read_samples(path: Path, options: ReadOptions) -> Iterator[Recorded | Fault]:
    """Yield one sample per row.

    Raises ``ImportFileError`` if several columns may be the score and the user chose none.
    """
    reward_name = _reward_column(path, options.reward)
    yield from read_one_each(path, lambda line, fields: _sample(line, fields, reward_name))


def _sample(line: int, fields: Mapping[str, Any], reward_name: str | None) -> Recorded:
    reward = None if reward_name is None else get_number(fields, reward_name)
    turns = get_turns(fields, "completion", convert=_own_turn)
    return Recorded(
        line=line,
        prompt=get_text(fields, "prompt"),
        response=get_response(fields, "completion", reward) if turns is None else model_text(turns),
        turns=turns,
        gold=get_optional_text(fields, "solution"),
        reward=reward,
        step=get_whole(fields, "step"),
        answer=get_optional_text(fields, "answer_parsed"),
    )


def _own_turn(turn: Turn) -> Turn:
    """Read calls that are text, mark failed calls, and remove null arguments of other tools."""
    if turn.role == "tool" and turn.text.startswith(_ERROR):
        return structs.replace(turn, is_error=True)
    if turn.role == "assistant" and not turn.calls and "<tool_call>" in turn.text:
        return read_calls(turn.text)
    calls = []
    for call in turn.calls:
        arguments = json.loads(call.arguments) if call.is_valid else None
        if arguments is not None:
            given = {name: value for name, value in arguments.items() if value is not None}
            call = structs.replace(call, arguments=json.dumps(given, ensure_ascii=False))
        calls.append(call)
    return structs.replace(turn, calls=tuple(calls))


def _reward_column(path: Path, chosen: str | None) -> str | None:
    """Return the column of the score; None if no column is numeric."""
    from pyarrow import ArrowException, parquet, types

    try:
        schema = parquet.read_schema(path)
    except (ArrowException, OSError) as error:
        raise ImportFileError(f"{path}: not a readable Parquet file; copy it again") from error
    numeric = [
        field.name
        for field in schema
        if field.name not in _OWN
        and (types.is_floating(field.type) or types.is_integer(field.type) or types.is_boolean(field.type))
    ]
    if chosen is not None:
        if chosen not in schema.names:
            raise ImportFileError(f"{path}: no column {chosen!r}; --reward can be {_join_names(numeric)}")
        return chosen
    if len(numeric) > 1:
        raise ImportFileError(
            f"{path}: has several numeric columns; pass --reward with one of {_join_names(numeric)} "
            "(TRL's weighted sum is not recorded)"
        )
    return numeric[0] if numeric else None


def _join_names(names: list[str]) -> str:
    return ", ".join(names) or "nothing: no column is numeric"


IMPORTER = Importer(
    name="trl",
    title="TRL, logged completions",
    suffixes=(".parquet",),
    recognises=has_fields(*_OWN),
    place=place,
    read_samples=read_samples,
    untold="tool results have no ids and are matched by name and order; an argument that is null may have been absent",
)
