import numpy as np
import pytest

from diagnostics.measures._example import tiny_evidence
from diagnostics.measures.problems_gained import compute

COLUMNS = "checkpoint_id problem_id n n_correct"


def share(now, before=(3, 1, 0, 0)):
    counts = {"base": before, "late": now}
    rows = [(c, f"q{i}", 4, correct) for c, row in counts.items() for i, correct in enumerate(row)]
    (finding,) = compute(tiny_evidence("problem_counts", COLUMNS, rows, n=4))
    return finding


def test_a_planted_gain_is_counted_and_a_mere_rise_is_not():
    assert share((3, 1, 1, 0)).value == 0.25
    assert share((0, 0, 4, 4)).value == 0.5
    assert share((4, 4, 0, 0)).value == 0.0


def test_without_any_change_chance_gains_as_many_as_it_loses():
    from diagnostics.measures import problems_lost

    rng = np.random.default_rng(3)
    rows = [(c, f"q{i:04}", 64, int(rng.binomial(64, 0.01))) for c in ("base", "late") for i in range(3000)]
    evidence = tiny_evidence("problem_counts", COLUMNS, rows, n=64)
    (gained,), (lost,) = compute(evidence), problems_lost.compute(evidence)
    assert gained.value > 0.15
    assert gained.value == pytest.approx(lost.value, abs=0.04)
