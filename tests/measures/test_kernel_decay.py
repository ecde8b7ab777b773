import numpy as np
import pytest

from oversharp.diagnostics.measures.kernel.gradients.examples import gradients
from tests.measures.kernels import at_base


def test_a_common_factor_is_found_without_residual():
    # within a problem cosine 1, across ½
    across = (0.5, np.sqrt(0.75))
    rows = [(problem, "panel", True) for problem in ("q1", "q1", "q2", "q2")]
    findings = at_base("kernel_decay", gradients((2, 0), (3, 0), across, across), rows)
    assert findings["eta"].value == pytest.approx(0.5)
    assert findings["residual"].value == pytest.approx(0.0, abs=1e-12)
    assert (findings["eta"].n, findings["eta"].low) == (2, None)


def test_wrong_responses_are_sources_but_no_targets():
    """s is each of three rows of q1; its couplings to the correct rows: own (1, 1, −1), of q2 (½, ½, −½)."""
    across = (0.5, np.sqrt(0.75))
    rows = [("q1", "panel", True), ("q1", "panel", True), ("q1", "panel", False), ("q2", "panel", True)]
    findings = at_base("kernel_decay", gradients((1, 0), (1, 0), (-1, 0), across), rows)
    assert findings["eta"].value == pytest.approx(0.5)
    assert findings["residual"].value == pytest.approx(0.0, abs=1e-12)


def test_what_eta_cannot_explain_is_the_residual():
    """Own couplings (1, 1), cross couplings (1, 0) from q1: η = ½ and half of the square is left."""
    kernel = np.eye(3)
    kernel[0, 1] = kernel[1, 0] = kernel[0, 2] = kernel[2, 0] = 1.0
    rows = [("q1", "panel", True), ("q1", "panel", True), ("q2", "panel", True)]
    findings = at_base("kernel_decay", kernel, rows)
    assert findings["eta"].value == pytest.approx(0.5)
    assert findings["residual"].value == pytest.approx(np.sqrt(0.5))


def test_unrelated_problems_are_not_compared():
    rows = [(problem, "panel", True) for problem in ("q1", "q1", "q2", "q2")]
    findings = at_base("kernel_decay", np.eye(4) + 0.5, rows, related={"q2": "other"})
    assert findings["eta"].why.startswith("needs two related problems")


def test_three_problems_have_an_interval_that_holds_eta():
    gradient = np.random.default_rng(1).normal(size=(8, 4)) + 1.0
    rows = [(f"q{i // 2}", "panel", True) for i in range(8)]
    finding = at_base("kernel_decay", gradients(*gradient), rows)["eta"]
    assert finding.low < finding.value < finding.high
    assert finding.n == 4
