"""Export samples as trajectories in Harbor's format ATIF-v1.7: a JSON Lines file per checkpoint.

Each line is a trajectory. Its first step is the prompt. A step of the agent has its calls and their results, also
results that came after a later turn. ``extra`` has what the format lacks: grade and problem at the root; per step the
log-probability, the loss mask and other fields of the message; per call the text of arguments that are no JSON object;
per result the tool and whether it failed. Calls without an id are named by their place.

Source: harbor 0.26.0, ``harbor.models.trajectories``; its models accept the lines.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from oversharp.diagnostics.export.samples import SampleFile, read_rows
from oversharp.diagnostics.records.names import slugs
from oversharp.diagnostics.store import Store

SCHEMA_VERSION = "ATIF-v1.7"
_SOURCES: Mapping[str, str] = {"assistant": "agent", "user": "user", "system": "system"}
#: Columns of a sample that the root's ``extra`` has.
_OF_SAMPLE = (
    "series", "checkpoint", "step", "is_base", "task", "problem_id", "source_id", "gold", "greedy", "sample_index",
    "finish_reason", "logp_sum_raw", "answer", "reward", "correct", "state", "reason", "verifier",
)  # fmt: skip


def write_trajectories(
    store: Store, planned: Mapping[str, Sequence[SampleFile]], folder: Path, advance: Callable[[int], None]
) -> int:
    """Write a file per checkpoint into ``folder``; return the number of trajectories.

    ``planned`` has the ``parts`` of every series. ``advance`` is called with the number of samples read.
    """
    names = slugs(planned)
    n_written = 0
    for series, own in planned.items():
        for step, same_step in groupby(own, key=lambda part: part.step):
            path = folder / "data" / names[series] / f"step_{step:06d}.jsonl"
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("w", encoding="utf-8") as file:
                for sample in read_rows(store, series, list(same_step), advance):
                    file.write(json.dumps(trajectory(sample), ensure_ascii=False, allow_nan=False) + "\n")
                    n_written += 1
    return n_written


def trajectory(sample: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row of ``samples.SCHEMA`` as a trajectory. A plain response is one step of the agent.

    >>> row = {"series": "run", "step": 40, "problem_id": "p", "sample_index": 0, "greedy": False, "prompt": "2+2?"}
    >>> [step["source"] for step in trajectory({**row, "text": "4", "turns": None})["steps"]]
    ['user', 'agent']
    """
    turns = sample["turns"] or [{"role": "assistant", "text": sample["text"], "calls": ()}]
    steps = [{"source": "user", "message": sample["prompt"]}, *_steps(turns)]
    index = "greedy" if sample["greedy"] else sample["sample_index"]
    return {
        "schema_version": SCHEMA_VERSION,
        "session_id": f"{sample['series']}/{sample['step']}/{sample['problem_id']}/{index}",
        "agent": {"name": sample["series"], "version": f"step {sample['step']}"},
        "steps": [{"step_id": number, **step} for number, step in enumerate(steps, start=1)],
        "final_metrics": _without_null(total_completion_tokens=sample.get("n_tokens"), total_steps=len(steps)),
        "extra": _without_null(**{name: sample.get(name) for name in _OF_SAMPLE}),
    }


def _steps(turns: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the steps of turns. Observations without a call belong to the step before them."""
    linked = {call["result"] for turn in turns for call in turn["calls"]}
    for place, turn in enumerate(turns):
        if turn["role"] == "tool":
            if place == 0:  # no step to belong to
                yield {
                    "source": "system",
                    "message": "",
                    "observation": {"results": _results_without_call(turns, 0, linked)},
                }
            continue
        ids = call_ids(turn["calls"], place)
        calls = [_call(call, id) for call, id in zip(turn["calls"], ids, strict=True)]
        results = [
            _result(turns[call["result"]], id)
            for call, id in zip(turn["calls"], ids, strict=True)
            if call["result"] is not None
        ]
        results += _results_without_call(turns, place + 1, linked)
        is_agent = turn["role"] == "assistant"
        numbers = _without_null(n_tokens=None if is_agent else turn.get("n_tokens"), is_trained=turn.get("is_trained"))
        extra = {**numbers, **_without_null(logp_sum=turn.get("logp_sum"), message=parse_strict(turn.get("extra")))}
        yield _without_null(
            source=_SOURCES[turn["role"]],
            message=turn["text"],
            reasoning_content=turn.get("reasoning") if is_agent else None,
            tool_calls=calls or None,
            observation={"results": results} if results else None,
            metrics=_without_null(completion_tokens=turn.get("n_tokens")) or None if is_agent else None,
            extra=extra or None,
        )


def _results_without_call(
    turns: Sequence[Mapping[str, Any]], start: int, linked: set[int | None]
) -> list[dict[str, Any]]:
    """Return the results from ``start`` to the next turn of another role that belong to no call."""
    results = []
    for place in range(start, len(turns)):
        if turns[place]["role"] != "tool":
            break
        if place not in linked:
            results.append(_result(turns[place], None))
    return results


def call_ids(calls: Sequence[Mapping[str, Any]], place: int) -> list[str]:
    """Return an id of each call that is unique within the step."""
    ids: list[str] = []
    for index, call in enumerate(calls):
        id = call["id"] or f"call_{place}_{index}"
        ids.append(f"{id}_{index}" if id in ids else id)
    return ids


def _call(call: Mapping[str, Any], id: str) -> dict[str, Any]:
    arguments = parse_strict(call["arguments"])
    is_object = isinstance(arguments, dict)
    extra = _without_null(
        arguments=None if is_object else call["arguments"], is_valid=None if call["is_valid"] else False
    )
    return _without_null(
        tool_call_id=id,
        function_name=call["name"],
        arguments=arguments if is_object else {},
        extra=extra or None,
    )


def _result(turn: Mapping[str, Any], id: str | None) -> dict[str, Any]:
    names = ("name", "is_error", "n_tokens", "is_trained", "reasoning")
    call_id = turn.get("call_id") if id is None else None
    extra = _without_null(
        **{name: turn.get(name) for name in names}, call_id=call_id, message=parse_strict(turn.get("extra"))
    )
    return _without_null(source_call_id=id, content=turn["text"], extra=extra or None)


def parse_strict(text: str | None) -> Any:
    """Return the value of a JSON text; None if it cannot be written as strict JSON."""
    try:
        value = None if text is None else json.loads(text)
        json.dumps(value, allow_nan=False)
    except (ValueError, RecursionError):
        return None
    return value


def _without_null(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
