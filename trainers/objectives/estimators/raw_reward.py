"""Raw rewards: the advantage is the reward, without baseline and scale.

    A_i = r_i

With rewards 0 and 1, only correct samples have a gradient, and each step raises the probability of sampled correct
responses. In the softmax policies that [A] simulates, it collapses earlier than
the other estimators. A group whose responses are all correct still has a gradient.

Source: REINFORCE (Williams 1992); *When Sharpening Becomes Collapse* [A] (arXiv 2601.15609), section 2.4.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from oversharp.trainers.objectives.contract import Estimator, GroupedRewards


@dataclass(frozen=True, kw_only=True)
class RawReward(Estimator):
    """The reward is the advantage."""

    title: ClassVar[str] = "raw rewards, no baseline"
    source: ClassVar[str] = "arXiv 2601.15609, section 2.4"

    def advantages(self, rewards: GroupedRewards) -> Float[Tensor, "prompt group"]:
        """Return the rewards.

        >>> import torch
        >>> false = torch.zeros(1, 2, dtype=torch.bool)
        >>> RawReward().advantages(GroupedRewards(reward_PG=torch.tensor([[1.0, 0.0]]), correct_PG=false,
        ...                                       n_tokens_PG=torch.ones(1, 2).int(), truncated_PG=false))
        tensor([[1., 0.]])
        """
        return rewards.reward_PG.clone()


PART = RawReward
