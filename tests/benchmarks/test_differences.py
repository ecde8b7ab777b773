"""How often `diff` finds a change: the published rows hold the level, and the simulation counts what it says."""

from __future__ import annotations

import json
from itertools import product

import numpy as np
import pytest

from benchmarks.calibration.differences import (
    LOSSES,
    NULLS,
    PROBLEMS,
    SAMPLES,
    Cell,
    Row,
    is_calibrated,
    simulate,
    true_changes,
)
from benchmarks.speed.results import RESULTS


def published() -> list[dict[str, object]]:
    return json.loads((RESULTS / "differences.json").read_text())["rows"]


def test_false_alarms_are_rare_in_every_row_without_a_change() -> None:
    rows = [row for row in published() if row["cell"]["world"] in NULLS]
    cells = {(row["cell"]["world"], row["cell"]["problems"], row["cell"]["n"]) for row in rows}
    assert cells == set(product(NULLS, PROBLEMS, SAMPLES))
    assert all(row["series"] >= 400 for row in rows)
    assert all(is_calibrated(Row(**{**row, "cell": Cell(**row["cell"])})) for row in rows)
    assert sum(row["now"] for row in rows) / sum(row["series"] for row in rows) < 0.05


def test_losses_are_found_more_often_than_before_and_intervals_agree_with_p() -> None:
    rows = published()
    losses = [row for row in rows if row["cell"]["world"] in LOSSES]
    assert all(row["now"] >= row["before"] for row in losses)
    assert sum(row["now"] > 1.5 * row["before"] for row in losses) >= 3
    assert all(row["disagree"] == 0 for row in rows)
    assert all(row["covered"] / row["series"] > 0.92 for row in rows)


def test_too_many_false_alarms_are_noticed() -> None:
    def row(now: int) -> Row:
        cell = Cell(world="equal checkpoints", problems=30, n=16)
        return Row(
            cell=cell, series=400, before=0, now=now, ks_before=0, ks_now=now, ks=1600, covered=400 - now, disagree=0
        )

    assert is_calibrated(row(20))
    assert not is_calibrated(row(40))


def test_the_true_change_is_that_of_the_population() -> None:
    assert true_changes(Cell(world="churn without a change of the mean", problems=30, n=16)).tolist() == [0.0] * 4
    dies = true_changes(Cell(world="1 problem in 10 dies", problems=30, n=16))
    assert (dies < 0).all()
    assert (np.diff(dies) < 0).all()


@pytest.mark.slow
def test_a_few_series_of_a_row_are_counted() -> None:
    row = simulate(Cell(world="sharpened (GRPO)", problems=100, n=64), series=5, seed=[0])
    assert (row.series, row.ks, row.disagree) == (5, 30, 0)
    assert row.now >= 4
