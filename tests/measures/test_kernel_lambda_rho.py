import numpy as np
import pytest

from diagnostics.measures._kernel_example import gradients
from diagnostics.measures.kernel_lambda_rho import compute


def test_each_normalisation_has_its_own_ratio(coupled, found):
    # K = [[4, 2], [2, 2]], lengths 1 and 2: per token [[4, 1], [1, 1/2]]
    rows = [("q", "panel", True), ("q", "mode", True)]
    findings = found(compute(coupled({"base": gradients((2, 0), (1, 1))}, rows, n_tokens=[1, 2])))
    assert findings["base", "sum"].value == pytest.approx(3 / 2)
    assert findings["base", "per token"].value == pytest.approx(2.25)
    assert findings["base", "cosine"].value == pytest.approx(np.sqrt(2))
    assert findings["base", "cosine correct"].value == pytest.approx(np.sqrt(2))


def test_a_ratio_to_nothing_or_less_has_no_meaning(coupled, found):
    rows = [("q", "panel", True), ("q", "panel", False)]
    for second, told in (((-1, 1), "-0.707"), ((0, 1), "0")):
        finding = found(compute(coupled({"base": gradients((1, 0), second)}, rows)))["base", "cosine"]
        assert finding.why == f"ρ is {told}, not above 0: a ratio to it has no meaning"


def test_problems_are_pooled_so_that_one_small_rho_is_no_outlier(coupled, found):
    # ρ of q1 is 1, of q2 −½: the ratio of the sums is 2 / ½
    kernel = gradients((1, 0), (1, 0), (1, 0), (-0.5, np.sqrt(0.75)))
    rows = [("q1", "panel", True)] * 2 + [("q2", "panel", True)] * 2
    finding = found(compute(coupled({"base": kernel}, rows)))["base", "cosine"]
    assert (finding.value, finding.n) == (pytest.approx(4.0), 2)
    assert finding.low >= 0.0


def test_correct_responses_are_taken_alone(coupled, found):
    kernel = gradients((1, 0), (1, 0), (-1, 0))
    rows = [("q", "panel", True), ("q", "panel", True), ("q", "panel", False)]
    findings = found(compute(coupled({"base": kernel}, rows)))
    assert findings["base", "cosine"].value is None
    assert findings["base", "cosine correct"].value == 1.0
    lone = found(compute(coupled({"base": kernel[1:, 1:]}, rows[1:])))
    assert "no problem has two correct responses" in lone["base", "cosine correct"].why
