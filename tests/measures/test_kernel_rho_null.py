import numpy as np
import pytest

from oversharp.diagnostics.measures.kernel.gradients.examples import gradients
from tests.measures.kernels import at_base


def test_repeated_draws_count_as_the_pairs_they_are():
    # draws a a b: pairs aa = 1, ab = ab = −1; diagonal 1, 1, 1
    rows = [("q", "own own", True), ("q", "own panel", False)]
    finding = at_base("kernel_rho_null", gradients((1, 0), (-1, 0)), rows)["all"]
    assert finding.value == pytest.approx(-1 / 3)
    assert (finding.low, finding.n) == (None, 1)


def test_only_own_samples_of_one_problem_are_paired():
    kernel = gradients((2, 0), (0, 1), (5, 5), (3, 0))
    rows = [("q1", "own", True), ("q1", "own", True), ("q1", "panel", True), ("q2", "own", True)]
    assert at_base("kernel_rho_null", kernel, rows)["all"].value == 0.0


def test_no_own_sample_in_the_kernel_has_a_reason():
    finding = at_base("kernel_rho_null", [[1.0]], [("q", "panel", True)])["all"]
    assert finding.why == "no own sample is in the kernel; own samples need temperature 1 without top-p and top-k"
    one = at_base("kernel_rho_null", [[1.0]], [("q", "own", True)])["all"]
    assert one.why == "no problem has two own samples in the kernel"
    certain = at_base("kernel_rho_null", [[0.0]], [("q", "own own", True)])["all"]
    assert certain.why == "the gradient of every own sample is 0"


@pytest.mark.parametrize(("drawn_from", "passes"), [((0.5, 0.3, 0.2), True), ((0.9, 0.05, 0.05), False)])
def test_samples_of_a_softmax_pass_and_samples_of_another_do_not(drawn_from, passes):
    """The gradient of log π(i) of a softmax is e_i − π; draws from π itself average to nothing."""
    rng = np.random.default_rng(4)
    gradient = np.eye(3) - np.array([0.5, 0.3, 0.2])
    draws = rng.choice(3, size=(40, 12), p=drawn_from)
    rows = [
        (f"q{q:02d}", " ".join(["own"] * int((draws[q] == i).sum())) or "panel", True)
        for q in range(40)
        for i in range(3)
    ]
    kernel = np.kron(np.eye(40), gradient @ gradient.T)
    finding = at_base("kernel_rho_null", kernel, rows)["all"]
    assert (finding.low < 0.0 < finding.high) == passes
    assert finding.n == 40


def test_the_standard_error_is_that_of_the_ratio_over_problems():
    # mean off-diagonal 0.5, −0.25, 0.5 over diagonals of 1: a plain mean, so s/√3
    kernel = np.kron(np.eye(3), np.eye(2))
    for i, off in enumerate((0.5, -0.25, 0.5)):
        kernel[2 * i, 2 * i + 1] = kernel[2 * i + 1, 2 * i] = off
    rows = [(f"q{i // 2}", "own", True) for i in range(6)]
    findings = at_base("kernel_rho_null", kernel, rows)
    error = findings["standard error"]
    assert (error.value, error.low, error.n) == (pytest.approx(np.std([0.5, -0.25, 0.5], ddof=1) / 3**0.5), None, 3)
    assert findings["all"].value == pytest.approx(0.25)


def test_one_problem_has_no_standard_error():
    findings = at_base("kernel_rho_null", np.eye(2), [("q", "own", True), ("q", "own", False)])
    assert findings["all"].value == 0.0
    assert findings["standard error"].why.startswith("one problem has no standard error")
