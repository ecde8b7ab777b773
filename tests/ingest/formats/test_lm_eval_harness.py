"""The files under data/lm_eval-0.4.13 were written by the tool itself, see ``tests/importers/real``."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oversharp.diagnostics.ingest.formats import find_files
from oversharp.diagnostics.ingest.formats import lm_eval_harness as lm_eval
from oversharp.diagnostics.ingest.formats.contract import Fault, FilePlace, Recorded, ToolScore
from oversharp.diagnostics.ingest.formats.rows import NOT_JSON, NOT_UTF8, first_record
from oversharp.diagnostics.records.errors import ImportFileError
from tests.ingest.formats.reading import reader, samples, write_lines
from tests.ingest.formats.test_bad_input import JSON, SETTINGS, changed

DATA = Path(__file__).parent / "data" / "lm_eval-0.4.13"
SUMS_0, SUMS_40 = (next((DATA / f"models__lucky__checkpoint-{step}").glob("samples_sums_*")) for step in (0, 40))
DIGITS = next((DATA / "models__lucky__checkpoint-40").glob("samples_digits_*"))
ROW = json.loads(DIGITS.read_text().splitlines()[2])
NAME = "samples_sums_2026-01-02T03-04-05.678901.jsonl"


read = reader(lm_eval)


def written(folder: Path, *rows: dict[str, Any]) -> Path:
    return write_lines(folder / NAME, *rows)


# ---------------------------------------------------------------- real dumps


def test_all_repeats_are_read_once_though_every_filter_has_a_row_of_them() -> None:
    rows = [json.loads(line) for line in SUMS_0.read_text().splitlines()]
    assert len(rows) == 6  # two filters of three problems
    found = samples(read(SUMS_0))
    assert [one.response for one in found] == [text for row in rows[:3] for text in row["resps"][0]]
    assert [(one.problem, one.index) for one in found] == [(str(doc), k) for doc in range(3) for k in range(4)]
    assert {(one.line, one.prompt, one.gold) for one in found} == {
        (1, "6 7 12 = 54 :", "6 * 7 + 12"),
        (2, "1 2 3 = 6 :", "1 + 2 + 3"),
        (3, "2 3 5 = 1 :", "2 * 3 - 5"),
    }
    assert {(one.reward, one.answer, one.greedy) for one in found} == {(None, None, False)}


def test_one_response_has_the_best_score_of_all_filters_and_the_answer_of_the_first_with_it() -> None:
    found = samples(read(DIGITS))
    assert [(one.prompt, one.response, one.answer, one.gold, one.reward) for one in found] == [
        ("6 7 12 = 54 :", "51 54 30 48 1 98 50 54", "5", "6", 0.0),
        ("1 2 3 = 6 :", "73 55 50 54 75 13 70 56", "7", "5", 0.0),
        ("2 3 5 = 1 :", "77 18 5 13 31 22", "7", "7", 1.0),
    ]


def test_metric_and_filter_can_be_chosen() -> None:
    assert [one.reward for one in samples(read(DIGITS, "exact_match"))] == [0.0, 0.0, 1.0]
    other = samples(read(DIGITS, "exact_match,flexible-extract"))
    assert [(one.line, one.reward, one.answer) for one in other] == [(4, 0.0, None), (5, 0.0, None), (6, 0.0, None)]
    assert read(DIGITS, "f1")[0] == Fault(1, "no metric f1")
    with pytest.raises(ImportFileError, match=r"no filter 'loose' for --reward; use one of: flexible-extract"):
        read(DIGITS, "exact_match,loose")


def test_place_and_settings_of_real_dumps() -> None:
    for path, place in ((SUMS_0, FilePlace(run="models/lucky", step=0, task="sums")),
                        (SUMS_40, FilePlace(run="models/lucky", step=40, task="sums")),
                        (DIGITS, FilePlace(run="models/lucky", step=40, task="digits"))):  # fmt: skip
        assert lm_eval.place(path) == place
        assert lm_eval.settings(path) == {"temperature": 1.0, "top_p": 1.0, "max_tokens": 8}


def test_a_model_that_is_no_checkpoint_has_no_step() -> None:
    assert lm_eval.place(Path("/out/mistralai__Mistral-7B-v0.3") / NAME).step is None
    assert lm_eval.place(Path("/out/__runs__lucky__global_step_40__actor__huggingface") / NAME) == FilePlace(
        run="/runs/lucky", step=40, task="sums"
    )
    assert lm_eval.place(Path("/out/model/mine.jsonl")) == FilePlace(run="model", task=None)


def test_the_folder_is_taken_without_its_results(tmp_path: Path) -> None:
    for path in DATA.rglob("samples_*"):
        copy = tmp_path / path.relative_to(DATA)
        copy.parent.mkdir(exist_ok=True)
        copy.write_bytes(path.read_bytes())
        (copy.parent / "results_2026-01-02T03-04-05.678901.json").write_text(json.dumps({"results": {}, "configs": {}}))
    inside = find_files([tmp_path])
    assert {one.importer.name for one in inside.files} == {"lm-eval"}
    assert {one.path.name for one in inside.files} == {path.name for path in (SUMS_0, SUMS_40, DIGITS)}
    assert {path.suffix for path in inside.unknown} <= {".json"}


# ---------------------------------------------------------------- other tasks and settings


@pytest.mark.parametrize(
    ("generation", "greedy", "told"),
    [
        ({"do_sample": False, "temperature": 0.7, "max_new_tokens": 9}, True, {"temperature": 0.0, "max_tokens": 9}),
        ({"until": ["\n"]}, True, {"temperature": 0.0}),
        ({"temperature": 1, "top_k": 20, "top_p": "0.9"}, False, {"temperature": 1.0, "top_p": 0.9, "top_k": 20}),
        ({"do_sample": True, "temperature": "hot"}, False, {}),
    ],
)
def test_greedy_is_what_the_harness_takes_for_greedy(
    tmp_path: Path, generation: dict[str, Any], greedy: bool, told: dict[str, Any]
) -> None:
    path = written(tmp_path, {**ROW, "arguments": {"gen_args_0": {"arg_0": "q", "arg_1": generation}}})
    assert [one.greedy for one in read(path)] == [greedy]
    assert lm_eval.settings(path) == told


def test_the_gold_answer_of_gsm8k_is_what_follows_the_hashes(tmp_path: Path) -> None:
    path = written(tmp_path, {**ROW, "target": "He has 48 - 24 = 24.\n#### 1,024"})
    assert [one.gold for one in read(path)] == ["1,024"]


def test_a_task_that_compares_likelihoods_is_a_fault_and_in_a_mixed_one_the_text_is_read(tmp_path: Path) -> None:
    likelihood = [["-1.5", "False"]]
    choice = {**ROW, "doc_id": 0, "resps": [likelihood, likelihood]}
    mixed = {**ROW, "doc_id": 1, "resps": [["24"], likelihood]}
    two = {**ROW, "doc_id": 2, "resps": [["a"], ["b"]], "arguments": {
        f"gen_args_{n}": {"arg_0": f"question {n}", "arg_1": {}} for n in range(2)}}  # fmt: skip
    items = read(written(tmp_path, choice, mixed, two))
    assert items[0] == Fault(1, "generates no text; tasks that compare likelihoods cannot be imported")
    found = [(one.response, one.problem, one.prompt) for one in items[1:]]
    assert found == [("24", "1", "2 3 5 = 1 :"), ("a", "2.0", "question 0"), ("b", "2.1", "question 1")]


def test_parts_of_a_corpus_metric_are_no_score(tmp_path: Path) -> None:
    path = written(tmp_path, {**ROW, "metrics": ["bleu", "f1"], "bleu": ["24", "7"], "f1": 0.5})
    assert [one.reward for one in read(path)] == [0.5]
    path = written(tmp_path, {**ROW, "metrics": ["bleu"], "bleu": ["24", "7"]})
    assert [one.reward for one in read(path)] == [None]


@pytest.mark.parametrize(
    ("more", "claim"),
    [
        ({"filtered_resps": ["18"]}, ToolScore("acc", 0.5, 1)),  # taken of the first
        ({"filtered_resps": ["[invalid]"]}, ToolScore("acc", 0.5, 1)),
        ({"filtered_resps": ["7"]}, None),  # of another: a vote, perhaps
        ({"filtered_resps": ["18"], "filter": "maj@2"}, None),
        ({"filtered_resps": [["18", "19"]]}, ToolScore("acc", 0.5, 2)),
        ({"filtered_resps": [["18", "19"]], "metrics": ["pass@2"], "pass@2": 1}, ToolScore("pass@2", 1.0, 2, 2)),
        ({"filtered_resps": [["18", "19"]], "metrics": ["pass_at_k"], "pass_at_k": 1}, None),  # of which k?
        ({"filtered_resps": [["18", "19"]], "acc": math.nan}, None),
        ({"filtered_resps": [["18", "19"]], "acc": 7}, None),  # no share
        ({"resps": [["so 18"]], "filtered_resps": ["18"]}, None),  # its own score
    ],
)
def test_a_metric_is_told_of_the_responses_that_the_filter_keeps(
    tmp_path: Path, more: dict[str, Any], claim: ToolScore | None
) -> None:
    row = {**ROW, "resps": [["so 18", "19"]], "metrics": ["acc"], "acc": 0.5, "filter": "none"}
    found = samples(read(written(tmp_path, {**row, **more})))
    assert [one.claim for one in found] == [claim, None][: len(found)]


# ---------------------------------------------------------------- bad input


def test_any_of_several_targets_is_right(tmp_path: Path) -> None:
    (sample,) = samples(read(written(tmp_path, {**ROW, "target": ["12", "twelve"]})))[:1]
    assert sample.gold == '["12", "twelve"]'


def test_bad_scores_are_faults_and_a_missing_target_is_no_gold(tmp_path: Path) -> None:
    no_target = {key: value for key, value in ROW.items() if key != "target"}
    rows = [{**ROW, "exact_match": math.nan}, {**ROW, "exact_match": "good"}, no_target, {**ROW, "exact_match": None}]
    items = read(written(tmp_path, *({**row, "doc_id": number} for number, row in enumerate(rows))))
    assert items[:2] == [
        Fault(1, "exact_match is NaN or infinite"),
        Fault(2, "exact_match is text, not a number"),
    ]
    assert [(one.gold, one.reward) for one in items[2:]] == [(None, 1.0), ("7", None)]


def test_a_row_of_another_filter_replaces_a_damaged_one_with_its_own_score(tmp_path: Path) -> None:
    lines = DIGITS.read_bytes().splitlines()
    path = tmp_path / NAME
    path.write_bytes(b"\n".join([lines[0][:200], b'{"doc_id": "\xff"}', *lines[2:]])[:-300])
    items = read(path)
    assert items[:2] == [Fault(1, NOT_JSON), Fault(2, NOT_UTF8)]
    assert items[-1] == Fault(6, NOT_JSON)
    assert [(one.line, one.problem, one.reward) for one in samples(items)] == [
        (3, "2", 1.0),
        (4, "0", 0.0),
        (5, "1", 0.0),
    ]


@pytest.mark.slow
@given(data=st.data())
@SETTINGS
def test_no_row_stops_the_reader(tmp_path: Path, data: st.DataObject) -> None:
    rows = data.draw(st.lists(changed(ROW) | JSON, min_size=1, max_size=4))
    path = written(tmp_path, *rows, {**ROW, "doc_id": 10**6})
    items = read(path)
    lm_eval.settings(path)
    lm_eval.IMPORTER.recognises(path, first_record(path))
    assert isinstance(items[-1], Recorded)
    assert items[-1].line == len(rows) + 1
