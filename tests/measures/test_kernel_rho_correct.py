import pytest

from diagnostics.measures import get_measure
from diagnostics.measures._kernel_example import gradients

compute = get_measure("kernel_rho_correct").compute


def test_only_correct_pairs_of_one_problem_count(coupled, found):
    kernel = gradients((1, 0), (3, 4), (-1, 0), (1, 0), (0, 1))
    rows = [
        ("q1", "mode", True),
        ("q1", "panel", True),
        ("q1", "panel", False),
        ("q2", "mode", True),
        ("q2", "own", True),
    ]
    finding = found(compute(coupled({"base": kernel}, rows)))["base", "all"]
    assert (finding.value, finding.n) == (pytest.approx(0.6), 1)


def test_one_correct_response_has_no_other(coupled, found):
    finding = found(compute(coupled({"base": gradients((1, 0), (1, 1))}, [("q", "mode", True), ("q", "panel", False)])))
    assert "no problem has two correct responses" in finding["base", "all"].why
