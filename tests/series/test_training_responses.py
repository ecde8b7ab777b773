from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from oversharp.diagnostics.series.training_log import read_training_responses


def write(run: Path, rows: list[tuple[int, str, str, bool]]) -> Path:
    folder = run / "rollouts"
    folder.mkdir(parents=True)
    table = pd.DataFrame(rows, columns=["step", "prompt", "response", "correct"]).assign(truncated=False)
    table.to_parquet(folder / "step_000010.parquet")
    return run


def test_equal_responses_of_a_group_are_counted(tmp_path: Path) -> None:
    run = write(tmp_path, [(3, "q", "a", True), (3, "q", "b", False), (3, "q", "a", True)])
    responses, faults = read_training_responses(run, [0, 10], limit=8)
    counted = [(response.step, response.text, response.correct, response.draws) for response in responses]
    assert counted == [(10, "a", True, 2), (10, "b", False, 1)]
    assert faults == ()


def test_only_the_first_group_of_a_prompt_in_an_interval_is_used(tmp_path: Path) -> None:
    run = write(tmp_path, [(3, "q", "a", True), (5, "q", "b", False), (12, "q", "c", False)])
    responses, _ = read_training_responses(run, [0, 10, 20], limit=8)
    assert [(response.step, response.text) for response in responses] == [(10, "a"), (20, "c")]


def test_groups_are_taken_whole_and_evenly_spaced(tmp_path: Path) -> None:
    rows = [(step, f"q{step}", text, text == "a") for step in range(1, 11) for text in ("a", "b", "c")]
    run = write(tmp_path, rows)
    responses, _ = read_training_responses(run, [0, 10], limit=10)
    texts = [(response.prompt, response.text) for response in responses]
    assert texts == [(f"q{step}", text) for step in (1, 4, 7) for text in "abc"]


def test_the_limit_holds_where_groups_differ_in_size(tmp_path: Path) -> None:
    rows = [(1, "q1", text, False) for text in "abcdef"] + [(step, f"q{step}", "a", True) for step in range(2, 8)]
    run = write(tmp_path, rows)
    responses, _ = read_training_responses(run, [0, 10], limit=5)
    assert 0 < len(responses) <= 5


@pytest.mark.parametrize(
    ("column", "value", "says"),
    [
        ("correct", "False", "column correct must contain true and false, or 0 and 1"),
        ("correct", 0.3, "column correct must contain"),
        ("step", "3", "column step must contain whole numbers"),
        ("prompt", ["a chat"], "column prompt must contain text"),
    ],
)
def test_a_file_with_a_column_of_another_type_is_skipped_and_listed(
    tmp_path: Path, column: str, value: Any, says: str
) -> None:
    folder = tmp_path / "rollouts"
    folder.mkdir()
    row = {"step": 3, "prompt": "q", "response": "a", "correct": True, "truncated": False}
    pd.DataFrame([row | {column: value}]).to_parquet(folder / "step_000010.parquet")
    responses, (fault,) = read_training_responses(tmp_path, [0, 10], limit=8)
    assert responses == ()
    assert says in fault
