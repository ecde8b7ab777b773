"""Responses in the shared schema: our exports are imported unchanged, and those of others completely."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from oversharp.diagnostics.export.every_eval_ever import record
from oversharp.diagnostics.ingest.formats import every_eval_ever
from oversharp.diagnostics.ingest.formats.contract import Fault, Recorded
from tests.ingest.formats.reading import reader, write_lines

SAMPLE: dict[str, Any] = {
    "series": "grpo", "checkpoint": "checkpoint-40", "step": 40, "is_base": False, "task": "sums", "problem_id": "p1",
    "source_id": "q7", "prompt": "6*12?", "gold": "72", "verifier": "math", "sample_index": 3, "greedy": False,
    "text": "#### 72", "answer": "72", "mode": None, "reward": 1.0, "correct": True, "state": "ok", "reason": "",
    "n_tokens": 4, "finish_reason": "stop", "logp_sum_raw": -1.5,
}  # fmt: skip
SHARED = {"schema_version": "0.3.0", "evaluation_id": "sums/local/grpo-step-40/1", "model_id": "local/grpo-step-40"}
LINE: dict[str, Any] = {**SHARED, **record(SAMPLE, {"pass_at_k:1"}, "c40")}


def read(folder: Path, *lines: dict[str, Any], **options: Any) -> list[Recorded | Fault]:
    return reader(every_eval_ever)(write_lines(folder / "x_samples.jsonl", *lines), **options)


def test_what_we_export_comes_back(tmp_path: Path) -> None:
    assert every_eval_ever.IMPORTER.recognises(tmp_path, LINE)
    assert read(tmp_path, LINE) == [
        Recorded(
            1, "6*12?", "#### 72", gold="72", reward=1.0, step=40, problem="q7", index=3, n_tokens=4,
            finish_reason="stop", task="sums",
        )
    ]  # fmt: skip
    place = every_eval_ever.place(tmp_path / "sums" / "local" / "grpo-step-40" / "x_samples.jsonl")
    assert (place.run, place.step) == ("grpo", 40)
    (greedy,) = read(tmp_path, {**SHARED, **record(SAMPLE | {"greedy": True}, {"pass_at_k:1"}, "c40")})
    assert isinstance(greedy, Recorded)
    assert greedy.greedy


def test_what_others_leave_out_is_unknown(tmp_path: Path) -> None:
    bare = {name: LINE[name] for name in ("schema_version", "evaluation_id", "sample_id", "input", "output")}
    (sample,) = read(tmp_path, {**bare, "evaluation": {"is_correct": False}})
    assert isinstance(sample, Recorded)
    assert (sample.reward, sample.step, sample.index, sample.n_tokens) == (0.0, None, None, None)
    assert every_eval_ever.place(tmp_path / "openai" / "gpt" / "x_samples.jsonl").step is None


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"interaction_type": "multi_turn", "output": None}, "messages: is not a list of messages"),
        ({"output": {"raw": ["71", "72"]}}, "several outputs with one score"),
        ({"input": {"reference": ["72"]}}, "no raw"),
    ],
)
def test_what_is_no_sample_is_told(tmp_path: Path, change: dict[str, Any], why: str) -> None:
    assert read(tmp_path, json.loads(json.dumps(LINE | change))) == [Fault(1, why)]
