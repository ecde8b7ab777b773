"""tinker-cookbook is not installed here: the rows have the fields of its ``StoredTrajectory``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from oversharp.diagnostics.ingest.config import ImportConfig
from oversharp.diagnostics.ingest.formats import find_files, tinker_cookbook
from oversharp.diagnostics.ingest.formats.contract import Fault, FilePlace, Recorded
from oversharp.diagnostics.ingest.ingest import import_samples
from tests.ingest.formats.reading import reader, samples, write_lines


def turn(role: str, content: str, n: int) -> dict[str, Any]:
    return {"role": role, "content": content, "token_count": n, "metadata": {}}


ROW: dict[str, Any] = {
    "idx": 3,
    "benchmark": "math500",
    "example_id": "math500-1f2e",
    "turns": [turn("user", "<user>6*12?", 5), turn("assistant", "So \\boxed{72}<|im_end|>", 9)],
    "reward": 0.9,
    "metrics": {"correct": 1.0},
    "logs": {"input": "6*12?", "expected": "72", "extracted": "72", "output": "So"},
    "error": None,
    "time_seconds": 1.0,
}
METADATA = {"run_id": "r", "model_name": "lab/model", "benchmarks": ["math500"], "config": {"temperature": 0.6}}
read = reader(tinker_cookbook)


def stored(store: Path, run: str, *rows: dict[str, Any], **checkpoint: str | None) -> Path:
    """A run of an evaluation store."""
    path = write_lines(store / "runs" / run / "math500" / "trajectories.jsonl", *rows)
    given = {"checkpoint_path": None, "checkpoint_name": None} | checkpoint
    (store / "runs" / run / "metadata.json").write_text(json.dumps(METADATA | given, indent=2))
    return path


def test_a_trajectory_is_recognised_and_read(tmp_path: Path) -> None:
    path = stored(tmp_path, "a", ROW, checkpoint_name="step40")
    (found,) = find_files([tmp_path]).files
    assert found.importer.name == "tinker"
    assert tinker_cookbook.settings(path) == {"temperature": 0.6}
    assert read(path) == [
        Recorded(
            1, "<user>6*12?", "So \\boxed{72}", gold="72", reward=1.0, problem="math500-1f2e", answer="72", n_tokens=9,
            task="math500",
        )
    ]  # fmt: skip
    assert samples(read(path, "reward"))[0].reward == 0.9
    assert read(path, "format") == [Fault(1, "no metric format")]


@pytest.mark.parametrize(
    ("checkpoint", "step"),
    [
        ({"checkpoint_name": "step40"}, 40),
        ({"checkpoint_name": "final", "checkpoint_path": "tinker://ab-12/sampler_weights/000040"}, 40),
        ({"checkpoint_path": "tinker://ab-12/sampler_weights/final"}, None),
        ({}, 0),
    ],
)
def test_the_store_names_the_checkpoint_and_a_run_without_one_is_the_base(
    tmp_path: Path, checkpoint: dict[str, str], step: int | None
) -> None:
    assert tinker_cookbook.place(stored(tmp_path, "a", ROW, **checkpoint)).step == step


def test_without_a_store_a_folder_names_the_step(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "lucky" / "step_20" / "math500" / "trajectories.jsonl", ROW)
    assert tinker_cookbook.place(path) == FilePlace(run="lucky", step=20)


def test_turns_of_an_environment_are_part_of_the_response(tmp_path: Path) -> None:
    turns = [*ROW["turns"], turn("environment", "Sure?", 2), turn("assistant", "Yes", 1)]
    cut = ROW | {"turns": turns, "metrics": {"max_tokens_reached": 1.0}}
    (sample,) = samples(read(write_lines(tmp_path / "trajectories.jsonl", cut)))
    assert sample.response == "So \\boxed{72}<|im_end|>\nSure?\nYes"
    assert (sample.n_tokens, sample.finish_reason, sample.reward) == (10, "length", 0.9)


def test_what_is_no_sample_is_told(tmp_path: Path) -> None:
    summary = {"schema_version": 1, "split": "train", "iteration": 4, "group_idx": 0, "traj_idx": 1, "tags": []}
    summary |= {"total_reward": 1.0, "final_reward": 1.0, "steps": []}
    rows = (ROW | {"error": "timeout (30s)", "turns": []}, ROW | {"turns": []}, summary)
    path = write_lines(tmp_path / "train_rollout_summaries.jsonl", *rows)
    assert tinker_cookbook.recognises(path, summary)
    assert read(path) == [
        Fault(1, "the example ended in an error"),
        Fault(2, "no turns of prompt and answer"),
        Fault(3, tinker_cookbook.NO_TEXTS),
    ]


@pytest.mark.slow
@pytest.mark.usefixtures("few_measures")
def test_rounds_are_samples_up_to_the_verdict(tmp_path: Path) -> None:
    for name in (None, "step40"):
        rows = [
            ROW | {"idx": i, "example_id": f"e{i}", "metrics": {"correct": float((i + s) % 2)}}
            | {"turns": [turn("user", f"6*{i}?", 5), turn("assistant", f"try {s}", 2)]}
            for s in range(4) for i in range(10)
        ]  # fmt: skip
        stored(tmp_path / "store", str(name), *rows, checkpoint_name=name)
    (one,) = import_samples([tmp_path / "store"], ImportConfig(store=tmp_path / "audit.duckdb")).series
    assert (one.name, one.steps, one.n_problems, one.n) == ("store", (0, 40), 10, 4)
    assert one.verdict is not None
    assert one.verdict.changes[0].base == pytest.approx(0.5)
