import math

import pytest

from diagnostics.measures import get_measure
from diagnostics.measures._example import tiny_evidence

compute = get_measure("pass_at_k_exact").compute

COLUMNS = "checkpoint_id problem_id mode logp_sum"


def test_modes_add_up_and_k_is_not_bound_by_samples():
    rows = [("base", "q1", "a", math.log(0.1)), ("base", "q1", "b", math.log(0.1)), ("base", "q2", "c", math.log(0.5))]
    found = {f.k: f for f in compute(tiny_evidence("mode_logps", COLUMNS, rows, n=1, ks=(1, 3, 4096)))}
    assert found[1].value == pytest.approx(0.35)
    assert found[3].value == pytest.approx((1 - 0.8**3 + 1 - 0.5**3) / 2)
    assert found[4096].value == pytest.approx(1.0)
    assert found[1].n == 2


def test_small_probabilities_do_not_cancel():
    (finding,) = compute(tiny_evidence("mode_logps", COLUMNS, [("base", "q", "a", math.log(1e-18))], ks=(128,)))
    assert finding.value == pytest.approx(128e-18, rel=1e-9)


def test_rounding_above_one_counts_as_one():
    rows = [("base", "q", "a", math.log(0.6)), ("base", "q", "b", math.log(0.4) + 1e-7)]
    assert [f.value for f in compute(tiny_evidence("mode_logps", COLUMNS, rows, ks=(1, 8)))] == [1.0, 1.0]


def test_an_impossible_query_is_zero_at_every_k():
    (finding,) = compute(tiny_evidence("mode_logps", COLUMNS, [("base", "q", "a", -math.inf)], ks=(64,)))
    assert finding.value == 0.0


def test_a_mode_without_a_score_makes_the_checkpoint_unknown():
    rows = [("base", "q", "a", -1.0), ("base", "q", "b", -1.0), ("late", "q", "a", -1.0)]
    found = {f.checkpoint_id: f for f in compute(tiny_evidence("mode_logps", COLUMNS, rows))}
    assert found["base"].value is not None
    assert found["late"].why.startswith("1 of 2 modes are scored here")
