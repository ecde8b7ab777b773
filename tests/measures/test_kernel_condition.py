import numpy as np
import pytest

from tests.measures.kernels import at_base


def test_the_median_over_problems():
    rows = [(f"q{i // 2}", "panel", True) for i in range(6)]
    findings = at_base("kernel_condition", np.diag([1.0, 2.0, 1.0, 100.0, 3.0, 15.0]), rows)
    assert (findings["sum"].value, findings["sum"].n) == (pytest.approx(5.0), 3)
    assert findings["cosine"].value == pytest.approx(1.0)


def test_of_an_even_number_of_problems_it_is_halfway_between_the_middle_two():
    rows = [(f"q{i // 2}", "panel", True) for i in range(4)]
    assert at_base("kernel_condition", np.diag([1.0, 2.0, 1.0, 7.0]), rows)["sum"].value == pytest.approx(4.5)


def test_a_singular_kernel_counts_as_infinite():
    kernel = np.eye(4)
    kernel[0, 1] = kernel[1, 0] = 1.0
    rows = [("q1", "panel", True), ("q1", "panel", True), ("q2", "panel", True), ("q2", "panel", True)]
    finding = at_base("kernel_condition", kernel, rows)["cosine"]
    assert finding.why == "the kernel is singular in 1 of 2 problems, so the median is unknown"
    kernel[2, 3] = kernel[3, 2] = 1.0
    finding = at_base("kernel_condition", kernel, rows)["cosine"]
    assert finding.why == "the kernel is singular in 2 of 2 problems, so the median is unknown"
