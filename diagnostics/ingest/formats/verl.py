"""verl: ``{global_step}.jsonl`` in ``trainer.validation_data_dir`` or ``trainer.rollout_data_dir``.

Fields are ``input``, ``output``, ``gts`` (the gold answer), ``score`` and ``step``; a reward function may add ``acc``
and ``pred``. The reward is ``acc`` if present, since ``score`` may include shaping. --reward chooses another field. The
step is the field, else the number in the file's name. A validation dump has the same problems at every step, as an
audit needs. A rollout dump has other training problems at every step.

Neither dump has problem ids. The new trainer adds ``uid``, ``{sample}_{rollout}_{output}``, which changes at every
validation. Outputs with the same sample and rollout are parts of one rollout. They become one sample with the prompt
of the first part and the score of the last. Between two outputs is the text that the later input adds, or the whole
later input if it does not begin with the earlier part.

Outputs with tool calls are trajectories. verl drops special tokens, so turns are found by the words of Qwen's template
(``\\nuser\\n<tool_response>``), and calls by ``<tool_call>``, with JSON or the tags of Qwen3-Coder or GLM. Calls in
another syntax stay text, or become invalid calls. Results are matched by order.

Source: verl 0.8 to 0.10.dev, ``_write_generations`` of ``RayPPOTrainer`` and of the trainer ``use_v1``, tested with
dumps of both in verl 0.9.1.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
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
from oversharp.diagnostics.ingest.formats.turns import as_trajectory, transcript_turns
from oversharp.diagnostics.trajectories.record import Turn, model_text
from oversharp.diagnostics.trajectories.transcripts import read_between, read_transcript

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
    """Yield the same samples as ``read_samples``; lines of plain texts without ``uid`` as ``RecordedRows``."""
    pending: list[tuple[int, Recorded]] = []  # outputs of one rollout, with their numbers
    pending_rollout: str | None = None
    for block in record_blocks(path, _Line) if options.reward is None else records(path):
        if isinstance(block, Block) and all(
            fields.uid is None and "<tool_" not in fields.output for fields in block.records
        ):
            yield from _join_outputs(pending)
            pending, pending_rollout = [], None
            yield _convert_block(block)
            continue
        lines = enumerate(block.records, start=block.first) if isinstance(block, Block) else (block,)
        for item, uid in (_with_uid(line, options) for line in lines):
            rollout, number = _rollout(uid)
            is_repeated = any(number == earlier for earlier, _ in pending)
            if rollout is None or rollout != pending_rollout or is_repeated or isinstance(item, Fault):
                yield from _join_outputs(pending)
                pending, pending_rollout = [], rollout
            if isinstance(item, Fault):
                yield item
            else:
                pending.append((number, item))
    yield from _join_outputs(pending)


def _join_outputs(numbered: Sequence[tuple[int, Recorded]]) -> Iterator[Recorded]:
    """Yield the outputs of a rollout as one sample; nothing without outputs."""
    outputs = [item for _, item in sorted(numbered, key=lambda pair: pair[0])]
    if not outputs:
        return
    if len(outputs) == 1:
        turns = transcript_turns(outputs[0].response)
    else:
        joined = [*(read_transcript(outputs[0].response) or (Turn(role="assistant", text=outputs[0].response),))]
        for before, item in pairwise(outputs):
            joined += read_between(item.prompt.removeprefix(before.prompt + before.response))
            joined += read_transcript(item.response) or (Turn(role="assistant", text=item.response),)
        turns = as_trajectory(tuple(joined))
    sample = replace(outputs[-1], prompt=outputs[0].prompt, line=max(item.line for item in outputs))
    yield sample if turns is None else replace(sample, turns=turns, response=model_text(turns))


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


def _rollout(uid: object) -> tuple[str | None, int]:
    """Return the id of a line's rollout, or None, and the number of its output."""
    parts = uid.rsplit("_", 2) if isinstance(uid, str) else []
    if len(parts) < 3 or not (parts[1].isdecimal() and parts[2].isdecimal()):
        return None, 0
    return f"{parts[0]}_{parts[1]}", int(parts[2])


IMPORTER = Importer(
    name="verl",
    title="verl, validation and rollout dumps",
    suffixes=(".jsonl",),
    recognises=recognises,
    place=place,
    read_samples=read_samples,
    parts=parts,
    untold="turns are found by the words of Qwen's chat template, and results by order; tokens and masks are missing",
)
