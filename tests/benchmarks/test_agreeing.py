"""What was measured of the points of answers is of the draws that an audit takes, and reaches the goal."""

from __future__ import annotations

import json

import numpy as np
import pytest

from benchmarks.frontier.agreeing import KINDS, MOST_OFF, SAMPLES, of_base, off
from benchmarks.frontier.free_controls import Law
from benchmarks.speed.results import RESULTS
from oversharp.diagnostics.measures.coverage.sharpening.controls import AGREEING
from oversharp.diagnostics.records.types import NO_ANSWER

ROWS = json.loads((RESULTS / "agreeing.json").read_text())["rows"]


def test_no_point_that_an_audit_takes_is_off_by_half_a_point_and_the_counts_alone_are() -> None:
    told = [row for row in ROWS if row["told"]]
    assert not any(map(off, ROWS))
    assert max(abs(row["counted"]["pass_at_k"]["bias"]) for row in told) > 8 * MOST_OFF


def test_every_kind_of_law_and_every_number_of_draws_was_measured_where_it_begins_to_be_told() -> None:
    found = {(row["law"], row["draws"], row["n"]) for row in ROWS if row["told"]}
    corners = {(name, draws, n) for name in (*KINDS, "the demo's base") for draws, n in list(AGREEING.items())[1:]}
    assert corners <= found
    assert all(row["told"] == (row["n"] >= AGREEING[row["draws"]]) for row in ROWS)
    assert {row["n"] for row in ROWS} == set(SAMPLES)


@pytest.mark.parametrize("kind", KINDS.values(), ids=list(KINDS))
def test_laws_are_laws_with_something_right(kind) -> None:
    for seed in range(20):
        p_A, right_A = kind(np.random.default_rng(seed))
        assert p_A.sum() == pytest.approx(1.0)
        assert right_A.sum() == 1


def test_of_a_listed_base_the_answers_are_joined_and_the_unread_are_left_out() -> None:
    law = Law(
        problem_R=np.zeros(4, dtype=np.int64),
        logp_R=np.log([0.5, 0.3, 0.1, 0.06]),
        answer_R=np.array(["a", "b", "a", NO_ANSWER], dtype=object),
        correct_R=np.array([1.0, 0.0, 1.0, 0.0]),
        n_problems=1,
    )
    [(p_A, right_A)] = of_base(law)
    assert p_A == pytest.approx([0.6, 0.3])
    assert right_A.tolist() == [True, False]
