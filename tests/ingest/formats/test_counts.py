"""Counts of correct samples become samples without texts, in random order."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from oversharp.diagnostics.ingest.config import ImportConfig
from oversharp.diagnostics.ingest.formats import counts
from oversharp.diagnostics.ingest.formats.contract import Fault, ReadOptions
from oversharp.diagnostics.records.errors import ConfigError
from tests.ingest.formats.reading import checked, samples, write_lines

FIELDS = {"problem": "id", "n": "n", "correct": "c", "step": "step"}
RECORD = {"id": "p1", "n": 64, "c": 24, "step": 20}


def read(path: Path, fields: dict[str, str] = FIELDS) -> list[Any]:
    return checked(counts.read_samples(path, ReadOptions(fields=fields)))


def test_a_count_becomes_as_many_samples_in_an_order_that_stays(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "any.jsonl", RECORD, RECORD | {"step": 40}, RECORD | {"id": "p2"})
    items = samples(read(path))
    assert items == read(path)
    rewards = [[one.reward for one in items if one.line == line] for line in (1, 2, 3)]
    assert [sum(rewards[line]) for line in range(3)] == [24.0] * 3
    assert rewards[0] != rewards[1] != rewards[2]
    assert 0 < sum(rewards[0][:32]) < 24  # the first half is neither all nor none of them
    assert {(one.problem, one.prompt, one.step) for one in items} == {
        ("p1", "[prompt not recorded] p1", 20), ("p1", "[prompt not recorded] p1", 40),
        ("p2", "[prompt not recorded] p2", 20),
    }  # fmt: skip
    assert {(one.response, one.reward) for one in items} == {
        ("[text not recorded; counted as correct]", 1.0), ("[text not recorded; counted as not correct]", 0.0),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"c": 65}, "c is above n"),
        ({"c": -1}, "c is below 0"),
        ({"c": 0.375}, "c is not a whole number"),
        ({"c": None}, "no c"),
        ({"n": 0, "c": 0}, "n is 0"),
        ({"n": 2.5}, "n is not a whole number"),
        ({"n": -4}, "n is below 0"),
        ({"n": 65_537}, "n is above 65,536"),
        ({"n": "many"}, "n is not a whole number"),
        ({"id": None}, "no id"),
    ],
)
def test_a_count_that_cannot_be_is_a_fault(tmp_path: Path, changed: dict[str, Any], why: str) -> None:
    items = read(write_lines(tmp_path / "any.jsonl", RECORD | changed, RECORD))
    assert items[0] == Fault(1, why)
    assert len(samples(items)) == len(items) - 1 == 64


@pytest.mark.parametrize(
    ("name", "text", "fields"),
    [
        ("any.json", json.dumps([{"id": "p1", "n": 4, "c": 3, "step": "step_20"}], indent=1), FIELDS),
        ("any.json", json.dumps({"step": 20, "problems": [{"id": "p1", "n": 4, "c": 3}]}), FIELDS),
        ("any.json", json.dumps({"step": 20, "of": [{"id": "p1", "n": 4, "c": 3}]}),
         {"problem": "of.id", "n": "of.n", "correct": "of.c", "step": "step"}),
        ("any.json", json.dumps({"step": [20], "id": ["p1"], "n": [4], "c": [3]}), FIELDS),
        ("any.csv", "id,n,c,step\np1,4,3,20\n", FIELDS),
        ("step_20.csv", "id,n,c\np1,4.0,3,\n".replace("3,\n", "3\n"), {**FIELDS, "step": "step"}),
    ],
)  # fmt: skip
def test_counts_are_read_in_every_layout(tmp_path: Path, name: str, text: str, fields: dict[str, str]) -> None:
    (tmp_path / name).write_text(text)
    items = samples(read(tmp_path / name, fields))
    assert (len(items), sum(one.reward or 0 for one in items)) == (4, 3)
    step = counts.IMPORTER.place(tmp_path / name).step if name.startswith("step") else items[0].step
    assert (items[0].problem, step) == ("p1", 20)


def test_a_prompt_that_is_named_is_that_of_the_problem(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "any.jsonl", RECORD | {"q": "2+2?", "topic": "sums"})
    items = samples(read(path, {**FIELDS, "prompt": "q", "task": "topic"}))
    assert {(one.prompt, one.problem, one.task) for one in items} == {("2+2?", "p1", "sums")}


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"problem": "id", "n": "n"}, r"--map of counts needs n=…, correct=… or share=…, and problem=… or prompt=…"),
        ({"n": "n", "correct": "c"}, r"--map of counts needs n=…, correct=… or share=…, and problem=… or prompt=…"),
        ({**FIELDS, "response": "a"}, r"--map response=…: counts \(n=…, correct=…\) have no responses"),
        ({"prompt": "q", "response": "a", "correct": "c"}, r"--map of counts needs n=…, correct=… or share=…"),
    ],
)
def test_a_mapping_that_is_neither_of_samples_nor_of_counts_is_refused(fields: dict[str, str], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        ImportConfig(map=fields)
    assert ImportConfig(map=FIELDS).chosen_format == "counts"


def test_a_share_of_the_samples_is_a_count_too_if_it_is_one(tmp_path: Path) -> None:
    fields = {"problem": "id", "n": "n", "share": "avg", "step": "step"}
    rows = [RECORD | {"avg": avg} for avg in (0.375, 0.1094, 0.37, 1.5, None)]
    items = read(write_lines(tmp_path / "any.jsonl", *rows), fields)
    assert sum(one.reward for one in samples(items) if one.line == 1) == 24
    assert sum(one.reward for one in samples(items) if one.line == 2) == 7  # 0.109375, rounded to four decimals
    assert [one for one in items if isinstance(one, Fault)] == [
        Fault(3, "avg is 0.37, which is not a share of 64 samples"),
        Fault(4, "avg is 1.5, which is not a share of 64 samples"),
        Fault(5, "no avg"),
    ]
    with pytest.raises(ConfigError, match="needs n=…, correct=… or share=…"):
        ImportConfig(map={"problem": "id", "n": "n", "correct": "c", "share": "avg"})
