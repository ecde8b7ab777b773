"""Records against the fields that the schema's version 0.3.0 documents (instance_level_eval.schema.json)."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from oversharp import open_store
from oversharp.diagnostics.export.every_eval_ever import record, write_evaluations
from oversharp.diagnostics.export.samples import parts
from oversharp.diagnostics.ingest.formats import every_eval_ever as importer
from oversharp.diagnostics.ingest.formats.contract import Recorded
from oversharp.diagnostics.store import Store
from oversharp.diagnostics.trajectories.record import Call, Turn, link_results, turn_row
from tests.ingest.formats.reading import reader, write_lines

pytestmark = pytest.mark.xdist_group("audited_store")

Fields = Mapping[str, type | tuple[type, ...]]
#: Top-level fields of a record; no others are allowed.
REQUIRED: Fields = {
    **dict.fromkeys(
        ("schema_version", "evaluation_id", "model_id", "evaluation_name", "sample_id", "interaction_type"), str
    ),
    **dict.fromkeys(("input", "output", "evaluation"), dict),  # ``output``: of a single turn
    "answer_attribution": list,
}
OPTIONAL: Fields = {"evaluation_result_id": str, "sample_hash": str, "error": str, "metadata": dict}
ATTRIBUTION: Fields = {
    "turn_idx": int, "source": str, "extracted_value": str, "extraction_method": str, "is_terminal": bool,
}  # fmt: skip
#: Of the results of one evaluation (eval.schema.json).
AGGREGATE: Fields = {
    **dict.fromkeys(("schema_version", "evaluation_id", "retrieved_timestamp"), str),
    **dict.fromkeys(("source_metadata", "model_info", "eval_library"), dict),
    "evaluation_results": list,
}
SAMPLE = {
    "series": "run", "checkpoint": "checkpoint-40", "step": 40, "is_base": False, "task": "sums", "problem_id": "ab12",
    "source_id": "q1", "prompt": "1 + 1", "gold": "2", "greedy": False, "sample_index": 3, "text": "It is 2.",
    "n_tokens": None, "finish_reason": "stop", "logp_sum_raw": -1.5, "answer": "2", "mode": None, "reward": 1.0,
    "correct": True, "state": "ok", "reason": "", "verifier": "math", "settings_id": "s",
}  # fmt: skip


def require(value: Mapping[str, Any], fields: Fields, *, optional: Fields | None = None) -> None:
    for name, kind in fields.items():
        assert isinstance(value[name], kind), name
    if optional is not None:
        for name in set(value) - set(fields):
            assert isinstance(value[name], optional[name]), name


def require_record(value: Mapping[str, Any]) -> None:
    """What the schema asks of a single-turn record."""
    require(value, REQUIRED, optional=OPTIONAL)
    assert value["schema_version"] == "0.3.0"
    assert value["interaction_type"] == "single_turn"
    require(value["input"], {"raw": str, "reference": list})
    require(value["output"], {"raw": list})
    assert all(isinstance(text, str) for text in [*value["input"]["reference"], *value["output"]["raw"]])
    require(value["evaluation"], {"score": (int, float), "is_correct": bool})
    for one in value["answer_attribution"]:
        require(one, ATTRIBUTION)
    assert all(isinstance(text, str) for text in value["metadata"].values())


def written(store_path: Path, folder: Path, series: tuple[str, ...]) -> list[tuple[dict[str, Any], list[Any], Path]]:
    """Results, records and the file of records of every evaluation, by step."""
    with open_store(store_path) as store:
        write_evaluations(store, {name: parts(store, name) for name in series}, folder, lambda _: None)
    found = []
    for path in folder.rglob("*.json"):
        lines = path.with_name(f"{path.stem}_samples.jsonl")
        records = [json.loads(line) for line in lines.read_text(encoding="utf-8").splitlines()]
        found.append((json.loads(path.read_text(encoding="utf-8")), records, lines))
    return sorted(found, key=lambda one: int(one[0]["model_info"]["additional_details"]["step"]))


@pytest.mark.slow
def test_every_sample_is_a_valid_record_that_points_to_its_result(audited_store: Path, tmp_path: Path) -> None:
    evaluations = written(audited_store, tmp_path, ("grpo",))
    assert [len(records) for _, records, _ in evaluations] == [4 * 17, 4 * 9, 4 * 9]
    for aggregate, records, lines in evaluations:
        require(aggregate, AGGREGATE)
        results = {result["evaluation_result_id"]: result for result in aggregate["evaluation_results"]}
        assert {"pass_at_k:1", "pass_at_k:8", "greedy_accuracy"} <= set(results)
        assert results["pass_at_k:8"]["metric_config"]["metric_parameters"] == {"k": 8}
        step = aggregate["model_info"]["additional_details"]["step"]
        for one in records:
            require_record(one)
            assert one["evaluation_id"] == aggregate["evaluation_id"]
            assert one["model_id"] == aggregate["model_info"]["id"] == f"local/grpo-step-{step}"
            assert one["metadata"]["step"] == step
            greedy = one["metadata"]["greedy"] == "true"
            assert one["evaluation_result_id"] == ("greedy_accuracy" if greedy else "pass_at_k:1")
        detail = aggregate["detailed_evaluation_results"]
        assert detail["total_rows"] == len(records)
        assert detail["checksum"] == sha256(lines.read_bytes()).hexdigest()
        assert tmp_path / detail["file_path"] == lines
        assert UUID(lines.name.removesuffix("_samples.jsonl")).version == 4
        assert re.fullmatch(r"data/[^/]+/[^/]+/[^/]+/[^/]+", detail["file_path"])


def test_a_trajectory_is_a_record_with_messages_that_the_importer_reads(tmp_path: Path) -> None:
    calls = (Call("add", '{"a": 1, "b": "x"}', "c1"), Call("add", "{a: 1}", is_valid=False))
    turns = link_results((
        Turn(role="assistant", reasoning="hm", calls=calls),
        Turn(role="tool", text="2", call_id="c1"),
        Turn(role="assistant", text="It is 2."),
    ))  # fmt: skip
    line = record(SAMPLE | {"turns": [turn_row(turn) for turn in turns]}, set(), "c40")
    assert (line["interaction_type"], line["output"]) == ("agentic", None)
    assert line["evaluation"] == {"score": 1.0, "is_correct": True, "num_turns": 4, "tool_calls_count": 2}
    assert [message["turn_idx"] for message in line["messages"]] == [0, 1, 2, 3]
    assert line["answer_attribution"][0]["source"] == "messages[3].content"
    shared = {"schema_version": "0.3.0", "evaluation_id": "e"}
    (item,) = reader(importer)(write_lines(tmp_path / "x_samples.jsonl", shared | line))
    assert isinstance(item, Recorded)
    assert item.turns is not None
    assert item.turns[0].calls == (Call("add", '{"a": "1", "b": "x"}', "c1", result=1), Call("add", "{}", "call_0_1"))
    assert [(turn.role, turn.text) for turn in item.turns[1:]] == [("tool", "2"), ("assistant", "It is 2.")]


def test_the_score_of_an_evaluation_is_the_mean_of_its_records(imported_store: Path, tmp_path: Path) -> None:
    (base, base_records, _), (late, late_records, _) = written(imported_store, tmp_path, ("val",))
    for aggregate, records, share in ((base, base_records, 0.5), (late, late_records, 0.25)):
        (result,) = [one for one in aggregate["evaluation_results"] if one["evaluation_result_id"] == "pass_at_k:1"]
        assert result["score_details"]["score"] == pytest.approx(share)
        assert sum(one["evaluation"]["is_correct"] for one in records) / len(records) == share
        bounds = result["score_details"]["uncertainty"]["confidence_interval"]
        assert bounds["lower"] <= share <= bounds["upper"]
    assert "temperature" not in late["evaluation_results"][0]["generation_config"]["generation_args"]
    assert late_records[0]["answer_attribution"][0]["extraction_method"] == "recorded:verl"
    assert {one["input"]["raw"] for one in late_records} == {
        f'What is 7 × {problem}?\nSay "it" | or —' for problem in range(6)
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rule", "details"),
    [
        (None, {"samples_per_problem": "4"}),
        (2, {"most_samples_per_problem": "4", "samples_of_first_round": "2", "correct_samples_that_stop": "2"}),
    ],
)
def test_the_stopping_rule_of_the_samples_is_recorded(
    imported_store: Path, tmp_path: Path, rule: int | None, details: dict[str, str]
) -> None:
    path = Path(shutil.copy(imported_store, tmp_path / "audit.duckdb"))
    with Store.open(path) as store:
        store._database.rows("UPDATE audits SET n = 4, n_base = 4, first_round = ?, enough = ?", [rule, rule])
    (base, _, _), _ = written(path, tmp_path / "out", ("val",))
    further = base["evaluation_results"][0]["generation_config"]["additional_details"]
    assert {name: text for name, text in further.items() if "samples" in name} == details


def test_the_same_store_gives_the_same_bytes(imported_store: Path, tmp_path: Path) -> None:
    trees = []
    for name in ("one", "two"):
        written(imported_store, tmp_path / name, ("val",))
        files = sorted(path for path in (tmp_path / name).rglob("*") if path.is_file())
        trees.append([(path.relative_to(tmp_path / name), path.read_bytes()) for path in files])
    assert trees[0] == trees[1]


def test_a_record_says_what_the_schema_has_no_field_for() -> None:
    made = record(SAMPLE, {"pass_at_k:1"}, "hash")
    require_record({**made, "schema_version": "0.3.0", "evaluation_id": "e", "model_id": "m"})
    assert made["sample_id"] == "q1"
    assert made["sample_hash"] == sha256(b"1 + 12").hexdigest()
    assert made["metadata"]["sample_index"] == "3"
    assert made["metadata"]["checkpoint_id"] == "hash"
    assert not {"n_tokens", "mode", "reason"} & set(made["metadata"])


def test_a_response_without_an_answer_or_out_of_time_says_so() -> None:
    failed = {"answer": "NA", "state": "timeout", "reason": "5 s", "reward": 0.0, "correct": False, "source_id": None}
    made = record({**SAMPLE, **failed}, set(), "hash")
    assert made["answer_attribution"] == []
    assert made["error"] == "timeout: 5 s"
    assert made["sample_id"] == "ab12"
    assert "evaluation_result_id" not in made
