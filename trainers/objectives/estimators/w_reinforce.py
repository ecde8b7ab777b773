"""W-REINFORCE: +weight for every correct sample, -1 for every incorrect one.

    A_i = weight    if the verifier accepts y_i;      A_i = -1    otherwise

It is REINFORCE with rewards +1 and -1 and a smaller weight for correct samples. The gradient is that of
weight * L_PSR + L_NSR. It uses the verifier's decision and no rewards, so shapings have no effect, and samples are not
compared within a group. ``weight=1`` is plain REINFORCE with rewards +1 and -1. ``weight=0`` learns from incorrect
samples only, but correct samples stay in the divisor. ``nsr`` removes these.

Source: *The Surprising Effectiveness of Negative Reinforcement* (arXiv 2506.01347), section 5, with lambda = 0.1. The
authors' code uses the mean over tokens and PPO's clip, so this part brings ``token_mean``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from oversharp.trainers.objectives.contract import Estimator, GroupedRewards, check_range


@dataclass(frozen=True, kw_only=True)
class WReinforce(Estimator):
    """Rewards +1 and -1 with a smaller weight for correct samples. ``weight`` is the paper's lambda, 0 or more."""

    title: ClassVar[str] = "Weighted REINFORCE"
    source: ClassVar[str] = "arXiv 2506.01347, section 5"
    brings: ClassVar[str] = "token_mean"
    acts_on: ClassVar[str] = "correct samples"

    weight: float = 0.1

    def __post_init__(self) -> None:
        check_range(0, weight=self.weight)

    def advantages(self, rewards: GroupedRewards) -> Float[Tensor, "prompt group"]:
        """Return ``weight`` for correct samples, -1 for others.

        >>> right = torch.tensor([[True, False]])
        >>> WReinforce().advantages(GroupedRewards(reward_PG=right.float(), correct_PG=right,
        ...                                        n_tokens_PG=torch.ones(1, 2).int(), truncated_PG=~right))
        tensor([[ 0.1000, -1.0000]])
        """
        wrong_PG = torch.full_like(rewards.reward_PG, -1.0)
        return torch.where(rewards.correct_PG, self.weight, wrong_PG)


PART = WReinforce
