from math import exp, log

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oversharp.diagnostics.measures import get_measure
from oversharp.diagnostics.measures.examples import tiny_evidence
from oversharp.diagnostics.measures.kernel.sampling_bias.partitions import NONE_MIXED, build_partitions

COLUMNS = "checkpoint_id problem_id sample_index response_id correct base_logp_sum"
MIXED, BETA_SMALL, BETA_1 = "mixed", "of mixed, beta 0.04", "of mixed, beta 1"
FIRST, SECOND = "of mixed, first bound", "of mixed, second bound"


def own(*samples, problem="q", checkpoint="base"):
    """Samples are (response, correct, π_ref)."""
    return [(checkpoint, problem, i, name, correct, log(pi)) for i, (name, correct, pi) in enumerate(samples)]


def of_base(name, rows):
    return {f.scope: f for f in get_measure(name)(tiny_evidence("own_logps", COLUMNS, rows))}


def shares(rows):
    return {scope: f.value for scope, f in of_base("z_prime_share", rows).items()}


def test_z_prime_is_that_of_theorem_2_2():
    # two of three are correct: A = 1/√2 and −√2; a was drawn twice
    rows = own(("a", True, 0.3), ("a", True, 0.3), ("b", False, 0.2))
    (one,) = build_partitions(tiny_evidence("own_logps", COLUMNS, rows).frames["own_logps"])
    a, b = 2 * 2**-0.5 / 3, -(2**0.5) / 3
    for beta in (1.0, 0.04):
        assert one.log_z(beta) == pytest.approx(log(0.3 * exp(a / beta) + 0.2 * exp(b / beta) + 0.5))


def test_a_likely_wrong_sample_saves_the_rest_at_beta_1_but_not_at_small_beta():
    values = shares(own(("a", True, 0.05), ("b", False, 0.9)))
    assert values == {MIXED: 1.0, BETA_SMALL: 1.0, BETA_1: 0.0, FIRST: 0.0, SECOND: 0.0}


def test_a_bound_may_miss_what_is_exact():
    """π_ref 0.5 and 0.5: both bounds are exactly 1, Z′ = cosh(½) is above."""
    values = shares(own(("a", True, 0.5), ("b", False, 0.499999)))
    assert (values[BETA_1], values[FIRST]) == (1.0, 1.0)
    values = shares(own(("a", True, 0.4), ("b", False, 0.4)))
    assert (values[BETA_1], values[FIRST], values[SECOND]) == (1.0, 0.0, 0.0)


def test_batches_of_one_grade_count_as_not_mixed_and_nowhere_else():
    rows = own(("a", True, 0.5), ("b", False, 0.1)) + own(("a", True, 0.5), ("a", True, 0.5), problem="r")
    findings = of_base("z_prime_share", rows)
    assert (findings[MIXED].value, findings[MIXED].n) == (0.5, 2)
    assert (findings[BETA_1].value, findings[BETA_1].n) == (1.0, 1)


def test_a_certain_base_and_a_vanishing_one_do_no_harm():
    assert shares(own(("a", True, 1.0), ("b", False, 1e-300)))[BETA_1] == 1.0
    rows = [("base", "q", 0, "a", True, -4000.0), ("base", "q", 1, "b", False, -5000.0)]
    assert shares(rows)[BETA_1] == 0.0


def test_one_sample_is_no_batch():
    findings = of_base("z_prime_share", own(("a", True, 0.5)))
    assert findings[MIXED].value == 0.0
    assert findings[BETA_1].why == NONE_MIXED
    assert "--panel" in NONE_MIXED


def test_an_unscored_sample_is_a_reason(world, found):
    samples = [
        {"checkpoint": name, "problem": q, "sample_index": i, "own_logp_sum": -1.0, "base_logp_sum": score}
        for name in ("base", "late")
        for q in ("q1", "q2")
        for i, score in enumerate((-1.0, None if (name, q) == ("late", "q2") else -2.0))
    ]
    findings = found(get_measure("z_prime_share")(world(samples, n=2, panel=2).evidence()))
    assert findings["base", MIXED].n == 2
    assert findings["late", BETA_1].why == (
        "3 of 4 own samples are scored under the base; run the audit again to complete them"
    )


def test_repeats_raise_the_first_bound_and_not_the_second():
    findings = of_base("z_prime_bounds", own(("a", True, 0.4), ("a", True, 0.4), ("b", True, 0.1), ("c", False, 0.2)))
    up, down = 1 / 3**0.5, -(3**0.5)  # A of three correct and one wrong
    assert findings["first bound"].value == pytest.approx((2 * up * 0.4 + up * 0.1 + down * 0.2) / 4)
    assert findings["second bound"].value == pytest.approx(3 * up / 4 * (0.1 - 0.2))
    exact = 0.4 * exp(2 * up / 4) + 0.1 * exp(up / 4) + 0.2 * exp(down / 4) + 0.3
    assert findings["exact"].value == pytest.approx(exact - 1)


@pytest.mark.slow
@given(st.lists(st.tuples(st.booleans(), st.floats(0.001, 0.1)), min_size=2, max_size=8))
def test_both_bounds_are_below_the_exact_value(samples):
    findings = of_base("z_prime_bounds", own(*((f"r{i}", *sample) for i, sample in enumerate(samples))))
    exact, first, second = (findings[scope].value for scope in ("exact", "first bound", "second bound"))
    if exact is None:
        assert len({correct for correct, _ in samples}) == 1
    else:
        assert second <= first + 1e-12
        assert first <= exact + 1e-12


def test_delta_pi_is_the_least_correct_against_the_most_wrong_averaged_over_problems():
    rows = own(("a", True, 0.5), ("b", True, 0.2), ("c", False, 0.1), ("d", False, 0.05))
    rows += own(("a", True, 0.01), ("b", False, 0.4), ("c", True, 0.3), ("d", False, 0.1), problem="r")
    rows += own(*[("a", True, 0.2)] * 4, problem="s")
    (finding,) = of_base("delta_pi", rows).values()
    assert (finding.value, finding.n) == (pytest.approx((0.1 - 0.39) / 2), 2)


@pytest.mark.parametrize("name", ["z_prime_bounds", "delta_pi"])
@pytest.mark.parametrize("correct", [True, False])
def test_batches_of_one_grade_have_neither_bounds_nor_gap(name, correct):
    rows = own(("a", correct, 0.3), ("b", correct, 0.3))
    assert {f.why for f in of_base(name, rows).values()} == {NONE_MIXED}
