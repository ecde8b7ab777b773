"""Corrected pass@k and lenient judges: the published rows, and a few computed again."""

import json

import numpy as np
import pytest

from benchmarks.calibration import judges
from benchmarks.speed.results import RESULTS
from oversharp.diagnostics.statistics.labels import correction

pytestmark = pytest.mark.slow


def published():
    return json.loads((RESULTS / "judges.json").read_text())


def test_every_published_row_keeps_its_bound():
    result = published()
    assert result["failed"] == []
    own = [row for row in result["coverage"] if row["method"] == "sets"]
    assert {row["labels"] for row in own} == {50, 100, 300}
    assert len({(row["judge"], row["quantity"]) for row in own}) == 12
    assert min(row["covers"] for row in own) >= 0.93
    assert min(row["covers"] for row in result["coverage"] if row["method"] != "sets") < 0.5
    assert min(row["found"] for row in result["alarms"] if row["is_planted"]) >= 0.9
    assert max(row["found"] for row in result["alarms"] if not row["is_planted"]) <= 0.05


def test_rows_computed_again_are_the_published_ones():
    (old,) = [
        row
        for row in published()["coverage"]
        if (row["judge"], row["labels"], row["quantity"], row["method"]) == ("likes a style", 100, "pass@8", "sets")
    ]
    (new,) = [
        row
        for row in judges.coverage_rows("likes a style", 100, 200, seed=9)
        if (row.quantity, row.method) == ("pass@8", "sets")
    ]
    assert new.covers == pytest.approx(old["covers"], abs=0.05)
    assert new.judge_error == pytest.approx(old["judge_error"], abs=0.02)


def test_an_interval_that_takes_samples_for_independent_problems_is_found_out(monkeypatch):
    plain = correction.corrected_pass_at_k

    def too_narrow(*given):
        interval = plain(*given)
        half = (interval.high - interval.low) / 4
        return correction.Interval(mean=interval.mean, low=interval.mean - half, high=interval.mean + half, n=1)

    monkeypatch.setattr(judges, "corrected_pass_at_k", too_narrow)
    rows = list(judges.coverage_rows("accepts wrong responses", 100, 100, seed=1))
    assert judges.failures(rows, [])


def test_the_population_values_are_those_of_the_drawn_rates():
    rng = np.random.default_rng(0)
    base, late = zip(*(judges.draw_audit(rng, "likes a style") for _ in range(200)), strict=True)
    drawn = np.mean([one.gold_PN.mean() for one in late]) - np.mean([one.gold_PN.mean() for one in base])
    assert drawn == pytest.approx(judges.truths()["change of pass@1"], abs=0.01)
