"""Ungraded samples are reported and graded again, and a grader that accepts all samples or none is a warning."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from oversharp.diagnostics.audit.regrade import regrade
from oversharp.diagnostics.engine.grading_doubts import GradeFault, grading_doubts, why_no_verdict
from oversharp.diagnostics.ingest.config import ImportConfig
from oversharp.diagnostics.ingest.ingest import import_samples
from oversharp.diagnostics.records.errors import ConfigError, StoreError
from oversharp.diagnostics.store import Store
from oversharp.diagnostics.verdict.record import Verdict
from tests.audit.small_audits import Notes

pytestmark = pytest.mark.usefixtures("few_measures")

FAULT = GradeFault(verifier="reward.py:grade@00", reason="KeyError: 'x', line 3")
GRADER = """
from helper import is_broken

def grade(response, answer):
    print("grading", response)
    if is_broken(response):
        raise LookupError(response)
    return response == answer

def everything(response):
    return 1

def nothing(response):
    return 0
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a dump of 2 steps with 10 problems of 8 samples, and a grader with faults in an imported module."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    rows = [
        {"prompt": f"{problem}?", "gold": "r", "response": "r" if sample % 2 else f"w{sample}", "step": step}
        for step in (0, 10)
        for problem in range(10)
        for sample in range(8)
    ]
    (tmp_path / "dump.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (tmp_path / "reward.py").write_text(GRADER)
    break_grader(tmp_path)
    return tmp_path


def break_grader(folder: Path, *responses: str) -> None:
    (folder / "helper.py").write_text(f"def is_broken(response):\n    return response in {responses!r}\n")


def config(folder: Path, function: str = "grade") -> ImportConfig:
    fields = {name: name for name in ("prompt", "gold", "response", "step")}
    return ImportConfig(store=folder / "out" / "audit.duckdb", map=fields, verifier=f"reward.py:{function}")


def imported(folder: Path, function: str = "grade") -> tuple[Verdict, list[str]]:
    notes = Notes()
    (series,) = import_samples(["dump.jsonl"], config(folder, function), progress=notes).series
    assert series.verdict is not None
    return series.verdict, notes.notes


def states(folder: Path) -> dict[str, int]:
    with Store.open(folder / "out" / "audit.duckdb", read_only=True) as store:
        rows = store.frame("SELECT state, count(*) AS n FROM grades GROUP BY ALL")
    return dict(zip(rows["state"], rows["n"].tolist(), strict=True))


@pytest.mark.slow
def test_without_a_grade_for_more_than_one_sample_in_twenty_there_is_no_verdict(folder: Path) -> None:
    break_grader(folder, "w0")
    verdict, notes = imported(folder)
    assert verdict.label == "no_verdict"
    assert verdict.why is not None
    assert verdict.why.startswith("10 of 80 samples of step 0 could not be graded (reward.py:grade@")
    assert verdict.why.endswith(
        ": LookupError: w0, line 7; more than 5 % at 2 of 2 checkpoints): fix the grader and grade the same samples "
        "again (oversharp regrade)"
    )
    assert verdict.warnings[0].startswith("20 of 160 samples could not be graded and count as wrong (reward.py:grade@")
    (note,) = [note for note in notes if "graded" in note]
    assert note.startswith("warning: 10 of 50 responses could not be graded and count as wrong (reward.py:grade@")
    assert note.endswith(": LookupError: w0, line 7)")


@pytest.mark.slow
def test_a_grader_fixed_in_an_imported_module_grades_the_rest_in_the_next_run(folder: Path) -> None:
    break_grader(folder, "w0", "w2")
    assert imported(folder)[0].label == "no_verdict"
    assert states(folder) == {"ok": 30, "error": 20}
    break_grader(folder)
    assert imported_again(folder).label != "no_verdict"
    assert states(folder) == {"ok": 50}


def imported_again(folder: Path) -> Verdict:
    """Import in another process: the workers of this process have loaded the broken module."""
    command = [
        *(sys.executable, "-m", "oversharp", "import", "dump.jsonl", "--verifier", "reward.py:grade", "--json"),
        *("--map", "prompt=prompt,gold=gold,response=response,step=step", "--store", "out/audit.duckdb"),
    ]
    paths = os.pathsep.join([str(Path(__file__).parents[2]), str(folder)])
    environment = os.environ | {"PYTHONPATH": paths}
    run = subprocess.run(command, check=True, cwd=folder, env=environment, capture_output=True, text=True)
    assert json.loads(run.stdout)["series"][0]["verdict"]["warnings"] is not None  # the grader's output goes to stderr
    assert "grading w0" in run.stderr
    with Store.open(folder / "out" / "audit.duckdb", read_only=True) as store:
        verdict = store.verdict(folder.name)
    assert verdict is not None
    return verdict


@pytest.mark.slow
def test_few_samples_without_a_grade_are_a_warning_next_to_the_verdict(folder: Path) -> None:
    rows = (folder / "dump.jsonl").read_text().splitlines()
    rows[0] = rows[0].replace("w0", "odd")
    (folder / "dump.jsonl").write_text("\n".join(rows))
    break_grader(folder, "odd")
    verdict, _ = imported(folder)
    assert verdict.label != "no_verdict"
    assert verdict.warnings[0].startswith("1 of 160 samples could not be graded and count as wrong (reward.py:grade@")
    assert verdict.warnings[0] in verdict.caveats


@pytest.mark.slow
@pytest.mark.parametrize(
    ("function", "text"),
    [("everything", "accepted all 160 samples at every"), ("nothing", "accepted none of 160 samples at any")],
)
def test_a_grader_that_accepts_everything_or_nothing_is_a_warning(folder: Path, function: str, text: str) -> None:
    verdict, _ = imported(folder, function)
    (warning,) = [warning for warning in verdict.warnings if text in warning]
    assert warning.startswith(f"reward.py:{function}@")
    assert warning in verdict.caveats


@pytest.mark.slow
def test_other_code_is_refused_for_a_graded_series_with_a_hint_to_regrade(folder: Path) -> None:
    break_grader(folder, "w0")
    imported(folder)
    (folder / "reward.py").write_text(GRADER.replace("LookupError", "KeyError"))
    with pytest.raises(
        StoreError, match=r"is graded by reward\.py:grade@\w+, and .* is other code; .*oversharp regrade"
    ):
        imported(folder)
    assert regrade(config(folder).store, "reward.py:grade").verdict.label == "no_verdict"


@pytest.mark.slow
def test_a_grader_that_always_raises_stops_an_import_and_a_regrade_before_grading(folder: Path) -> None:
    message = r"fails with the first problem's answer as the response \(LookupError: r, line 7\); fix the function"
    break_grader(folder, "r")
    with pytest.raises(ConfigError, match=message):
        imported(folder)
    assert states(folder) == {}
    imported(folder, "nothing")
    with pytest.raises(ConfigError, match=message):
        regrade(config(folder).store, "reward.py:grade")


@pytest.mark.slow
@pytest.mark.parametrize("threshold", [None, 0.5])
def test_rewards_between_wrong_and_right_are_a_warning_without_a_threshold(
    folder: Path, threshold: float | None
) -> None:
    code = "def grade(response, answer):\n    return 0.6 if response == answer else 0.2\n"
    (folder / "reward.py").write_text(code if threshold is None else f"CORRECT_AT = {threshold}\n{code}")
    verdict, _ = imported(folder)
    warnings = [warning for warning in verdict.warnings if "CORRECT_AT" in warning]
    with Store.open(folder / "out" / "audit.duckdb", read_only=True) as store:
        correct = store.frame("SELECT DISTINCT reward FROM grades WHERE correct")["reward"].tolist()
    assert correct == ([] if threshold is None else [0.6])
    assert len(warnings) == (threshold is None)
    if warnings:
        assert warnings[0].startswith("50 of 50 distinct responses have a reward between 0 and 1 and count as wrong")


def test_each_verifier_of_a_series_is_checked_separately() -> None:
    counts = pd.DataFrame(
        {
            "verifier": ["choice", "exact", "recorded:verl"],
            "n": 4000,
            "n_correct": [4000, 7, 0],
            "n_failed": 0,
            "n_timed_out": 0,
        }
    )
    choice, recorded = grading_doubts(counts, None)
    assert choice.startswith("choice accepted all 4,000 samples at every checkpoint: ")
    assert recorded.startswith("the reward that verl recorded accepted none of 4,000 samples at any checkpoint: ")
    assert recorded.endswith("(--correct-at).")


@pytest.mark.parametrize(("verifier", "ends"), [("reward.py:grade@00", "faster."), ("math", "as wrong.")])
def test_more_than_one_timeout_in_a_hundred_is_a_warning(verifier: str, ends: str) -> None:
    counts = pd.DataFrame({"verifier": verifier, "n": [200, 200], "n_correct": 9, "n_failed": 0, "n_timed_out": [1, 3]})
    assert list(grading_doubts(counts, None)) == []
    (text,) = grading_doubts(counts.assign(n_timed_out=[1, 4]), None)
    assert text.startswith(f"5 of 400 samples timed out in grading ({verifier}) and count as wrong.")
    assert text.endswith(ends)


def test_five_in_a_hundred_are_few_and_six_are_too_many() -> None:
    counts = pd.DataFrame({"checkpoint": ["a", "b"], "n": [100, 100], "n_failed": [5, 5]})
    assert why_no_verdict(counts, FAULT) is None
    text = why_no_verdict(counts.assign(n_failed=[5, 6]), FAULT)
    assert text is not None
    assert text.startswith("6 of 100 samples of b could not be graded (reward.py:grade@00: KeyError: 'x', line 3): fix")
