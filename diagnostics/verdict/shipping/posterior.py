"""Empirical-Bayes posterior of the changes of many checkpoints that share one base.

The highest of several estimates is too high on average. Shrinkage towards the other checkpoints, most of all towards
neighbours in training, corrects for that. The posterior of a checkpoint is the same whether or not it was chosen (Dawid
1994, "Selection paradoxes of Bayesian inference", IMS Lecture Notes 24:211).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.special import stdtr

from oversharp.diagnostics.statistics.stopping import Samples, StoppingRule

#: Number of quantiles of the prior of tau over which the posterior is averaged.
_TAUS = 12
#: Standard deviations of the prior of mu, in standard errors of the estimates, with equal weights.
_MU_SCALES = (2.0, 8.0)
#: Number of draws of the changes at all k, in antithetic pairs.
_DRAWS = 4_000
#: Largest correlation between two checkpoints, so that the covariance can be inverted.
_MOST_CORRELATED = 0.99


@dataclass(frozen=True, kw_only=True)
class ChangePosterior:
    """Posterior of the true mean change of every checkpoint, as a mixture.

    Each component has one prior correlation over training, one scale of mu, and one tau.

    Attributes:
        weight_J: Weights of the components; their sum is 1.
        mean_JT: Mean of each checkpoint's change, in probability.
        variance_JT: Variance of each checkpoint's change, in probability squared.
        n_units: Number of problems, or clusters of problems.
    """

    weight_J: Float[np.ndarray, " component"]
    mean_JT: Float[np.ndarray, "component step"]
    variance_JT: Float[np.ndarray, "component step"]
    n_units: int

    @property
    def means(self) -> Float[np.ndarray, " step"]:
        """Posterior mean of each checkpoint's change, in probability."""
        return self.weight_J @ self.mean_JT

    @property
    def sds(self) -> Float[np.ndarray, " step"]:
        """Posterior standard deviation of each checkpoint's change, in probability."""
        return np.sqrt(self.weight_J @ (self.variance_JT + (self.mean_JT - self.means) ** 2))

    @property
    def better(self) -> Float[np.ndarray, " step"]:
        """Posterior probability that each change is above 0, with Student's t for the estimated covariance."""
        return self.weight_J @ stdtr(self.n_units - 1, self.mean_JT / np.sqrt(self.variance_JT))


def trajectory_correlations(
    series_T: Sequence[str], progress_T: Sequence[float]
) -> Float[np.ndarray, "correlation step step"]:
    """Return three prior covariances of the changes around their mean, each with a mean variance of 1.

    They are: independent checkpoints; a random walk from the base; a trend proportional to the progress of training.
    Checkpoints of different series are uncorrelated.

    Args:
        series_T: Series of each checkpoint.
        progress_T: Steps since the base, divided by those of the last checkpoint; 0 to 1.

    >>> trajectory_correlations(["a", "a"], [0.5, 1.0])[1].round(2).tolist()  # min(s, t) / 0.75
    [[0.67, 0.67], [0.67, 1.33]]
    """
    name_T, at_T = np.asarray(series_T), np.asarray(progress_T, dtype=np.float64)
    same_TT = name_T[:, None] == name_T
    covariances = [np.eye(len(at_T))]
    for covariance_TT in (np.minimum(at_T[:, None], at_T) * same_TT, np.outer(at_T, at_T) * same_TT):
        mean = np.diag(covariance_TT).mean()
        covariances.append(covariance_TT / mean if mean > 0 else np.eye(len(at_T)))
    return np.stack(covariances)


def change_posterior(
    change_TU: Float[np.ndarray, "step unit"],
    *,
    floor: float,
    correlation_CTT: Float[np.ndarray, "correlation step step"] | None = None,
) -> ChangePosterior:
    """Return the posterior of the mean change of every checkpoint, from changes per problem or cluster.

    Model: the estimates are normal around the true changes, and the true changes are N(mu, tau² · correlation). All
    estimates share the base's samples and the problems, so they are correlated. Their covariance has the estimated
    variances and, for all pairs, the mean correlation. With 40 checkpoints and 100 problems, a free covariance would
    fit noise (Ledoit and Wolf 2004, "Honey, I shrunk the sample covariance matrix").

    The posterior is averaged, with the likelihoods as weights, over the prior correlations, over
    mu ~ N(0, (scale · standard error)²) for each of ``_MU_SCALES``, and over tau. The prior of tau is s / (s + tau)²,
    where s² is the harmonic mean of the uncorrelated variances (DuMouchel 1994; Spiegelhalter, Abrams and Myles 2004,
    section 5.7.3). A single checkpoint is not shrunk.

    Args:
        change_TU: Late minus base, in probability. At least two units.
        floor: Term added to the summed squared deviations of each checkpoint, in probability squared.
        correlation_CTT: See ``trajectory_correlations``. None: independent checkpoints.

    >>> late_U = np.tile([0.1, -0.1], 50)
    >>> alone = change_posterior(late_U[None] + 0.01, floor=0.0)
    >>> alone.means.round(3).tolist(), alone.sds.round(3).tolist()
    ([0.01], [0.01])
    """
    n_steps, n_units = change_TU.shape
    estimate_T = change_TU.mean(axis=1)
    deviation_TU = change_TU - estimate_T[:, None]
    product_TT = deviation_TU @ deviation_TU.T
    variance_T = (np.diag(product_TT) + floor) / (n_units * (n_units - 1))
    if n_steps == 1:
        return ChangePosterior(
            weight_J=np.ones(1), mean_JT=estimate_T[None], variance_JT=variance_T[None], n_units=n_units
        )
    scale_T = np.sqrt(np.maximum(variance_T, np.finfo(float).tiny))
    correlation_TT = product_TT / (n_units * (n_units - 1)) / np.outer(scale_T, scale_T)
    np.fill_diagonal(correlation_TT, 0.0)
    correlation = float(np.clip(correlation_TT.sum() / (n_steps * (n_steps - 1)), 0.0, _MOST_CORRELATED))
    covariance_TT = correlation * np.outer(scale_T, scale_T) + np.diag((1.0 - correlation) * scale_T**2)
    scale = 1.0 / np.sqrt(np.mean(1.0 / ((1.0 - correlation) * scale_T**2)))
    quantile_J = (np.arange(_TAUS) + 0.5) / _TAUS
    tau_J = scale * quantile_J / (1.0 - quantile_J)
    parts = [
        _shrink(estimate_T, covariance_TT, prior_TT, mu_variance=float(mu_scale**2 * np.mean(scale_T**2)), tau_J=tau_J)
        for prior_TT in (np.eye(n_steps)[None] if correlation_CTT is None else correlation_CTT)
        for mu_scale in _MU_SCALES
    ]
    log_likelihood_J, mean_JT, variance_JT = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    weight_J = np.exp(log_likelihood_J - log_likelihood_J.max())
    return ChangePosterior(
        weight_J=weight_J / weight_J.sum(), mean_JT=mean_JT, variance_JT=variance_JT, n_units=n_units
    )


def _shrink(
    estimate_T: Float[np.ndarray, " step"],
    covariance_TT: Float[np.ndarray, "step step"],
    prior_TT: Float[np.ndarray, "step step"],
    *,
    mu_variance: float,
    tau_J: Float[np.ndarray, " tau"],
) -> tuple[Float[np.ndarray, " tau"], Float[np.ndarray, "tau step"], Float[np.ndarray, "tau step"]]:
    """Return the log likelihood of each tau, and the posterior mean and variance of each change given it.

    One generalised eigendecomposition, of ``prior_TT`` and the covariance of the estimates at tau = 0, is used for all
    tau.
    """
    root_TT = np.linalg.cholesky(covariance_TT + mu_variance)
    inverse_TT = np.linalg.inv(root_TT)
    eigenvalue_E, vector_TE = np.linalg.eigh(inverse_TT @ prior_TT @ inverse_TT.T)
    basis_ET = vector_TE.T @ inverse_TT
    estimate_E, one_E, prior_TE = basis_ET @ estimate_T, basis_ET.sum(axis=1), prior_TT @ basis_ET.T
    tau2_J = tau_J[:, None] ** 2
    precision_JE = 1.0 / (1.0 + tau2_J * np.maximum(eigenvalue_E, 0.0))
    log_likelihood_J = (np.log(precision_JE) - precision_JE * estimate_E**2).sum(axis=1) / 2
    weighted_JE = precision_JE * estimate_E
    mean_JT = tau2_J * (weighted_JE @ prior_TE.T) + mu_variance * (weighted_JE @ one_E)[:, None]
    explained_JT = (
        tau2_J**2 * (precision_JE @ (prior_TE**2).T)
        + 2.0 * tau2_J * mu_variance * (precision_JE @ (prior_TE * one_E).T)
        + mu_variance**2 * (precision_JE @ one_E**2)[:, None]
    )
    variance_JT = tau2_J * np.diag(prior_TT) + mu_variance - explained_JT
    return (
        log_likelihood_J - np.log(np.diag(root_TT)).sum(),
        mean_JT,
        np.maximum(variance_JT, np.finfo(float).tiny),
    )


def sampling_floor(ks: Sequence[int], n_base: Samples, n_late: Samples) -> Float[np.ndarray, " k"]:
    """Return the largest sampling variance of one problem's change of pass@k, in probability squared.

    k / (4 n) bounds the variance of pass@k from n samples (Hoeffding 1948, Ann. Math. Stat. 19:293, theorem 5.2), on
    each side. With this floor, equal changes on all problems do not give a variance of 0.
    For a stopping rule it is computed on a grid of success rates, with k at most the cap.

    >>> sampling_floor((1, 8), n_base=16, n_late=16).tolist()
    [0.03125, 0.25]
    """

    def floor(samples: Samples) -> np.ndarray:
        if isinstance(samples, StoppingRule):
            return samples.largest_variance([min(k, samples.cap) for k in ks])  # larger k are bounded by the cap
        return np.array(ks) / 4 / samples

    return floor(n_base) + floor(n_late)


def expected_worst_losses(
    change_TUK: Float[np.ndarray, "step unit k"],
    *,
    floor_K: Float[np.ndarray, " k"],
    n_ks: Sequence[int],
    rng: np.random.Generator,
    correlation_CTT: Float[np.ndarray, "correlation step step"] | None = None,
) -> Float[np.ndarray, " step"]:
    """Return each checkpoint's posterior expectation of its largest fall of pass@k over its k, in probability.

    The changes at each k are shrunk over the checkpoints. Then the changes at all k are drawn together, with the
    correlation of their estimates, because the expected largest of several uncertain falls is larger than the fall at
    the k with the lowest estimate. A value below 0 means that pass@k is expected to rise at every k. ``n_ks`` has for
    each checkpoint the number of k that its samples allow; the other k of ``change_TUK`` are not used for it.
    """
    n_steps, _, n_all = change_TUK.shape
    posteriors = [
        change_posterior(change_TUK[:, :, j], floor=float(floor_K[j]), correlation_CTT=correlation_CTT)
        for j in range(n_all)
    ]
    mean_TK = np.stack([posterior.means for posterior in posteriors], axis=1)
    sd_TK = np.stack([posterior.sds for posterior in posteriors], axis=1)
    half_DK = rng.standard_normal((_DRAWS // 2, n_all))
    normal_DK = np.concatenate([half_DK, -half_DK])
    losses_T = np.empty(n_steps)
    for t in range(n_steps):
        deviation_UK = change_TUK[t] - change_TUK[t].mean(axis=0)
        product_KK = deviation_UK.T @ deviation_UK + np.diag(floor_K)
        scale_K = np.sqrt(np.diag(product_KK))
        eigenvalue_E, vector_KE = np.linalg.eigh(product_KK / np.outer(scale_K, scale_K))
        root_EK = np.sqrt(np.maximum(eigenvalue_E, 0.0))[:, None] * vector_KE.T
        change_DK = mean_TK[t] + (normal_DK @ root_EK) * sd_TK[t]
        losses_T[t] = -change_DK[:, : n_ks[t]].min(axis=1).mean()
    return losses_T
