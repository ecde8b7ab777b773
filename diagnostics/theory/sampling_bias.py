"""Closed forms for the effect of a small batch on one query ([A] 2.2).

A query has M mutually exclusive modes (axis ``M``) with probabilities ``reference_M`` under the reference policy. A
batch of G samples contains mode i ``count_M[i]`` times. ``advantage_M`` has one advantage per mode; the advantages of
unsampled modes have no effect. β is the weight of the KL term. Probabilities and partition functions have no unit.
Logarithms are natural. Source: [A] (arXiv 2601.15609).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float
from numpy.typing import ArrayLike

from oversharp.diagnostics.theory._checks import counts, distribution, flags, positive, softmax, vector
from oversharp.diagnostics.theory.bound import Bound

#: Sums and differences of advantages up to this share of the sum of their absolute values count as zero.
RELATIVE_ROUNDING = 1e-9


@dataclass(frozen=True, kw_only=True)
class Tilted:
    """The policy π_ref · exp(tilt) / Z, and the natural logarithm of its partition function Z."""

    policy_M: Float[np.ndarray, " mode"]
    log_partition: float

    @property
    def partition(self) -> float:
        """Z, or infinity above about 1e308. To test Z > 1, compare ``log_partition`` with 0 instead."""
        return math.exp(self.log_partition) if self.log_partition < 709.0 else math.inf


def tilt(reference_M: np.ndarray, tilt_M: np.ndarray) -> Tilted:
    """Return the policy π_ref · exp(tilt_M), normalised."""
    log_weight_M = np.log(reference_M) + tilt_M
    most = float(log_weight_M.max())
    log_partition = most + math.log(float(np.exp(log_weight_M - most).sum()))
    return Tilted(policy_M=softmax(log_weight_M), log_partition=log_partition)


def batch_optimal_policy(reference_M: ArrayLike, count_M: ArrayLike, advantage_M: ArrayLike, *, beta: float) -> Tilted:
    """Return π̂ = π_ref · exp(N A/(βG)) / Z′(q), the optimal policy for a batch.

    The probabilities of unsampled modes are divided by Z′. π̂ maximises Σ (N/G) A π − β KL(π‖π_ref). The paper claims
    that π̂ maximises Eq 3. But Eq 3 has no maximum if a sampled advantage is negative. Raises ``ValueError`` unless
    ``reference_M`` are positive probabilities, β > 0, and the batch has samples.
    Source: [A] Theorem 2.2, Eq 4.

    >>> pulled = batch_optimal_policy([0.5, 0.3, 0.2], [1, 0, 1], [math.log(4.0), 9.0, 0.0], beta=1.0)
    >>> round(pulled.partition, 4), pulled.policy_M.round(4).tolist()  # 0.5·2 + 0.3 + 0.2; mode 1 was not sampled
    (1.5, [0.6667, 0.2, 0.1333])
    """
    reference_M, count_M, advantage_M = check_batch(reference_M, count_M, advantage_M)
    return tilt(reference_M, count_M * advantage_M / (positive(beta, "beta") * count_M.sum()))


@dataclass(frozen=True, kw_only=True)
class PartitionBounds:
    """Two lower bounds of Z′(q), and the gap Δ_π.

    Δ_π = π⁺_min − π⁻_max is the smallest reference probability of a sampled correct mode minus the largest of a sampled
    incorrect mode.
    """

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

    ``from_counts`` is 1 + Σ N A π_ref / (βG). It is valid for any advantages.

    ``from_gap`` is 1 + (p(1−p)/(βσ)) Δ_π, where p is the share of correct samples. The paper states it for A₊ = (1−p)/σ
    and A₋ = −p/σ. The proof requires only that all correct samples have one advantage, all incorrect samples another,
    and the batch mean is zero. Otherwise this bound is undefined. It is also undefined if the batch has no correct or
    no incorrect sample, a case that the paper omits. Δ_π > 0 implies Z′ > 1, but Z′ > 1 is possible for Δ_π ≤ 0.

    Source: [A] Theorem 2.3, Appendix C.

    >>> bounds = partition_bounds([0.6, 0.2, 0.2], [2, 0, 2], [1.0, 1.0, -1.0], np.array([True, True, False]), beta=1.0)
    >>> round(bounds.from_counts, 4), round(bounds.from_gap.value, 4), round(bounds.gap.value, 4)
    (1.2, 1.2, 0.4)
    """
    reference_M, count_M, advantage_M = check_batch(reference_M, count_M, advantage_M)
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
        return Bound(why="the correct samples, or the incorrect samples, have unequal advantages")
    if abs(float(total_M.sum())) > RELATIVE_ROUNDING * scale:
        return Bound(why="the advantages of the batch do not average to zero")
    if plus_X[0] < 0.0:
        return Bound(why="correct samples have a negative advantage")
    return Bound(value=1.0 + float(plus_mass_X.sum()) * gap)


def check_batch(
    reference_M: ArrayLike, count_M: ArrayLike, advantage_M: ArrayLike
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Validate the three arrays and return them as float64.

    Raises ``ValueError`` for an empty batch.
    """
    reference_M = distribution(reference_M, "reference_M", positive=True)
    n_modes = len(reference_M)
    return reference_M, counts(count_M, "count_M", length=n_modes), vector(advantage_M, "advantage_M", length=n_modes)
