import numpy as np
import pytest

from diagnostics.measures import get_measure
from diagnostics.measures._kernel_example import gradients, tiny_kernels

compute = get_measure("kernel_bounds").compute


def test_exact_and_bound_meet_where_the_kernel_is_uniform(found):
    """λ = 2, ρ = 1 once the wrong response's gradient is turned: bound 1/(2 + 1), exact 1/3."""
    gradient = [(1, 1, 0, 0), (-1, 0, -1, 0), (1, 0, 0, 1)]
    rows = [("q", "own", True), ("q", "own", False), ("q", "panel", True)]
    findings = found(compute(tiny_kernels({"base": gradients(*gradient)}, rows)))
    assert findings["base", "unseen exact"].value == pytest.approx(1 / 3)
    assert findings["base", "unseen bound"].value == pytest.approx(1 / 3)
    # y = ½ each: (2 − 1)/(2 − 1)·(½ − 1/(2 + 1))
    assert findings["base", "seen exact"].value == pytest.approx(1 / 2)
    assert findings["base", "seen bound"].value == pytest.approx(1 / 6)


def test_a_bound_without_a_positive_denominator_is_left_out_with_its_exact_shift(found):
    gradient = [(1, 0), (5, 1), (1, 1)]
    rows = [("q", "own", True), ("q", "own", False), ("q", "panel", True)]
    findings = found(compute(tiny_kernels({"base": gradients(*gradient)}, rows)))
    for scope in ("unseen exact", "unseen bound"):
        assert findings["base", scope].why == "the printed bound has no positive denominator at any problem"


def test_without_advantages_there_is_a_reason(found):
    rows = [("q", "own", True), ("q", "own", True), ("q", "panel", True)]
    findings = found(compute(tiny_kernels({"base": np.eye(3)}, rows)))
    assert {finding.value for finding in findings.values()} == {None}


def test_one_huge_shift_does_not_stand_for_the_others(found):
    """The shift of each unseen response is a third of its scale: 1/3, 2/3 and 100/3."""
    gradient, rows = [], []
    for i, scale in enumerate((1.0, 2.0, 100.0)):
        block = np.array([(1, 1, 0, 0), (-1, 0, -1, 0), (scale, 0, 0, 1)], dtype=float)
        gradient += [np.concatenate([np.zeros(4 * i), row, np.zeros(8 - 4 * i)]) for row in block]
        rows += [(f"q{i}", "own", True), (f"q{i}", "own", False), (f"q{i}", "panel", True)]
    finding = found(compute(tiny_kernels({"base": gradients(*gradient)}, rows)))["base", "unseen exact"]
    assert finding.value == pytest.approx(2 / 3)
    assert (finding.low, finding.high, finding.n) == (None, None, 3)
