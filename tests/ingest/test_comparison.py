"""Grades that differ from the tool's: the import warns, keeps every sample, and exits with status 3."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from oversharp.diagnostics.app.cli import main
from oversharp.diagnostics.ingest.comparison import Disagreement
from oversharp.diagnostics.ingest.config import ImportConfig
from oversharp.diagnostics.ingest.ingest import ImportResult, import_samples
from oversharp.diagnostics.store import Store

PROBLEMS = 6
AVG = "avg@n:n=4"


pytestmark = [pytest.mark.usefixtures("few_measures"), pytest.mark.slow]


def imported(tmp_path: Path, *paths: Path, **more: Any) -> ImportResult:
    return import_samples(paths, ImportConfig(store=tmp_path / "out" / "audit.duckdb", **more))


def found(result: ImportResult) -> tuple[Disagreement, ...]:
    (series,) = result.series
    assert series.verdict is not None
    return series.disagreements


def lighteval(
    folder: Path, step: int, scores: Sequence[float | None], *, task: str = "sums", metric: str = AVG, right: int = 2
) -> Path:
    """Four responses per problem, ``right`` of them correct; ``scores`` are lighteval's, by problem."""
    date = f"2026-01-01T00-00-0{step % 7}.000000"
    path = folder / f"details/models/run/checkpoint-{step}/{date}/details_{task}|0_{date}.parquet"
    rows = [
        {
            "doc": {"query": f"{task} {number}", "choices": [f"gold {number}"], "gold_index": 0, "id": str(number)},
            "metric": {"maj@n:n=4": 1.0, metric: value},
            "model_response": {
                "text": [f"gold {number}" if one < right else f"other {step} {one}" for one in range(4)]
            },
        }
        for number, value in enumerate(scores)
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(pa.Table.from_pylist(rows), path)
    return path


@pytest.mark.slow
def test_the_file_whose_metric_differs_is_named_and_the_other_task_is_not(tmp_path: Path) -> None:
    dumps = tmp_path / "dumps"
    for step in (0, 40):
        lighteval(dumps, step, [0.5] * PROBLEMS, task="clean")
        differing = lighteval(dumps, step, [0.5] * PROBLEMS if step == 0 else [0.5, 0.75, 1.0] * 2)
    result = imported(tmp_path, dumps, verifier="exact")
    assert result.incomplete
    (one,) = found(result)
    assert (one.path, one.task, one.step, one.metric, one.verifier) == (differing, "sums", 40, AVG, "exact")
    assert (one.tool_mean, one.our_mean, one.n_compared, one.n_differ) == (0.75, 0.5, PROBLEMS, 4)
    assert (one.of_responses, one.first_line, one.first_tool, one.first_ours) == (False, 2, 0.75, 0.5)
    assert result.series[0].doubts == (one.sentence,)
    assert [file.n_samples for file in result.files] == [4 * PROBLEMS] * 4
    again = imported(tmp_path, dumps, verifier="exact")
    assert all(file.known for file in again.files)
    assert found(again) == (one,)


def ended(tmp_path: Path, name: str, *flags: str) -> object:
    """Return the exit status of an import of the dumps with that name."""
    store = ["--store", str(tmp_path / f"{name}.duckdb"), "--verifier", "exact", "--quiet"]
    with pytest.raises(SystemExit) as end:
        main(["import", str(tmp_path / name), *store, *flags])
    return end.value.code


@pytest.mark.usefixtures("no_report")
def test_the_command_warns_and_ends_with_3_where_its_clean_twin_ends_with_0(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    codes = []
    for name, score in (("clean", 0.5), ("planted", 0.25)):
        for step in (0, 40):
            lighteval(tmp_path / name, step, [score] * PROBLEMS)
        codes.append(ended(tmp_path, name))
    assert codes == [0, 3]
    warnings = [line for line in capsys.readouterr().err.splitlines() if line.startswith("warning: ")]
    assert len(warnings) == 2  # a file each
    for part in ("details_sums", "task sums", "step 0", "avg@n:n=4 is 0.25 by", "0.5 by exact", "--verifier"):
        assert part in warnings[0]
    ended(tmp_path, "planted", "--json")
    (series,) = json.loads(capsys.readouterr().out)["series"]
    assert [f"warning: {series['series']}: {doubt}" for doubt in series["doubts"]] == warnings
    with Store.open(tmp_path / "planted.duckdb", read_only=True) as held:
        [stored] = held.frame("SELECT provenance ->> '$.doubts' AS doubts FROM audits")["doubts"]
    assert json.loads(stored) == series["doubts"]


@pytest.mark.slow
def test_metrics_that_count_right_responses_are_compared_task_by_task(tmp_path: Path) -> None:
    right, wrong = {}, {}
    right["pass@k:k=2&n=4"], wrong["pass@k:k=2&n=4"] = 1 - 1 / 6, 0.5  # 2 of 4 right: 1 - C(2, 2) / C(4, 2)
    right["math_pass@1:4_samples"], wrong["math_pass@1:4_samples"] = 0.5, 0.75
    right["avg@2"], wrong["avg@2"] = 1.0, 0.5  # of the first two
    right["avg@n:n=3"], wrong["avg@n:n=3"] = 0.6667, 1.0  # rounded
    silent = {"maj@n:n=3": 0.0, "avg@n:n=4": math.nan, "avg@n:n=5": 0.0, "avg@n": 7.0, "f1": 0.0}
    for number, (metric, score) in enumerate([*right.items(), *wrong.items(), *silent.items()]):
        for step in (0, 40):
            lighteval(tmp_path / "dumps", step, [score] * 2, metric=metric, task=f"{number:02}")
    result = imported(tmp_path, tmp_path / "dumps", verifier="exact")
    assert [(one.task, one.metric, one.n_differ) for one in found(result) if one.step == 40] == [
        (f"{number:02}", metric, 2) for number, metric in enumerate(wrong, start=len(right))
    ]
    assert [file.n_samples for file in result.files] == [4 * 2] * 26
    named = imported(tmp_path, tmp_path / "dumps", verifier="exact", reward="f1", name="by f1")
    assert {(one.task, one.metric, one.our_mean) for one in found(named)} == {("12", "f1", 0.5)}


@pytest.mark.slow
def test_problems_without_the_metric_are_kept_and_the_others_compared(tmp_path: Path) -> None:
    for step in (0, 40):
        lighteval(tmp_path / "dumps", step, [None, 0.25, None] * 2)
    result = imported(tmp_path, tmp_path / "dumps", verifier="exact")
    assert [(one.n_compared, one.n_differ, one.first_line) for one in found(result)] == [(2, 2, 2)] * 2
    assert result.series[0].n_problems == PROBLEMS


@pytest.mark.slow
def test_scores_of_responses_that_were_not_all_graded_are_not_compared_and_a_note_says_so(tmp_path: Path) -> None:
    for step, score in ((0, 0.5), (40, 0.25)):  # of the base all four are graded
        lighteval(tmp_path / "dumps", step, [score] * PROBLEMS)
    result = imported(tmp_path, tmp_path / "dumps", verifier="exact", n=2)
    assert found(result) == ()
    assert any("6 scores of the tool" in note for note in result.series[0].notes)


def lm_eval(folder: Path, step: int, scores: Sequence[float]) -> None:
    generation = {"do_sample": True, "temperature": 1.0}
    rows = [
        {
            "doc_id": number, "doc": {}, "target": "18", "filter": "none", "metrics": ["acc"], "acc": score,
            "arguments": {"gen_args_0": {"arg_0": f"question {number}", "arg_1": generation}},
            "resps": [["18", "19"]], "filtered_resps": ["18"],
        }
        for number, score in enumerate(scores)
    ]  # fmt: skip
    path = folder / f"run__checkpoint-{step}" / "samples_countdown_2026-01-02T03-04-05.678901.jsonl"
    path.parent.mkdir(parents=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.mark.slow
def test_the_harness_is_compared_by_the_response_that_its_filter_keeps(tmp_path: Path) -> None:
    lm_eval(tmp_path / "dumps", 0, [1.0, 1.0])
    lm_eval(tmp_path / "dumps", 40, [1.0, 0.0])
    (one,) = found(imported(tmp_path, tmp_path / "dumps", verifier="exact"))
    assert (one.task, one.step, one.metric, one.of_responses, one.first_line) == ("countdown", 40, "acc", True, 2)
    assert (one.tool_mean, one.our_mean, one.n_differ) == (0.5, 1.0, 1)


def verl(folder: Path, *rewards: float | None, gold: str = "4") -> Path:
    """Two steps of a problem; only the first response is right."""
    folder.mkdir()
    for step in (0, 10):
        rows = [
            {"input": "2+2?", "output": "4" if not place else f"no {place}", "gts": gold, "score": score, "step": step}
            for place, score in enumerate(rewards)
        ]
        (folder / f"{step}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


@pytest.mark.slow
def test_grading_again_says_where_it_parts_from_the_scores_of_the_tool(tmp_path: Path) -> None:
    planted = found(imported(tmp_path, verl(tmp_path / "planted", 0, 0, 1), verifier="exact", regrade=True))
    assert [(one.step, one.metric, one.n_differ, one.n_compared, one.first_line) for one in planted] == [
        (0, "score", 2, 3, 1),
        (10, "score", 2, 3, 1),
    ]
    assert "without --regrade" in planted[0].sentence
    clean = imported(tmp_path, verl(tmp_path / "clean", 1, 0, 0), verifier="exact", regrade=True)
    assert (found(clean), clean.incomplete) == ((), False)


@pytest.mark.slow
def test_rewards_between_right_and_wrong_ask_for_a_bound_task_by_task(tmp_path: Path) -> None:
    clean = {"a": (1, 0), "b": (1, -1), "c": (10, 0), "d": (0, 0)}
    planted = {"format": (1, 0.1, 0), "partial": (0.5, 0), "judge": (10, 5, 0), "unread": (1, 0, -1)}
    for step in (0, 10):
        rows = [
            {"input": task, "output": str(place), "gts": "4", "score": score, "step": step, "data_source": task}
            for task, scores in (clean | planted).items()
            for place, score in enumerate(scores)
        ]
        (tmp_path / f"{step}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    dumps = [tmp_path / "0.jsonl", tmp_path / "10.jsonl"]
    result = imported(tmp_path, *dumps)
    (series,) = result.series
    assert result.incomplete
    assert [(one.task, one.n_correct) for one in series.partial_rewards] == [
        ("format", 2),
        ("judge", 4),
        ("partial", 0),
        ("unread", 2),
    ]
    assert "0 (2), 0.1 (2), 1 (2). 2 of 6 samples count as correct: their reward is at least 1" in series.doubts[0]
    again = imported(tmp_path, *dumps, correct_at=1.0)
    assert all(file.known for file in again.files)  # the same limit, now confirmed
    assert (again.series[0].doubts, again.incomplete) == ((), False)


@pytest.mark.slow
def test_the_tool_grades_though_its_first_sample_lacks_a_reward(tmp_path: Path) -> None:
    result = imported(tmp_path, verl(tmp_path / "val", None, 1, 0, 1))
    assert [(file.n_samples, list(file.faults)) for file in result.files] == [
        (3, ["no reward, but other records of this run have one"])
    ] * 2
    with Store.open(result.store_path, read_only=True) as store:
        assert store.frame("SELECT DISTINCT verifier FROM grades")["verifier"].tolist() == ["recorded:verl"]


def test_programs_cannot_be_graded_without_the_tests_which_is_one_fault(tmp_path: Path) -> None:
    lighteval(tmp_path / "dumps", 0, [0.5] * PROBLEMS)
    for file in imported(tmp_path, tmp_path / "dumps", verifier="code").files:
        assert [why.split(",")[0] for why in file.faults] == [
            "verifier code needs the problem's tests; pass the file that contains them as --problems"
        ]


def test_golds_that_no_verifier_reads_are_one_fault_that_names_it(tmp_path: Path) -> None:
    for step in (0, 40):
        lighteval(tmp_path / "dumps", step, [0.5] * PROBLEMS)
    result = imported(tmp_path, tmp_path / "dumps", verifier="choice")
    for file in result.files:
        ((why, count),) = file.faults.items()
        assert why.startswith("verifier choice cannot parse its gold answer; pass another --verifier")
        assert count.n == 4 * PROBLEMS
