"""In the dumps of every tool a null or missing response that has a reward is an empty response."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import torch
from pyarrow import parquet

from oversharp.diagnostics.ingest.config import ImportConfig
from oversharp.diagnostics.ingest.formats import all_importers, inspect_eval, slime, trl_completions
from oversharp.diagnostics.ingest.formats.contract import Fault, ReadOptions, Recorded
from oversharp.diagnostics.ingest.ingest import import_samples, preview
from oversharp.diagnostics.ingest.plan import plan_import
from tests.ingest.formats import test_bad_input as good
from tests.ingest.formats import test_helm as of_helm
from tests.ingest.formats import test_inspect_eval as of_inspect
from tests.ingest.formats import test_lighteval_details as of_lighteval
from tests.ingest.formats import test_lm_eval_harness as of_lm_eval
from tests.ingest.formats.reading import checked, write_lines

#: Place of the response in each case of ``good``, and its replacement; MISSING removes the field.
MISSING = object()
CASES = {case.importer.name: case for case in [*good.OF_ROWS, *good.OF_LINES]}
NULLS: list[tuple[str, tuple[Any, ...], Any]] = [
    ("verl", ("output",), None),
    ("verl", ("output",), MISSING),
    ("mapped", ("out", 0), None),
    ("prime_rl", ("traces", 0, "nodes"), []),
    ("skyrl", ("output_response",), None),
    ("skyrl", ("output_response",), MISSING),
    ("nemo_gym", ("response", "output"), None),
    ("nemo_gym", ("response", "output"), MISSING),
    ("nemo_gym", ("response",), None),
    ("every_eval_ever", ("output", "raw", 0), None),
    ("every_eval_ever", ("output", "raw"), []),
    ("every_eval_ever", ("output",), MISSING),
    ("evalscope", ("messages", 1, "content"), None),
    ("evalscope", ("messages", 1, "content", 0, "text"), None),
    ("tinker", ("turns", 1, "content"), None),
    ("tinker", ("turns", 1), MISSING),
    ("oversharp", ("response",), None),
    ("trl", ("completion",), None),
]


def replaced(record: dict[str, Any], place: tuple[Any, ...], value: Any) -> dict[str, Any]:
    copy: Any = json.loads(json.dumps(record))
    holder = copy
    for key in place[:-1]:
        holder = holder[key]
    if value is MISSING:
        del holder[place[-1]]
    else:
        holder[place[-1]] = value
    return copy  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("name", "place", "value"), NULLS, ids=lambda part: "missing" if part is MISSING else str(part)[:30]
)
def test_a_null_response_with_a_reward_is_empty(tmp_path: Path, name: str, place: tuple[Any, ...], value: Any) -> None:
    case = CASES[name]
    (whole,) = good.read(case, good.write(tmp_path, case))
    assert isinstance(whole, Recorded)
    assert whole.reward is not None
    assert whole.response
    first, second = good.read(case, good.write(tmp_path, case, case.record, replaced(case.record, place, value)))
    assert first == whole
    assert isinstance(second, Recorded), second
    assert (second.response, second.reward, second.gold) == ("", whole.reward, whole.gold)
    assert name == "prime_rl" or second.prompt == whole.prompt


def test_both_responses_of_nemo_skills_may_be_null(tmp_path: Path) -> None:
    case = CASES["nemo_skills"]
    nulls = {**case.record, "generation": None, "_full_generation": None}
    (item,) = good.read(case, good.write(tmp_path, case, nulls))
    assert isinstance(item, Recorded)
    assert (item.response, item.reward) == ("", 1.0)


@pytest.mark.parametrize("code", [[None, "3"], [None, None], None])
def test_one_or_all_of_the_responses_of_limit_of_rlvr_may_be_null(tmp_path: Path, code: list[Any] | None) -> None:
    case = CASES["limit_of_rlvr"]
    items = good.read(case, good.write(tmp_path, case, {**case.record, "code": code}))
    expected = ["" if text is None else text for text in code or [None, None]]
    assert [(one.response, one.reward) for one in items if isinstance(one, Recorded)] == [
        (expected[0], 1.0), (expected[1], 0.0),
    ]  # fmt: skip


def test_a_chat_without_content_is_an_empty_response(tmp_path: Path) -> None:
    path = tmp_path / "completions_3.parquet"
    rows = [{**good.COMPLETION, "completion": [{"role": "assistant", "content": text}]} for text in ("2", None)]
    parquet.write_table(pa.Table.from_pylist(rows), path)
    items = checked(trl_completions.read_samples(path, ReadOptions()))
    assert [one.response for one in items if isinstance(one, Recorded)] == ["2", ""]


def test_a_null_response_of_slime_is_empty(tmp_path: Path) -> None:
    path = tmp_path / "7.pt"
    torch.save({"rollout_id": 7, "samples": [{**good.SAMPLE, "response": None}]}, path)
    (item,) = checked(slime.read_samples(path, ReadOptions()))
    assert isinstance(item, Recorded)
    assert (item.response, item.reward) == ("", 1.0)


def test_a_null_completion_of_helm_is_empty_where_it_has_a_score(tmp_path: Path) -> None:
    null = of_helm.request(1, "x")
    null["result"]["completions"][0]["text"] = None
    (item,) = of_helm.read(of_helm.written(tmp_path, [null], [of_helm.stats(1, 0.0)]))
    assert isinstance(item, Recorded)
    assert (item.response, item.reward) == ("", 0.0)
    assert of_helm.read(of_helm.written(tmp_path / "b", [null], None)) == [Fault(1, "a completion without text")]


@pytest.mark.parametrize("choices", [[], [{"message": {"role": "assistant", "content": None}}]])
def test_a_null_output_of_inspect_is_empty_where_it_has_a_score(tmp_path: Path, choices: list[Any]) -> None:
    def without_text(samples: list[dict[str, Any]]) -> None:
        samples[0]["output"] = {"choices": choices}
        samples[1]["output"], samples[1]["scores"] = {"choices": choices}, {}

    first, second, *_ = checked(
        inspect_eval.read_samples(of_inspect.edited(tmp_path / "a.eval", without_text), ReadOptions())
    )
    assert isinstance(first, Recorded)
    assert (first.response, first.reward is not None) == ("", True)
    assert isinstance(second, Fault)


def test_a_null_response_of_lm_eval_and_lighteval_is_empty_where_it_has_a_score(tmp_path: Path) -> None:
    row = {**of_lm_eval.ROW, "resps": [[None]]}
    (item,) = of_lm_eval.read(of_lm_eval.written(tmp_path, row))
    assert isinstance(item, Recorded)
    assert (item.response, item.reward) == ("", 1.0)
    unscored = {**row, "metrics": []}
    assert of_lm_eval.read(of_lm_eval.written(tmp_path, unscored)) == [Fault(1, "a response that is null")]

    def without_text(rows: list[dict[str, Any]]) -> None:
        rows[0]["model_response"]["text"] = [None]

    (first, *_) = of_lighteval.read(of_lighteval.changed_copy(of_lighteval.ONCE, tmp_path, without_text))
    assert isinstance(first, Recorded)
    assert (first.response, first.reward is not None) == ("", True)


def test_every_importer_is_tested() -> None:
    here = {name for name, *_ in NULLS}
    own = {"nemo_skills", "limit_of_rlvr", "slime", "helm", "inspect", "lm-eval", "lighteval"}
    assert all_importers().keys() - here - own == {"counts"}  # which has no responses


@pytest.mark.slow
@pytest.mark.usefixtures("few_measures")
@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_a_line_says_how_many_and_a_loss_stays(tmp_path: Path, kind: str) -> None:
    rows = [
        {"q": f"{p} + 1?", "a": None if step and p % 2 else f"So {p}.", "ok": float(not (step and p % 2)), "s": step}
        for step in (0, 10)
        for p in range(20)
        for _ in range(4)
    ]
    path = tmp_path / f"run.{kind}"
    if kind == "parquet":
        parquet.write_table(pa.Table.from_pylist(rows), path)
    else:
        write_lines(path, *rows)
    names = {"prompt": "q", "response": "a", "reward": "ok", "step": "s"}
    config = ImportConfig(store=tmp_path / "audit.duckdb", map=names)
    says = "40 of 160 samples have a score but no text: counted as empty responses"
    (shown,) = preview(plan_import([path], config), config)
    assert says in shown.notes
    (series,) = import_samples([path], config).series
    assert series.n_problems == 20
    assert says in series.notes
    assert series.verdict is not None
    assert [(one.k, round(one.change, 3)) for one in series.verdict.changes if one.k == 1] == [(1, -0.5)]
