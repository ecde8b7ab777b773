"""Samples of the calibration that are drawn in rounds."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.calibration import shipping
from benchmarks.calibration.in_rounds import series_in_rounds
from benchmarks.calibration.real_life_cases import CASES
from benchmarks.calibration.selection import draw_series
from benchmarks.calibration.transient import measure


def test_a_solved_problem_stops_after_the_first_round_and_an_impossible_one_at_the_cap() -> None:
    rate_SP = np.array([[1.0, 0.0, 0.0]] * 2)
    unread_SP = np.array([[0.0, 0.0, 1.0]] * 2)
    counts = series_in_rounds([128, 64], 4, rate_SP, np.random.default_rng(0), unread_SP=unread_SP)
    (late,) = counts.trained
    # the first round is a quarter of 64, of the base too
    assert [side.hits[0].tolist() for side in (counts.base, late)] == [[16, 128, 128], [16, 64, 64]]
    assert [side.hits[1].tolist() for side in (counts.base, late)] == [[16, 0, 0], [16, 0, 0]]
    assert late.unread_P is not None
    assert late.unread_P.tolist() == [0, 0, 64]


def test_a_filter_sees_only_the_samples_before_the_stop() -> None:
    seen, first_correct_P, first_wrong_P = draw_series(
        "mixed", "solved, not always", "none", 64, 30, np.random.default_rng(0), 4
    )
    n_P, correct_P = seen.total.base_hits
    assert set(n_P.tolist()) <= {16, 32, 64}
    assert ((correct_P > 0) & (correct_P < n_P)).all()
    assert (first_correct_P < n_P).all()
    assert (first_wrong_P < n_P).all()


@pytest.mark.slow
def test_every_simulation_finds_a_large_loss_in_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    assert measure("mixed", "rates below .3 halved", 100, 64, 2, 0, 4).here == 2
    assert CASES["killed 5/100"].is_in_rounds
    assert CASES["cut off"].draw(np.random.default_rng(0), 4).label == "format"
    monkeypatch.setattr(shipping, "POPULATION", 2000)
    cell = shipping.Cell(course="sharpened from the start (GRPO)", n=64, checkpoints=6, enough=4)
    row = shipping.simulate(cell, series=2, seed=[0])
    assert row.mean_regret["ship"] < row.mean_regret["the last"]
