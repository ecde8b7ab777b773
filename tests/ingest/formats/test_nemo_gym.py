"""NeMo Gym is not installed here: the records have the fields that its ``rollout_collection`` writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from oversharp.diagnostics.ingest.formats import nemo_gym
from oversharp.diagnostics.ingest.formats.contract import Fault, Recorded
from tests.ingest.formats.reading import reader, write_lines

ROLLOUT: dict[str, Any] = {
    "responses_create_params": {
        "input": [{"role": "user", "type": "message", "content": "6*12?"}],
        "instructions": None,
        "temperature": 0.7,
        "max_output_tokens": 512,
    },
    "response": {
        "output": [
            {"type": "reasoning", "summary": [{"type": "summary_text", "text": "six dozen"}]},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "#### 72"}]},
        ],
        "status": "completed",
        "incomplete_details": None,
        "usage": {"output_tokens": 9},
    },
    "reward": 1.0,
    "library_reward": 0.5,
    "expected_answer": "72",
    "_ng_task_index": 4,
    "_ng_rollout_index": 2,
    "agent_ref": {"type": "responses_api_agents", "name": "math_agent"},
}


def read(folder: Path, *rollouts: dict[str, Any], **options: Any) -> list[Recorded | Fault]:
    return reader(nemo_gym)(write_lines(folder / "rollouts.jsonl", *rollouts), **options)


def test_a_rollout_is_recognised_and_read(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "runs" / "step_40.jsonl", ROLLOUT)
    assert nemo_gym.recognises(path, ROLLOUT)
    assert nemo_gym.place(path).step == 40
    assert nemo_gym.settings(path) == {"temperature": 0.7, "max_tokens": 512}
    assert read(tmp_path, ROLLOUT) == [
        Recorded(
            1, "6*12?", "<think>six dozen</think>\n#### 72", gold="72", reward=1.0, problem="4", index=2, n_tokens=9,
            finish_reason="stop", task="math_agent",
        )
    ]  # fmt: skip
    (other,) = read(tmp_path, ROLLOUT, reward="library_reward")
    assert isinstance(other, Recorded)
    assert other.reward == 0.5


def test_instructions_and_tools_are_part_of_what_was_said(tmp_path: Path) -> None:
    asked = ROLLOUT["responses_create_params"] | {"instructions": "Use tools.", "input": "6*12?"}
    output = [
        {"type": "function_call", "name": "times", "arguments": '{"a": 6, "b": 12}'},
        {"type": "function_call_output", "output": "72"},
        {"type": "message", "content": [{"type": "output_text", "text": "72"}]},
        {"type": "of a kind that is to come"},
    ]
    (sample,) = read(tmp_path, ROLLOUT | {"responses_create_params": asked, "response": {"output": output}})
    assert isinstance(sample, Recorded)
    assert sample.prompt == "system: Use tools.\n\nuser: 6*12?"
    assert sample.response == 'times({"a": 6, "b": 12})\n\n72'
    assert sample.turns is not None
    assert [(turn.role, turn.text, turn.extra) for turn in sample.turns] == [
        ("assistant", "", None), ("tool", "72", None),
        ("assistant", "72", '{"item": {"type": "of a kind that is to come"}}')]  # fmt: skip
    assert sample.turns[0].calls[0].result == 1
    assert (sample.finish_reason, sample.n_tokens) == (None, None)


def test_a_response_that_was_cut_off(tmp_path: Path) -> None:
    cut = ROLLOUT["response"] | {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
    (sample,) = read(tmp_path, ROLLOUT | {"response": cut})
    assert isinstance(sample, Recorded)
    assert sample.finish_reason == "length"


def test_the_id_of_the_task_counts_before_its_place(tmp_path: Path) -> None:
    (sample,) = read(tmp_path, ROLLOUT | {"task_id": "algebra-7"})
    assert isinstance(sample, Recorded)
    assert sample.problem == "algebra-7"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"_ng_failure_class": "timeout"}, "a failed attempt"),
        ({"responses_create_params": {"input": []}}, "no input"),
        ({"response": None, "reward": None}, "no output"),
    ],
)
def test_what_is_no_sample_is_told(tmp_path: Path, change: dict[str, Any], why: str) -> None:
    assert read(tmp_path, ROLLOUT | change, ROLLOUT)[0] == Fault(1, why)
    assert nemo_gym.recognises(tmp_path, ROLLOUT | change)
