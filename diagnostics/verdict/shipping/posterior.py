"""Empirical-Bayes posterior of the changes of many checkpoints that share one base.

The checkpoint with the highest estimate is partly the luckiest. Shrinkage towards the mean of all checkpoints corrects
for that choice: the posterior of a checkpoint is the same whether or not it was chosen (Dawid 1994, "Selection
paradoxes of Bayesian inference", IMS Lecture Notes 24:211).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.stats import t as student_t

#: Quantiles of the prior of tau over which the posterior is averaged.
_TAUS = 32
#: Draws of the change at all k, in antithetic pairs.
_DRAWS = 4_000
#: Largest correlation between two checkpoints, so that the covariance can be inverted.
_MOST_CORRELATED = 0.99


@dataclass(frozen=True, kw_only=True)
class ChangePosterior:
    """Posterior of the true mean change of every checkpoint, one mixture component per tau.

    Attributes:
        weight_J: Weights of the components; their sum is 1.
        mean_JT: Mean of each checkpoint's change, in probability.
        variance_JT: Its variance, in probability squared.
        n_units: Number of problems, or clusters of problems.
    """

    weight_J: Float[np.ndarray, " tau"]
    mean_JT: Float[np.ndarray, "tau step"]
    variance_JT: Float[np.ndarray, "tau step"]
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
        return self.weight_J @ student_t.cdf(self.mean_JT / np.sqrt(self.variance_JT), self.n_units - 1)


def change_posterior(change_TU: Float[np.ndarray, "step unit"], *, floor: float) -> ChangePosterior:
    """Return the posterior of the mean change of every checkpoint, from changes per problem or cluster.

    Model: the estimates are normal around the true changes, and these are N(mu, tau²) with a flat prior of mu. All
    estimates share the base's samples and the problems, so each pair is correlated. The covariance has the estimated
    variances and the mean correlation of all pairs: with 40 checkpoints and 100 problems a free covariance would fit
    noise (Ledoit and Wolf 2004, "Honey, I shrunk the sample covariance matrix"). The posterior is averaged over tau:
    restricted likelihood times the prior s / (s + tau)², where s² is the harmonic mean of the uncorrelated variances
    (DuMouchel 1994; Spiegelhalter, Abrams and Myles 2004, section 5.7.3). A single checkpoint is not shrunk.

    Args:
        change_TU: Late minus base, in probability. At least two units.
        floor: Added to the summed squared deviations of each checkpoint, in probability squared.

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
    covariance_TT = correlation * np.outer(scale_T, scale_T) + np.diag((1.0 - correlation) * variance_T)
    scale = 1.0 / np.sqrt(np.mean(1.0 / ((1.0 - correlation) * scale_T**2)))
    quantile_J = (np.arange(_TAUS) + 0.5) / _TAUS
    return _shrink(estimate_T, covariance_TT, scale * quantile_J / (1.0 - quantile_J), n_units)


def _shrink(
    estimate_T: Float[np.ndarray, " step"],
    covariance_TT: Float[np.ndarray, "step step"],
    tau_J: Float[np.ndarray, " tau"],
    n_units: int,
) -> ChangePosterior:
    """Return the posterior given each tau, and the restricted likelihood of tau as weight.

    The eigenvectors of the covariance are those of covariance + tau², so one decomposition serves all tau.
    """
    eigenvalue_E, vector_TE = np.linalg.eigh(covariance_TT)
    tau2_J = tau_J[:, None] ** 2
    precision_JE = 1.0 / (np.maximum(eigenvalue_E, 0.0) + tau2_J)
    one_E, estimate_E = vector_TE.sum(axis=0), vector_TE.T @ estimate_T
    precision_J = (precision_JE * one_E**2).sum(axis=1, keepdims=True)
    mu_J = (precision_JE * one_E * estimate_E).sum(axis=1, keepdims=True) / precision_J
    residual_JE = estimate_E - mu_J * one_E
    log_likelihood_J = (np.log(precision_JE) - precision_JE * residual_JE**2).sum(axis=1) - np.log(precision_J[:, 0])
    weight_J = np.exp((log_likelihood_J - log_likelihood_J.max()) / 2)
    own_JT = tau2_J - tau2_J**2 * (precision_JE @ (vector_TE**2).T)
    of_mu_JT = (1.0 - tau2_J * ((precision_JE * one_E) @ vector_TE.T)) ** 2 / precision_J
    return ChangePosterior(
        weight_J=weight_J / weight_J.sum(),
        mean_JT=mu_J + tau2_J * ((precision_JE * residual_JE) @ vector_TE.T),
        variance_JT=np.maximum(own_JT + of_mu_JT, np.finfo(float).tiny),
        n_units=n_units,
    )


def sampling_floor(ks: Sequence[int], n_base: int, n_late: int) -> Float[np.ndarray, " k"]:
    """Return the largest sampling variance of one problem's change of pass@k, in probability squared.

    k / (4 n) bounds the variance of pass@k from n samples (Hoeffding 1948, Ann. Math. Stat. 19:293, theorem 5.2), on
    each side. As a floor it keeps equal counts on all problems from looking exact.

    >>> sampling_floor((1, 8), n_base=16, n_late=16).tolist()
    [0.03125, 0.25]
    """
    return np.array(ks) / 4 * (1 / n_base + 1 / n_late)


def expected_worst_losses(
    change_TUK: Float[np.ndarray, "step unit k"],
    *,
    floor_K: Float[np.ndarray, " k"],
    n_ks: Sequence[int],
    rng: np.random.Generator,
) -> Float[np.ndarray, " step"]:
    """Return each checkpoint's posterior expectation of its largest fall of pass@k over its k, in probability.

    Each k is shrunk over the checkpoints. Then the changes at all k are drawn together, with the correlation of their
    estimates: the largest of several uncertain falls is larger than the fall at the k with the lowest estimate. Below
    0: pass@k is expected to rise at every k. Of the k of ``change_TUK`` each checkpoint is compared at the first
    ``n_ks``, to which its samples reach.
    """
    n_steps, _, n_all = change_TUK.shape
    posteriors = [change_posterior(change_TUK[:, :, j], floor=float(floor_K[j])) for j in range(n_all)]
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
