import numpy as np
import pytest

from diagnostics.measures._kernel_example import gradients, tiny_kernels
from diagnostics.measures.kernel_shift import compute


def test_shifts_are_those_of_the_smallest_step_that_fits_the_batch(found):
    gradient = np.array([(2.0, 0, 0), (1, 1, 0), (0, 1, 1), (1, 0, 3), (1, 1, 1)])
    rows = [("q1", "own", True), ("q1", "own own own", False), ("q1", "mode", True), ("q1", "panel", False),
            ("q2", "mode", True)]  # fmt: skip
    findings = found(compute(tiny_kernels({"base": gradients(*gradient)}, rows)))
    # one of four is correct: A = 3/√3 and −1/√3, y = N·A/G
    target = np.array([np.sqrt(3) / 4, -3 / np.sqrt(3) / 4])
    step = np.linalg.pinv(gradient[:2]) @ target
    expected = {"seen correct": 0, "seen wrong": 1, "unseen correct": 2, "unseen wrong": 3, "related correct": 4}
    for scope, row in expected.items():
        assert findings["base", scope].value == pytest.approx(gradient[row] @ step), scope
    assert findings["base", "seen correct"].value == pytest.approx(target[0])
    assert findings["base", "unseen correct"].n == 1


def test_a_panel_response_that_was_sampled_is_seen(found):
    rows = [("q", "own panel", True), ("q", "own", False)]
    findings = found(compute(tiny_kernels({"base": gradients((1, 0), (0, 1))}, rows)))
    assert findings["base", "unseen correct"].why == "no such response in the kernel beside a batch with advantages"


def test_other_groups_are_not_related(found):
    rows = [("q1", "own", True), ("q1", "own", False), ("q2", "panel", True)]
    evidence = tiny_kernels({"base": gradients((1, 0), (0, 1), (1, 1))}, rows, related={"q2": "other"})
    assert found(compute(evidence))["base", "related correct"].value is None


def test_batches_of_one_grade_ask_for_nothing(coupled, found):
    for correct in (True, False):
        rows = [("q", "own own", correct), ("q", "panel", True)]
        finding = found(compute(coupled({"base": gradients((1, 0), (0, 1))}, rows)))["base", "seen correct"]
        assert finding.why.startswith("at no problem are the own samples part correct and part not")
    none = found(compute(tiny_kernels({"base": gradients((1,))}, [("q", "panel", True)])))["base", "seen correct"]
    assert "temperature 1" in none.why
