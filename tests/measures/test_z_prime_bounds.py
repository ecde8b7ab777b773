from math import exp, log

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagnostics.measures import get_measure
from diagnostics.measures._example import tiny_evidence
from diagnostics.measures._z_prime import NONE_MIXED

compute = get_measure("z_prime_bounds").compute

COLUMNS = "checkpoint_id problem_id sample_index response_id correct base_logp_sum"


def values(rows):
    findings = compute(tiny_evidence("own_logps", COLUMNS, rows))
    return {f.scope: f.value for f in findings}, findings


def test_repeats_raise_the_first_bound_and_not_the_second():
    rows = [("base", "q", i, name, name != "c", log(pi)) for i, (name, pi) in enumerate(
        [("a", 0.4), ("a", 0.4), ("b", 0.1), ("c", 0.2)])]  # fmt: skip
    found, _ = values(rows)
    up, down = 1 / 3**0.5, -(3**0.5)  # A of three correct and one wrong
    assert found["first bound"] == pytest.approx((2 * up * 0.4 + up * 0.1 + down * 0.2) / 4)
    assert found["second bound"] == pytest.approx(3 * up / 4 * (0.1 - 0.2))
    exact = 0.4 * exp(2 * up / 4) + 0.1 * exp(up / 4) + 0.2 * exp(down / 4) + 0.3
    assert found["exact"] == pytest.approx(exact - 1)


@given(st.lists(st.tuples(st.booleans(), st.floats(0.001, 0.1)), min_size=2, max_size=8))
def test_both_bounds_are_below_the_exact_value(samples):
    rows = [("base", "q", i, f"r{i}", correct, log(pi)) for i, (correct, pi) in enumerate(samples)]
    found, _ = values(rows)
    if found["exact"] is None:
        assert len({correct for correct, _ in samples}) == 1
    else:
        assert found["second bound"] <= found["first bound"] + 1e-12
        assert found["first bound"] <= found["exact"] + 1e-12


def test_problems_of_one_grade_do_not_count():
    rows = [("base", "q", i, f"r{i}", True, -1.0) for i in range(3)]
    _, findings = values(rows)
    assert {f.why for f in findings} == {NONE_MIXED}
