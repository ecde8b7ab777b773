"""REINFORCE++: rewards whitened over all tokens of the batch, without any group.

    A_i = (r_i - m) / sqrt(v + 1e-8)        m, v: mean and unbiased variance of r over all response tokens

Every token carries its sample's reward, so a long response weighs more in m and v than a short one: verl's form. The
paper takes both over the samples of the batch and adds its epsilon to the standard deviation. A batch whose rewards
are all equal has advantage 0. Works with one rollout per prompt.

Source: REINFORCE++ (arXiv 2501.03262 v9), section 3.1, Eq 5, and appendix B.2; verl 0.9 ``reinforce_plus_plus`` with
gamma = 1. The paper's Eq 4 subtracts a k1 KL per token from the reward; here KL is a penalty of its own (``kl``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from trainers.objectives.contract import GroupedRewards, PartDefaults

#: verl's; it is added to the variance, not to the standard deviation.
EPS = 1e-8


def whitened_over_tokens(
    value_PG: Float[Tensor, "prompt group"], n_tokens_PG: Int[Tensor, "prompt group"]
) -> Float[Tensor, "prompt group"]:
    """Values less their mean, over their standard deviation, where each counts once per token; 0 if all are equal.

    >>> whitened_over_tokens(torch.tensor([[1.0, 0.0]]), torch.tensor([[1, 3]]))  # mean 1/4, variance 1/4
    tensor([[ 1.5000, -0.5000]])
    """
    weight_PG = n_tokens_PG.to(value_PG.dtype)
    n_tokens = weight_PG.sum().clamp(min=2)
    from_mean_PG = value_PG - (weight_PG * value_PG).sum() / n_tokens
    variance = (weight_PG * from_mean_PG**2).sum() / (n_tokens - 1)
    return torch.where(value_PG.amax() == value_PG.amin(), 0.0, from_mean_PG * (variance + EPS).rsqrt())


@dataclass(frozen=True, kw_only=True)
class ReinforcePp(PartDefaults):
    """Rewards whitened over the tokens of the batch."""

    title: ClassVar[str] = "REINFORCE++"
    source: ClassVar[str] = "arXiv 2501.03262 v9, Eq 5; verl"

    def advantages(self, rewards: GroupedRewards) -> Float[Tensor, "prompt group"]:
        """Rewards, ``whitened_over_tokens``."""
        return whitened_over_tokens(rewards.reward_PG, rewards.n_tokens_PG)


PART = ReinforcePp
