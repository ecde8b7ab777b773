"""The files under data/lighteval-0.13.0 were written by the tool itself, see ``tests/importers/real``."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, reject
from hypothesis import strategies as st
from pyarrow import parquet

from oversharp.diagnostics.ingest.formats import find_files
from oversharp.diagnostics.ingest.formats import lighteval_details as lighteval
from oversharp.diagnostics.ingest.formats.contract import Fault, FilePlace, Recorded
from oversharp.diagnostics.ingest.formats.rows import first_record
from oversharp.diagnostics.records.errors import ImportFileError
from tests.ingest.formats.reading import reader
from tests.ingest.formats.test_bad_input import COLUMN, SETTINGS, changed

DATA = Path(__file__).parent / "data" / "lighteval-0.13.0"
SUMS, ONCE = (
    next((DATA / "details/models/lucky/checkpoint-40").rglob(f"details_{name}|0_*")) for name in ("sums", "once")
)
METRIC = "em:type_exact_match=prefix"


read = reader(lighteval)


def changed_copy(path: Path, folder: Path, change: Callable[[list[dict[str, Any]]], None]) -> Path:
    rows = parquet.read_table(path).to_pylist()
    change(rows)
    copy = folder / "copy.parquet"
    parquet.write_table(pa.Table.from_pylist(rows), copy)
    return copy


# ---------------------------------------------------------------- real dumps


def test_all_responses_to_a_problem_are_read() -> None:
    rows = parquet.read_table(SUMS).to_pylist()
    found = read(SUMS)
    assert [one.response for one in found] == [text for row in rows for text in row["model_response"]["text"]]
    assert [(one.line, one.index) for one in found] == [(line, index) for line in (1, 2, 3) for index in range(4)]
    assert {(one.problem, one.prompt, one.gold) for one in found} == {
        ("0", "6 7 12 = 54 :", "6 * 7 + 12"),
        ("1", "1 2 3 = 6 :", "1 + 2 + 3"),
        ("2", "2 3 5 = 1 :", "2 * 3 - 5"),
    }
    assert {(one.reward, one.greedy, one.n_tokens) for one in found} == {(None, False, None)}


def test_one_response_has_the_score_of_its_problem(tmp_path: Path) -> None:
    assert [(one.gold, one.reward, one.index) for one in read(ONCE)] == [("4", 0.0, 0)] * 3

    def right(rows: list[dict[str, Any]]) -> None:
        for row, value in zip(rows, (1.0, None, 0.5), strict=True):
            assert row["metric"] == {METRIC: 0}
            row["metric"] = {"other": 0.25, METRIC: value}

    path = changed_copy(ONCE, tmp_path, right)
    assert [one.reward for one in read(path)] == [0.25] * 3
    assert [one.reward for one in read(path, METRIC)] == [1.0, None, 0.5]
    assert read(path, "f1")[0] == Fault(1, "no metric f1")


def test_place_and_settings_of_real_dumps() -> None:
    assert lighteval.place(SUMS) == FilePlace(run="models/lucky", step=40, task="sums")
    assert lighteval.settings(SUMS) == {"temperature": 1.0, "top_p": 1.0, "max_tokens": 8, "seed": 7}


def test_only_the_details_are_taken_from_an_output_folder() -> None:
    inside = find_files([DATA])
    taken = {(one.importer.name, one.path.name.split("|")[0]) for one in inside.files}
    assert taken == {("lighteval", "details_sums"), ("lighteval", "details_once")}
    assert {path.suffix for path in inside.unknown} <= {".json"}


def test_details_without_their_results_tell_the_longest_response_alone(tmp_path: Path) -> None:
    copy = tmp_path / "lucky-step-20" / "today" / SUMS.name
    copy.parent.mkdir(parents=True)
    shutil.copyfile(SUMS, copy)
    assert lighteval.settings(copy) == {"max_tokens": 8}
    assert lighteval.place(copy) == FilePlace(run="lucky", step=20, task="sums")
    results = tmp_path / "results" / "m" / SUMS.name.replace("details_sums|0", "results").replace(".parquet", ".json")
    results.parent.mkdir(parents=True)
    copy = tmp_path / "details" / "m" / "today" / SUMS.name
    copy.parent.mkdir(parents=True)
    shutil.copyfile(SUMS, copy)
    for said in (b"\xff", b"[]", b'{"config_general": 3}', json.dumps({"config_general": {"model_config": {
            "generation_parameters": {"temperature": 0}, "system_prompt": "Be brief."}}}).encode()):  # fmt: skip
        results.write_bytes(said)
        told = lighteval.settings(copy)
    assert told == {"max_tokens": 8, "temperature": 0.0, "system_prompt": "Be brief."}
    assert {one.greedy for one in read(copy)} == {False}  # several are always drawn
    shutil.copyfile(ONCE, copy)
    assert {one.greedy for one in read(copy)} == {True}


# ---------------------------------------------------------------- bad input


def test_bad_scores_and_missing_golds(tmp_path: Path) -> None:
    def damage(rows: list[dict[str, Any]]) -> None:
        rows[0]["metric"][METRIC] = math.nan
        rows[1]["doc"]["choices"] = ["a", "b"]
        rows[1]["doc"]["gold_index"] = [0, 1]
        rows[2]["doc"]["gold_index"] = [7]

    items = read(changed_copy(ONCE, tmp_path, damage))
    assert items[0] == Fault(1, f"{METRIC} is NaN or infinite")
    assert [(one.gold, one.reward) for one in items[1:]] == [
        ('["a", "b"]', 0.0),
        (None, 0.0),
    ]  # any of several right choices

    def as_text(rows: list[dict[str, Any]]) -> None:
        for row in rows:
            row["metric"][METRIC] = "right"

    assert read(changed_copy(ONCE, tmp_path, as_text))[0] == Fault(1, f"{METRIC} is text, not a number")


def test_a_task_that_compares_likelihoods_is_a_fault(tmp_path: Path) -> None:
    def empty(rows: list[dict[str, Any]]) -> None:
        rows[1]["model_response"]["text"] = []

    items = read(changed_copy(ONCE, tmp_path, empty))
    assert items[1] == Fault(2, "generates no text; tasks that compare likelihoods cannot be imported")
    assert [type(one) for one in items] == [Recorded, Fault, Recorded]


def test_a_file_that_is_cut_short_is_said_to_be(tmp_path: Path) -> None:
    path = tmp_path / SUMS.name
    path.write_bytes(SUMS.read_bytes()[:-100])
    with pytest.raises(ImportFileError, match="not a readable Parquet file"):
        read(path)
    assert lighteval.settings(path) == {}


@pytest.mark.slow
@given(data=st.data())
@SETTINGS
def test_no_row_stops_the_reader(tmp_path: Path, data: st.DataObject) -> None:
    row = {
        "doc": {"query": "q", "choices": ["2", "3"], "gold_index": 0, "id": "7", "generation_size": 8},
        "metric": {"em": 1.0},
        "model_response": {"text": ["2", "3"], "output_tokens": [[1], [2]]},
    }
    record = data.draw(changed(row, COLUMN))
    path = tmp_path / SUMS.name
    try:
        parquet.write_table(pa.Table.from_pylist([record, record]), path)
    except pa.ArrowException:  # no column holds both kinds
        reject()
    lighteval.settings(path)
    lighteval.IMPORTER.recognises(path, first_record(path))
    with suppress(ImportFileError):  # of text that is not UTF-8
        read(path)
