"""[A] 2.2: the optimal policy, the objective of a batch and one step towards its optimum.

Notation and axes are those of ``oversharp.diagnostics.theory.sampling_bias``. Source: [A] (arXiv 2601.15609).
"""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from oversharp.diagnostics.theory._checks import distribution, positive, softmax, vector
from oversharp.diagnostics.theory.sampling_bias import Tilted, check_batch, tilt


def optimal_policy(reference_M: ArrayLike, advantage_M: ArrayLike, *, beta: float) -> Tilted:
    """Return π* = π_ref · exp(A/β) / Z(q), the maximiser of E_π[A] − β KL(π‖π_ref) over all policies.

    With one advantage ≥ 0 for all correct modes and one ≤ 0 for the others, no correct mode falls (Corollary 2.1).
    Raises ``ValueError`` unless ``reference_M`` are positive probabilities and β > 0.
    Source: [A] Theorem 2.1, Eq 2.

    >>> best = optimal_policy([0.5, 0.5], [math.log(3.0), 0.0], beta=1.0)
    >>> best.policy_M.round(4).tolist(), round(best.partition, 4)
    ([0.75, 0.25], 2.0)
    """
    reference_M = distribution(reference_M, "reference_M", positive=True)
    advantage_M = vector(advantage_M, "advantage_M", length=len(reference_M))
    return tilt(reference_M, advantage_M / positive(beta, "beta"))


def batch_objective(
    policy_M: ArrayLike,
    reference_M: ArrayLike,
    count_M: ArrayLike,
    advantage_M: ArrayLike,
    *,
    beta: float,
    as_printed: bool = False,
) -> float:
    """Return Σ (N/G) A π − β KL(π‖π_ref), which the batch-optimal policy maximises.

    Unit: advantage; the KL is in nats. ``as_printed`` returns [A] Eq 3 in the form of its Appendix B, Σ (N/G) A log π −
    β KL(π‖π_ref). That has no maximum once a sampled mode has A < 0, because log π → −∞ there. ``policy_M`` may contain
    zeros only without ``as_printed``. Source: [A] Eq 3 and Appendix B, corrected.

    >>> batch_objective([1.0, 0.0], [0.5, 0.5], [1, 1], [2.0, -2.0], beta=0.0001).__round__(3)
    1.0
    >>> batch_objective([1 - 1e-99, 1e-99], [0.5, 0.5], [1, 1], [2.0, -2.0], beta=0.0001, as_printed=True) > 200
    True
    """
    reference_M, count_M, advantage_M = check_batch(reference_M, count_M, advantage_M)
    policy_M = distribution(policy_M, "policy_M", positive=as_printed, length=len(reference_M))
    log_policy_M = np.log(np.where(policy_M > 0.0, policy_M, 1.0))  # 0 · log 0 = 0
    kl_nats = float(np.sum(policy_M * (log_policy_M - np.log(reference_M))))
    weight_M = count_M * advantage_M / count_M.sum()
    gain = float(np.sum(weight_M * (log_policy_M if as_printed else policy_M)))
    return gain - positive(beta, "beta") * kl_nats


def geometric_step(
    policy_M: ArrayLike, target_M: ArrayLike, *, learning_rate: float, beta: float
) -> Float[np.ndarray, " mode"]:
    """Return π⁺ ∝ π^(1−ηβ) · π̂^(ηβ): one step from the policy towards the batch-optimal one.

    It is one exponentiated-gradient step, π⁺ ∝ π · exp(η ∂J/∂π), on ``batch_objective``. The paper derives it as
    gradient ascent on log-probabilities, which would multiply ∂J/∂π by π; a step on logits is a third variant.
    Source: [A] Theorem B.1, Eq 6.

    >>> geometric_step([0.5, 0.5], [0.8, 0.2], learning_rate=1.0, beta=1.0).round(4).tolist()
    [0.8, 0.2]
    """
    policy_M = distribution(policy_M, "policy_M", positive=True)
    target_M = distribution(target_M, "target_M", positive=True, length=len(policy_M))
    weight = positive(learning_rate, "learning_rate") * positive(beta, "beta")
    return softmax((1.0 - weight) * np.log(policy_M) + weight * np.log(target_M))


def binary_advantages(n_correct: int, group_size: int, *, std: float | None = None) -> tuple[float, float]:
    """Return (A₊, A₋) = ((1−p)/σ, −p/σ) with p = ``n_correct`` / ``group_size``; (0, 0) if all samples agree.

    ``std`` is σ, by default that of the population, √(p(1−p)). Source: [A] Theorem 2.3.

    >>> [round(a, 4) for a in binary_advantages(1, 5)]
    [2.0, -0.5]
    """
    if not (0 <= n_correct <= group_size and group_size > 0):
        raise ValueError(f"n_correct: needs 0 to group_size = {group_size}; got {n_correct}")
    if n_correct in (0, group_size):
        return 0.0, 0.0
    share = n_correct / group_size
    std = math.sqrt(share * (1.0 - share)) if std is None else positive(std, "std")
    return (1.0 - share) / std, -share / std
