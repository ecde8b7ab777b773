"""SkyRL is not installed here: the records have the fields that its ``dump_per_dataset_eval_results`` writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from oversharp.diagnostics.ingest.formats import skyrl
from oversharp.diagnostics.ingest.formats.contract import Fault, ReadOptions, Recorded
from tests.ingest.formats.reading import reader, write_lines

ENTRY: dict[str, Any] = {
    "input_prompt": "<|im_start|>user\n6*12?<|im_end|>\n<|im_start|>assistant\n",
    "output_response": "#### 72<|im_end|>",
    "score": 1.0,
    "stop_reason": "stop",
    "env_class": "gsm8k",
    "env_extras": {"data_source": "openai/gsm8k", "reward_spec": {"method": "rule", "ground_truth": "72"}},
    "data_source": "openai/gsm8k",
}


def read(folder: Path, *entries: dict[str, Any], **options: Any) -> list[Recorded | Fault]:
    path = write_lines(folder / "openai_gsm8k.jsonl", *entries)
    return reader(skyrl)(path, **options)


def test_an_evaluation_is_recognised_and_read(tmp_path: Path) -> None:
    path = tmp_path / "dumped_evals" / "global_step_20_evals" / "openai_gsm8k.jsonl"
    assert skyrl.IMPORTER.recognises(path, ENTRY)
    assert skyrl.place(path).step == 20
    assert skyrl.place(tmp_path / "dumped_evals" / "eval_only" / "openai_gsm8k.jsonl").step is None
    assert read(tmp_path, ENTRY) == [
        Recorded(1, ENTRY["input_prompt"], "#### 72", gold="72", reward=1.0, finish_reason="stop", task="openai/gsm8k")
    ]


def test_of_scores_by_token_the_last_counts(tmp_path: Path) -> None:
    scores = [[0.0, 0.0, 1.0], [0.5, 0.0, 0.0], []]
    assert [one.reward for one in read(tmp_path, *(ENTRY | {"score": score} for score in scores))] == [1.0, 0.0, None]


def test_the_gold_answer_of_data_made_for_verl(tmp_path: Path) -> None:
    (sample,) = read(tmp_path, ENTRY | {"env_extras": {"reward_model": {"ground_truth": 72}}})
    assert sample.gold == "72"
    (without,) = read(tmp_path, ENTRY | {"env_extras": None})
    assert without.gold is None


def test_averages_are_no_samples(tmp_path: Path) -> None:
    path = tmp_path / "aggregated_results.jsonl"
    path.write_text('{"eval/all/avg_score": 0.5}\n')
    assert not skyrl.IMPORTER.recognises(path, {"eval/all/avg_score": 0.5})
    assert list(skyrl.read_samples(path, ReadOptions())) == []


@pytest.mark.parametrize(("stop_reason", "finish"), [("length", "length"), ("abort", None), (None, None)])
def test_how_a_response_ended(tmp_path: Path, stop_reason: str | None, finish: str | None) -> None:
    (sample,) = read(tmp_path, ENTRY | {"stop_reason": stop_reason})
    assert sample.finish_reason == finish
