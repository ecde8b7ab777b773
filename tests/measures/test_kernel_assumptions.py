import numpy as np
import pytest

from oversharp.diagnostics.measures.kernel.gradients.examples import gradients
from oversharp.diagnostics.measures.kernel.theorem import ASSUMPTIONS
from tests.measures.kernels import at_base


def shares(kernel, rows):
    findings = at_base("kernel_assumptions", kernel, rows)
    return {scope: f.value for scope, f in findings.items()}


def test_orthogonal_gradients_fulfil_everything():
    rows = [("q", "own", True), ("q", "own", False)]
    assert shares(np.eye(2), rows) == dict.fromkeys(ASSUMPTIONS, 1.0)


@pytest.mark.parametrize(
    ("scope", "gradient", "roles"),
    [
        ("A2.1 aligned", [(1, 0), (1, 1)], ("own", "own")),  # turned, ⟨·,·⟩ = −1
        ("A2.3 local", [(1, 0), (-5, 1)], ("own", "own")),  # λ_min = 1, ρ = 5
        ("denominator", [(1, 0), (5, 1)], ("own", "own")),  # 1 − 5
        ("weights", [(1, 0), (-5, 1)], ("own", "own")),  # K⁻¹(½, ½) = ½(26 − 5, 1 − 5)
        ("no repeats", [(1, 0), (0, 1)], ("own own", "own")),
        ("order", [(1, 0), (0, 1)], ("own own", "own")),  # a repeated mode has λ where M has ρ_min
    ],
)
def test_each_assumption_can_fail(scope, gradient, roles):
    rows = [("q", roles[0], True), ("q", roles[1], False)]
    assert shares(gradients(*gradient), rows)[scope] == 0.0


def test_the_share_is_over_problems_with_advantages():
    kernel = gradients((1, 0), (0, 1), (1, 0), (1, 1), (1, 0))
    rows = [(q, "own", correct) for q in ("q1", "q2") for correct in (True, False)] + [("q3", "own own", True)]
    finding = at_base("kernel_assumptions", kernel, rows)["A2.1 aligned"]
    assert (finding.value, finding.n) == (0.5, 2)


def test_without_advantages_nothing_is_said():
    findings = at_base("kernel_assumptions", np.eye(2), [("q", "own own", True), ("q", "panel", True)])
    assert findings["order"].why.startswith("the own samples of each problem are all correct or all wrong")
