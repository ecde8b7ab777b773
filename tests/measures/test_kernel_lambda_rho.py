import numpy as np
import pytest

from oversharp.diagnostics.measures.kernel.gradients.examples import gradients
from oversharp.diagnostics.measures.kernel.gradients.pairs import fieller
from oversharp.diagnostics.measures.kernel.rho import NOT_ABOVE, NOT_SIGNIFICANT
from oversharp.diagnostics.statistics.intervals import mean_interval
from tests.measures.kernels import at_base


def test_each_normalisation_has_its_own_ratio():
    # K = [[4, 2], [2, 2]], lengths 1 and 2: per token [[4, 1], [1, 1/2]]
    rows = [("q", "panel", True), ("q", "mode", True)]
    findings = at_base("kernel_lambda_rho", gradients((2, 0), (1, 1)), rows, n_tokens=[1, 2])
    assert findings["sum"].value == pytest.approx(3 / 2)
    assert findings["per token"].value == pytest.approx(2.25)
    assert findings["cosine"].value == pytest.approx(np.sqrt(2))
    assert findings["cosine correct"].value == pytest.approx(np.sqrt(2))


def test_a_ratio_to_nothing_or_less_has_no_meaning():
    rows = [("q", "panel", True), ("q", "panel", False)]
    for second in ((-1, 1), (0, 1)):
        finding = at_base("kernel_lambda_rho", gradients((1, 0), second), rows)["cosine"]
        assert finding.why == NOT_ABOVE


def test_problems_are_pooled_so_that_one_small_rho_is_no_outlier():
    # 1/ρ of the last alone is 10; the ratio of the sums is 4 / 2.5
    pooled = fieller(np.ones(4), np.array([0.8, 0.8, 0.8, 0.1]), least=1.0)
    assert (pooled.mean, pooled.n) == (pytest.approx(1.6), 4)
    # ρ of 1 and −½ is ¼ on average, and its interval contains 0
    assert fieller(np.ones(2), np.array([1.0, -0.5]), least=1.0) is None


def angled(cosines):
    """One pair of unit gradients per problem."""
    kernel = gradients(*[row for c in cosines for row in ((1, 0), (c, np.sqrt(1 - c * c)))])
    return kernel, [(f"q{i // 2}", "panel", True) for i in range(2 * len(cosines))]


def test_the_interval_of_a_cosine_ratio_is_that_of_rho_turned_over():
    cosines = [0.5, 0.6, 0.7, 0.95]
    kernel, rows = angled(cosines)
    finding = at_base("kernel_lambda_rho", kernel, rows)["cosine"]
    rho = mean_interval(np.array(cosines), bounds=(-1.0, 1.0))
    assert rho.high < 1.0
    assert finding.value == pytest.approx(1 / rho.mean)
    assert (finding.low, finding.high, finding.n) == (pytest.approx(1 / rho.high), pytest.approx(1 / rho.low), 4)


def test_no_ratio_is_below_1():
    kernel, rows = angled([0.9, 0.99, 0.5])
    finding = at_base("kernel_lambda_rho", kernel, rows)["cosine"]
    assert finding.low == 1.0
    one = at_base("kernel_lambda_rho", np.ones((4, 4)), [(f"q{i // 2}", "panel", True) for i in range(4)])
    assert (one["sum"].low, one["sum"].high) == (1.0, 1.0)


def test_a_rho_that_is_not_told_from_0_has_no_ratio():
    kernel, rows = angled([0.02, -0.01, 0.03])
    findings = at_base("kernel_lambda_rho", kernel, rows)
    assert {finding.why for finding in findings.values()} == {NOT_SIGNIFICANT}
    assert not any(letter.isdigit() for letter in NOT_SIGNIFICANT.replace("contains 0", ""))


def test_fiellers_ends_are_where_t_just_tells_the_ratio():
    numerator, denominator = np.array([2.0, 3.0, 5.0, 4.0]), np.array([1.0, 1.5, 1.8, 2.1])
    interval = fieller(numerator, denominator, least=1.0)
    assert interval.mean == pytest.approx(14 / 6.4)
    for end in (interval.low, interval.high):
        rest = numerator - end * denominator
        assert abs(rest.mean()) / (rest.std(ddof=1) / 2) == pytest.approx(3.182446, rel=1e-5)


def test_one_problem_has_a_ratio_without_interval():
    kernel, rows = angled([0.5])
    finding = at_base("kernel_lambda_rho", kernel, rows)["cosine"]
    assert (finding.value, finding.low, finding.high) == (pytest.approx(2.0), None, None)


def test_correct_responses_are_taken_alone():
    kernel = gradients((1, 0), (1, 0), (-1, 0))
    rows = [("q", "panel", True), ("q", "panel", True), ("q", "panel", False)]
    findings = at_base("kernel_lambda_rho", kernel, rows)
    assert findings["cosine"].value is None
    assert findings["cosine correct"].value == 1.0
    lone = at_base("kernel_lambda_rho", kernel[1:, 1:], rows[1:])
    assert "no problem has two correct responses" in lone["cosine correct"].why
