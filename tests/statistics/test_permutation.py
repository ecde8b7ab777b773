import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oversharp.diagnostics.statistics.pass_at_k import pass_at_k_table
from oversharp.diagnostics.statistics.permutation import link_test, within_correlation


def test_one_step_without_strata_is_pearson():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(1, 30)), rng.normal(size=(1, 30))
    assert within_correlation(x, y) == pytest.approx(np.corrcoef(x[0], y[0])[0, 1])


def test_levels_of_steps_and_strata_do_not_count():
    x_SP = np.array([[0.0, 1.0, 0.0, 1.0], [0.0, 1.0, 0.0, 1.0]])
    y_SP = np.array([[0.0, 1.0, 1.0, 0.0], [0.0, 1.0, 1.0, 0.0]])
    assert within_correlation(x_SP, y_SP) == 0.0
    steps_SP, strata_P = np.array([[5.0], [-70.0]]), np.array([0, 0, 1, 1])
    assert within_correlation(x_SP + steps_SP, x_SP - steps_SP) == pytest.approx(1.0)
    assert within_correlation(x_SP + 9.0 * strata_P, y_SP + 9.0 * strata_P) > 0.9
    assert within_correlation(x_SP + 9.0 * strata_P, y_SP + 9.0 * strata_P, strata_P) == pytest.approx(0.0)


def test_hand_computed_and_signed():
    x_SP, y_SP = np.array([[0.0, 2.0], [0.0, 4.0]]), np.array([[0.0, 2.0], [2.0, 0.0]])
    # deviations ±1, ±2 and ±1, ∓1: (2 − 4) / √(10 · 4)
    assert within_correlation(x_SP, y_SP) == pytest.approx(-2 / np.sqrt(40))


def test_nothing_that_varies_is_unknown_and_says_why():
    rng = np.random.default_rng(0)
    x_SP = rng.normal(size=(2, 5))
    constant_SP = np.array([[0.1], [0.2]]) + np.array([1e-17, 0, 0, 2e-17, 0])
    for y_SP in (np.zeros((2, 5)), constant_SP):
        assert within_correlation(x_SP, y_SP) is None
        test = link_test(x_SP, y_SP)
        assert (test.correlation, test.p_value) == (None, None)
        assert test.why
    assert within_correlation(np.zeros((0, 5)), np.zeros((0, 5))) is None
    assert within_correlation(np.zeros((3, 0)), np.zeros((3, 0))) is None
    assert link_test(x_SP, x_SP, stratum_P=np.arange(5)).why  # one problem per stratum: nothing to exchange


def test_the_p_value_is_the_share_of_all_orders_that_reach_the_statistic():
    rng = np.random.default_rng(3)
    x_SP, y_SP = rng.normal(size=(2, 5)), rng.normal(size=(2, 5))
    r = abs(within_correlation(x_SP, y_SP))
    orders = [list(order) for order in itertools.permutations(range(5))]
    exact = np.mean([abs(within_correlation(x_SP, y_SP[:, order])) >= r - 1e-12 for order in orders])
    assert link_test(x_SP, y_SP, n_permutations=4000).p_value == pytest.approx(exact, abs=0.03)


def test_strata_exchange_only_among_themselves():
    rng = np.random.default_rng(4)
    x_SP, y_SP, strata_P = rng.normal(size=(2, 6)), rng.normal(size=(2, 6)), np.array(["b", "a", "a", "b", "a", "b"])
    r = abs(within_correlation(x_SP, y_SP, strata_P))
    a, b = np.flatnonzero(strata_P == "a"), np.flatnonzero(strata_P == "b")
    as_far = []
    for order_a, order_b in itertools.product(itertools.permutations(a), itertools.permutations(b)):
        other_SP = y_SP.copy()
        other_SP[:, a], other_SP[:, b] = y_SP[:, list(order_a)], y_SP[:, list(order_b)]
        as_far.append(abs(within_correlation(x_SP, other_SP, strata_P)) >= r - 1e-12)
    assert link_test(x_SP, y_SP, stratum_P=strata_P, n_permutations=4000).p_value == pytest.approx(
        np.mean(as_far), abs=0.03
    )


def test_ties_count_as_reached_and_p_is_never_zero():
    x_SP = np.array([[0.1, 0.7]])
    assert link_test(x_SP, 0.3 * x_SP, n_permutations=99).p_value == 1.0  # both orders have |r| = 1
    many_SP = np.random.default_rng(0).normal(size=(3, 40))
    assert link_test(many_SP, many_SP, n_permutations=99).p_value == 0.01


def test_both_directions_count_and_seeds_repeat():
    rng = np.random.default_rng(5)
    x_SP, y_SP = rng.normal(size=(3, 12)), rng.normal(size=(3, 12))
    one, two, mirrored = link_test(x_SP, y_SP), link_test(x_SP, y_SP), link_test(x_SP, -y_SP)
    assert one == two
    assert mirrored.p_value == one.p_value
    assert mirrored.correlation == pytest.approx(-one.correlation)
    assert link_test(x_SP, y_SP, seed=1).p_value != one.p_value


def test_shapes_that_differ_are_an_error():
    with pytest.raises(ValueError, match=r"both be step × problem; got the shapes \(2, 3\) and \(2, 4\)"):
        link_test(np.zeros((2, 3)), np.zeros((2, 4)))


@pytest.mark.slow
@given(st.integers(0, 2**32 - 1), st.integers(1, 4), st.integers(2, 12))
def test_scale_and_order_of_problems_do_not_change_the_correlation(seed, n_steps, n_problems):
    rng = np.random.default_rng(seed)
    x_SP, y_SP = rng.normal(size=(n_steps, n_problems)), rng.normal(size=(n_steps, n_problems))
    strata_P, order = rng.integers(0, 2, n_problems), rng.permutation(n_problems)
    r = within_correlation(x_SP, y_SP, strata_P)
    moved = within_correlation(2.0 * x_SP[:, order] + 1.0, y_SP[:, order], strata_P[order])
    assert (r is None) == (moved is None)
    if r is not None:
        assert -1.0 <= r <= 1.0
        assert moved == pytest.approx(r, abs=1e-9)


def changes(rng, *, slopes, link, n_problems=30, n_steps=8, n=64, k=1):
    """Changes of log-probability and of sampled pass@k over a training run that lowers both for all problems."""
    t = np.arange(n_steps + 1)[:, None]
    course_TP = slopes * t * rng.normal(size=n_problems) + rng.normal(0, 0.2, (n_steps + 1, n_problems)).cumsum(0)
    odds_TP = rng.normal(-1, 1.5, n_problems) - 0.2 * t + course_TP
    correct_TP = rng.binomial(n, 1 / (1 + np.exp(-odds_TP)))
    own_TP = slopes * t * rng.normal(size=n_problems) + rng.normal(0, 0.4, (n_steps + 1, n_problems)).cumsum(0)
    logp_TP = -20 - 0.6 * t + own_TP + link * course_TP
    return np.diff(logp_TP, axis=0), np.diff(pass_at_k_table(n, [k])[correct_TP, 0], axis=0)


def rejected(slopes, link, seed, reps):
    rng = np.random.default_rng(seed)
    return np.mean(
        [link_test(*changes(rng, slopes=slopes, link=link), n_permutations=99).p_value <= 0.05 for _ in range(reps)]
    )


@pytest.mark.slow
@pytest.mark.parametrize("slopes", [0.0, 1.0])
def test_trends_and_slow_problems_without_a_link_are_rejected_in_one_of_twenty(slopes):
    assert 0.02 <= rejected(slopes, 0.0, seed=0, reps=400) <= 0.08  # 0.05 ± 2.8 standard errors


def test_a_link_between_problems_is_found():
    assert rejected(0.2, 1.5, seed=1, reps=60) > 0.8
