from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.papers.theory.softmax_dynamics import (
    expected_group_update,
    expected_logit_update,
    expected_probability_update,
    logit_update,
    probability_change,
    tempered_policy,
    update_signs,
)

POLICY_V, REWARD_V = np.array([0.5, 0.05, 0.45]), np.array([1.0, 2.0, 0.0])


def enumerated_group_update(policy_V: np.ndarray, reward_V: np.ndarray, group_size: int) -> np.ndarray:
    """The expectation over every possible group, by its definition."""
    total_V = np.zeros(len(policy_V))
    for group in product(range(len(policy_V)), repeat=group_size):
        advantage_G = reward_V[list(group)] - reward_V[list(group)].mean()
        gradient_V = sum(
            logit_update(policy_V, action, advantage, learning_rate=1.0)
            for action, advantage in zip(group, advantage_G, strict=True)
        )
        total_V += np.prod(policy_V[list(group)]) * gradient_V / group_size
    return total_V


@pytest.mark.parametrize("group_size", [2, 3, 5])
def test_the_group_update_is_the_average_over_all_groups(group_size):
    exact_V = enumerated_group_update(POLICY_V, REWARD_V, group_size)
    update_V, printed_V = (
        expected_group_update(POLICY_V, REWARD_V, group_size=group_size, learning_rate=1.0, as_printed=as_printed)
        for as_printed in (False, True)
    )
    assert update_V == pytest.approx(exact_V, abs=1e-15)
    assert printed_V * (group_size - 1) / group_size == pytest.approx(exact_V, abs=1e-15)


@settings(max_examples=60)
@given(st.integers(0, 10**6))
def test_the_printed_sum_of_theorem_1_is_the_short_form(seed):
    rng = np.random.default_rng(seed)
    policy_V, advantage_V = rng.dirichlet(np.ones(5)), rng.normal(size=5)
    printed_V = [
        0.1
        * policy_V[v]
        * ((1 - policy_V[v]) * advantage_V[v] - sum(policy_V[u] * advantage_V[u] for u in range(5) if u != v))
        for v in range(5)
    ]
    update_V = expected_logit_update(policy_V, advantage_V, learning_rate=0.1)
    assert update_V == pytest.approx(printed_V, abs=1e-15)
    assert update_V.sum() == pytest.approx(0.0, abs=1e-15)


@settings(max_examples=60)
@given(st.integers(0, 10**6))
def test_the_first_order_change_is_the_exact_one_for_small_steps(seed):
    rng = np.random.default_rng(seed)
    policy_V, change_V = rng.dirichlet(np.ones(4)), rng.normal(size=4)
    exact_V = probability_change(policy_V, 1e-6 * change_V) / 1e-6
    assert exact_V == pytest.approx(expected_probability_update(policy_V, change_V), abs=1e-5)


@settings(max_examples=80)
@given(st.integers(0, 10**6), st.sampled_from([1.0, -1.0]))
def test_the_signs_are_those_of_a_small_exact_step(seed, advantage):
    rng = np.random.default_rng(seed)
    policy_V = rng.dirichlet(np.full(4, 0.5)) * 0.99 + 0.0025
    action = int(rng.integers(4))
    change_V = probability_change(policy_V, logit_update(policy_V, action, advantage, learning_rate=1e-7))
    clear_V = np.abs(change_V / policy_V) > 1e-9
    signs_V = update_signs(policy_V, action, advantage)
    assert (np.sign(change_V)[clear_V] == signs_V[clear_V]).all()
    assert signs_V[action] == advantage  # only this part of Remark 2 is always true


def test_remark_2_is_false_beside_a_dominant_third_action():
    policy_V = np.array([0.1, 0.8, 0.1])
    rewarded_V = probability_change(policy_V, logit_update(policy_V, 0, 1.0, learning_rate=0.01))
    assert rewarded_V[2] > 0  # printed: falls
    punished_V = probability_change(policy_V, logit_update(policy_V, 0, -1.0, learning_rate=0.01))
    assert punished_V[2] < 0  # printed: rises
    assert update_signs(policy_V, 0, -1.0).tolist() == [-1, 1, -1]
    assert update_signs(policy_V, 0, -1.0, as_printed=True).tolist() == [-1, 1, 1]


def test_temperature_flattens():
    logit_V = np.log([0.8, 0.1, 0.1])
    assert tempered_policy(logit_V, temperature=1.0) == pytest.approx([0.8, 0.1, 0.1])
    assert tempered_policy(logit_V, temperature=1e9) == pytest.approx([1 / 3] * 3)


def test_what_is_no_policy_is_refused():
    with pytest.raises(ValueError, match="sum to 1"):
        logit_update([0.5, 0.6], 0, 1.0, learning_rate=1.0)
    with pytest.raises(ValueError, match="action"):
        logit_update([0.5, 0.5], 2, 1.0, learning_rate=1.0)
    with pytest.raises(ValueError, match="at least 2 samples"):
        expected_group_update([0.5, 0.5], [1.0, 0.0], group_size=1, learning_rate=1.0)
    with pytest.raises(ValueError, match="temperature"):
        tempered_policy([0.0], temperature=0.0)
