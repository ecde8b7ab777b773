"""[A] 2.2: effect of a batch of a few samples on one query, in closed form.

A query has M mutually exclusive modes (axis ``M``) with probabilities ``reference_M`` under the reference policy. A
batch of G samples contains mode i ``count_M[i]`` times; ``advantage_M`` has one advantage per mode, unused for modes
that were not sampled. β is the weight of the KL term. Probabilities and partition functions have no unit, logarithms
are natural. Source: [A] (arXiv 2601.15609).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float
from numpy.typing import ArrayLike

from oversharp.diagnostics.theory._checks import counts, distribution, flags, positive, softmax, vector
from oversharp.diagnostics.theory.bound import Bound

#: Sums of advantages below this share of their absolute sum are zero.
RELATIVE_ROUNDING = 1e-9


@dataclass(frozen=True, kw_only=True)
class Tilted:
    """Normalised π_ref · exp(tilt).

    The policy, and the natural logarithm of its partition function.
    """

    policy_M: Float[np.ndarray, " mode"]
    log_partition: float

    @property
    def partition(self) -> float:
        """Z; infinite above 1e308, so compare ``log_partition`` with 0 to test Z > 1."""
        return math.exp(self.log_partition) if self.log_partition < 709.0 else math.inf


def _tilt(reference_M: np.ndarray, tilt_M: np.ndarray) -> Tilted:
    log_weight_M = np.log(reference_M) + tilt_M
    most = float(log_weight_M.max())
    log_partition = most + math.log(float(np.exp(log_weight_M - most).sum()))
    return Tilted(policy_M=softmax(log_weight_M), log_partition=log_partition)


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
    return _tilt(reference_M, advantage_M / positive(beta, "beta"))


def batch_optimal_policy(reference_M: ArrayLike, count_M: ArrayLike, advantage_M: ArrayLike, *, beta: float) -> Tilted:
    """Return π̂ = π_ref · exp(N A/(βG)) / Z′(q): where a batch pulls the policy.

    Unsampled modes are divided by Z′. It is the maximiser of ``batch_objective``, not, as the paper claims, of its Eq
    3: that one is unbounded above once a sampled advantage is negative. Raises ``ValueError`` as ``optimal_policy``
    does, and for an empty batch.
    Source: [A] Theorem 2.2, Eq 4.

    >>> pulled = batch_optimal_policy([0.5, 0.3, 0.2], [1, 0, 1], [math.log(4.0), 9.0, 0.0], beta=1.0)
    >>> round(pulled.partition, 4), pulled.policy_M.round(4).tolist()  # 0.5·2 + 0.3 + 0.2; mode 1 was not drawn
    (1.5, [0.6667, 0.2, 0.1333])
    """
    reference_M, count_M, advantage_M = _batch(reference_M, count_M, advantage_M)
    return _tilt(reference_M, count_M * advantage_M / (positive(beta, "beta") * count_M.sum()))


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

    Unit: advantage.

    ``as_printed`` returns [A] Eq 3 in the form of its Appendix B, Σ (N/G) A log π − β KL(π‖π_ref). It has no maximum
    once a sampled mode has A < 0, because log π → −∞ there. The KL is in nats. ``policy_M`` may contain zeros only
    without ``as_printed``. Source: [A] Eq 3 and Appendix B, corrected.

    >>> batch_objective([1.0, 0.0], [0.5, 0.5], [1, 1], [2.0, -2.0], beta=0.0001).__round__(3)
    1.0
    >>> batch_objective([1 - 1e-99, 1e-99], [0.5, 0.5], [1, 1], [2.0, -2.0], beta=0.0001, as_printed=True) > 200
    True
    """
    reference_M, count_M, advantage_M = _batch(reference_M, count_M, advantage_M)
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


def is_moderate_sharpening(reference_M: ArrayLike, policy_M: ArrayLike, correct_M: Bool[np.ndarray, " mode"]) -> bool:
    """Whether no correct mode is less likely than under the reference (equality allowed).

    Else over-sharpening.

    Source: [A] Definition 2.1.

    >>> is_moderate_sharpening([0.5, 0.2, 0.3], [0.7, 0.1, 0.2], np.array([True, True, False]))
    False
    """
    reference_M = distribution(reference_M, "reference_M")
    policy_M = distribution(policy_M, "policy_M", length=len(reference_M))
    correct_M = flags(correct_M, "correct_M", length=len(reference_M))
    return bool((policy_M[correct_M] >= reference_M[correct_M]).all())


def binary_advantages(n_correct: int, group_size: int, *, std: float | None = None) -> tuple[float, float]:
    """Return (A₊, A₋) = ((1−p)/σ, −p/σ) with p = ``n_correct`` / ``group_size``.

    (0, 0) if all samples agree.

    ``std`` is σ; without it the population form √(p(1−p)), ddof = 0. Source: [A] Theorem 2.3.

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


@dataclass(frozen=True, kw_only=True)
class PartitionBounds:
    """Lower bounds of Z′(q), and Δ_π = π⁺_min − π⁻_max over sampled modes, which the second uses."""

    from_counts: float
    from_gap: Bound
    gap: Bound


def partition_bounds(
    reference_M: ArrayLike,
    count_M: ArrayLike,
    advantage_M: ArrayLike,
    correct_M: Bool[np.ndarray, " mode"],
    *,
    beta: float,
) -> PartitionBounds:
    """Return both lower bounds of Z′(q).

    From the counts: 1 + Σ N A π_ref / (βG), true for any advantages. From the gap: 1 + (p(1−p)/(βσ)) Δ_π, with p the
    share of correct samples. The paper states the second for A₊ = (1−p)/σ, A₋ = −p/σ; p·A₊ = p(1−p)/σ, and the proof
    needs only one advantage for the correct samples and one for the others that average to zero. Otherwise the second
    is undefined, also where no correct (S⁺) or no incorrect (S⁻) mode was sampled, a condition that the paper omits.
    Δ_π > 0 implies Z′ > 1; Δ_π ≤ 0 does not rule it out. Source: [A] Theorem 2.3, Appendix C.

    >>> bounds = partition_bounds([0.6, 0.2, 0.2], [2, 0, 2], [1.0, 1.0, -1.0], np.array([True, True, False]), beta=1.0)
    >>> round(bounds.from_counts, 4), round(bounds.from_gap.value, 4), round(bounds.gap.value, 4)
    (1.2, 1.2, 0.4)
    """
    reference_M, count_M, advantage_M = _batch(reference_M, count_M, advantage_M)
    correct_M = flags(correct_M, "correct_M", length=len(reference_M))
    group_size = float(count_M.sum())
    mass_M = count_M * advantage_M / (positive(beta, "beta") * group_size)
    from_counts = 1.0 + float(np.sum(mass_M * reference_M))
    plus_M, minus_M = (count_M > 0) & correct_M, (count_M > 0) & ~correct_M
    if not plus_M.any() or not minus_M.any():
        why = f"the batch has no {'incorrect' if plus_M.any() else 'correct'} sample"
        return PartitionBounds(from_counts=from_counts, from_gap=Bound(why=why), gap=Bound(why=why))
    gap = float(reference_M[plus_M].min() - reference_M[minus_M].max())
    return PartitionBounds(
        from_counts=from_counts,
        from_gap=_from_gap(count_M * advantage_M, advantage_M[plus_M], advantage_M[minus_M], mass_M[plus_M], gap),
        gap=Bound(value=gap),
    )


def _from_gap(
    total_M: np.ndarray, plus_X: np.ndarray, minus_Y: np.ndarray, plus_mass_X: np.ndarray, gap: float
) -> Bound:
    scale = float(np.abs(total_M).sum())
    if np.ptp(plus_X) > RELATIVE_ROUNDING * scale or np.ptp(minus_Y) > RELATIVE_ROUNDING * scale:
        return Bound(why="correct samples, or incorrect ones, have different advantages")
    if abs(float(total_M.sum())) > RELATIVE_ROUNDING * scale:
        return Bound(why="the advantages of the batch do not average to zero")
    if plus_X[0] < 0.0:
        return Bound(why="correct samples have a negative advantage")
    return Bound(value=1.0 + float(plus_mass_X.sum()) * gap)


def _batch(
    reference_M: ArrayLike, count_M: ArrayLike, advantage_M: ArrayLike
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    reference_M = distribution(reference_M, "reference_M", positive=True)
    n_modes = len(reference_M)
    return reference_M, counts(count_M, "count_M", length=n_modes), vector(advantage_M, "advantage_M", length=n_modes)
