import numpy as np
import pytest

from tests.measures.kernels import at_base


def test_free_responses_have_full_rank_and_tied_ones_rank_one():
    rows = [("q1", "panel", True), ("q1", "panel", False), ("q2", "panel", True)]
    free = at_base("kernel_effective_rank", np.diag([1.0, 4.0, 9.0]), rows)
    assert (free["all"].value, free["all"].n) == (pytest.approx(3.0), 3)
    tied = at_base("kernel_effective_rank", np.outer([1.0, 2.0, 3.0], [1.0, 2.0, 3.0]), rows)
    assert tied["all"].value == pytest.approx(1.0)
    assert (tied["within problems"].value, tied["within problems"].n) == (pytest.approx(1.0), 1)


def test_the_rank_within_problems_is_a_mean_over_problems():
    kernel = np.eye(4)
    kernel[2, 3] = kernel[3, 2] = 1.0
    rows = [("q1", "panel", True), ("q1", "panel", True), ("q2", "panel", True), ("q2", "panel", True)]
    finding = at_base("kernel_effective_rank", kernel, rows)["within problems"]
    assert (finding.value, finding.n) == (pytest.approx(1.5), 2)


def test_single_responses_leave_no_rank_within_problems():
    findings = at_base("kernel_effective_rank", np.eye(2), [("q1", "panel", True), ("q2", "panel", True)])
    assert findings["all"].value == pytest.approx(2.0)
    assert findings["within problems"].why.startswith("no problem has two responses in the kernel; run")
