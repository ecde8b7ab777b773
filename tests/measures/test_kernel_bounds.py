import numpy as np
import pytest

from oversharp.diagnostics.measures.kernel.gradients.examples import gradients
from tests.measures.kernels import OWN_PAIR_AND_PANEL, at_base

UNIFORM = gradients((1, 1, 0, 0), (-1, 0, -1, 0), (1, 0, 0, 1))  # λ = 2, ρ = 1 once the wrong response's is turned
SHARED = gradients((1, 0), (5, 1), (1, 1))  # correct and wrong share a direction: turned, ρ = −5 against λ_min = 1
SCOPES = ("unseen fails", "unseen no bound", "seen fails", "seen no bound")


def failures(kernel, rows=OWN_PAIR_AND_PANEL):
    return {scope: f.value for scope, f in at_base("kernel_bound_failures", kernel, rows).items()}


def test_exact_and_bound_meet_where_the_kernel_is_uniform():
    findings = at_base("kernel_bounds", UNIFORM, OWN_PAIR_AND_PANEL)
    values = [findings[scope].value for scope in ("unseen exact", "unseen bound", "seen exact", "seen bound")]
    # y = ½ each; unseen 1·1/(2 + 1), exact with α = (1/6, 1/6); seen (2 − 1)/(2 − 1)·(½ − 1/(2 + 1))
    assert values == pytest.approx([1 / 3, 1 / 3, 1 / 2, 1 / 6])
    assert failures(UNIFORM) == dict.fromkeys(SCOPES, 0.0)


def test_a_bound_without_a_positive_denominator_is_left_out_with_its_exact_shift_and_is_no_failure():
    findings = at_base("kernel_bounds", SHARED, OWN_PAIR_AND_PANEL)
    for scope in ("unseen exact", "unseen bound"):
        assert findings[scope].why == "the denominator of the printed bound is not positive for any problem"
    failed = failures(SHARED)
    assert (failed["unseen fails"], failed["unseen no bound"]) == (0.0, 1.0)


def test_without_advantages_there_is_a_reason():
    findings = at_base("kernel_bounds", np.eye(3), [("q", role, True) for role in ("own", "own", "panel")])
    assert {finding.value for finding in findings.values()} == {None}


def test_one_huge_shift_does_not_stand_for_the_others():
    """The shift of each unseen response is a third of its scale: 1/3, 2/3 and 100/3."""
    gradient, rows = [], []
    for i, scale in enumerate((1.0, 2.0, 100.0)):
        block = np.array([(1, 1, 0, 0), (-1, 0, -1, 0), (scale, 0, 0, 1)], dtype=float)
        gradient += [np.concatenate([np.zeros(4 * i), row, np.zeros(8 - 4 * i)]) for row in block]
        rows += [(f"q{i}", "own", True), (f"q{i}", "own", False), (f"q{i}", "panel", True)]
    finding = at_base("kernel_bounds", gradients(*gradient), rows)["unseen exact"]
    assert finding.value == pytest.approx(2 / 3)
    assert (finding.low, finding.high, finding.n) == (None, None, 3)


def test_a_repeated_mode_breaks_case_2():
    """Orthogonal, equal gradients: the bound is N·y, the shift y."""
    repeated = failures(np.eye(2), [("q", "own own", True), ("q", "own", False)])
    once = failures(np.eye(2), [("q", "own", True), ("q", "own", False)])
    assert (repeated["seen fails"], once["seen fails"]) == (1.0, 0.0)


def test_without_an_unseen_correct_response_case_1_is_unknown():
    findings = at_base("kernel_bound_failures", np.eye(2), [("q", "own", True), ("q", "own panel", False)])
    assert (
        findings["unseen fails"].why == "no problem with correct and wrong own samples has an unseen correct response"
    )
    assert findings["seen fails"].n == 1
