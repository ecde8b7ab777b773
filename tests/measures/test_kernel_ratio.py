import numpy as np
import pytest

from oversharp.diagnostics.measures.kernel.gradients.examples import gradients
from tests.measures.kernels import at_base


def test_r_is_that_of_appendix_f():
    """λ = 2, ρ = 1 with the wrong gradient turned; a a b: A = ½√2, ½√2, −√2."""
    rows = [("q", "own own", True), ("q", "own", False)]
    finding = at_base("kernel_ratio", gradients((1, 1, 0), (-1, 0, -1)), rows)["all"]
    # y = 2·½√2/3 twice and √2/3, so y/A_sum = 1/3; G = 3, N = 2
    assert finding.value == pytest.approx(2 * (1 / 3 * (2 + 2) - 1))
    assert finding.n == 1


def test_the_most_sampled_correct_response_is_meant():
    rows = [("q", "own", True), ("q", "own own own", True), ("q", "own", False)]
    kernel = np.full((3, 3), 1.0) + np.eye(3)
    kernel[2, :2] = kernel[:2, 2] = -1.0
    finding = at_base("kernel_ratio", kernel, rows)["all"]
    # A = ½ for four, −2 for one: y = ½/5, 1.5/5 three times, 2/5, so A_sum = 7/5
    assert finding.value == pytest.approx(3 * (1.5 / 7 * (2 + 4) - 1))


def test_the_median_leaves_out_problems_without_positive_rho():
    rows = [(f"q{i // 2}", "own", i % 2 == 0) for i in range(4)]
    kernel = np.zeros((4, 4))
    kernel[:2, :2] = [[2, -1], [-1, 2]]
    kernel[2:, 2:] = [[2, 1], [1, 2]]
    finding = at_base("kernel_ratio", kernel, rows)["all"]
    assert (finding.value, finding.n) == (pytest.approx(0.5 * 3 - 1), 1)


def test_no_positive_rho_anywhere_is_a_reason():
    rows = [("q", "own", True), ("q", "own", False)]
    finding = at_base("kernel_ratio", gradients((1, 0), (1, 1)), rows)["all"]
    assert finding.why == "ρ ≤ 0 at all 1 problems with advantages, so R has no meaning"
