import numpy as np

from diagnostics.measures import get_measure
from diagnostics.measures._kernel_example import gradients, tiny_kernels

compute = get_measure("kernel_bound_failures").compute


def verdicts(gradient, rows, found):
    return {
        scope: f.value for (_, scope), f in found(compute(tiny_kernels({"base": gradients(*gradient)}, rows))).items()
    }


def test_a_uniform_kernel_keeps_both_bounds(found):
    """λ = 2, ρ = 1 once the wrong response's gradient is turned; the unseen one is as close as they are."""
    gradient = [(1, 1, 0, 0), (-1, 0, -1, 0), (1, 0, 0, 1)]
    rows = [("q", "own", True), ("q", "own", False), ("q", "panel", True)]
    # bound: 1·1/(2 + 1) = 1/3; exact: α = (1/6, 1/6), so 1/3
    assert verdicts(gradient, rows, found) == dict.fromkeys(
        ("unseen fails", "unseen no bound", "seen fails", "seen no bound"), 0.0
    )


def test_an_unseen_response_nearer_than_the_seen_ones_breaks_case_1(found):
    gradient = [(2, 0), (0, -1), (1, 1)]
    rows = [("q", "own", True), ("q", "own", False), ("q", "panel", True)]
    found_here = verdicts(gradient, rows, found)
    assert (found_here["unseen fails"], found_here["unseen no bound"]) == (1.0, 0.0)


def test_a_repeated_mode_breaks_case_2(found):
    """Orthogonal, equal gradients: the bound is N·y, the shift y."""
    repeated = verdicts(np.eye(2), [("q", "own own", True), ("q", "own", False)], found)
    once = verdicts(np.eye(2), [("q", "own", True), ("q", "own", False)], found)
    assert (repeated["seen fails"], once["seen fails"]) == (1.0, 0.0)


def test_a_denominator_below_zero_is_no_bound_and_no_failure(found):
    """Correct and wrong share a direction: turned, ρ = −5 against λ_min = 1."""
    gradient = [(1, 0), (5, 1), (1, 1)]
    rows = [("q", "own", True), ("q", "own", False), ("q", "panel", True)]
    found_here = verdicts(gradient, rows, found)
    assert (found_here["unseen fails"], found_here["unseen no bound"]) == (0.0, 1.0)


def test_without_an_unseen_correct_response_case_1_is_unknown(coupled, found):
    findings = found(compute(coupled({"base": np.eye(2)}, [("q", "own", True), ("q", "own panel", False)])))
    assert findings["base", "unseen fails"].why == "no unseen correct response beside a batch with advantages"
    assert findings["base", "seen fails"].n == 1
