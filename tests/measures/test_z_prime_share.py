from math import exp, log

import pytest

from diagnostics.measures import get_measure
from diagnostics.measures._example import tiny_evidence
from diagnostics.measures._z_prime import NONE_MIXED, partitions

compute = get_measure("z_prime_share").compute

COLUMNS = "checkpoint_id problem_id sample_index response_id correct base_logp_sum"
MIXED, BETA_SMALL, BETA_1 = "mixed", "of mixed, beta 0.04", "of mixed, beta 1"
FIRST, SECOND = "of mixed, first bound", "of mixed, second bound"


def own(*samples, problem="q", checkpoint="base"):
    """Samples are (response, correct, π_ref)."""
    return [(checkpoint, problem, i, name, correct, log(pi)) for i, (name, correct, pi) in enumerate(samples)]


def shares(rows, found):
    findings = found(compute(tiny_evidence("own_logps", COLUMNS, rows)))
    return {scope: f.value for (_, scope), f in findings.items()}


def test_z_prime_is_that_of_theorem_2_2():
    # two of three are correct: A = 1/√2 and −√2; a was drawn twice
    (one,) = partitions(
        tiny_evidence("own_logps", COLUMNS, own(("a", True, 0.3), ("a", True, 0.3), ("b", False, 0.2))).frames[
            "own_logps"
        ]
    )
    a, b = 2 * 2**-0.5 / 3, -(2**0.5) / 3
    for beta in (1.0, 0.04):
        assert one.log_z(beta) == pytest.approx(log(0.3 * exp(a / beta) + 0.2 * exp(b / beta) + 0.5))


def test_a_likely_wrong_sample_saves_the_rest_at_beta_1_but_not_at_small_beta(found):
    values = shares(own(("a", True, 0.05), ("b", False, 0.9)), found)
    assert values == {MIXED: 1.0, BETA_SMALL: 1.0, BETA_1: 0.0, FIRST: 0.0, SECOND: 0.0}


def test_a_bound_may_miss_what_is_exact(found):
    """π_ref 0.5 and 0.5: both bounds are exactly 1, Z′ = cosh(½) is above."""
    values = shares(own(("a", True, 0.5), ("b", False, 0.499999)), found)
    assert (values[BETA_1], values[FIRST]) == (1.0, 1.0)
    values = shares(own(("a", True, 0.4), ("b", False, 0.4)), found)
    assert (values[BETA_1], values[FIRST], values[SECOND]) == (1.0, 0.0, 0.0)


def test_batches_of_one_grade_count_as_not_mixed_and_nowhere_else(found):
    rows = own(("a", True, 0.5), ("b", False, 0.1)) + own(("a", True, 0.5), ("a", True, 0.5), problem="r")
    findings = found(compute(tiny_evidence("own_logps", COLUMNS, rows)))
    assert (findings["base", MIXED].value, findings["base", MIXED].n) == (0.5, 2)
    assert (findings["base", BETA_1].value, findings["base", BETA_1].n) == (1.0, 1)


def test_a_certain_base_and_a_vanishing_one_do_no_harm(found):
    assert shares(own(("a", True, 1.0), ("b", False, 1e-300)), found)[BETA_1] == 1.0
    rows = [("base", "q", 0, "a", True, -4000.0), ("base", "q", 1, "b", False, -5000.0)]
    assert shares(rows, found)[BETA_1] == 0.0


def test_one_sample_is_no_batch(found):
    findings = found(compute(tiny_evidence("own_logps", COLUMNS, own(("a", True, 0.5)))))
    assert findings["base", MIXED].value == 0.0
    assert findings["base", BETA_1].why == NONE_MIXED
    assert "--panel" in NONE_MIXED


def test_an_unscored_sample_is_a_reason(world, found):
    samples = [
        {"checkpoint": name, "problem": q, "sample_index": i, "own_logp_sum": -1.0, "base_logp_sum": score}
        for name in ("base", "late")
        for q in ("q1", "q2")
        for i, score in enumerate((-1.0, None if (name, q) == ("late", "q2") else -2.0))
    ]
    findings = found(compute(world(samples, n=2, panel=2).evidence()))
    assert findings["base", MIXED].n == 2
    assert findings["late", BETA_1].why == (
        "3 of 4 own samples are scored under the base; run the audit again to complete them"
    )
