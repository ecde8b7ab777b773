import numpy as np
import pytest

from diagnostics.measures import get_measure

compute = get_measure("kernel_lambda").compute


def test_the_extremes_are_those_of_the_fixed_responses(coupled, found):
    rows = [("q", "panel", True), ("q", "mode", True), ("q", "own", True), ("t", "batch", True)]
    findings = found(compute(coupled({"base": np.diag([4.0, 9.0, 1.0, 100.0])}, rows)))
    assert findings["base", "min"].value == 4.0
    assert (findings["base", "max"].value, findings["base", "max"].n) == (9.0, 2)


def test_a_response_in_two_roles_counts_once(coupled, found):
    findings = found(
        compute(coupled({"base": np.diag([4.0, 9.0])}, [("q", "panel mode own", True), ("q", "mode", True)]))
    )
    assert findings["base", "min"].n == 2


def test_a_checkpoint_without_a_kernel_keeps_its_reason(coupled, found):
    evidence = coupled({"base": [[1.0]]}, [("q", "panel", True)], why={"late": "response too long"})
    findings = found(compute(evidence))
    assert {findings["late", scope].why for scope in ("min", "max")} == {"response too long"}


def test_a_kernel_without_fixed_responses_says_what_to_do(coupled, found):
    findings = found(compute(coupled({"base": [[1.0]]}, [("q", "own", True)])))
    assert "--panel 4" in findings["base", "min"].why


@pytest.mark.parametrize("smallest", [0.0, -1e-18])
def test_a_certain_response_has_no_gradient_and_rounding_is_not_negative(coupled, found, smallest):
    rows = [("q", "panel", True), ("q", "panel", False)]
    assert found(compute(coupled({"base": np.diag([smallest, 2.0])}, rows)))["base", "min"].value == 0.0
