import numpy as np
import pytest

from oversharp.diagnostics.measures import get_measure
from oversharp.diagnostics.measures.kernel.gradients.examples import tiny_kernels
from tests.measures.kernels import at_base


def test_the_extremes_are_those_of_the_fixed_responses():
    rows = [("q", "panel", True), ("q", "mode", True), ("q", "own", True), ("t", "batch", True)]
    findings = at_base("kernel_lambda", np.diag([4.0, 9.0, 1.0, 100.0]), rows)
    assert findings["min"].value == 4.0
    assert (findings["max"].value, findings["max"].n) == (9.0, 2)


def test_a_response_in_two_roles_counts_once():
    findings = at_base("kernel_lambda", np.diag([4.0, 9.0]), [("q", "panel mode own", True), ("q", "mode", True)])
    assert findings["min"].n == 2


@pytest.mark.parametrize("name", ["kernel_lambda", "kernel_lambda_per_token"])
def test_a_checkpoint_without_a_kernel_keeps_its_reason(name):
    evidence = tiny_kernels({"base": np.eye(1)}, [("q", "panel", True)], why={"late": "response too long"})
    whys = [f.why for f in get_measure(name)(evidence) if f.checkpoint_id == "late"]
    assert whys == ["response too long"] * 2


def test_a_kernel_without_fixed_responses_says_what_to_do():
    findings = at_base("kernel_lambda", [[1.0]], [("q", "own", True)])
    assert "--panel 4" in findings["min"].why


@pytest.mark.parametrize("smallest", [0.0, -1e-18])
def test_a_certain_response_has_no_gradient_and_rounding_is_not_negative(smallest):
    rows = [("q", "panel", True), ("q", "panel", False)]
    assert at_base("kernel_lambda", np.diag([smallest, 2.0]), rows)["min"].value == 0.0
