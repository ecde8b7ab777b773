"""RLOO: each reward minus the mean of the other rewards of its group.

    A_i = r_i - 1/(G - 1) * sum over j != i of r_j = G/(G - 1) * (r_i - mean(r))

The baseline does not include the sample itself, so the gradient is unbiased. Unlike in GRPO, the advantage is not
divided by a standard deviation.

Source: Kool et al. 2019, *Buy 4 REINFORCE Samples, Get a Baseline for Free!*; for language models *Back to Basics*
(arXiv 2402.14740), where the response is one action. For that loss, the sum of log-probabilities over the tokens of a
response, add ``seq_mean_token_sum``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from oversharp.trainers.objectives.contract import Estimator, GroupedRewards
from oversharp.trainers.objectives.estimators.dr_grpo import centre_rewards


def leave_one_out(reward_PG: Float[Tensor, "prompt group"]) -> Float[Tensor, "prompt group"]:
    """Subtract the mean of the other rewards of the group. Raise ``ValueError`` for groups of one.

    >>> import torch
    >>> leave_one_out(torch.tensor([[1.0, 0.0, 0.0]]))
    tensor([[ 1.0000, -0.5000, -0.5000]])
    """
    centred_PG = centre_rewards(reward_PG)
    group_size = reward_PG.shape[1]
    return centred_PG * (group_size / (group_size - 1))


@dataclass(frozen=True, kw_only=True)
class Rloo(Estimator):
    """Rewards minus the mean of the other rewards of their group."""

    title: ClassVar[str] = "REINFORCE Leave-One-Out"
    source: ClassVar[str] = "arXiv 2402.14740"

    def advantages(self, rewards: GroupedRewards) -> Float[Tensor, "prompt group"]:
        """Apply ``leave_one_out``."""
        return leave_one_out(rewards.reward_PG)


PART = Rloo
