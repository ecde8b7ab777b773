import numpy as np
import pytest

from oversharp.diagnostics.measures import get_measure
from oversharp.diagnostics.measures.examples import tiny_evidence

COLUMNS = "checkpoint_id problem_id n n_correct"


def findings(counts, name="cover_at_tau", n=20):
    """(checkpoint, scope) → finding; ``counts``: correct ones among n samples of every problem."""
    rows = [(c, f"q{i:03}", n, k) for c, row in counts.items() for i, k in enumerate(row)]
    made = get_measure(name)(tiny_evidence("problem_counts", COLUMNS, rows, n=n))
    return {(f.checkpoint_id, f.scope): f for f in made}


@pytest.mark.parametrize(
    ("scope", "share"), [("tau 0.1", 4 / 5), ("tau 0.25", 3 / 5), ("tau 0.5", 2 / 5), ("tau 0.9", 1 / 5)]
)
def test_a_rate_of_exactly_tau_counts(scope, share):
    found = findings({"base": (1, 2, 5, 10, 18)})["base", scope]
    assert (found.value, found.n) == (share, 5)


def test_tau_is_met_in_whole_numbers():
    # 0.1 * 30 is 3.0000000000000004 in floating point
    assert findings({"base": (3,)}, n=30)["base", "tau 0.1"].value == 1.0


def test_a_planted_loss_of_reliability_shows_where_a_guess_in_k_would_hide_it():
    counts = {"base": (10,) * 30, "late": (1,) * 15 + (20,) * 15, "twin": (10,) * 30}
    found = findings(counts, "cover_at_tau_delta")
    assert found["late", "tau 0.1"].value == -0.5
    assert found["late", "tau 0.1"].high < 0
    assert found["late", "tau 0.9"].value == 0.5
    assert {f.value for (checkpoint, _), f in found.items() if checkpoint == "twin"} == {0.0}
    assert all(f.low < 0 < f.high for (checkpoint, _), f in found.items() if checkpoint == "twin")


def test_too_few_samples_cannot_tell_a_small_rate_or_one_near_1():
    found = findings({"base": (1, 2), "late": (3, 4)}, n=9)
    assert found["base", "tau 0.1"].why == "needs at least 10 samples per problem; there are 9"
    assert found["late", "tau 0.9"].why == "needs at least 10 samples per problem; there are 9"
    assert found["base", "tau 0.25"].value == 0.0
    assert findings({"base": (1, 2)}, n=3)["base", "tau 0.5"].value == 0.5


@pytest.mark.slow
def test_the_interval_of_a_change_covers_where_few_problems_change():
    rng = np.random.default_rng(0)
    covered = []
    for _ in range(300):
        late = np.where(rng.random(30) < 0.07, 0, 20)
        one = findings({"base": (20,) * 30, "late": tuple(late)}, "cover_at_tau_delta")["late", "tau 0.5"]
        covered.append(one.low <= -0.07 <= one.high)
    assert np.mean(covered) >= 0.93
