"""The made-up stores are what an audit would leave: complete, measured, and with the loss that was planted."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from benchmarks.speed.synthetic_responses import N_MODES, Plan, ResponseLaw, Responses, draw
from benchmarks.speed.synthetic_store import build_store
from oversharp import open_store
from oversharp.diagnostics.records.types import Grade
from oversharp.diagnostics.verifiers.modes import ModesVerifier

PLAN = Plan(n_problems=60, n_checkpoints=4, n=16, series=("losing", "holding"), n_tasks=2)


@pytest.fixture(scope="module")
def store_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_store(tmp_path_factory.mktemp("synthetic") / "audit.duckdb", PLAN)


def frame(store_path: Path, sql: str) -> pd.DataFrame:
    with open_store(store_path) as store:
        return store.frame(sql)


@pytest.mark.slow
def test_every_problem_has_its_samples_at_every_checkpoint(store_path: Path) -> None:
    counts = frame(store_path, "SELECT series, is_base, n, n_planned FROM sampled_counts ORDER BY ALL")
    assert len(counts) == 2 * PLAN.n_checkpoints * PLAN.n_problems
    assert (counts["n"] == counts["n_planned"]).all()
    assert set(counts.loc[counts["is_base"], "n"]) == {2 * PLAN.n}
    assert set(counts.loc[~counts["is_base"], "n"]) == {PLAN.n}


@pytest.mark.slow
def test_the_planted_loss_is_the_verdict_and_its_clean_twin_is_silent(store_path: Path) -> None:
    labels = frame(store_path, "SELECT series, label FROM verdicts ORDER BY series").set_index("series")["label"]
    assert labels["losing"] == "over_sharpened"
    assert labels["holding"] in ("no_loss", "inconclusive")


def test_grades_are_what_the_verifier_says() -> None:
    responses = Responses.made(Plan(n_problems=3, n_checkpoints=2, n=4))
    by_id = {problem.problem_id: problem for problem in responses.problems}
    said = ModesVerifier().grade([(by_id[row.problem_id], row.text) for row in responses.rows.itertuples()])
    for row, grade in zip(responses.rows.itertuples(), said, strict=True):
        mode = None if pd.isna(row.mode) else row.mode
        told = Grade(answer=row.answer, mode=mode, reward=float(row.correct), state=row.state, reason=row.reason)
        assert told == grade


def test_responses_are_drawn_by_their_law() -> None:
    law_PR = ResponseLaw.planted(5, np.random.default_rng(0)).at("moderate", 0.5)
    assert law_PR.sum(axis=1) == pytest.approx(1)
    drawn_PD = draw(law_PR, 20_000, np.random.default_rng(1))
    share_PR = np.stack([np.bincount(drawn_D, minlength=law_PR.shape[1]) for drawn_D in drawn_PD]) / 20_000
    assert np.abs(share_PR - law_PR).max() < 0.02
    assert (law_PR[:, :N_MODES] > 0).all()


@pytest.mark.slow
def test_a_store_without_modes_and_panel_is_complete_too(tmp_path: Path) -> None:
    plan = Plan(n_problems=20, n_checkpoints=3, n=8, lists_modes=False, panel=0)
    path = build_store(tmp_path / "audit.duckdb", plan)
    found = frame(path, "SELECT measure, count(value) AS known FROM findings GROUP BY measure ORDER BY measure")
    known = found.set_index("measure")["known"]
    assert known["pass_at_k"] == 3 * 4
    assert known["pass_at_k_exact"] == 0
