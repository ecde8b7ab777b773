"""evalscope is not installed here: the rows have the fields of its ``ReviewResult``, as in its own examples."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from oversharp.diagnostics.ingest.config import ImportConfig
from oversharp.diagnostics.ingest.formats import evalscope_reviews, find_files
from oversharp.diagnostics.ingest.formats.contract import Fault, FilePlace, Recorded
from oversharp.diagnostics.ingest.ingest import import_samples
from tests.ingest.formats.reading import reader, samples, write_lines

CONFIG = "eval_type: openai_api\ngeneration_config:\n  batch_size: 10\n  stream: true\n  temperature: 0.7\nlimit: 10\n"
ANSWER: dict[str, Any] = {
    "id": "3ca12b2b", "content": "So \\boxed{72}", "source": "generate", "role": "assistant",
    "perf_metrics": {"latency": 3.9, "output_tokens": 9}, "tool_calls": None, "model": "lucky",
}  # fmt: skip
ROW: dict[str, Any] = {
    "index": 13,
    "target": "72",
    "messages": [{"id": "1cc63dd8", "content": "6*12?", "source": None, "role": "user"}, ANSWER],
    "agent_trace": None,
    "sample_score": {
        "score": {
            "value": {"acc": 1.0, "strict": 0.0},
            "extracted_prediction": "72",
            "prediction": "So \\boxed{72}",
            "explanation": None,
            "metadata": {},
            "main_score_name": None,
        },
        "sample_id": 13,
        "group_id": 3,
        "generation_index": 1,
        "sample_metadata": {},
    },
}
read = reader(evalscope_reviews)


def scored(**change: Any) -> dict[str, Any]:
    """The row with another score."""
    sampled = ROW["sample_score"]
    return ROW | {"sample_score": sampled | {"score": sampled["score"] | change}}


def test_a_review_is_recognised_and_read(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "out" / "reviews" / "checkpoint-40" / "gsm8k_main.jsonl", ROW)
    (tmp_path / "out" / "configs").mkdir()
    (tmp_path / "out" / "configs" / "task_config.yaml").write_text(CONFIG)
    (found,) = find_files([tmp_path]).files
    assert found.importer.name == "evalscope"
    assert evalscope_reviews.place(path) == FilePlace(run=None, step=40, task="gsm8k_main")
    assert evalscope_reviews.settings(path) == {"temperature": 0.7}
    assert read(path) == [
        Recorded(1, "6*12?", "So \\boxed{72}", gold="72", reward=1.0, problem="3", answer="72", n_tokens=9)
    ]


def test_the_step_is_in_a_folder_above_where_the_model_has_none(tmp_path: Path) -> None:
    path = tmp_path / "lucky" / "step_20" / "reviews" / "qwen" / "gsm8k_main.jsonl"
    assert evalscope_reviews.place(path) == FilePlace(run="lucky", step=20, task="gsm8k_main")
    assert evalscope_reviews.settings(path) == {}


def test_the_main_score_counts_or_the_one_that_is_asked_for(tmp_path: Path) -> None:
    rows = (ROW, scored(main_score_name="strict"), scored(value={}))
    path = write_lines(tmp_path / "gsm8k_main.jsonl", *rows)
    assert [one.reward for one in samples(read(path))] == [1.0, 0.0, None]
    asked = read(path, "strict")
    assert [one.reward for one in samples(asked)] == [0.0, 0.0]
    assert asked[2] == Fault(3, "no score strict")


def test_reasoning_and_the_reviews_of_2025(tmp_path: Path) -> None:
    parts = [{"type": "reasoning", "reasoning": "six dozen"}, {"type": "text", "text": "72"}]
    thought = ROW | {"messages": [ROW["messages"][0], ANSWER | {"content": parts}]}
    older = {name: value for name, value in ROW.items() if name != "messages"} | {"input": "6*12?"}
    path = write_lines(tmp_path / "a.jsonl", thought, older, ROW | {"messages": []}, ROW | {"messages": [ANSWER]})
    items = read(path)
    assert [one.response for one in samples(items)] == ["<think>six dozen</think>\n72", "So \\boxed{72}"]
    assert items[2:] == [Fault(line, "no prompt among the messages") for line in (3, 4)]


@pytest.mark.slow
@pytest.mark.usefixtures("few_measures")
def test_repeats_are_samples_up_to_the_verdict(tmp_path: Path) -> None:
    for step in (0, 40):
        rows = [
            scored(value={"acc": float(i % 4 < 2)})
            | {"index": i, "messages": [{"role": "user", "content": f"6*{i // 4}?"}, ANSWER | {"content": f"try {i}"}]}
            for i in range(40)
        ]
        write_lines(tmp_path / "run" / f"step_{step}" / "reviews" / "qwen" / "gsm8k_main.jsonl", *rows)
    (one,) = import_samples([tmp_path / "run"], ImportConfig(store=tmp_path / "audit.duckdb")).series
    assert (one.name, one.steps, one.n_problems, one.n) == ("run", (0, 40), 10, 4)
    assert one.verdict is not None
    assert one.verdict.changes[0].base == pytest.approx(0.5)
