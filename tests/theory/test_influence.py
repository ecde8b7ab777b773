import math

import numpy as np
import pytest

from oversharp.diagnostics.theory.influence import (
    first_order_influence,
    forward_kl,
    group_advantages,
    interference,
    kernel_lower_bound,
    mean_logp,
    perplexity,
    reinforce_logit_gradient,
    self_learns,
    self_objective,
)


def test_influence_is_the_first_order_of_a_real_step():
    """A linear softmax policy: the change in log π after an SGD step, against η K A."""
    rng = np.random.default_rng(0)
    theta_VD, x_ND = rng.normal(size=(4, 3)), rng.normal(size=(5, 3))
    action_N, advantage_B = np.array([0, 1, 2, 3, 1]), np.array([1.0, -0.5, 0.8])

    def log_policies(theta_VD: np.ndarray) -> np.ndarray:
        logit_NV = x_ND @ theta_VD.T
        return logit_NV - np.log(np.exp(logit_NV).sum(axis=1, keepdims=True))

    def errors(learning_rate: float) -> float:
        residual_NV = np.eye(4)[action_N] - np.exp(log_policies(theta_VD))
        gradient_NX = np.einsum("nv,nd->nvd", residual_NV, x_ND).reshape(5, -1)
        kernel_NN = gradient_NX @ gradient_NX.T
        step_VD = learning_rate * (advantage_B @ gradient_NX[:3]).reshape(4, 3)
        change_N = (log_policies(theta_VD + step_VD) - log_policies(theta_VD))[np.arange(5), action_N]
        predicted_N = first_order_influence(kernel_NN[:, :3], advantage_B, learning_rate=learning_rate)
        return float(np.abs(change_N - predicted_N).max())

    assert errors(1e-3) < 1e-4
    assert errors(1e-4) == pytest.approx(errors(1e-3) / 100, rel=0.05)  # what is left out is O(η²)


def test_the_kernel_is_at_least_what_the_change_proves():
    influence_R = first_order_influence(np.array([[3.0], [-2.0]]), [0.5], learning_rate=0.1)
    assert kernel_lower_bound(influence_R, learning_rate=0.1, largest_advantage=0.5).tolist() == pytest.approx([3, 2])
    assert kernel_lower_bound(influence_R, learning_rate=0.1, largest_advantage=1.0).tolist() == pytest.approx([1.5, 1])


def test_interference_by_hand():
    found = interference([-1.0, 0.5, 2.0], np.array([True, True, False]))
    assert (found.direction_nats, found.magnitude_nats2) == pytest.approx((-0.25, 5.25 / 3))
    assert interference([1.0], np.array([False])).direction_nats is None


def test_perplexity_by_hand_is_a_mean_of_exponentials():
    assert perplexity([-2 * math.log(2), -math.log(8)], [2, 1]) == pytest.approx((2 + 8) / 2)
    assert mean_logp([-6.0, -1.0], [3, 1]).tolist() == [-2.0, -1.0]
    with pytest.raises(ValueError, match="at least one token"):
        mean_logp([-1.0, -1.0], [0, 1])


def test_reinforce_learns_least_from_what_is_rarest():
    assert reinforce_logit_gradient([0.5, 0.3, 0.2], 1, 2.0).tolist() == pytest.approx([-0.3, 0.42, -0.12])
    assert not reinforce_logit_gradient([1.0, 0.0], 1, 1.0).any()
    with pytest.raises(ValueError, match="action"):
        reinforce_logit_gradient([1.0, 0.0], 2, 1.0)


def test_self_learns_where_greedy_fails_and_regularises_everywhere():
    greedy_correct_P = np.array([True, False, False])
    assert self_learns(greedy_correct_P).tolist() == [False, True, True]
    assert self_learns(greedy_correct_P, as_printed=True).all()
    value = self_objective([1.0, 0.25, 0.0], [0.3, 0.1, 0.2], greedy_correct_P, beta=0.5)
    assert value == pytest.approx((0.25 - 0.5 * 0.6) / 3)


def test_forward_kl_by_hand():
    assert forward_kl([0.5, 0.5], [0.25, 0.75]) == pytest.approx(0.5 * math.log(2) + 0.5 * math.log(2 / 3))
    assert forward_kl([0.5, 0.5, 0.0], [0.5, 0.5, 0.0]) == 0.0
    with pytest.raises(ValueError, match="infinite"):
        forward_kl([0.5, 0.5], [1.0, 0.0])


def test_an_all_wrong_group_of_shaped_rewards_still_has_advantages():
    assert group_advantages([-0.5, -1.0, -1.0, -1.0]).tolist() == pytest.approx([1.5, -0.5, -0.5, -0.5])
    assert group_advantages([1.0, 0.0, 0.0, 0.0], ddof=0).tolist() == pytest.approx([3**0.5] + [-(3**-0.5)] * 3)


def test_equal_rewards_have_no_advantage_whatever_their_rounding():
    assert not group_advantages([0.1] * 7).any()
    with pytest.raises(ValueError, match="at least 2 rewards"):
        group_advantages([1.0])


def test_shapes_are_checked():
    with pytest.raises(ValueError, match="2 columns"):
        first_order_influence(np.ones((3, 1)), [1.0, 1.0], learning_rate=0.1)
    with pytest.raises(ValueError, match="booleans"):
        interference([1.0], np.array([1]))
