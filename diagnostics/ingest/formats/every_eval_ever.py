"""Every Eval Ever: responses in the shared schema 0.3.0, ``*_samples.jsonl``.

``oversharp export`` writes these files too. Each line is one response: ``input.raw`` is the prompt, ``input.reference``
the gold answer, ``output.raw`` the response, ``evaluation`` the score, ``sample_id`` the problem. The reward is
``score``, else ``is_correct``, or the field chosen by --reward. The schema has no field for a checkpoint's step. The
step is ``metadata.step``, which ``oversharp export`` writes, else the number at the end of the folder's name
(``grpo-step-40``), or --step. Without ``metadata.sample_index`` the responses to a problem are numbered in file order.
Conversations of several turns, and several outputs with one score, are faults.

Source: https://github.com/evaleval/every_eval_ever, instance-level schema 0.3.0.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from oversharp.diagnostics.ingest.formats.contract import Fault, FilePlace, Importer, ReadOptions, Recorded, has_fields
from oversharp.diagnostics.ingest.formats.fields import (
    BadField,
    get_finish_reason,
    get_optional_text,
    get_response,
    get_reward,
    get_text,
    get_whole,
    inner,
    parse_step_name,
)
from oversharp.diagnostics.ingest.formats.rows import read_one_each


def place(path: Path) -> FilePlace:
    """Return run and step of a folder named ``RUN-step-N``, as ``oversharp export`` writes it."""
    run, _, number = path.absolute().parent.name.rpartition("-step-")
    step = parse_step_name(number, "")
    return FilePlace(run=run or None, step=step) if step is not None else FilePlace()


def read_samples(path: Path, options: ReadOptions) -> Iterator[Recorded | Fault]:
    """Yield one sample per line."""
    return read_one_each(path, lambda line, fields: _sample(line, fields, options.reward))


def _sample(line: int, fields: Mapping[str, Any], chosen: str | None) -> Recorded:
    request, metadata, judged = (inner(fields, "input"), inner(fields, "metadata"), inner(fields, "evaluation"))
    outputs = inner(fields, "output").get("raw") or [None]
    if not isinstance(outputs, list) or fields.get("interaction_type") not in ("single_turn", None):
        raise BadField("a conversation of several turns, not one prompt with one answer")
    if len(outputs) != 1:
        raise BadField("several outputs with one score")
    reward = get_reward(judged, chosen, "score")
    if reward is None:
        reward = get_reward(judged, None, "is_correct")
    return Recorded(
        line=line,
        prompt=get_text(request, "raw"),
        response=get_response({"output": outputs[0]}, "output", reward),
        gold=get_optional_text(request, "reference"),
        reward=reward,
        step=get_whole(metadata, "step"),
        problem=get_optional_text(fields, "sample_id"),
        index=get_whole(metadata, "sample_index"),
        greedy=metadata.get("greedy") == "true",
        n_tokens=get_whole(metadata, "n_tokens"),
        finish_reason=get_finish_reason(metadata, "finish_reason"),
        task=get_optional_text(fields, "evaluation_name"),
    )


IMPORTER = Importer(
    name="every_eval_ever",
    title="Every Eval Ever, responses",
    suffixes=(".jsonl",),
    recognises=has_fields("schema_version", "evaluation_id", "sample_id", "input", "evaluation"),
    place=place,
    read_samples=read_samples,
)
