from math import comb

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oversharp.diagnostics.statistics.problem_changes import (
    STATES,
    ProblemCounts,
    change_p,
    lost_by_chance,
    problem_states,
)


def counts_of(before, after, n_before=8, n_after=8):
    size = len(before)
    return ProblemCounts(
        before_P=np.array(before),
        n_before_P=np.full(size, n_before),
        after_P=np.array(after),
        n_after_P=np.full(size, n_after),
    )


def test_problems_that_are_always_wrong_or_always_right_are_not_corrected_for():
    """One fall of 8 of 8 to none beside a thousand problems that cannot change: p stays 1 in C(16, 8)."""
    alone = 1 / comb(16, 8)
    assert change_p(counts_of([8, *[0] * 500, *[8] * 500], [0, *[0] * 500, *[8] * 500]))[0] == pytest.approx(alone)
    assert change_p(counts_of([8, *[4] * 1000], [0, *[4] * 1000]))[0] == pytest.approx(1001 * alone)


def test_each_direction_is_corrected_by_itself():
    """Of two problems one fell as far as the other rose: twice the p of either, not four times."""
    assert change_p(counts_of([8, 0], [0, 8])) == pytest.approx([2 / comb(16, 8)] * 2)
    assert change_p(counts_of([8, 8], [0, 0])) == pytest.approx([2 / comb(16, 8)] * 2)  # Holm: 2p and 1p, never falling


@pytest.mark.slow
@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 9)), min_size=1, max_size=8))
def test_the_checkpoints_swapped_turn_every_state_round_and_keep_every_p(pairs):
    counts = counts_of(*zip(*pairs, strict=True), n_before=6, n_after=9)
    turned = dict(zip(STATES, reversed(STATES), strict=True))
    assert problem_states(counts.swapped) == tuple(turned[state] for state in problem_states(counts))
    assert change_p(counts.swapped) == pytest.approx(change_p(counts))


@pytest.mark.slow
def test_where_nothing_changed_hardly_any_fall_is_sure():
    """Of 2,000 draws of 60 problems, at most 5 % hold a sure fall: 125 would be five standard errors too many."""
    rng = np.random.default_rng(3)
    rate_P = rng.beta(0.4, 0.4, size=60)
    false = 0
    for _ in range(2000):
        counts = counts_of(rng.binomial(32, rate_P), rng.binomial(32, rate_P), 32, 32)
        fell_P = np.isin(problem_states(counts), ["lost", "fell"])
        false += bool((change_p(counts)[fell_P] <= 0.05).any())
    assert 0 < false < 125


def test_chance_loses_as_many_problems_as_a_simulation_of_no_change():
    rng = np.random.default_rng(5)
    hits_P = rng.integers(0, 6, size=400)
    late_DP = rng.hypergeometric(hits_P, 32 - hits_P, 16, size=(2000, 400))
    lost = ((late_DP == 0) & (hits_P > 0)).sum(axis=1).mean()
    assert lost_by_chance(counts_of(hits_P, [0] * 400, 16, 16)) == pytest.approx(lost, rel=0.02)


def test_states_are_in_the_order_of_the_change():
    assert problem_states(counts_of([8, 8, 4, 4, 0], [0, 4, 4, 8, 8])) == STATES


def test_impossible_counts_are_refused():
    with pytest.raises(ValueError, match="0 <= correct <= n"):
        change_p(counts_of([9], [0]))
