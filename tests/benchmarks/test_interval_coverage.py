"""How often intervals cover: the rows that are published, and a few made anew."""

import json

import pytest

from benchmarks.calibration import interval_coverage
from benchmarks.calibration.interval_coverage import BOUND, all_cases, row_of
from benchmarks.speed.results import RESULTS

pytestmark = pytest.mark.slow


def published():
    return json.loads((RESULTS / "interval_coverage.json").read_text())


def test_every_published_interval_covers_as_the_bound_asks():
    rows = published()["rows"]
    assert published()["below_bound"] == []
    assert not [row for row in rows if row["covers"] is not None and row["covers"] < BOUND]
    assert any(row["before_covers"] is not None and row["before_covers"] < BOUND for row in rows)
    assert {(row["quantity"], row["law"], row["units"]) for row in rows} == {
        (case.quantity, case.law, case.units) for case in all_cases()
    }


@pytest.mark.parametrize("quantity", ["answer_entropy", "k_star", "over seeds", "problems_lost"])
def test_a_row_made_anew_is_the_published_one(quantity):
    case = next(case for case in all_cases() if case.quantity == quantity)
    (old,) = [
        row
        for row in published()["rows"]
        if (row["quantity"], row["law"], row["units"]) == (case.quantity, case.law, case.units)
    ]
    new = row_of(case, 200, seed=1)
    assert new.before_covers == pytest.approx(old["before_covers"], abs=0.12)
    assert new.given == pytest.approx(old["given"], abs=0.1)


def test_an_interval_that_misses_is_found_out(monkeypatch):
    case = next(case for case in all_cases() if case.quantity == "problems_lost")
    monkeypatch.setattr(interval_coverage, "yes_no_interval", lambda _: interval_coverage.share_interval(_ * 1.0))
    planted = row_of(case, 400, seed=1)
    assert planted.covers == planted.before_covers
    assert planted.covers < BOUND
