"""Grading by a function in the user's file, which goes on while samples are drawn; equal responses are graded once."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest

from oversharp.diagnostics.engine import grading_parts
from oversharp.diagnostics.engine.grading import Grader, grade_planned
from oversharp.diagnostics.records.errors import VerifierError
from oversharp.diagnostics.records.types import AuditKey, Checkpoint, Problem, Sample, SamplingSettings, Series
from oversharp.diagnostics.store import Store
from oversharp.diagnostics.store.missing import find_ungraded
from oversharp.diagnostics.verifiers import named_verifier
from oversharp.diagnostics.verifiers.own_workers.limits import GraderLimits
from tests.audit.small_audits import Notes, audit_key

SETTINGS = SamplingSettings(sampler="transformers", max_tokens=16)
#: Counts its calls in a file.
CODE = """
import os, time
def grade(response, answer):
    with open(__file__ + ".calls", "a") as calls:
        calls.write(response + "\\n")
    if response == "hangs":
        time.sleep(600)
    time.sleep(0.02)
    return response == answer
"""


@pytest.fixture
def problem(tmp_path: Path) -> Problem:
    path = tmp_path / "reward.py"
    path.write_text(CODE)
    verifier = named_verifier(f"{path}:grade", GraderLimits(workers=4))
    return Problem(task="t", prompt="?", gold="a", verifier=verifier)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "audit.duckdb") as opened:
        yield opened


def _begin(store: Store, problem: Problem) -> AuditKey:
    checkpoints = (Checkpoint(step=0, label="base", path=Path("/x"), kind="full", weights_hash="hash0"),)
    store.add_series(Series(name="run", path=Path("/x"), layout="hf", checkpoints=checkpoints))
    store.add_problems([problem])
    key = audit_key("run", SETTINGS, n=256, n_base=256)
    store.begin_audit(key, settings=SETTINGS, panel_settings=SETTINGS, problem_ids=[problem.problem_id])
    return key


def _draw(store: Store, problem: Problem, *texts: str, first: int = 0) -> list[Sample]:
    samples = [
        Sample(
            problem_id=problem.problem_id,
            sample_index=index,
            greedy=False,
            text=text,
            token_ids=(5, 1),
            finish_reason="stop",
            logp_sum_raw=-0.5,
        )
        for index, text in enumerate(texts, start=first)
    ]
    store.add_samples(SETTINGS.settings_id, "hash0", samples)
    return samples


def _grades(store: Store) -> pd.DataFrame:
    return store.frame("SELECT response_id, answer, correct, state FROM grades ORDER BY ALL")


def _calls(tmp_path: Path) -> list[str]:
    return sorted((tmp_path / "reward.py.calls").read_text().split())


@pytest.mark.slow
def test_samples_are_drawn_during_grading_and_the_grades_are_the_same(
    store: Store, problem: Problem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grading_parts, "FIRST_RESPONSES", 8)
    key = _begin(store, problem)
    with Grader(store, key, [problem]) as grader:
        grader.add(_draw(store, problem, "a", *map(str, range(31))))
        assert len(find_ungraded(store, key)) == 32  # the caller did not wait
        # equal responses in the same block, in the block that is being graded, and in a later one
        grader.add(_draw(store, problem, "a", "b", "b", "0", first=32))
        deadline = time.monotonic() + 30
        while len(find_ungraded(store, key)) > 24 and time.monotonic() < deadline:
            time.sleep(0.01)
            grader.add([])  # commits the parts that are graded
        grader.finish()
        assert not len(find_ungraded(store, key))
        grader.add(_draw(store, problem, "a", "b", "c", first=36))
        grader.finish()
    assert _calls(tmp_path) == sorted(["a", "b", "c", *map(str, range(31))])
    graded = _grades(store)
    assert (len(graded), graded["correct"].sum()) == (34, 1)

    store._database.rows("DELETE FROM grades")  # as after a kill
    grade_planned(store, [problem], key, progress=Notes())
    pd.testing.assert_frame_equal(_grades(store), graded)


@pytest.mark.slow
def test_a_restart_calls_the_function_for_no_response_that_was_graded(problem: Problem, tmp_path: Path) -> None:
    for _ in range(2):
        with Store.open(tmp_path / "audit.duckdb") as store:
            key = _begin(store, problem)
            if not len(store.frame("FROM samples")):
                with Grader(store, key, [problem]) as grader:
                    grader.add(_draw(store, problem, "a", "a", "b"))
                    grader.finish()
            assert grade_planned(store, [problem], key, progress=Notes())[0] == 0
    with Store.open(tmp_path / "audit.duckdb") as store, Grader(store, key, [problem]) as grader:
        grader.add(_draw(store, problem, "b", "a", first=3))  # another run draws the same texts
        grader.finish()
    assert _calls(tmp_path) == ["a", "b"]


@pytest.mark.slow
def test_an_error_of_the_thread_is_raised_by_the_caller(
    store: Store, problem: Problem, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(items: object) -> object:
        raise VerifierError("cannot be loaded")

    with Grader(store, _begin(store, problem), [problem]) as grader:
        monkeypatch.setattr(grader._verifiers, "grade", fail)
        grader.add(_draw(store, problem, "a"))
        with pytest.raises(VerifierError, match="cannot be loaded"):
            grader.finish()
        monkeypatch.undo()
        grader.add(_draw(store, problem, "b", first=1))
        grader.finish()
    assert len(_grades(store)) == 1


@pytest.mark.slow
def test_an_audit_that_stops_does_not_wait_for_the_thread(store: Store, problem: Problem) -> None:
    key, start = _begin(store, problem), time.monotonic()
    with Grader(store, key, [problem]) as grader:
        grader.add(_draw(store, problem, "a"))
        grader.finish()
        grader.add(_draw(store, problem, "hangs", first=1))
        # and sampling fails
    assert time.monotonic() - start < 20  # the call's limit is 30 s
    assert len(_grades(store)) == 1
    with Grader(store, key, [problem]) as grader:  # the workers start again
        grader.add(_draw(store, problem, "b", first=2))
        grader.finish()
    assert len(_grades(store)) == 2


KILLED = """
import os, sys, threading
from pathlib import Path
from oversharp.diagnostics.engine import grading_parts
from oversharp.diagnostics.engine.grading import Grader
from oversharp.diagnostics.records.types import Problem
from oversharp.diagnostics.store import Store
from oversharp.diagnostics.verifiers import named_verifier
from oversharp.diagnostics.verifiers.own_workers.limits import GraderLimits
from tests.engine.test_grading_thread import _begin, _draw

grading_parts.FIRST_RESPONSES, grading_parts.PART_S = 8, 0.1
verifier = named_verifier(f"{sys.argv[1]}/reward.py:grade", GraderLimits(workers=4))
problem = Problem(task="t", prompt="?", gold="a", verifier=verifier)
with Store.open(Path(sys.argv[1]) / "audit.duckdb") as store:
    with Grader(store, _begin(store, problem), [problem]) as grader:
        grader.add(_draw(store, problem, *map(str, range(200))))
        while True:
            grader.add([])
            n = len(store.frame("FROM grades"))
            if n >= 16:
                print(n, flush=True)
                os.kill(os.getpid(), 9)
"""


@pytest.mark.slow
def test_a_kill_during_grading_loses_no_committed_grade(problem: Problem, tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    run = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path)],
        env=os.environ | {"PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert run.returncode == -9, run.stderr
    n_calls = len(_calls(tmp_path))
    with Store.open(tmp_path / "audit.duckdb") as store:
        assert len(_grades(store)) == int(run.stdout) >= 16
        n_graded, _ = grade_planned(store, [problem], _begin(store, problem), progress=Notes())
        assert n_graded == 200 - int(run.stdout)
        assert len(_grades(store)) == 200
    assert len(_calls(tmp_path)) == n_calls + n_graded


def test_a_caller_of_fast_verifiers_grades_without_a_thread(store: Store) -> None:
    problem = Problem(task="t", prompt="?", gold="4", verifier="exact")
    n_threads = threading.active_count()
    with Grader(store, _begin(store, problem), [problem]) as grader:
        grader.add(_draw(store, problem, "4", "5"))
        grader.finish()
    assert threading.active_count() == n_threads
    assert _grades(store)["correct"].sum() == 1
