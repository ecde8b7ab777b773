"""NeMo Gym: rollouts of ``ng_collect_rollouts`` and its training integrations, ``*.jsonl``.

Each row has ``responses_create_params`` (the request to the Responses API), ``response``, ``reward`` and the fields of
the data set. The prompt is the messages of ``input``, after any ``instructions``. The response is the model's whole
output: reasoning in ``<think>`` and messages. With tool calls it is a trajectory: consecutive items of the model are
one turn, and ``call_id`` connects results. Items of unknown types are kept. The gold answer is ``expected_answer``. The
problem id is ``task_id``, ``problem_id``, ``instance_id`` or ``uuid``, else ``_ng_task_index``. The sample's index
is ``_ng_rollout_index``. --reward chooses another numeric field as reward. Failed attempts (``_ng_failure_class``, in a
file ``*_failures.jsonl``) are faults. The step is not recorded: it is the number at the end of the file's or folder's
name (``step_40.jsonl``), or --step.

Source: NVIDIA-NeMo/Gym 07d6b0d, ``rollout_collection.py`` and the example rollouts of its environments.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from oversharp.diagnostics.ingest.formats.contract import Fault, Importer, ReadOptions, Recorded
from oversharp.diagnostics.ingest.formats.fields import (
    BadField,
    get_optional_text,
    get_reward,
    get_sampling_settings,
    get_whole,
    inner,
    join_chat,
)
from oversharp.diagnostics.ingest.formats.mapped import place
from oversharp.diagnostics.ingest.formats.rows import first_record, read_one_each
from oversharp.diagnostics.ingest.formats.turns import as_trajectory, read_messages
from oversharp.diagnostics.records.types import FinishReason
from oversharp.diagnostics.trajectories.messages import merge_model_turns
from oversharp.diagnostics.trajectories.record import model_text

_KNOWN_BY = frozenset({"responses_create_params", "response", "reward"})
_IDS = ("task_id", "problem_id", "instance_id", "uuid", "_ng_task_index")
_FAILURE = "_ng_failure_class"


def recognises(path: Path, record: Mapping[str, Any]) -> bool:
    """Return whether a record has the fields of a rollout or a failed attempt."""
    return record.keys() >= _KNOWN_BY or (_FAILURE in record and "responses_create_params" in record)


def settings(path: Path) -> Mapping[str, Any]:
    """Return the sampling settings of the first request, without null ones (chosen by the server)."""
    return get_sampling_settings(inner(first_record(path), "responses_create_params"), max_tokens="max_output_tokens")


def read_samples(path: Path, options: ReadOptions) -> Iterator[Recorded | Fault]:
    """Yield one sample per line."""
    return read_one_each(path, lambda line, fields: _sample(line, fields, options.reward))


def _sample(line: int, fields: Mapping[str, Any], chosen: str | None) -> Recorded:
    if fields.get(_FAILURE) is not None:
        raise BadField("a failed attempt")
    response = inner(fields, "response")
    reward = get_reward(fields, chosen, "reward")
    problems = (get_optional_text(fields, name) for name in _IDS)
    output = response.get("output")
    turns = as_trajectory(merge_model_turns(read_messages(output, "output"))) if isinstance(output, list) else None
    return Recorded(
        line=line,
        prompt=_prompt(inner(fields, "responses_create_params")),
        response=_response(output, rewarded=reward is not None) if turns is None else model_text(turns),
        turns=turns,
        gold=get_optional_text(fields, "expected_answer"),
        reward=reward,
        problem=next((source_id for source_id in problems if source_id is not None), None),
        index=get_whole(fields, "_ng_rollout_index"),
        n_tokens=get_whole(inner(response, "usage"), "output_tokens"),
        finish_reason=_finish(response),
        task=get_optional_text(inner(fields, "agent_ref"), "name"),
    )


def _prompt(params: Mapping[str, Any]) -> str:
    instructions, items = params.get("instructions"), params.get("input")
    messages = [{"role": "user", "content": items}] if isinstance(items, str) else items
    if not isinstance(messages, list) or not messages or not all(isinstance(message, Mapping) for message in messages):
        raise BadField("no input")
    system = [{"role": "system", "content": instructions}] if isinstance(instructions, str) and instructions else []
    return join_chat([*system, *(message for message in messages if "content" in message)], "input")


def _response(output: Any, *, rewarded: bool) -> str:
    """Return an output without calls as text; empty if it is null and the rollout has a reward."""
    if output is None and rewarded:
        return ""
    if not isinstance(output, list):
        raise BadField("no output")
    return "\n".join(text for item in output if isinstance(item, Mapping) and (text := _item_text(item)))


def _item_text(item: Mapping[str, Any]) -> str:
    """Return an item of the output as text; empty for an item type without text."""
    match item.get("type", "message"):
        case "message":
            return join_chat([item], "output") if item.get("content") else ""
        case "reasoning":
            thought = "\n".join(
                part["text"]
                for name in ("summary", "content")
                for part in item.get(name) or ()
                if isinstance(part, Mapping) and isinstance(part.get("text"), str)
            )
            return f"<think>{thought}</think>" if thought else ""
        case _:
            return ""


def _finish(response: Mapping[str, Any]) -> FinishReason | None:
    if inner(response, "incomplete_details").get("reason") == "max_output_tokens":
        return "length"
    return "stop" if response.get("status") == "completed" else None


IMPORTER = Importer(
    name="nemo_gym",
    title="NeMo Gym, collected rollouts",
    suffixes=(".jsonl",),
    recognises=recognises,
    place=place,
    read_samples=read_samples,
    settings=settings,
    untold="tokens, log-probabilities and failures of tools are missing",
)
