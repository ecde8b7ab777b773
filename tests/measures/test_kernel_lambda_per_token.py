import numpy as np

from diagnostics.measures import get_measure

compute = get_measure("kernel_lambda_per_token").compute


def test_the_diagonal_is_divided_by_the_square_of_the_length(coupled, found):
    rows = [("q", "panel", True), ("q", "panel", False), ("q", "own", True)]
    evidence = coupled({"base": np.diag([100.0, 9.0, 0.01])}, rows, n_tokens=[10, 2, 1])
    findings = found(compute(evidence))
    assert (findings["base", "min"].value, findings["base", "max"].value) == (1.0, 2.25)
