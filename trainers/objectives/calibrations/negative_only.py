"""Relative negatives only: samples with a positive advantage have no gradient, but stay in the divisor.

    A~_i = A_i    if A_i < 0;    A~_i = 0    otherwise          1/G and 1/|y_i| do not change

With ``grpo`` it is GRPO-N, with ``gspo`` GSPO-N. The estimator decides which samples are negative, not the verifier. So
a correct but overlong sample below its group's mean is negative, and an all-wrong group of equal rewards has no
negative samples. ``nsr`` uses the verifier instead. The upper bound of a clip acts only on positive advantages, so it
has no effect here: ``dapo+negative_only`` has no clip-higher.

Source: *The Debate on RLVR Reasoning Capability Boundary* [B] (arXiv 2510.04028), section 4.1 and appendix
B.5. According to appendix C.2, the runs of [B] add KL and an entropy bonus:
``grpo_n+kl:beta=0.001+entropy_bonus:coefficient=0.0001``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from oversharp.trainers.objectives.contract import Calibration, Credit, GroupedRewards


@dataclass(frozen=True, kw_only=True)
class NegativeOnly(Calibration):
    """Advantages above 0 become 0. All samples stay in the divisor."""

    title: ClassVar[str] = "relative negative gradients only (-N)"
    source: ClassVar[str] = "arXiv 2510.04028, appendix B.5"
    acts_on: ClassVar[str] = "positive advantages"

    def calibrate(self, credit: Credit, rewards: GroupedRewards) -> Credit:
        """Return min(A, 0). ``rewards`` are not used.

        >>> import torch
        >>> true, one = torch.ones(1, 3, dtype=torch.bool), torch.ones(1, 3)
        >>> rewards = GroupedRewards(reward_PG=one, correct_PG=true, n_tokens_PG=one.int(), truncated_PG=~true)
        >>> credit = Credit(advantage_PG=torch.tensor([[1.0, -0.5, -0.5]]), counted_PG=true)
        >>> NegativeOnly().calibrate(credit, rewards)
        Credit(advantage_PG=tensor([[ 0.0000, -0.5000, -0.5000]]), counted_PG=tensor([[True, True, True]]))
        """
        return credit.with_advantages(credit.advantage_PG.clamp(max=0.0))


PART = NegativeOnly
