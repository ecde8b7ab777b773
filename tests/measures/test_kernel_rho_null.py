import numpy as np
import pytest

from diagnostics.measures._kernel_example import gradients, tiny_kernels
from diagnostics.measures.kernel_rho_null import compute


def test_repeated_draws_count_as_the_pairs_they_are(coupled, found):
    # draws a a b: pairs aa = 1, ab = ab = −1; diagonal 1, 1, 1
    rows = [("q", "own own", True), ("q", "own panel", False)]
    finding = found(compute(coupled({"base": gradients((1, 0), (-1, 0))}, rows)))["base", "all"]
    assert finding.value == pytest.approx(-1 / 3)
    assert (finding.low, finding.n) == (None, 1)


def test_only_own_samples_of_one_problem_are_paired(coupled, found):
    kernel = gradients((2, 0), (0, 1), (5, 5), (3, 0))
    rows = [("q1", "own", True), ("q1", "own", True), ("q1", "panel", True), ("q2", "own", True)]
    assert found(compute(coupled({"base": kernel}, rows)))["base", "all"].value == 0.0


def test_no_own_sample_in_the_kernel_has_a_reason(coupled, found):
    finding = found(compute(coupled({"base": [[1.0]]}, [("q", "panel", True)])))["base", "all"]
    assert finding.why == "no own sample is in the kernel: only those drawn at temperature 1 and untruncated are"
    one = found(compute(coupled({"base": [[1.0]]}, [("q", "own", True)])))["base", "all"]
    assert one.why == "no problem has two own samples in the kernel"
    certain = found(compute(coupled({"base": [[0.0]]}, [("q", "own own", True)])))["base", "all"]
    assert certain.why == "the gradient of every own sample is 0"


@pytest.mark.parametrize(("drawn_from", "passes"), [((0.5, 0.3, 0.2), True), ((0.9, 0.05, 0.05), False)])
def test_samples_of_a_softmax_pass_and_samples_of_another_do_not(found, drawn_from, passes):
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
    finding = found(compute(tiny_kernels({"base": kernel}, rows)))["base", "all"]
    assert (finding.low < 0.0 < finding.high) == passes
    assert finding.n == 40
