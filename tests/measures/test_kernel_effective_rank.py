import numpy as np
import pytest

from diagnostics.measures.kernel_effective_rank import compute


def test_free_responses_have_full_rank_and_tied_ones_rank_one(coupled, found):
    rows = [("q1", "panel", True), ("q1", "panel", False), ("q2", "panel", True)]
    free = found(compute(coupled({"base": np.diag([1.0, 4.0, 9.0])}, rows)))
    assert (free["base", "all"].value, free["base", "all"].n) == (pytest.approx(3.0), 3)
    tied = found(compute(coupled({"base": np.outer([1.0, 2.0, 3.0], [1.0, 2.0, 3.0])}, rows)))
    assert tied["base", "all"].value == pytest.approx(1.0)
    assert (tied["base", "within problems"].value, tied["base", "within problems"].n) == (pytest.approx(1.0), 1)


def test_the_rank_within_problems_is_a_mean_over_problems(coupled, found):
    kernel = np.eye(4)
    kernel[2, 3] = kernel[3, 2] = 1.0
    rows = [("q1", "panel", True), ("q1", "panel", True), ("q2", "panel", True), ("q2", "panel", True)]
    finding = found(compute(coupled({"base": kernel}, rows)))["base", "within problems"]
    assert (finding.value, finding.n) == (pytest.approx(1.5), 2)


def test_single_responses_leave_no_rank_within_problems(coupled, found):
    findings = found(compute(coupled({"base": np.eye(2)}, [("q1", "panel", True), ("q2", "panel", True)])))
    assert findings["base", "all"].value == pytest.approx(2.0)
    assert findings["base", "within problems"].why.startswith("no problem has two responses in the kernel; run")
