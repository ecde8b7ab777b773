from math import comb

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import beta

from oversharp.diagnostics.statistics import problem_changes as module
from oversharp.diagnostics.statistics.problem_changes import (
    STATES,
    ProblemCounts,
    StoppedPair,
    change_p,
    fall_p_table,
    lost_by_chance,
    problem_states,
    rate_interval,
)
from oversharp.diagnostics.statistics.stopping import StoppingRule

#: Rules with few end points.
SMALL_BEFORE, SMALL_AFTER = (StoppingRule(rounds=rounds, enough=2) for rounds in ((4, 8, 16), (4, 8)))


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


BEFORE = StoppingRule.doubling(first=8, cap=128, enough=2)
AFTER = StoppingRule.doubling(first=8, cap=64, enough=2)


def stopped_counts(ends_before, ends_after, *, solved_before=None, before=BEFORE, after=AFTER):
    """Counts of end points (n, correct). Without ``solved_before``, a problem is solved if any sample is correct."""
    (n_before_P, before_P), (n_after_P, after_P) = (np.array(ends).T for ends in (ends_before, ends_after))
    pair = StoppedPair(
        before=before,
        after=after,
        solved_before_P=before_P > 0 if solved_before is None else np.array(solved_before),
        solved_after_P=after_P > 0,
    )
    return ProblemCounts(before_P=before_P, n_before_P=n_before_P, after_P=after_P, n_after_P=n_after_P, stopped=pair)


def draw_stopped(rng, rate_before_P, rate_after_P):
    """Draw the samples of both checkpoints up to where each rule stops."""
    ends, solved = [], []
    for rule, rate_P in ((BEFORE, rate_before_P), (AFTER, rate_after_P)):
        correct_NP = rng.random((rule.cap, len(rate_P))) < rate_P
        codes_P = rule.stop(np.stack([correct_NP[:n].sum(axis=0) for n in rule.rounds]))
        ends.append(np.stack(rule.hits(codes_P), axis=1))
        solved.append(correct_NP[: AFTER.cap].any(axis=0))
    return stopped_counts(*ends, solved_before=solved[0])


def test_a_stopped_problem_is_lost_if_it_is_solved_at_one_checkpoint_and_unsolved_up_to_the_smaller_cap():
    ends_before = [(8, 6), (128, 1), (128, 1), (128, 0), (8, 5), (8, 2)]
    ends_after = [(64, 0), (64, 0), (64, 0), (64, 1), (8, 2), (8, 5)]
    counts = stopped_counts(ends_before, ends_after, solved_before=[True, True, False, False, True, True])
    states = ("lost", "lost", "unchanged", "gained", "fell", "rose")
    assert problem_states(counts) == states
    p_P = change_p(counts)
    assert p_P[2] == 1.0  # its only correct sample is beyond the cap of the other checkpoint
    assert p_P[0] < 0.05 < p_P[1]
    turned = dict(zip(STATES, reversed(STATES), strict=True))
    assert problem_states(counts.swapped) == tuple(turned[state] for state in states)
    assert change_p(counts.swapped) == pytest.approx(p_P)


def test_the_p_of_stopped_counts_is_the_largest_chance_of_such_a_fall_at_any_success_rate():
    """Two of two, then none of four: p² (1 − p)⁴ is largest at 1/3."""
    rule = StoppingRule(rounds=(2, 4), enough=1)
    none, all_two, half, two_late = rule.codes(np.array([4, 2, 2, 4]), np.array([0, 2, 1, 2]))
    table = fall_p_table(rule, rule)
    assert table[all_two, none] == pytest.approx((1 / 9) * (2 / 3) ** 4, rel=1e-3)
    assert table[all_two, none] < table[two_late, none] < table[half, none] < 0.2
    assert table[none, all_two] == pytest.approx(1.0, abs=1e-3)


def test_a_table_of_falls_alone_has_the_same_p_of_every_fall() -> None:
    whole, falls = (fall_p_table(SMALL_BEFORE, SMALL_AFTER, falls_only=only) for only in (False, True))
    (n_B, hits_B), (n_A, hits_A) = (np.array(rule.ends).T for rule in (SMALL_BEFORE, SMALL_AFTER))
    fell_BA = hits_A * n_B[:, None] < hits_B[:, None] * n_A
    assert 0 < fell_BA.sum() < fell_BA.size
    assert (falls[fell_BA] == whole[fell_BA]).all()
    assert (falls[~fell_BA] == 1).all()
    assert (whole[~fell_BA] < 1).any()


@pytest.mark.slow
@pytest.mark.parametrize("level", [0.05, 0.001])
def test_a_fall_of_a_stopped_problem_is_found_as_often_as_its_level_says(level, monkeypatch):
    rate_R = np.linspace(0.0, 1.0, 801)[1:-1]
    chances_of = (BEFORE.chances(rate_R), AFTER.chances(rate_R))

    def found(p_BA):
        return np.einsum("rb,ba,ra->r", chances_of[0], p_BA <= level, chances_of[1]).max() / level

    assert 0.7 < found(fall_p_table(BEFORE, AFTER)) < 1.005
    monkeypatch.setattr(module, "_RATES", 2)
    assert found(fall_p_table.__wrapped__(BEFORE, AFTER)) > 2  # the p at the smallest and the largest rate alone


@pytest.mark.slow
def test_where_nothing_changed_hardly_any_fall_of_a_stopped_problem_is_sure():
    """Of 1,000 draws of 60 problems, at most 5 % hold a sure fall: 85 would be five standard errors too many."""
    rng = np.random.default_rng(4)
    rate_P = rng.beta(0.4, 1.0, size=60)
    false = 0
    for _ in range(1000):
        counts = draw_stopped(rng, rate_P, rate_P)
        fell_P = np.isin(problem_states(counts), ["lost", "fell"])
        false += bool((change_p(counts)[fell_P] <= 0.05).any())
    assert 0 < false < 85


def test_a_problem_that_a_checkpoint_lost_is_sure():
    rng = np.random.default_rng(4)
    found = 0
    for _ in range(20):
        counts = draw_stopped(rng, np.array([0.4, *[0.3] * 20]), np.array([0.0, *[0.3] * 20]))
        found += bool(change_p(counts)[0] <= 0.05)
    assert found >= 14  # at most one of 20 by chance


@pytest.mark.slow
def test_chance_loses_as_many_stopped_problems_as_a_simulation_of_no_change():
    rng = np.random.default_rng(5)
    rate_P = rng.beta(0.3, 4.0, size=400)
    expected, lost, gained = [], [], []
    for _ in range(200):
        counts = draw_stopped(rng, rate_P, rate_P)
        states = problem_states(counts)
        expected.append([lost_by_chance(counts), lost_by_chance(counts.swapped)])
        lost.append(states.count("lost"))
        gained.append(states.count("gained"))
    error = np.std(np.array(expected)[:, 0] - lost) / np.sqrt(200)
    assert error < 0.5
    assert np.mean(expected, axis=0) == pytest.approx([np.mean(lost), np.mean(gained)], abs=3 * error)
    assert np.mean(lost) > 10
    uneven = counts_of([3, 1, 4, 0, 4], [0, 1, 3, 0, 8], 4, 8)
    exact = sum(comb(4, hits) / comb(12, hits) for hits in (3, 2))
    assert lost_by_chance(uneven) == pytest.approx(exact, rel=1e-12)  # 7 or 12 hits do not fit into 4 samples
    assert lost_by_chance(stopped_counts([(8, 5)], [(64, 0)], before=AFTER)) is None  # no cap is twice the other


def test_the_interval_of_a_stopped_problem_misses_its_rate_as_rarely_as_it_says():
    for rule in (BEFORE, AFTER):
        low_E, high_E = rate_interval(rule, np.arange(rule.cap + 1))
        assert (np.diff(low_E) >= 0).all()
        assert (np.diff(high_E) >= 0).all()
        rate_R = np.linspace(0.0, 1.0, 401)[1:-1]
        missed = ((low_E > rate_R[:, None]) | (high_E < rate_R[:, None])) * rule.chances(rate_R)
        assert 0.03 < missed.sum(axis=1).max() < 0.0505
    low_E, high_E = rate_interval(StoppingRule(rounds=(16,), enough=1), np.arange(17))
    assert low_E[1:] == pytest.approx(beta.ppf(0.025, np.arange(1, 17), np.arange(16, 0, -1)), abs=4e-3)
    assert high_E[:-1] == pytest.approx(beta.ppf(0.975, np.arange(1, 17), np.arange(16, 0, -1)), abs=4e-3)


def test_counts_that_no_rule_leaves_are_refused():
    with pytest.raises(ValueError, match="not an end point"):
        change_p(stopped_counts([(8, 1)], [(64, 0)]))


def test_falls_alone_have_the_same_p_and_rises_have_none() -> None:
    for counts in (counts_of([8, 4, 0, 0, 8], [0, 1, 8, 0, 8]), stopped_counts([(8, 8), (128, 1)], [(64, 0), (8, 8)])):
        falls, all_P = change_p(counts, falls_only=True), change_p(counts)
        rose_P = counts.directions > 0
        assert 0 < rose_P.sum() < len(rose_P)
        assert np.isnan(falls[rose_P]).all()
        assert (falls[~rose_P] == all_P[~rose_P]).all()
