import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oversharp.diagnostics.theory.assumptions import coupling_flags, fit_decay, repeats
from oversharp.diagnostics.theory.coupling import (
    dual_coefficients,
    effective_rank,
    first_order_influence,
    group_advantages,
    induced_shift,
    kernel_extremes,
    kernel_of_means,
    target_shifts,
)

seeds = st.integers(0, 10**6)


def features(rng: np.random.Generator, n_rows: int, n_dimensions: int = 40) -> np.ndarray:
    return rng.normal(size=(n_rows, n_dimensions)) + 0.7


@settings(max_examples=60)
@given(seeds)
def test_the_exact_shift_is_the_solved_system_and_the_minimum_norm_update(seed):
    rng = np.random.default_rng(seed)
    gradient_GD, other_TD, target_G = features(rng, 6), features(rng, 3), rng.normal(size=6)
    kernel_GG, cross_TG = gradient_GD @ gradient_GD.T, other_TD @ gradient_GD.T
    shift_T = induced_shift(kernel_GG, cross_TG, target_G)
    assert shift_T == pytest.approx(cross_TG @ np.linalg.solve(kernel_GG, target_G), rel=1e-8, abs=1e-9)
    update_D = np.linalg.lstsq(gradient_GD, target_G, rcond=None)[0]
    assert shift_T == pytest.approx(other_TD @ update_D, rel=1e-8, abs=1e-9)


@settings(max_examples=60)
@given(seeds, st.floats(0.0, 1.0))
def test_a_seen_mode_moves_by_eta_times_its_target_even_where_the_kernel_is_singular(seed, eta):
    rng = np.random.default_rng(seed)
    mode_G = np.array([0, 1, 0, 2, 0, 1])
    mode_kernel_MM = (lambda f: f @ f.T)(features(rng, 3))
    kernel_GG = mode_kernel_MM[np.ix_(mode_G, mode_G)]
    target_G = target_shifts(mode_G, rng.normal(size=3)[mode_G], beta=0.1, signed=True)
    shift_T = induced_shift(kernel_GG, eta * mode_kernel_MM[:, mode_G], target_G)
    assert shift_T == pytest.approx(eta * target_G[[0, 1, 3]], abs=1e-7)


def test_signed_targets_on_a_plain_kernel_are_the_papers_on_a_kernel_with_the_signs_absorbed():
    rng = np.random.default_rng(3)
    gradient_GD, other_TD = features(rng, 4), features(rng, 2)
    advantage_G, mode_G = np.array([1.0, -1.0, 1.0, -1.0]), np.arange(4)
    sign_G = np.sign(advantage_G)
    kernel_GG, cross_TG = gradient_GD @ gradient_GD.T, other_TD @ gradient_GD.T
    plain = induced_shift(kernel_GG, cross_TG, target_shifts(mode_G, advantage_G, beta=1.0, signed=True))
    absorbed = induced_shift(
        kernel_GG * np.outer(sign_G, sign_G), cross_TG * sign_G, target_shifts(mode_G, advantage_G, beta=1.0)
    )
    assert plain == pytest.approx(absorbed)
    unsigned = induced_shift(kernel_GG, cross_TG, target_shifts(mode_G, advantage_G, beta=1.0))
    assert not np.allclose(plain, unsigned)


def test_effective_rank_by_hand_and_whatever_the_scale():
    assert effective_rank(np.eye(5)) == pytest.approx(5)
    assert effective_rank(np.ones((5, 5))) == pytest.approx(1)
    # eigenvalues 3 and 1: entropy of (3/4, 1/4)
    expected = np.exp(-(0.75 * np.log(0.75) + 0.25 * np.log(0.25)))
    assert effective_rank([[2.0, 1.0], [1.0, 2.0]]) == pytest.approx(expected)
    assert effective_rank([[2e9, 1e9], [1e9, 2e9]]) == pytest.approx(expected)


def test_cross_similarity_is_between_modes_not_between_samples():
    kernel_NN = np.array([[2.0, 2.0, -0.5], [2.0, 2.0, -0.5], [-0.5, -0.5, 1.0]])
    by_sample, by_mode = kernel_extremes(kernel_NN), kernel_extremes(kernel_NN, np.array([4, 4, 7]))
    assert by_sample.rho_max == 2.0
    assert (by_mode.rho_max, by_mode.rho_min, by_mode.lambda_min, by_mode.lambda_max) == (-0.5, -0.5, 1.0, 2.0)
    with pytest.raises(ValueError, match="two different modes"):
        kernel_extremes(kernel_NN[:2, :2], np.array([4, 4]))


def test_repeated_rows_are_found_without_labels_within_float32():
    rng = np.random.default_rng(0)
    gradient_ND = features(rng, 4)[[0, 1, 0, 2, 1]]
    kernel_NN = (gradient_ND @ gradient_ND.T) * (1 + 1e-7 * rng.normal(size=(5, 5)))
    assert repeats((kernel_NN + kernel_NN.T) / 2).tolist() == [0, 1, 0, 3, 1]


BAD = [[1.0, 1.2, -1.0], [1.2, 4.0, -1.5], [-1.0, -1.5, 4.0]]  # λ_min = 1 < ρ_max = 1.2; 1 + 2·(−1.5)
REPEATED = [[2.0, 2.0, 1.0], [2.0, 2.0, 1.0], [1.0, 1.0, 2.0]]


@pytest.mark.parametrize(
    ("kernel_GG", "target_G", "holds", "share_aligned", "n_negative_alpha", "n_repeats"),
    [
        pytest.param(np.ones((4, 4)) + np.eye(4), np.ones(4), True, 1.0, 0, 0, id="ideal"),
        pytest.param(BAD, [1.0, 0.1, 1.0], False, 1 / 3, 1, 0, id="bad"),
    ],
)
def test_flags_say_which_assumptions_hold(kernel_GG, target_G, holds, share_aligned, n_negative_alpha, n_repeats):
    flags = coupling_flags(kernel_GG, target_G)
    found = (flags.gradients_aligned, flags.self_exceeds_cross, flags.psd_order, flags.denominator_positive)
    assert found == (holds,) * 4
    assert flags.share_aligned == pytest.approx(share_aligned)
    assert (flags.n_negative_alpha, flags.n_repeats) == (n_negative_alpha, n_repeats)
    assert n_negative_alpha == np.sum(np.linalg.solve(kernel_GG, target_G) < 0)
    assert flags.target_residual == pytest.approx(0.0, abs=1e-12)


def test_flags_of_a_batch_with_a_repeat():
    flags = coupling_flags(REPEATED, [1.0, 1.0, 1.0])
    assert (flags.n_repeats, flags.condition_number, flags.self_exceeds_cross) == (1, None, True)
    assert flags.target_residual == pytest.approx(0.0, abs=1e-12)
    # One mode cannot move by two amounts at once.
    assert coupling_flags(REPEATED, [1.0, 0.0, 1.0]).target_residual > 0.4
    assert coupling_flags(np.ones((4, 4)) + np.eye(4), np.ones(4)).condition_number == pytest.approx(5.0)


def test_entrywise_bounds_do_not_give_the_order_that_the_proof_uses():
    """K − M(λ_min, ρ_min) has a zero on its diagonal, so it is positive only if that row of K is ρ_min throughout."""
    for seed in range(100):
        gradient_GD = features(np.random.default_rng(seed), 4)
        assert not coupling_flags(gradient_GD @ gradient_GD.T, np.ones(4)).psd_order


@settings(max_examples=30)
@given(seeds, st.floats(-2.0, 2.0).filter(lambda eta: abs(eta) > 1e-3))
def test_an_exact_decay_is_fitted_without_residual(seed, eta):
    within_TG = np.random.default_rng(seed).normal(size=(3, 5))
    fit = fit_decay(eta * within_TG, within_TG)
    assert fit.eta == pytest.approx(eta)
    assert fit.residual < 1e-9


def test_an_unrelated_query_has_a_residual_near_one():
    rng = np.random.default_rng(0)
    assert fit_decay(rng.normal(size=(20, 20)), rng.normal(size=(20, 20))).residual > 0.95


@pytest.mark.parametrize(
    ("kernel_GG", "target_G", "what"),
    [
        ([[1.0, 0.0]], [1.0], "square"),
        ([[1.0, 0.5], [0.2, 1.0]], [1.0, 1.0], "symmetric"),
        ([[1.0, 0.0], [0.0, 0.0]], [1.0, 1.0], "positive diagonal"),
        ([[1.0, 0.0], [0.0, 1.0]], [1.0], "target_G: needs 2"),
    ],
)
def test_what_is_no_kernel_is_refused(kernel_GG, target_G, what):
    with pytest.raises(ValueError, match=what):
        dual_coefficients(kernel_GG, target_G)


def test_mismatched_shapes_are_refused():
    with pytest.raises(ValueError, match="2 columns"):
        induced_shift(np.eye(2), [[1.0]], [1.0, 1.0])
    with pytest.raises(ValueError, match="mode_G"):
        target_shifts(np.array([1]), [1.0, 2.0], beta=1.0)
    with pytest.raises(ValueError, match="the same shape"):
        fit_decay(np.ones((1, 2)), np.ones((2, 1)))
    with pytest.raises(ValueError, match="at least one token"):
        kernel_of_means(np.eye(2), [0, 1])


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
    assert errors(1e-4) == pytest.approx(errors(1e-3) / 100, rel=0.05)  # the error is O(η²)


def test_an_all_wrong_group_of_shaped_rewards_still_has_advantages():
    assert group_advantages([-0.5, -1.0, -1.0, -1.0]).tolist() == pytest.approx([1.5, -0.5, -0.5, -0.5])
    assert group_advantages([1.0, 0.0, 0.0, 0.0], ddof=0).tolist() == pytest.approx([3**0.5] + [-(3**-0.5)] * 3)


def test_equal_rewards_have_no_advantage_whatever_their_rounding():
    assert not group_advantages([0.1] * 7).any()
    with pytest.raises(ValueError, match="at least 2 rewards"):
        group_advantages([1.0])


def test_a_step_needs_an_advantage_for_every_column():
    with pytest.raises(ValueError, match="2 columns"):
        first_order_influence(np.ones((3, 1)), [1.0, 1.0], learning_rate=0.1)
