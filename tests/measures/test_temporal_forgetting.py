import numpy as np
import pytest

from oversharp.diagnostics.measures.coverage.temporal_forgetting import temporal_forgetting
from oversharp.diagnostics.measures.examples import tiny_evidence

COLUMNS = "checkpoint_id problem_id n n_correct"


def forgotten(n, **counts):
    """(checkpoint, scope) → share; ``counts``: correct ones among n samples of every problem, by checkpoint."""
    rows = [(c, f"q{i:05}", n, int(k)) for c, row in counts.items() for i, k in enumerate(row)]
    return {
        (f.checkpoint_id, f.scope): f.value
        for f in temporal_forgetting(tiny_evidence("problem_counts", COLUMNS, rows, n=n))
    }


def test_what_any_checkpoint_before_solved_is_forgotten_until_it_is_solved_again():
    found = forgotten(16, base=(1, 0, 0, 0), middle=(0, 2, 0, 3), late=(0, 0, 0, 1), last=(2, 0, 1, 0))
    assert [found[c, "all"] for c in ("middle", "late", "last")] == [0.25, 0.5, 0.5]


@pytest.mark.parametrize(
    ("best", "clear"),
    # 4 of 32 all among the first 16: C(16, 4)/C(32, 4) = 1820/35960 = .0506; 5 of them: .0217; for two before, ≤ .025
    [(4, 0.0), (5, 1.0)],
)
def test_a_problem_is_clearly_forgotten_if_luck_would_hardly_leave_none_of_so_many(best, clear):
    assert forgotten(16, base=(best,), late=(0,))["late", "clear"] == clear
    assert forgotten(16, base=(0,), middle=(best,), late=(0,))["late", "clear"] == clear
    many = forgotten(16, base=(0,), **{f"c{i}": (0,) for i in range(4)}, middle=(best,), late=(0,))
    assert many["late", "clear"] == 0.0  # best of six, one of which may have been lucky


def test_a_planted_loss_is_clear_and_its_clean_twin_is_not():
    found = forgotten(64, base=(20,) * 10, late=(0,) * 5 + (20,) * 5, twin=(12,) * 10)
    assert (found["late", "all"], found["late", "clear"]) == (0.5, 0.5)
    assert (found["twin", "all"], found["twin", "clear"]) == (0.0, 0.0)


@pytest.mark.slow
def test_without_any_change_many_are_forgotten_by_chance_and_hardly_any_clearly():
    rng = np.random.default_rng(0)
    found = forgotten(64, **{name: rng.binomial(64, 0.02, 4000) for name in ("base", *(f"c{i}" for i in range(9)))})
    assert found["c0", "all"] == pytest.approx(0.20, abs=0.03)
    assert found["c8", "all"] == pytest.approx(0.27, abs=0.03)
    assert max(found["c0", "clear"], found["c8", "clear"]) < 0.01


def test_a_checkpoint_that_lacks_samples_is_passed_over():
    rows = [("base", "q", 16, 0), ("middle", "q", 9, 9), ("late", "q", 16, 0)]
    made = temporal_forgetting(tiny_evidence("problem_counts", COLUMNS, rows, n=16))
    assert {f.checkpoint_id: f.value for f in made} == {"middle": None, "late": 0.0}
