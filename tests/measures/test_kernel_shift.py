import numpy as np
import pytest

from oversharp.diagnostics.measures.kernel.gradients.examples import gradients
from tests.measures.kernels import at_base


def test_shifts_are_those_of_the_smallest_step_that_fits_the_batch():
    gradient = np.array([(2.0, 0, 0), (1, 1, 0), (0, 1, 1), (1, 0, 3), (1, 1, 1)])
    rows = [("q1", "own", True), ("q1", "own own own", False), ("q1", "mode", True), ("q1", "panel", False),
            ("q2", "mode", True)]  # fmt: skip
    findings = at_base("kernel_shift", gradients(*gradient), rows)
    # one of four is correct: A = 3/√3 and −1/√3, y = N·A/G
    target = np.array([np.sqrt(3) / 4, -3 / np.sqrt(3) / 4])
    step = np.linalg.pinv(gradient[:2]) @ target
    expected = {"seen correct": 0, "seen wrong": 1, "unseen correct": 2, "unseen wrong": 3, "related correct": 4}
    for scope, row in expected.items():
        assert findings[scope].value == pytest.approx(gradient[row] @ step), scope
    assert findings["seen correct"].value == pytest.approx(target[0])
    assert findings["unseen correct"].n == 1


def test_a_panel_response_that_was_sampled_is_seen():
    rows = [("q", "own panel", True), ("q", "own", False)]
    findings = at_base("kernel_shift", gradients((1, 0), (0, 1)), rows)
    assert (
        findings["unseen correct"].why
        == "no problem with correct and wrong own samples has such a response in the kernel"
    )


def test_other_groups_are_not_related():
    rows = [("q1", "own", True), ("q1", "own", False), ("q2", "panel", True)]
    assert (
        at_base("kernel_shift", gradients((1, 0), (0, 1), (1, 1)), rows, related={"q2": "other"})[
            "related correct"
        ].value
        is None
    )


def test_batches_of_one_grade_ask_for_nothing():
    for correct in (True, False):
        rows = [("q", "own own", correct), ("q", "panel", True)]
        finding = at_base("kernel_shift", gradients((1, 0), (0, 1)), rows)["seen correct"]
        assert finding.why.startswith("the own samples of each problem are all correct or all wrong")
    none = at_base("kernel_shift", gradients((1,)), [("q", "panel", True)])["seen correct"]
    assert "temperature 1" in none.why
