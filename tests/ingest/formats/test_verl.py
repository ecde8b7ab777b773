"""The files under data/verl were written by verl 0.9.1; the longer rollouts follow the keys of its new trainer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from oversharp.diagnostics.ingest.formats import verl
from oversharp.diagnostics.ingest.formats.contract import Fault
from oversharp.diagnostics.ingest.formats.rows import first_record
from tests.ingest.formats.reading import reader, write_lines

DATA = Path(__file__).parent / "data" / "verl"


LINE: dict[str, Any] = {"input": "1+1?", "output": "2", "gts": "2", "score": 1.0, "step": 40}
read = reader(verl)


@pytest.mark.parametrize("layout", ["old", "new"])
def test_both_layouts_are_recognised_and_read(layout: str) -> None:
    path = DATA / layout / "40.jsonl"
    assert verl.recognises(path, first_record(path))
    assert verl.place(path).step == 40
    first, second = read(path)
    assert (first.prompt, first.response, first.gold, first.reward, first.step) == ("What is 1+1?", "2", "2", 1.0, 40)
    assert (second.response, second.gold, second.reward) == ("3", "2", 0.0)


def test_an_id_that_is_drawn_anew_at_every_validation_names_no_problem() -> None:
    assert {(one.problem, one.index) for one in read(DATA / "new/40.jsonl")} == {(None, None)}


def test_right_or_wrong_counts_before_a_shaped_score(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "40.jsonl", LINE | {"score": 0.1, "acc": True}, LINE | {"score": 0.1, "acc": None})
    assert [one.reward for one in read(path)] == [1.0, 0.1]
    assert [one.reward for one in read(path, reward="score")] == [0.1, 0.1]


def test_a_chosen_score_that_is_not_there_is_a_fault(tmp_path: Path) -> None:
    assert read(write_lines(tmp_path / "40.jsonl", LINE), reward="accuracy") == [Fault(1, "no accuracy")]


def test_the_turns_of_a_rollout_are_one_sample(tmp_path: Path) -> None:
    def turn(uid: str, prompt: str, response: str) -> dict[str, Any]:
        return LINE | {"uid": uid, "input": prompt, "output": response}

    path = write_lines(
        tmp_path / "40.jsonl",
        turn("a_0_0", "q", "let me look"),
        turn("a_0_1", "q, and what was found", "2"),
        turn("a_1_0", "q", "3"),
        turn("b_1_0", "p", "4"),
    )
    joined, *others = read(path)
    assert [(one.line, one.prompt, one.response, one.turns) for one in others] == [
        (3, "q", "3", None),
        (4, "p", "4", None),
    ]
    assert (joined.line, joined.prompt, joined.response) == (2, "q", "let me look\n\n2")
    assert [(turn.role, turn.text) for turn in joined.turns] == [
        ("assistant", "let me look"), ("user", "q, and what was found"), ("assistant", "2")]  # fmt: skip


def test_an_id_of_another_form_joins_nothing(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "40.jsonl", *[LINE | {"uid": uid} for uid in ("task_7", "task_7", "²_²_²", 7)])
    assert len(read(path)) == 4


def test_faults_keep_their_place_among_the_samples(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "40.jsonl", LINE, {"output": "2", "score": 1.0}, LINE | {"score": "good"}, LINE)
    assert [(one.line, isinstance(one, Fault)) for one in read(path)] == [(1, False), (2, True), (3, True), (4, False)]
    assert [one.why for one in read(path) if isinstance(one, Fault)] == ["no input", "score is text, not a number"]


def test_the_step_of_the_file_name_is_a_plain_number() -> None:
    steps = [verl.place(Path(name)).step for name in ("0.jsonl", "40.jsonl", "²0.jsonl", "latest.jsonl")]
    assert steps == [0, 40, None, None]


def test_an_older_dump_without_step_is_told_by_its_name(tmp_path: Path) -> None:
    record = {"input": "1+1?", "output": "2", "score": 1.0}
    assert verl.recognises(tmp_path / "40.jsonl", record)
    assert not verl.recognises(tmp_path / "notes.jsonl", record)
