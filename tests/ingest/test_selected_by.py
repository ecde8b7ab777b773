"""Imports that leave out the samples that selected the problems."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from oversharp.diagnostics.app.cli import main
from oversharp.diagnostics.audit.config import AuditConfig
from oversharp.diagnostics.ingest.config import ImportConfig
from oversharp.diagnostics.ingest.ingest import ImportResult, SeriesPreview, import_samples, preview
from oversharp.diagnostics.ingest.plan import plan_import
from oversharp.diagnostics.records.errors import ConfigError, StoreError
from oversharp.diagnostics.store import Store
from oversharp.diagnostics.store.load import stored_key

pytestmark = pytest.mark.usefixtures("few_measures")

MAP = {"prompt": "q", "response": "text", "gold": "gold", "reward": "ok", "step": "step"}
LEFT_OUT = "selected the problems (--selected-by pilot)"
Row = dict[str, Any]


def row(problem: int, sample: int, *, right: bool, step: int, **more: Any) -> Row:
    answer = problem * 7 if right else -1 - sample
    fields = {"q": f"What is 7 times {problem}?", "gold": str(problem * 7), "text": f"So \\boxed{{{answer}}}"}
    return {**fields, "ok": float(right), "step": step, "i": sample, **more}


def small(**pilot: Any) -> list[Row]:
    """Two problems, four samples of each at two steps; the fields ``pilot`` are in the base's first two samples."""
    return [
        row(problem, sample, right=sample % 2 == 0, step=step, **(pilot if step == 0 and sample < 2 else {}))
        for step in (0, 20)
        for problem in (1, 2)
        for sample in range(4)
    ]


def write_rows(path: Path, rows: Sequence[Row]) -> Path:
    path.write_text("".join(f"{json.dumps(fields)}\n" for fields in rows), encoding="utf-8")
    return path


def config(tmp_path: Path, **more: Any) -> ImportConfig:
    return ImportConfig(store=tmp_path / "audit.duckdb", **{"map": MAP, "selected_by": "pilot", **more})


def preview_series(tmp_path: Path, *paths: Path, **more: Any) -> SeriesPreview:
    settings = config(tmp_path, **more)
    (series,) = preview(plan_import(paths, settings), settings)
    return series


def read_numbers(series: SeriesPreview) -> tuple[list[tuple[int, int]], dict[str, tuple[int, int]]]:
    """Return (step, n) of every problem, and number and first line of the records left out, by reason."""
    (file,) = series.files
    faults = {why: (count.n, count.first_line) for why, count in file.faults.items()}
    return sorted((step, n) for (step, _), n in file.counted.items()), faults


#: Base with 2 of 4 samples of both problems, step 20 with all; 4 records left out, the first in line 1.
EXPECTED = ([(0, 2), (0, 2), (20, 4), (20, 4)], {LEFT_OUT: (4, 1)})


@pytest.mark.parametrize("value", [True, 1, 1.0, "true", "True", "1"])
def test_samples_in_which_the_field_is_true_are_left_out(tmp_path: Path, value: object) -> None:
    run = write_rows(tmp_path / "run.jsonl", small(pilot=value))
    assert read_numbers(preview_series(tmp_path, run)) == EXPECTED
    assert not (tmp_path / "audit.duckdb").exists()


@pytest.mark.parametrize("value", [False, 0, "false", None, ""])
def test_samples_in_which_the_field_is_false_or_missing_are_compared(tmp_path: Path, value: object) -> None:
    rows = small(pilot=value)
    rows[0]["pilot"] = True
    counts = [(0, 3), (0, 4), (20, 4), (20, 4)]
    run = write_rows(tmp_path / "run.jsonl", rows)
    assert read_numbers(preview_series(tmp_path, run)) == (counts, {LEFT_OUT: (1, 1)})


def test_parquet_and_csv_have_the_field_as_a_column(tmp_path: Path) -> None:
    table = pd.DataFrame([{"pilot": False} | fields for fields in small(pilot=True)])
    table.to_parquet(tmp_path / "run.parquet")
    table.to_csv(tmp_path / "run.csv", index=False)
    assert read_numbers(preview_series(tmp_path, tmp_path / "run.parquet")) == EXPECTED
    counts, faults = read_numbers(preview_series(tmp_path, tmp_path / "run.csv"))
    assert (counts, faults) == (EXPECTED[0], {LEFT_OUT: (4, 2)})  # line 1 is the header


def test_the_field_may_be_a_path_or_a_list_of_one_value_per_response(tmp_path: Path) -> None:
    nested = write_rows(tmp_path / "nested.jsonl", small(meta={"pilot": True}))
    assert read_numbers(preview_series(tmp_path, nested, selected_by="meta.pilot"))[0] == EXPECTED[0]
    lists = [
        {"q": f"{p}?", "texts": ["a", "b", "c", "d"], "oks": [1, 0, 1, 0], "step": step}
        | ({} if step else {"marks": [True, False, False, True]})
        for step in (0, 20)
        for p in (1, 2)
    ]
    names = {"prompt": "q", "response": "texts", "reward": "oks", "step": "step"}
    parallel = write_rows(tmp_path / "lists.jsonl", lists)
    assert read_numbers(preview_series(tmp_path, parallel, map=names, selected_by="marks"))[0] == EXPECTED[0]
    inner = [
        {"q": f"{p}?", "step": step, "runs": [{"a": str(s), "ok": 0, "pilot": step == 0 and s < 2} for s in range(4)]}
        for step in (0, 20)
        for p in (1, 2)
    ]
    names = {"prompt": "q", "response": "runs[].a", "reward": "runs[].ok", "step": "step"}
    objects = write_rows(tmp_path / "objects.jsonl", inner)
    assert read_numbers(preview_series(tmp_path, objects, map=names, selected_by="runs[].pilot"))[0] == EXPECTED[0]
    names = {"prompt": "q", "response": "a", "reward": "ok", "step": "step"}
    assert read_numbers(preview_series(tmp_path, objects, map=names))[0] == EXPECTED[0]


def test_dumps_of_a_tool_may_have_the_field_too(tmp_path: Path) -> None:
    verl = {"q": "input", "text": "output", "gold": "gts", "ok": "score", "step": "step", "pilot": "pilot"}
    rows = [{verl[name]: value for name, value in fields.items() if name in verl} for fields in small(pilot=True)]
    assert read_numbers(preview_series(tmp_path, write_rows(tmp_path / "0.jsonl", rows), map={})) == EXPECTED


def mixed_pilots(n_problems: int = 60, n: int = 32) -> list[Row]:
    """Samples of an unchanged model; of each problem the base's first 8 samples were correct and wrong."""
    draw = random.Random(3)
    rows: list[Row] = []
    problem = 0
    while len(rows) < 3 * n * n_problems:
        problem += 1
        rate = draw.betavariate(0.4, 2.0)
        right_TN = [[draw.random() < rate for _ in range(n)] for _ in range(3)]
        if 0 < sum(right_TN[0][:8]) < 8:
            rows += [
                row(problem, sample, right=right, step=20 * position, pilot=position == 0 and sample < 8)
                for position, right_N in enumerate(right_TN)
                for sample, right in enumerate(right_N)
            ]
    return rows


def import_with_index(tmp_path: Path, path: Path, **more: Any) -> ImportResult:
    return import_samples([path], config(tmp_path, map=MAP | {"index": "i"}, **more))


@pytest.mark.slow
def test_an_unchanged_model_gets_a_verdict_without_a_loss(tmp_path: Path) -> None:
    """60 problems are in the set because the base's first 8 samples were mixed; the field marks these samples."""
    run = write_rows(tmp_path / "run.jsonl", mixed_pilots())
    (all_samples,) = import_samples([run], config(tmp_path, name="all", selected_by=None)).series
    assert all_samples.verdict is not None
    assert all_samples.verdict.heading == "no_verdict"
    (series,) = import_with_index(tmp_path, run).series
    assert series.verdict is not None
    assert series.verdict.heading not in ("no_verdict", "coverage_lost")
    assert (series.n_problems, series.n) == (60, 24)  # the base's indices begin at 8, not at 0
    assert f"Excluded: 480 samples that {LEFT_OUT}." in series.verdict.caveats
    fresh = write_rows(tmp_path / "fresh.jsonl", [fields for fields in mixed_pilots() if not fields["pilot"]])
    (expected,) = import_samples([fresh], config(tmp_path, name="fresh", selected_by="none")).series
    assert expected.verdict is not None
    assert series.verdict.sentence == expected.verdict.sentence
    with Store.open(tmp_path / "audit.duckdb", read_only=True) as store:
        assert stored_key(store, series.name).terms.selected_by == "none"
        unused = store.frame("SELECT why, n, first_line FROM import_faults").to_dict("records")
    assert unused == [{"why": LEFT_OUT, "n": 480, "first_line": 1}]


@pytest.mark.slow
def test_a_second_import_adds_nothing_and_a_grown_file_continues(tmp_path: Path) -> None:
    rows = small(pilot=True)
    run = write_rows(tmp_path / "run.jsonl", rows)

    def n_stored() -> list[int]:
        (file,) = import_with_index(tmp_path, run).files
        with Store.open(tmp_path / "audit.duckdb", read_only=True) as store:
            return [file.n_samples, file.n_skipped, len(store.frame("SELECT 1 FROM samples"))]

    assert n_stored() == [12, 4, 12]
    assert n_stored() == [12, 4, 12]
    more = [row(3, sample, right=True, step=step, pilot=sample == 0) for step in (0, 20) for sample in range(4)]
    write_rows(run, [*rows, *more])
    assert n_stored() == [18, 6, 18]


@pytest.mark.slow
def test_a_file_whose_samples_are_all_stored_needs_another_name(tmp_path: Path) -> None:
    run = write_rows(tmp_path / "run.jsonl", small(pilot=True))
    import_samples([run], config(tmp_path, selected_by="none"))
    expected = "--selected-by pilot: series .* already has all samples of this file; pass another --name"
    with pytest.raises(StoreError, match=expected):
        import_samples([run], config(tmp_path))
    with pytest.raises(StoreError, match=expected):
        preview_series(tmp_path, run)
    (series,) = import_samples([run], config(tmp_path, name="other")).series
    assert series.n == 2
    (file,) = import_samples([run], config(tmp_path, name="other", selected_by="none")).files
    assert file.why is not None
    assert "another field in --selected-by" in file.why


@pytest.mark.slow
def test_scores_of_samples_left_out_are_not_compared_with_grades(tmp_path: Path) -> None:
    """The tool's scores of the samples left out are wrong; those of the other samples equal the grades."""
    rows = [fields | ({"ok": 1.0 - fields["ok"]} if "pilot" in fields else {}) for fields in small(pilot=True)]
    run = write_rows(tmp_path / "run.jsonl", rows)
    (series,) = import_samples([run], config(tmp_path, regrade=True)).series
    assert not series.disagreements
    assert not any("not compared" in note for note in series.notes)


def read_error(tmp_path: Path, *paths: Path, **more: Any) -> str:
    """Return the error of the import, after a check that the dry run has it too and that nothing is written."""
    with pytest.raises(ConfigError) as dry:
        preview_series(tmp_path, *paths, **more)
    with pytest.raises(ConfigError) as error:
        import_samples(paths, config(tmp_path, **more))
    assert str(dry.value) == str(error.value)
    assert not (tmp_path / "audit.duckdb").exists()
    assert "\n" not in str(error.value)
    return str(error.value)


def test_a_field_that_no_record_has_is_an_error(tmp_path: Path) -> None:
    run = write_rows(tmp_path / "run.jsonl", small(pilot=True))
    expected = f"{run}: --selected-by pilots: no record has that field; did you mean: pilot"
    assert read_error(tmp_path, run, selected_by="pilots") == expected
    other = write_rows(tmp_path / "other.jsonl", small(pilot=True))
    message = read_error(tmp_path, run, other, selected_by="meta.pilots", name="both")
    assert message.startswith(f"{other} and 1 other file: --selected-by meta.pilots: no record has that field; ")


@pytest.mark.parametrize("value", ["yes", 2, 0.5, float("nan"), {"a": 1}, [[True]]])
def test_a_value_that_is_not_a_boolean_is_an_error(tmp_path: Path, value: object) -> None:
    rows = small(pilot=True)
    rows[9]["pilot"] = value
    run = write_rows(tmp_path / "run.jsonl", rows)
    assert read_error(tmp_path, run) == f"{run}:10: --selected-by pilot: pilot is not a boolean; use true or false"


def test_a_list_that_does_not_match_the_responses_is_an_error(tmp_path: Path) -> None:
    run = write_rows(tmp_path / "run.jsonl", small(pilot=[True, False]))
    expected = (
        f"{run}:1: --selected-by pilot: its list and the responses have different lengths; write one value per response"
    )
    assert read_error(tmp_path, run) == expected


def test_a_step_without_other_samples_is_an_error(tmp_path: Path) -> None:
    rows = [fields | {"pilot": fields["step"] == 0} for fields in small()]
    run = write_rows(tmp_path / "run.jsonl", rows)
    expected = (
        f"{run}: --selected-by pilot: all 8 samples of step 0 selected the problems, so none is left to compare; "
        "sample this step again and import these samples too"
    )
    assert read_error(tmp_path, run) == expected


def test_counts_have_no_samples_to_leave_out(tmp_path: Path) -> None:
    run = write_rows(
        tmp_path / "counts.jsonl", [{"id": "a", "n": 4, "c": 2, "step": s, "pilot": True} for s in (0, 20)]
    )
    names = {"problem": "id", "n": "n", "correct": "c", "step": "step"}
    expected = (
        f"{run}: --selected-by pilot: counts have no single samples to leave out; import samples, or pass base or none"
    )
    assert read_error(tmp_path, run, map=names) == expected


def test_a_log_that_is_one_document_has_no_such_field(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    log = folder / "scenario_state.json"
    log.write_text(json.dumps({"adapter_spec": {}, "request_states": []}), encoding="utf-8")
    expected = (
        f"{log}: --selected-by pilot: files of format helm cannot have that field; convert the samples to JSON Lines "
        "and pass --map"
    )
    assert read_error(tmp_path, folder, map={}) == expected


def test_an_unusable_record_needs_no_field(tmp_path: Path) -> None:
    rows = [*small(pilot=True), {"q": None, "pilot": "maybe"}]
    counts, faults = read_numbers(preview_series(tmp_path, write_rows(tmp_path / "run.jsonl", rows)))
    assert counts == EXPECTED[0]
    assert sorted(n for n, _ in faults.values()) == [1, 4]


def test_only_an_import_accepts_a_field(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ConfigError, match="only oversharp import accepts a field; pass base if"):
        AuditConfig(task="countdown", selected_by="pilot")
    for selected_by in ("base", "none", None):
        AuditConfig(task="countdown", selected_by=selected_by)
        assert config(tmp_path, selected_by=selected_by).selected_field is None
    run = write_rows(tmp_path / "run.jsonl", small(pilot=True))
    store = tmp_path / "audit.duckdb"
    flags = [f"--map={','.join(f'{ours}={theirs}' for ours, theirs in MAP.items())}", "--store", str(store)]
    with pytest.raises(SystemExit, match="2"):
        main(["import", str(run), *flags, "--selected-by", ""])
    assert "--selected-by '': pass base, none or the name of a field" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="3"):
        main(["import", str(run), *flags, "--selected-by", "pilot", "--dry-run"])
    assert f"4 records left out, the first in line 1: {LEFT_OUT}" in capsys.readouterr().err
