"""Dr. GRPO: centres rewards within the group without dividing by the standard deviation, and has no length bias.

    A_i = r_i - mean(r)             loss = 1/N * sum over samples of 1/L * sum over tokens of loss_it

L is constant (the run's maximum response length), so tokens of short and long responses have the same weight.

Source: *Understanding R1-Zero-Like Training* (arXiv 2503.20783), section 3.2. Codebases use the name for the centring
only (verl: ``norm_adv_by_std_in_grpo=False``), for the constant divisor only (TRL: ``loss_type="dr_grpo"``), or for
both. This part has both, as in the paper: it brings ``seq_sum_constant`` unless the expression has another aggregation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from oversharp.trainers.objectives.contract import Estimator, GroupedRewards, check_group, is_constant


def centre_rewards(reward_PG: Float[Tensor, "prompt group"]) -> Float[Tensor, "prompt group"]:
    """Subtract the mean of the group from its rewards. Raise ``ValueError`` for groups of one.

    The results are exactly 0 if all rewards of the group are equal.

    >>> centre_rewards(torch.tensor([[1.0, 0.0, 0.0, 0.0], [0.1, 0.1, 0.1, 0.1]]))
    tensor([[ 0.7500, -0.2500, -0.2500, -0.2500],
            [ 0.0000,  0.0000,  0.0000,  0.0000]])
    """
    check_group(reward_PG)
    centred_PG = reward_PG - reward_PG.mean(dim=1, keepdim=True)
    return torch.where(is_constant(reward_PG)[:, None], 0.0, centred_PG)


@dataclass(frozen=True, kw_only=True)
class DrGrpo(Estimator):
    """Rewards minus the mean of their group, with a constant length divisor."""

    title: ClassVar[str] = "GRPO Done Right"
    source: ClassVar[str] = "arXiv 2503.20783, section 3.2"
    brings: ClassVar[str] = "seq_sum_constant"

    def advantages(self, rewards: GroupedRewards) -> Float[Tensor, "prompt group"]:
        """Apply ``centre_rewards``."""
        return centre_rewards(rewards.reward_PG)


PART = DrGrpo
