import numpy as np
import pytest

from diagnostics.measures._kernel_example import gradients, tiny_kernels
from diagnostics.measures.kernel_decay import compute


def test_a_common_factor_is_found_without_residual(found):
    # within a problem cosine 1, across ½
    across = (0.5, np.sqrt(0.75))
    rows = [(problem, "panel", True) for problem in ("q1", "q1", "q2", "q2")]
    findings = found(compute(tiny_kernels({"base": gradients((2, 0), (3, 0), across, across)}, rows)))
    assert findings["base", "eta"].value == pytest.approx(0.5)
    assert findings["base", "residual"].value == pytest.approx(0.0, abs=1e-12)
    assert (findings["base", "eta"].n, findings["base", "eta"].low) == (2, None)


def test_wrong_responses_are_sources_but_no_targets(found):
    """s is each of three rows of q1; its couplings to the correct rows: own (1, 1, −1), of q2 (½, ½, −½)."""
    across = (0.5, np.sqrt(0.75))
    rows = [("q1", "panel", True), ("q1", "panel", True), ("q1", "panel", False), ("q2", "panel", True)]
    findings = found(compute(tiny_kernels({"base": gradients((1, 0), (1, 0), (-1, 0), across)}, rows)))
    assert findings["base", "eta"].value == pytest.approx(0.5)
    assert findings["base", "residual"].value == pytest.approx(0.0, abs=1e-12)


def test_what_eta_cannot_explain_is_the_residual(found):
    """Own couplings (1, 1), cross couplings (1, 0) from q1: η = ½ and half of the square is left."""
    kernel = np.eye(3)
    kernel[0, 1] = kernel[1, 0] = kernel[0, 2] = kernel[2, 0] = 1.0
    rows = [("q1", "panel", True), ("q1", "panel", True), ("q2", "panel", True)]
    findings = found(compute(tiny_kernels({"base": kernel}, rows)))
    assert findings["base", "eta"].value == pytest.approx(0.5)
    assert findings["base", "residual"].value == pytest.approx(np.sqrt(0.5))


def test_unrelated_problems_are_not_compared(coupled, found):
    rows = [(problem, "panel", True) for problem in ("q1", "q1", "q2", "q2")]
    evidence = coupled({"base": np.eye(4) + 0.5}, rows, groups={"q2": "other"})
    assert found(compute(evidence))["base", "eta"].why.startswith("no two related problems")


def test_three_problems_have_an_interval_that_holds_eta(found):
    gradient = np.random.default_rng(1).normal(size=(8, 4)) + 1.0
    rows = [(f"q{i // 2}", "panel", True) for i in range(8)]
    finding = found(compute(tiny_kernels({"base": gradients(*gradient)}, rows)))["base", "eta"]
    assert finding.low < finding.value < finding.high
    assert finding.n == 4
