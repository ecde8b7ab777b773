import numpy as np
import pytest

from diagnostics.measures.kernel_condition import compute


def test_the_median_over_problems(coupled, found):
    rows = [(f"q{i // 2}", "panel", True) for i in range(6)]
    findings = found(compute(coupled({"base": np.diag([1.0, 2.0, 1.0, 100.0, 3.0, 15.0])}, rows)))
    assert (findings["base", "sum"].value, findings["base", "sum"].n) == (pytest.approx(5.0), 3)
    assert findings["base", "cosine"].value == pytest.approx(1.0)


def test_a_singular_kernel_counts_as_infinite(coupled, found):
    kernel = np.eye(4)
    kernel[0, 1] = kernel[1, 0] = 1.0
    rows = [("q1", "panel", True), ("q1", "panel", True), ("q2", "panel", True), ("q2", "panel", True)]
    assert found(compute(coupled({"base": kernel}, rows)))["base", "cosine"].value == pytest.approx(1.0)
    kernel[2, 3] = kernel[3, 2] = 1.0
    finding = found(compute(coupled({"base": kernel}, rows)))["base", "cosine"]
    assert finding.why == "the kernel is singular in 2 of 2 problems, so its median has no number"
