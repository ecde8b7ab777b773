"""Samples of one problem as a training batch of [A] (arXiv 2601.15609).

A mode is a distinct response. Rewards are binary, and advantages are normalised within the batch by the population's
standard deviation. If all samples of a batch are correct or all are wrong, every advantage is 0.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

from oversharp.diagnostics.theory.coupling import group_advantages, target_shifts

#: Weight β of the KL term. It is set to 1, because the audit does not know the trainer's β.
BETA = 1.0
NO_ADVANTAGE = (
    "the own samples of each problem are all correct or all wrong, so every advantage is 0; "
    "audit more problems, or more own samples"
)


@dataclass(frozen=True, kw_only=True)
class TrainingBatch:
    """Samples of one problem as a training batch. ``mode_S`` labels equal responses equally."""

    problem_id: str
    mode_S: Int[np.ndarray, " draw"]
    correct_S: Bool[np.ndarray, " draw"]
    advantage_S: Float[np.ndarray, " draw"]

    @property
    def is_informative(self) -> bool:
        """Whether any advantage differs from 0."""
        return bool(self.advantage_S.any())

    @property
    def targets(self) -> Float[np.ndarray, " draw"]:
        """y = N·A/G, the signed change of log π that the batch requires, in nats at β = 1."""
        return target_shifts(self.mode_S, self.advantage_S, beta=BETA, signed=True)

    @property
    def first_draws(self) -> Int[np.ndarray, " mode"]:
        """The index of the first sample of each mode, in the order of the modes' labels."""
        return np.unique(self.mode_S, return_index=True)[1]

    @property
    def counts(self) -> Int[np.ndarray, " mode"]:
        """N, the number of samples of each mode, in the order of ``first_draws``."""
        return np.unique(self.mode_S, return_counts=True)[1]


def make_batch(
    problem_id: str, mode_S: Int[np.ndarray, " draw"], correct_S: Bool[np.ndarray, " draw"]
) -> TrainingBatch:
    """Return the batch of one problem from the modes of its samples.

    >>> batch = make_batch("q", np.array([7, 7, 9, 8]), np.array([True, True, False, False]))
    >>> batch.advantage_S.tolist(), batch.targets.tolist(), batch.counts.tolist()
    ([1.0, 1.0, -1.0, -1.0], [0.5, 0.5, -0.25, -0.25], [2, 1, 1])
    """
    reward_S = correct_S.astype(np.float64)
    advantage_S = group_advantages(reward_S, ddof=0) if len(reward_S) > 1 else np.zeros(len(reward_S))
    return TrainingBatch(problem_id=problem_id, mode_S=mode_S, correct_S=correct_S, advantage_S=advantage_S)
