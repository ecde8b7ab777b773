"""verl: ``{global_step}.jsonl`` in ``trainer.validation_data_dir`` or ``trainer.rollout_data_dir``.

Fields are ``input``, ``output``, ``gts`` (the gold answer), ``score`` and ``step``; a reward function may add ``acc``
and ``pred``. The reward is ``acc`` if present, since ``score`` may include shaping. --reward chooses another field. The
step is the field, else the number in the file's name. A validation dump has the same problems at every step, as an
audit needs. A rollout dump has other training problems at every step.

Neither dump has problem ids. The new trainer adds ``uid``, ``{sample}_{rollout}_{output}``, which changes at every
validation. Outputs with the same sample and rollout are turns of one rollout. They become one sample, with the prompt
of the first turn and the response of the last.

Source: verl 0.8 to 0.10.dev, ``_write_generations`` of ``RayPPOTrainer`` and of the trainer ``use_v1``, tested with
dumps of both in verl 0.9.1.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from operator import attrgetter
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

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
    get_optional_text,
    get_response,
    get_reward,
    get_text,
    get_whole,
    parse_step_name,
)
from oversharp.diagnostics.ingest.formats.rows import Block, record_blocks, records

_KNOWN_BY = frozenset({"input", "output", "score"})


def recognises(path: Path, record: Mapping[str, Any]) -> bool:
    """Return whether a record has verl's fields, with ``gts``, a step, or a step in the file's name."""
    return record.keys() >= _KNOWN_BY and ("gts" in record or "step" in record or place(path).step is not None)


def place(path: Path) -> FilePlace:
    """Return the step in the file's name."""
    return FilePlace(step=parse_step_name(path.stem, ""))


class _Line(Struct, gc=False):
    """The fields of a line as verl writes them."""

    input: str
    output: str
    gts: FilledText | None = None
    score: PlainNumber | None = None
    acc: PlainNumber | None = None
    step: PlainWhole | None = None
    pred: FilledText | None = None
    data_source: FilledText | None = None
    uid: str | None = None


#: Our field → its field in ``_Line``, except the reward.
_COLUMNS = {
    "prompt": "input", "response": "output", "gold": "gts", "step": "step", "answer": "pred", "task": "data_source",
}  # fmt: skip


def read_samples(path: Path, options: ReadOptions) -> Iterator[Recorded | Fault]:
    """Yield one sample per rollout. A rollout of several turns has several lines."""
    return single_samples(parts(path, options))


def parts(path: Path, options: ReadOptions) -> Iterator[Recorded | Fault | RecordedRows]:
    """Yield the same samples as ``read_samples``; lines without ``uid`` as ``RecordedRows`` if possible."""
    pending: Recorded | Fault | None = None
    pending_rollout: str | None = None
    for block in record_blocks(path, _Line) if options.reward is None else records(path):
        if isinstance(block, Block) and all(fields.uid is None for fields in block.records):
            if pending is not None:
                yield pending
            pending = pending_rollout = None
            yield _convert_block(block)
            continue
        lines = enumerate(block.records, start=block.first) if isinstance(block, Block) else (block,)
        for item, uid in (_with_uid(line, options) for line in lines):
            rollout, is_later_turn = (None, False) if uid is None else _rollout(uid)
            if pending is not None:
                if (
                    is_later_turn
                    and rollout == pending_rollout
                    and not isinstance(item, Fault)
                    and isinstance(pending, Recorded)
                ):
                    item = replace(item, prompt=pending.prompt)
                else:
                    yield pending
            pending, pending_rollout = item, rollout
    if pending is not None:
        yield pending


def _convert_block(block: Block[_Line]) -> RecordedRows:
    """Return lines as columns."""
    from oversharp.diagnostics.ingest.formats.columns import rows_from_lists

    lists: dict[str, list[Any]] = {
        ours: list(map(attrgetter(theirs), block.records)) for ours, theirs in _COLUMNS.items()
    }
    lists["reward"] = [fields.score if fields.acc is None else fields.acc for fields in block.records]
    return rows_from_lists(block.first, lists)


def _with_uid(
    record: tuple[int, _Line | dict[str, Any]] | Fault, options: ReadOptions
) -> tuple[Recorded | Fault, object]:
    """Return the sample of a record and its ``uid``."""
    if isinstance(record, Fault):
        return record, None
    line, fields = record
    if isinstance(fields, dict):
        return _sample(line, fields, options), fields.get("uid")
    score = fields.score if fields.acc is None else fields.acc
    item = Recorded(
        line,
        fields.input,
        fields.output,
        fields.gts,
        None if score is None else float(score),
        fields.step,
        answer=fields.pred,
        task=fields.data_source,
    )
    return item, fields.uid


def _sample(line: int, fields: Mapping[str, Any], options: ReadOptions) -> Recorded | Fault:
    try:
        reward = get_reward(fields, options.reward, "score" if fields.get("acc") is None else "acc")
        return Recorded(
            line=line,
            prompt=get_text(fields, "input"),
            response=get_response(fields, "output", reward),
            gold=get_optional_text(fields, "gts"),
            reward=reward,
            step=get_whole(fields, "step"),
            answer=get_optional_text(fields, "pred"),
            task=get_optional_text(fields, "data_source"),
        )
    except BadField as bad:
        return Fault(line, str(bad))


def _rollout(uid: object) -> tuple[str | None, bool]:
    """Return the id of a line's rollout, or None, and whether the line is a later turn of that rollout."""
    parts = uid.rsplit("_", 2) if isinstance(uid, str) else []
    if len(parts) < 3 or not (parts[1].isdecimal() and parts[2].isdecimal()):
        return None, False
    return f"{parts[0]}_{parts[1]}", parts[2] != "0"


IMPORTER = Importer(
    name="verl",
    title="verl, validation and rollout dumps",
    suffixes=(".jsonl",),
    recognises=recognises,
    place=place,
    read_samples=read_samples,
    parts=parts,
)
