"""Several scores of one response: the reward, and a warning where they change differently."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from oversharp.diagnostics.app.cli import main
from oversharp.diagnostics.ingest.config import ImportConfig
from oversharp.diagnostics.ingest.formats import inspect_eval, lighteval_details, nemo_skills
from oversharp.diagnostics.ingest.formats.contract import ReadOptions, Recorded
from oversharp.diagnostics.ingest.formats.lm_eval_harness import read_samples, score_table
from oversharp.diagnostics.ingest.ingest import ImportedSeries, import_samples, preview
from oversharp.diagnostics.ingest.plan import plan_import
from tests.ingest.formats import test_inspect_eval as of_inspect
from tests.ingest.formats import test_lighteval_details as of_lighteval
from tests.ingest.formats.reading import write_lines
from tests.ingest.formats.test_bad_input import SKILLS

pytestmark = pytest.mark.usefixtures("few_measures")

N = 40
STRICT, LOOSE = "strict-match", "flexible-extract"
#: Whether each filter accepts the response to a problem at a step.
Accepts = Callable[[str, int, int], bool]


def lm_eval_file(folder: Path, step: int, accepts: Accepts, *, interleaved: bool = False) -> Path:
    """Write a file as the harness does: all problems under one filter, then under the next."""
    pairs = [(name, problem) for name in (STRICT, LOOSE) for problem in range(N)]
    rows = [
        {
            "doc_id": problem, "doc": {}, "target": str(problem), "filter": name, "metrics": ["exact_match"],
            "arguments": {"gen_args_0": {"arg_0": f"{problem} + 0?", "arg_1": {"until": []}}},
            "resps": [[f"Step {step}: it is {problem}."]],
            "filtered_resps": [str(problem) if accepts(name, step, problem) else "[invalid]"],
            "exact_match": float(accepts(name, step, problem)),
        }
        for name, problem in (sorted(pairs, key=lambda pair: pair[1]) if interleaved else pairs)
    ]  # fmt: skip
    return write_lines(folder / f"org__m__checkpoint-{step}" / "samples_sums_2026-01-02T03-04-05.678901.jsonl", *rows)


def style_change(name: str, step: int, problem: int) -> bool:
    """The strict filter accepts nothing at step 10, the other three quarters at both steps."""
    return problem % 4 > 0 and not (name == STRICT and step)


def alike(name: str, step: int, problem: int) -> bool:
    """The strict filter accepts one problem less, at both steps."""
    return problem % 4 > 0 and not (name == STRICT and problem == 1) and not (step and problem == 2)


def imported(tmp_path: Path, accepts: Accepts, **settings: Any) -> ImportedSeries:
    for step in (0, 10):
        lm_eval_file(tmp_path / "dumps", step, accepts)
    config = ImportConfig(store=tmp_path / "audit.duckdb", **settings)
    (shown,) = preview(plan_import([tmp_path / "dumps"], config), config)
    (series,) = import_samples([tmp_path / "dumps"], config).series
    assert set(shown.notes) <= set(series.notes)
    assert shown.doubts == series.doubts
    return series


def n_correct(series: ImportedSeries) -> list[int]:
    assert series.verdict is not None
    return [of_step.n_correct for of_step in series.verdict.accuracies]


@pytest.mark.parametrize("interleaved", [False, True])
def test_a_response_is_correct_where_any_filter_accepts_it(tmp_path: Path, interleaved: bool) -> None:
    path = lm_eval_file(tmp_path, 10, lambda name, step, problem: problem == (3 if name == STRICT else 5),
                        interleaved=interleaved)  # fmt: skip
    items = [one for one in read_samples(path, ReadOptions()) if isinstance(one, Recorded)]
    assert len(items) == N
    assert [one.problem for one in items if one.reward] == ["3", "5"]
    assert {one.problem: one.answer for one in items if one.answer} == {"3": "3", "5": "5"}
    strict = [
        one for one in read_samples(path, ReadOptions(reward=f"exact_match,{STRICT}")) if isinstance(one, Recorded)
    ]
    assert [one.problem for one in strict if one.reward] == ["3"]


@pytest.mark.slow
def test_a_filter_that_collapses_by_style_is_no_loss_and_a_warning_names_the_flag(tmp_path: Path) -> None:
    series = imported(tmp_path, style_change)
    assert n_correct(series) == [30, 30]
    assert (
        f"task sums: 2 scores of each response ({STRICT}, {LOOSE}). Reward: correct if any of them accepts it. "
        "To use one of them: --reward exact_match,FILTER"
    ) in series.notes
    (doubt,) = series.doubts
    assert doubt == (
        f"task sums: the scores change differently between checkpoints. From step 0 to 10, {STRICT} by −75.0 and "
        f"{LOOSE} by 0.0 points (40 problems). Reward: correct if any of them accepts it. To use one of them: "
        "--reward exact_match,FILTER and another --name"
    )


@pytest.mark.slow
def test_filters_that_move_alike_are_named_without_a_warning(tmp_path: Path) -> None:
    series = imported(tmp_path, alike)
    assert n_correct(series) == [30, 29]
    assert any(note.startswith("task sums: 2 scores of each response") for note in series.notes)
    assert series.doubts == ()


@pytest.mark.slow
def test_a_chosen_filter_is_taken_without_a_word(tmp_path: Path) -> None:
    series = imported(tmp_path, style_change, reward=f"exact_match,{STRICT}")
    assert n_correct(series) == [30, 0]
    assert (series.notes, series.doubts) == ((), ())


@pytest.mark.slow
@pytest.mark.usefixtures("no_report")
def test_the_command_ends_with_3_also_when_run_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for step in (0, 10):
        lm_eval_file(tmp_path / "dumps", step, style_change)
    arguments = ["import", str(tmp_path / "dumps"), "--store", str(tmp_path / "audit.duckdb")]
    for command in ([*arguments, "--dry-run"], arguments, arguments):
        with pytest.raises(SystemExit) as ended:
            main(command)
        assert ended.value.code == 3
        assert "warning: org/m: task sums: the scores change differently" in capsys.readouterr().err


def test_one_filter_or_a_chosen_one_has_no_table(tmp_path: Path) -> None:
    path = lm_eval_file(tmp_path, 0, alike)
    table = score_table(path, ReadOptions(reward="exact_match"))
    assert table is not None
    assert {name: sum(scores.values()) for name, scores in table.score_of.items()} == {STRICT: 29, LOOSE: 30}
    assert score_table(path, ReadOptions(reward=f"exact_match,{LOOSE}")) is None
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert score_table(write_lines(tmp_path / "one.jsonl", *rows[:N]), ReadOptions()) is None


def test_other_tools_that_wrote_several_scores_have_a_table(tmp_path: Path) -> None:
    skills = write_lines(tmp_path / "output-rs0.jsonl", SKILLS | {"symbolic_correct": False}, SKILLS | {"id": "y"})
    table = nemo_skills.score_table(skills, ReadOptions())
    assert table is not None
    assert table.score_of == {"symbolic_correct": {"x": 0.0, "y": 1.0}, "judge_correct": {"x": 1.0, "y": 1.0}}
    assert nemo_skills.score_table(skills, ReadOptions(reward="judge_correct")) is None

    def with_two(rows: list[dict[str, Any]]) -> None:
        for row in rows:
            row["metric"] = {"strict": 0.0, "loose": 1.0}

    details = of_lighteval.changed_copy(of_lighteval.ONCE, tmp_path, with_two)
    of_details = lighteval_details.score_table(details, ReadOptions())
    assert of_details is not None
    assert {name: set(scores.values()) for name, scores in of_details.score_of.items()} == {
        "strict": {0.0}, "loose": {1.0},
    }  # fmt: skip
    assert lighteval_details.score_table(of_lighteval.ONCE, ReadOptions()) is None

    parts = of_inspect.members(of_inspect.LOGS[0])
    header, first = parts["header.json"], of_inspect.samples_of(parts)[0]
    header["eval"]["scorers"] = [{"name": "match"}, {"name": "judge"}]
    for sample in of_inspect.samples_of(parts):
        sample["scores"] = {"match": {"value": "I"}, "judge": {"value": "C"}}
    two = of_inspect.archived(tmp_path / "two.eval", parts)
    log = inspect_eval.score_table(two, ReadOptions())
    assert log is not None
    assert (log.taken, log.score_of["match"][str(first["id"])]) == ("the first scorer, match", 0.0)
    assert set(log.score_of["judge"].values()) == {1.0}
    assert inspect_eval.score_table(two, ReadOptions(reward="judge")) is None
    header["eval"]["scorers"] = [{"name": "match"}]
    assert inspect_eval.score_table(of_inspect.archived(tmp_path / "one.eval", parts), ReadOptions()) is None
