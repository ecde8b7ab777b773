"""NeMo-Skills is not installed here: the rows have the fields that ``dump_outputs`` and ``evaluate_result`` write."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from oversharp.diagnostics.ingest.config import ImportConfig
from oversharp.diagnostics.ingest.formats import find_files, nemo_skills
from oversharp.diagnostics.ingest.formats.contract import Fault, FilePlace, Recorded
from oversharp.diagnostics.ingest.ingest import import_samples
from tests.ingest.formats.reading import reader, samples, write_lines

ROW: dict[str, Any] = {
    "generation": "So \\boxed{72}",
    "num_generated_tokens": 9,
    "finish_reason": "stop",
    "generation_start_time": 1.0,
    "generation_end_time": 2.0,
    "generation_time": 1.0,
    "id": "aime24-3",
    "problem": "6*12?",
    "expected_answer": 72,
    "predicted_answer": "72",
    "symbolic_correct": True,
    "judgement": "Reasoning: they differ.\nJudgement: No",
}
read = reader(nemo_skills)


def test_a_row_is_recognised_and_read(tmp_path: Path) -> None:
    folder = tmp_path / "lucky" / "step_40" / "eval-results" / "aime24"
    path = write_lines(folder / "output-rs3.jsonl", ROW)
    (found,) = find_files([tmp_path]).files
    assert found.importer.name == "nemo_skills"
    assert nemo_skills.place(path) == FilePlace(run="lucky", step=40, task="aime24")
    assert read(path) == [
        Recorded(
            1, "6*12?", "So \\boxed{72}", gold="72", reward=1.0, problem="aime24-3", answer="72", n_tokens=9,
            finish_reason="stop",
        )
    ]  # fmt: skip
    assert nemo_skills.place(folder / "output-rs3_chunk_1.jsonl").task == "aime24"


def test_output_without_a_seed_is_greedy_and_thoughts_are_part_of_the_response(tmp_path: Path) -> None:
    thought = ROW | {"_full_generation": "<think>6 dozen</think> So \\boxed{72}", "question": "6*12?"}
    del thought["problem"]
    (sample,) = samples(read(write_lines(tmp_path / "output.jsonl", thought)))
    assert (sample.greedy, sample.prompt, sample.response) == (True, "6*12?", thought["_full_generation"])


@pytest.mark.parametrize(
    ("change", "reward", "score"),
    [
        ({}, None, 1.0),
        ({}, "judge_correct", 0.0),
        ({"symbolic_correct": None}, None, 0.0),
        ({"symbolic_correct": None, "judgement": "Judgement: Yes, they agree"}, None, 1.0),
        ({"symbolic_correct": None, "judgement": "both are fine"}, None, 0.0),
        ({"symbolic_correct": None, "judgement": None}, None, None),
        ({"judge_correct": True}, "judge_correct", 1.0),
    ],
)
def test_the_score_is_symbolic_and_then_the_judges(
    tmp_path: Path, change: dict[str, Any], reward: str | None, score: float | None
) -> None:
    (sample,) = samples(read(write_lines(tmp_path / "output-rs0.jsonl", ROW | change), reward))
    assert sample.reward == score


def test_what_is_no_sample_is_told(tmp_path: Path) -> None:
    unscored = ROW | {"generation": None, "symbolic_correct": None, "judgement": None}
    path = write_lines(tmp_path / "output-rs0.jsonl", unscored, ROW | {"problem": None})
    assert read(path) == [Fault(1, "no generation"), Fault(2, "no problem")]
    assert read(path, "reward_model_score")[0] in (Fault(1, "no generation"), Fault(1, "no reward_model_score"))


@pytest.mark.slow
@pytest.mark.usefixtures("few_measures")
def test_seeds_are_samples_up_to_the_verdict_and_what_waits_for_a_judge_counts_once(tmp_path: Path) -> None:
    for step in (0, 40):
        for folder in ("eval-results", "tmp-eval-results") if step else ("eval-results",):
            for seed in range(4):
                rows = [
                    ROW | {"id": f"p{i}", "problem": f"6*{i}?", "symbolic_correct": (seed + i) % 4 > 1}
                    | {"generation": f"{seed}: \\boxed{{{i}}}"}
                    for i in range(10)
                ]  # fmt: skip
                write_lines(tmp_path / "run" / f"step_{step}" / folder / "aime24" / f"output-rs{seed}.jsonl", *rows)
    result = import_samples([tmp_path / "run"], ImportConfig(store=tmp_path / "audit.duckdb"))
    (one,) = result.series
    assert (one.name, one.steps, one.n_problems, one.n) == ("run", (0, 40), 10, 4)
    assert one.verdict is not None
    assert one.verdict.changes[0].base == pytest.approx(0.5)
