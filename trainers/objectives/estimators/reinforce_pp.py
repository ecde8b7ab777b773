"""REINFORCE++: rewards whitened over all tokens of the batch, or over its samples, without any group.

    over=tokens    A_i = (r_i - m) / sqrt(v + 1e-8)      m, v: mean and unbiased variance of r over all response tokens
    over=samples   A_i = (r_i - m) / (s + 1e-8)          m, s: mean and unbiased deviation of r over the samples

Over tokens, verl's form and the default, every token carries its sample's reward, so a long response weighs more in m
and v than a short one. Over samples is the paper's form. A batch whose rewards are all equal has advantage 0. Works
with one rollout per prompt.

Source: REINFORCE++ (arXiv 2501.03262 v9), section 3.1, Eq 5, and appendix B.2; verl 0.9 ``reinforce_plus_plus`` with
gamma = 1. The paper's Eq 4 subtracts a k1 KL per token from the reward; here KL is a penalty of its own (``kl``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from trainers.objectives.contract import GroupedRewards, PartDefaults

#: verl adds it to the variance, the paper to the standard deviation.
EPS = 1e-8

Over = Literal["tokens", "samples"]


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


def whitened_over_samples(value_PG: Float[Tensor, "prompt group"]) -> Float[Tensor, "prompt group"]:
    """Values less their mean, over their standard deviation, where each counts once; 0 if all are equal.

    >>> whitened_over_samples(torch.tensor([[2.0, 1.0], [0.0, 1.0]]))  # mean 1, variance 2/3
    tensor([[ 1.2247,  0.0000],
            [-1.2247,  0.0000]])
    """
    if value_PG.amax() == value_PG.amin():
        return torch.zeros_like(value_PG)
    return (value_PG - value_PG.mean()) / (value_PG.std() + EPS)


def whitened(
    value_PG: Float[Tensor, "prompt group"], n_tokens_PG: Int[Tensor, "prompt group"], over: Over
) -> Float[Tensor, "prompt group"]:
    """By either form."""
    return whitened_over_samples(value_PG) if over == "samples" else whitened_over_tokens(value_PG, n_tokens_PG)


@dataclass(frozen=True, kw_only=True)
class ReinforcePp(PartDefaults):
    """Rewards whitened over the batch; ``over`` its tokens, as verl does, or its samples, as the paper."""

    title: ClassVar[str] = "REINFORCE++"
    source: ClassVar[str] = "arXiv 2501.03262 v9, Eq 5; verl"

    over: Over = "tokens"

    def advantages(self, rewards: GroupedRewards) -> Float[Tensor, "prompt group"]:
        """Rewards, ``whitened``."""
        return whitened(rewards.reward_PG, rewards.n_tokens_PG, self.over)


PART = ReinforcePp
