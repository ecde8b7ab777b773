from math import exp, log

import pytest

from diagnostics.measures._example import tiny_evidence
from diagnostics.measures._z_prime import partitions
from diagnostics.measures.z_prime_share import compute

COLUMNS = "checkpoint_id problem_id sample_index response_id correct base_logp_sum"


def own(*samples, problem="q", checkpoint="base"):
    """Samples are (response, correct, π_ref)."""
    return [(checkpoint, problem, i, name, correct, log(pi)) for i, (name, correct, pi) in enumerate(samples)]


def shares(rows, found):
    findings = found(compute(tiny_evidence("own_scores", COLUMNS, rows)))
    return {scope: f.value for (_, scope), f in findings.items()}


def test_z_prime_is_that_of_theorem_2_2():
    # two of three are correct: A = 1/√2 and −√2; a was drawn twice
    (one,) = partitions(
        tiny_evidence("own_scores", COLUMNS, own(("a", True, 0.3), ("a", True, 0.3), ("b", False, 0.2))).frames[
            "own_scores"
        ]
    )
    a, b = 2 * 2**-0.5 / 3, -(2**0.5) / 3
    for beta in (1.0, 0.04):
        assert one.log_z(beta) == pytest.approx(log(0.3 * exp(a / beta) + 0.2 * exp(b / beta) + 0.5))


def test_a_likely_wrong_sample_saves_the_rest_at_beta_1_but_not_at_small_beta(found):
    values = shares(own(("a", True, 0.05), ("b", False, 0.9)), found)
    assert values == {"beta 0.001": 1.0, "beta 0.04": 1.0, "beta 1": 0.0, "first bound": 0.0, "second bound": 0.0}


def test_a_bound_may_miss_what_is_exact(found):
    """π_ref 0.5 and 0.5: both bounds are exactly 1, Z′ = cosh(½) is above."""
    values = shares(own(("a", True, 0.5), ("b", False, 0.499999)), found)
    assert (values["beta 1"], values["first bound"]) == (1.0, 1.0)
    values = shares(own(("a", True, 0.4), ("b", False, 0.4)), found)
    assert (values["beta 1"], values["first bound"], values["second bound"]) == (1.0, 0.0, 0.0)


def test_batches_of_one_grade_leave_z_prime_at_1_and_count(found):
    rows = own(("a", True, 0.5), ("b", False, 0.1)) + own(("a", True, 0.5), ("a", True, 0.5), problem="r")
    assert shares(rows, found)["beta 0.001"] == 0.5


def test_a_certain_base_and_a_vanishing_one_do_no_harm(found):
    assert shares(own(("a", True, 1.0), ("b", False, 1e-300)), found)["beta 1"] == 1.0
    rows = [("base", "q", 0, "a", True, -4000.0), ("base", "q", 1, "b", False, -5000.0)]
    assert shares(rows, found)["beta 1"] == 0.0


def test_one_sample_is_no_batch(found):
    assert shares(own(("a", True, 0.5)), found)["beta 0.001"] == 0.0


def test_an_unscored_sample_is_a_reason(world, found):
    samples = [
        {"checkpoint": name, "problem": q, "sample_index": i, "own_logp_sum": -1.0, "base_logp_sum": score}
        for name in ("base", "late")
        for q in ("q1", "q2")
        for i, score in enumerate((-1.0, None if (name, q) == ("late", "q2") else -2.0))
    ]
    findings = found(compute(world(samples, n=2, panel=2).evidence()))
    assert findings["base", "beta 1"].n == 2
    assert findings["late", "beta 1"].why == (
        "3 of 4 own samples are scored under the base; run the audit again to complete them"
    )
