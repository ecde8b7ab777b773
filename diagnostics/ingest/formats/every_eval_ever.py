"""Every Eval Ever: responses in the shared schema, version 0.3.0, ``*_samples.jsonl``; our own exports are among them.

One line per response: ``input.raw`` is the prompt, ``input.reference`` the gold, ``output.raw`` the response,
``evaluation`` the score, ``sample_id`` the problem. ``score`` is the reward, or ``is_correct`` where there is none;
--reward takes the one that it names. The schema has no field for a checkpoint's step: it is ``metadata.step``, where
``oversharp export`` puts it, or the number that the folder's name ends with (``grpo-step-40``), or --step; without a
``metadata.sample_index`` the responses of a problem are numbered as they come. Conversations of several turns, and
several outputs under one score, are faults.

Source: https://github.com/evaleval/every_eval_ever, instance-level schema 0.3.0.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from oversharp.diagnostics.ingest.formats.contract import Fault, FilePlace, Importer, ReadOptions, Recorded
from oversharp.diagnostics.ingest.formats.fields import (
    BadField,
    chosen_reward,
    finish_reason,
    inner,
    optional_text,
    response_text,
    step_named,
    text,
    whole,
)
from oversharp.diagnostics.ingest.formats.rows import read_one_each

_KNOWN_BY = frozenset({"schema_version", "evaluation_id", "sample_id", "input", "evaluation"})


def recognises(path: Path, record: Mapping[str, Any]) -> bool:
    """Return whether a record has its fields."""
    return record.keys() >= _KNOWN_BY


def place(path: Path) -> FilePlace:
    """Return the folder ``RUN-step-N`` of our own exports; of other folders nothing is known."""
    run, _, number = path.absolute().parent.name.rpartition("-step-")
    step = step_named(number, "")
    return FilePlace(run=run or None, step=step) if step is not None else FilePlace()


def read_samples(path: Path, options: ReadOptions) -> Iterator[Recorded | Fault]:
    """Yield one sample per line."""
    return read_one_each(path, lambda line, fields: _sample(line, fields, options.reward))


def _sample(line: int, fields: Mapping[str, Any], chosen: str | None) -> Recorded:
    request, metadata, judged = inner(fields, "input"), inner(fields, "metadata"), inner(fields, "evaluation")
    outputs = inner(fields, "output").get("raw") or [None]
    if not isinstance(outputs, list) or fields.get("interaction_type") not in ("single_turn", None):
        raise BadField("not one answer to one prompt")
    if len(outputs) != 1:
        raise BadField("several outputs under one score")
    reward = chosen_reward(judged, chosen, "score")
    if reward is None:
        reward = chosen_reward(judged, None, "is_correct")
    return Recorded(
        line=line,
        prompt=text(request, "raw"),
        response=response_text({"output": outputs[0]}, "output", reward),
        gold=optional_text(request, "reference"),
        reward=reward,
        step=whole(metadata, "step"),
        problem=optional_text(fields, "sample_id"),
        index=whole(metadata, "sample_index"),
        greedy=metadata.get("greedy") == "true",
        n_tokens=whole(metadata, "n_tokens"),
        finish_reason=finish_reason(metadata, "finish_reason"),
        task=optional_text(fields, "evaluation_name"),
    )


IMPORTER = Importer(
    name="every_eval_ever",
    title="Every Eval Ever, responses",
    suffixes=(".jsonl",),
    recognises=recognises,
    place=place,
    read_samples=read_samples,
)
