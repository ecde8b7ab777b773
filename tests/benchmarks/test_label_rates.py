"""Of every label the case in which it was wrong most often."""

from __future__ import annotations

import json

from benchmarks.calibration.label_rates import Rate, label_table, worst_rates
from benchmarks.speed.results import RESULTS
from oversharp.diagnostics.verdict.record import POSITIVE

CUT_OFF = {"name": "cut off", "what": "a fifth is cut off", "null": True, "series": 100}
RELATED = {"name": "related 5 of 100", "what": "they drift together", "null": True, "series": 100}
KILLED = {"name": "killed 2/100", "what": "2 points are lost", "null": False, "series": 10}
CHANGED = {"kind": "no_change", "n_problems": 30, "n": 64, "series": 50, "true_change_points": 0.0}
FELL = {"kind": "over_mild", "n_problems": 30, "n": 64, "series": 50, "true_change_points": -2.5}


def test_a_label_is_judged_by_the_cases_in_which_it_would_be_wrong() -> None:
    rows = [
        {**CUT_OFF, "labels": {"format": 90, "degraded": 4, "over_sharpened": 1}},
        # of these very problems the label is right: they did lose
        {**RELATED, "labels": {"over_sharpened_here": 60, "over_sharpened": 3}},
        {**KILLED, "labels": {"over_sharpened": 7, "guessing": 2, "format": 1}},
    ]
    none = dict.fromkeys((*POSITIVE, "no_loss"), 0)
    calibrated = [{**CHANGED, "labels": {**none, "over_sharpened": 1}}, {**FELL, "labels": {**none, "no_loss": 5}}]
    rates = {rate.label: rate for rate in worst_rates(rows, calibrated)}
    assert rates["over_sharpened"] == Rate("over_sharpened", 3, 100, "they drift together")
    assert rates["degraded"] == Rate("degraded", 4, 100, "a fifth is cut off")
    assert rates["over_sharpened_here"].count == 0
    assert rates["guessing"] == Rate("guessing", 2, 10, "2 points are lost")
    assert rates["no_loss"] == Rate("no_loss", 5, 50, "over mild; 30 problems, n = 64")


def test_the_table_has_the_rate_with_its_interval() -> None:
    told = label_table([Rate("format", 40, 1000, "a case")]).splitlines()[-1]
    assert told == "| format | 4.0 (2.9–5.4) | a case |"


def test_the_page_on_the_verdict_quotes_the_committed_rates() -> None:
    committed = [json.loads((RESULTS / f"{name}.json").read_text())["rows"] for name in ("real_life", "calibration")]
    rates = worst_rates(*committed)
    cells = [line.split("|") for line in (RESULTS.parents[1] / "docs" / "verdict.md").read_text().splitlines()]
    told = {row[1].strip(): row[3].strip() for row in cells if len(row) == 6 and row[3].strip().endswith("%")}
    assert told == {one.label: f"{100 * one.count / one.series:.1f} %" for one in rates}
