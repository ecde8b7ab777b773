"""The posterior of many checkpoints that share one base: shrinkage, common error, calibration after a choice."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from oversharp.diagnostics.statistics.stopping import StoppingRule
from oversharp.diagnostics.verdict.shipping.posterior import (
    _shrink,
    change_posterior,
    expected_worst_losses,
    sampling_floor,
    trajectory_correlations,
)

UNITS = 100


def _noise(rng: np.random.Generator, n_steps: int, sd: float) -> np.ndarray:
    """Noise per problem whose mean over the problems has this standard deviation."""
    return rng.normal(0.0, sd * np.sqrt(UNITS), (n_steps, UNITS))


def test_a_single_checkpoint_is_not_shrunk() -> None:
    alone = change_posterior(np.tile([0.3, -0.1], 50)[None], floor=0.0)
    assert alone.means == pytest.approx([0.1])
    assert alone.sds == pytest.approx([0.2 / np.sqrt(99)])  # 100 deviations of 0.2


def test_two_checkpoints_are_shrunk_towards_their_mean_and_keep_it() -> None:
    change_TU = np.stack([np.tile([0.3, -0.1], 50), np.tile([0.1, 0.1, -0.3, 0.1], 25)])
    two = change_posterior(change_TU, floor=1.0)
    assert 0.0 < two.means[1] < two.means[0] < 0.1
    equal = change_posterior(np.stack([np.tile([0.3, -0.1], 50), np.repeat([0.2, -0.2], 50)]), floor=0.0)
    assert equal.means.sum() == pytest.approx(0.1, rel=0.1)  # equal variances; the prior of mu is wide


def test_the_error_of_the_base_does_not_average_out_over_checkpoints_and_their_own_does() -> None:
    rng = np.random.default_rng(0)
    common = change_posterior(_noise(rng, 1, 0.01) + _noise(rng, 40, 0.002), floor=0.0)
    assert common.sds == pytest.approx(0.01, rel=0.3)
    separate = change_posterior(_noise(rng, 40, 0.01), floor=0.0)
    assert separate.sds.max() < 0.005


def test_the_highest_of_forty_equal_checkpoints_is_not_taken_for_better_and_a_better_one_is() -> None:
    rng = np.random.default_rng(1)
    change_TU = _noise(rng, 1, 0.004) + _noise(rng, 40, 0.004) - 0.008
    highest = int(change_TU.mean(axis=1).argmax())
    alone = change_posterior(change_TU[[highest]], floor=0.0)
    assert alone.better[0] > 0.3
    assert change_posterior(change_TU, floor=0.0).better[highest] < 0.1
    change_TU[highest] += 0.04
    assert change_posterior(change_TU, floor=0.0).better[highest] > 0.99


@pytest.mark.parametrize("tau", [0.003, 0.01])
def test_the_probability_of_a_chosen_checkpoint_is_its_share_of_true_gains(tau: float) -> None:
    rng, claimed, true = np.random.default_rng(2), [], []
    for _ in range(400):
        truth_T = rng.normal(rng.normal(-1.5 * tau, 0.01), tau, 20)
        change_TU = truth_T[:, None] + _noise(rng, 1, 0.006) + _noise(rng, 20, 0.006)
        chosen = int(change_TU.mean(axis=1).argmax())
        claimed.append(change_posterior(change_TU, floor=0.0).better[chosen])
        true.append(truth_T[chosen] > 0)
    probable = np.array(claimed) > 0.5
    for part in (probable, ~probable):
        assert np.mean(np.array(true)[part]) == pytest.approx(np.mean(np.array(claimed)[part]), abs=0.08)


def test_a_checkpoint_is_shrunk_towards_its_neighbours_in_training_and_not_towards_another_series() -> None:
    rng, last = np.random.default_rng(3), 9
    truth_T = np.linspace(0.004, 0.04, 10)
    correlations = {
        "trajectory": trajectory_correlations(["a"] * 10, (np.arange(10) + 1) / 10),
        "exchangeable": np.eye(10)[None],
    }
    errors = {name: [] for name in correlations}
    for _ in range(60):
        change_TU = truth_T[:, None] + _noise(rng, 1, 0.004) + _noise(rng, 10, 0.01)
        for name, correlation_CTT in correlations.items():
            posterior = change_posterior(change_TU, floor=0.0, correlation_CTT=correlation_CTT)
            errors[name].append(posterior.means[[0, last]] - truth_T[[0, last]])
    sizes = {name: np.sqrt(np.mean(np.square(error))) for name, error in errors.items()}
    assert sizes["trajectory"] < 0.8 * sizes["exchangeable"]
    walk_TT = trajectory_correlations(["a", "a", "b"], [0.5, 1.0, 1.0])[1]
    assert walk_TT[0, 1] > 0
    assert walk_TT[1, 2] == 0
    assert np.trace(walk_TT) == pytest.approx(3)


@pytest.mark.parametrize("shape", range(3))
def test_the_mixture_is_that_of_the_normal_model(shape: int) -> None:
    """Each component by hand: the joint normal of estimates and truth, conditioned."""
    rng = np.random.default_rng(7)
    estimate_T, root_TT = rng.normal(0, 0.02, 4), rng.normal(0, 0.01, (4, 4))
    covariance_TT = root_TT @ root_TT.T + 1e-5 * np.eye(4)
    prior_TT = trajectory_correlations(["a"] * 4, [0.25, 0.5, 0.75, 1.0])[shape]
    log_likelihood_J, mean_JT, variance_JT = _shrink(
        estimate_T, covariance_TT, prior_TT, mu_variance=3e-4, tau_J=np.array([0.01, 0.03])
    )
    logs = []
    for j, tau in enumerate((0.01, 0.03)):
        truth_TT = tau**2 * prior_TT + 3e-4
        seen_TT = truth_TT + covariance_TT
        gain_TT = truth_TT @ np.linalg.inv(seen_TT)
        assert mean_JT[j] == pytest.approx(gain_TT @ estimate_T)
        assert variance_JT[j] == pytest.approx(np.diag(truth_TT - gain_TT @ truth_TT))
        logs.append(multivariate_normal.logpdf(estimate_T, cov=seen_TT))
    assert log_likelihood_J[1] - log_likelihood_J[0] == pytest.approx(logs[1] - logs[0])


def test_the_largest_of_two_uncertain_falls_is_expected_above_either() -> None:
    # two independent changes of mean 0 and equal sd: the expected maximum of two normals is sd / sqrt(pi)
    change_TUK = np.stack([np.tile([0.2, -0.2], 50), np.repeat([0.2, -0.2], 50)], axis=1)[None]
    settings = {"floor_K": np.zeros(2) + 1e-9, "rng": np.random.default_rng(0)}
    (both,) = expected_worst_losses(change_TUK, n_ks=[2], **settings)
    assert both == pytest.approx(0.2 / np.sqrt(99) / np.sqrt(np.pi), rel=0.05)
    (first,) = expected_worst_losses(change_TUK, n_ks=[1], **settings)
    assert first == pytest.approx(0.0, abs=1e-9)  # antithetic draws


def test_the_floor_of_a_stopping_rule_is_its_largest_variance_and_above_the_cap_that_of_the_cap() -> None:
    rule = StoppingRule.doubling(first=4, cap=16, enough=2)
    floor_K = sampling_floor([1, 8, 16, 64], rule, rule)
    assert floor_K[3] == floor_K[2]
    rates = np.linspace(0.01, 0.99, 99)
    for k, floor in zip((1, 8, 16), floor_K, strict=False):
        chance_RE, value_E = rule.chances(rates), rule.pass_at_k_table([k])[:, 0]
        variance_R = chance_RE @ value_E**2 - (chance_RE @ value_E) ** 2
        assert variance_R.max() <= floor / 2 <= variance_R.max() + 1e-3
