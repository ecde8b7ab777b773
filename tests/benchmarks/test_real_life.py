"""The cases of real life: what is committed of them, and what breaks a bound."""

from __future__ import annotations

import json

import numpy as np
import pytest

from benchmarks.calibration.real_life import broken, joined, row_of, table
from benchmarks.calibration.real_life_cases import CASES, Case
from benchmarks.calibration.real_life_dumps import (
    copied,
    in_luck,
    no_draws_of_their_own,
    right_or_wrong,
    short_answers,
    shuffled,
)
from benchmarks.calibration.real_life_plans import PlanOutcome
from benchmarks.calibration.real_life_series import Outcome
from benchmarks.speed.results import RESULTS

ROWS = json.loads((RESULTS / "real_life.json").read_text())["rows"]
ROW = {"null": True, "most": 0.05, "series": 1000, "count": 50, "sum_promised": None}


@pytest.mark.slow
def test_every_case_was_drawn_no_bound_is_broken_and_the_table_is_that_of_the_results() -> None:
    assert [row["name"] for row in ROWS] == list(CASES)
    assert not [row["name"] for row in ROWS if broken(row)]
    assert table(ROWS, json.loads((RESULTS / "calibration.json").read_text())["rows"]) == (
        RESULTS / "real_life.md"
    ).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({}, False),
        ({"count": 51}, True),
        # few series: 10 of 100 is 4.9 to 17.6 %, 11 of 100 is 5.6 to 18.8 %
        ({"count": 10, "series": 100}, False),
        ({"count": 11, "series": 100}, True),
        ({"count": 1, "most": 0.0}, True),
        ({"count": 100, "null": False}, False),
        # 60 of 100 came true, at most 69.7 % with 95 % confidence
        ({"count": 60, "series": 100, "null": False, "sum_promised": 74.0}, False),
        ({"count": 60, "series": 100, "null": False, "sum_promised": 76.0}, True),
    ],
)
def test_a_bound_is_broken_by_wrong_labels_and_by_promises_that_are_not_kept(changed: dict, said: bool) -> None:
    assert broken({**ROW, **changed}) == said


@pytest.mark.slow
def test_parts_of_a_plan_join_to_what_it_promised_on_average() -> None:
    case = CASES["plan diffuse 100/256"]
    parts = [
        row_of(case, [PlanOutcome(label=label, promised=promised)], 1.0)
        for label, promised in (("degraded", 0.5), ("no_loss", 0.75))
    ]
    whole = joined(parts[0], parts[1])
    assert (whole["series"], whole["count"], whole["sum_promised"]) == (2, 1, 1.25)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("drawing", "detected"),
    [
        (short_answers, False),
        (copied(2, short_answers), True),
        (shuffled(copied(8, right_or_wrong)), True),
        (in_luck(32, 0.5), True),
    ],
)
def test_copies_and_batches_are_asked_of_the_shipped_code(drawing, detected: bool) -> None:
    outcome = no_draws_of_their_own(drawing, n_problems=40)(np.random.default_rng(0))
    assert outcome.detected == detected
    if detected:
        assert outcome.label in ("no_verdict", "inconclusive")


@pytest.mark.parametrize(("part", "null", "drawn"), [(None, True, 1.0), (None, False, 0.1), (0.25, True, 0.25)])
def test_a_null_is_drawn_in_full_unless_it_says_less(part: float | None, null: bool, drawn: float) -> None:
    said = Outcome(label="no_loss")
    case = Case(name="a", what="a", counted="a", null=null, draw=lambda _: said, counts=bool, part=part)
    assert case.share_drawn == drawn
