"""Trajectories against the rules of Harbor's models (harbor 0.26.0, harbor/models/trajectories)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

import pytest

from oversharp.diagnostics.export.atif import trajectory, write_trajectories
from oversharp.diagnostics.export.samples import parts
from oversharp.diagnostics.ingest.formats import prime_rl
from oversharp.diagnostics.store import Store
from oversharp.diagnostics.trajectories.record import Call, Turn, Turns, link_results, turn_row
from tests.ingest.formats.reading import reader, samples
from tests.ingest.formats.trajectory_writers import FORMATS, make

ROOT = {"schema_version", "session_id", "agent", "steps", "final_metrics", "extra"}
STEP = {"step_id", "source", "message", "reasoning_content", "tool_calls", "observation", "metrics", "extra"}
OF_AGENT = {"reasoning_content", "tool_calls", "metrics"}
SAMPLE: dict[str, Any] = {
    "series": "run", "checkpoint": "checkpoint-40", "step": 40, "is_base": False, "problem_id": "p", "greedy": False,
    "sample_index": 3, "prompt": "2+2?", "text": "4", "n_tokens": 9, "reward": 1.0, "correct": True, "turns": None,
}  # fmt: skip


def exported(*turns: Turn) -> dict[str, Any]:
    linked: Turns = link_results(turns)
    return checked(trajectory(SAMPLE | {"turns": [turn_row(turn) for turn in linked]}))


def checked(document: dict[str, Any]) -> dict[str, Any]:
    """Return the document after checks of the models' rules."""
    json.dumps(document, allow_nan=False)
    assert set(document) <= ROOT
    assert document["schema_version"] == "ATIF-v1.7"
    assert set(document["agent"]) == {"name", "version"}
    assert [step["step_id"] for step in document["steps"]] == list(range(1, len(document["steps"]) + 1))
    for step in document["steps"]:
        assert set(step) <= STEP
        assert isinstance(step["message"], str)
        assert step["source"] == "agent" or not set(step) & OF_AGENT
        calls = step.get("tool_calls", [])
        assert all(set(call) <= {"tool_call_id", "function_name", "arguments", "extra"} for call in calls)
        assert all(isinstance(call["arguments"], dict) for call in calls)
        ids = [call["tool_call_id"] for call in calls]
        assert len(set(ids)) == len(ids)
        for result in step.get("observation", {"results": []})["results"]:
            assert set(result) <= {"source_call_id", "content", "extra"}
            assert result.get("source_call_id") in (None, *ids)
    return document


def called(document: Mapping[str, Any]) -> list[tuple[str, Any, list[str]]]:
    return [
        (
            call["function_name"],
            call["arguments"],
            [
                result["content"]
                for result in step.get("observation", {"results": []})["results"]
                if result.get("source_call_id") == call["tool_call_id"]
            ],
        )
        for step in document["steps"]
        for call in step.get("tool_calls", ())
    ]


def test_calls_and_their_results_are_one_step() -> None:
    calls = (Call("add", '{"a": 1}', "c1"), Call("now"))
    document = exported(
        Turn(role="assistant", text="I add.", reasoning="hm", calls=calls, n_tokens=5),
        Turn(role="tool", text="7", name="now", is_error=True),
        Turn(role="tool", text="2", call_id="c1"),
        Turn(role="user", text="Sure?"),
        Turn(role="assistant", text="2", logp_sum=-1.5, is_trained=True),
    )  # fmt: skip
    assert document["steps"] == [
        {"step_id": 1, "source": "user", "message": "2+2?"},
        {
            "step_id": 2, "source": "agent", "message": "I add.", "reasoning_content": "hm",
            "tool_calls": [
                {"tool_call_id": "c1", "function_name": "add", "arguments": {"a": 1}},
                {"tool_call_id": "call_0_1", "function_name": "now", "arguments": {}},
            ],
            "observation": {"results": [
                {"source_call_id": "c1", "content": "2"},
                {"source_call_id": "call_0_1", "content": "7", "extra": {"name": "now", "is_error": True}},
            ]},
            "metrics": {"completion_tokens": 5},
        },
        {"step_id": 3, "source": "user", "message": "Sure?"},
        {"step_id": 4, "source": "agent", "message": "2", "extra": {"is_trained": True, "logp_sum": -1.5}},
    ]  # fmt: skip
    assert document["session_id"] == "run/40/p/3"
    assert document["final_metrics"] == {"total_completion_tokens": 9, "total_steps": 4}
    assert document["extra"]["reward"] == 1.0


@pytest.mark.parametrize("arguments", ["{a: 1}", "[1]", '{"a": NaN}', '{"a": 1e999}', "[" * 9999])
def test_arguments_that_are_no_strict_object_are_kept_as_text(arguments: str) -> None:
    document = exported(Turn(role="assistant", calls=(Call("add", arguments, is_valid=False),)))
    (call,) = document["steps"][1]["tool_calls"]
    assert (call["arguments"], call["extra"]) == ({}, {"arguments": arguments, "is_valid": False})


def test_results_without_a_call_and_late_results() -> None:
    document = exported(
        Turn(role="tool", text="first"),
        Turn(role="assistant", calls=(Call("add", id="c1"), Call("add", id="c1"))),
        Turn(role="tool", text="x", call_id="c9"),
        Turn(role="assistant", text="wait"),
        Turn(role="tool", text="2", call_id="c1"),
    )
    assert [step["source"] for step in document["steps"]] == ["user", "system", "agent", "agent"]
    assert document["steps"][1]["observation"] == {"results": [{"content": "first"}]}
    assert document["steps"][2]["observation"] == {"results": [
        {"source_call_id": "c1", "content": "2"}, {"content": "x", "extra": {"call_id": "c9"}}]}  # fmt: skip


def test_a_plain_response_is_one_step() -> None:
    document = checked(trajectory(SAMPLE))
    assert [(step["source"], step["message"]) for step in document["steps"]] == [("user", "2+2?"), ("agent", "4")]


def test_made_trajectories_keep_their_calls(tmp_path: Path) -> None:
    random, form = Random(7), FORMATS["prime_rl"]
    made = [make(random, form) for _ in range(50)]
    items = samples(reader(prime_rl)(form.write(tmp_path, made)))
    for item, turns in zip(items, made, strict=True):
        document = exported(*(item.turns or ()))
        assert called(document) == [
            (call.name, call.arguments, [] if call.result is None else [call.result])
            for turn in turns
            for call in turn.calls
        ]


def test_a_store_is_written_as_a_file_per_checkpoint(imported_store: Path, tmp_path: Path) -> None:
    with Store.open(imported_store, read_only=True) as store:
        assert write_trajectories(store, {"val": parts(store, "val")}, tmp_path, lambda n: None) == 2 * 6 * 4
    files = sorted(tmp_path.rglob("*.jsonl"))
    assert len(files) == 2
    documents = [checked(json.loads(line)) for path in files for line in path.read_text(encoding="utf-8").splitlines()]
    assert len({document["session_id"] for document in documents}) == 48
