"""REINFORCE++ with baseline: centres rewards within the group, then whitens them over the batch.

    c_i = r_i - mean of its group
    over=tokens    A_i = (c_i - m) / sqrt(v + 1e-8)      m, v: mean and variance of c over all response tokens
    over=samples   A_i = c_i / (s + 1e-8)                s: unbiased deviation of c over the samples, whose mean is 0

**Over tokens, a group of equal rewards has a gradient.** Its c is 0, but m is a mean over *tokens*. If right and wrong
answers differ in length, m is not 0, and every sample of the group has the same advantage -m / sqrt(v). If wrong
answers are longer, m < 0, and training raises the probability of the answers in *all-wrong* groups. This is the form of
verl, and the default. In the form of the paper, over samples, m is 0. ``dr_grpo`` and ``grpo`` have no such term.

Source: REINFORCE++ (arXiv 2501.03262 v9), section 3.2, Eq 6 and 7, and appendix B.2; verl 0.9
``reinforce_plus_plus_baseline``. The paper adds KL as a loss: ``reinforce_pp_baseline+kl:kind=k2``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from oversharp.trainers.objectives.contract import Estimator, GroupedRewards
from oversharp.trainers.objectives.estimators.dr_grpo import centre_rewards
from oversharp.trainers.objectives.estimators.reinforce_pp import Over, whiten


@dataclass(frozen=True, kw_only=True)
class ReinforcePpBaseline(Estimator):
    """Group-centred rewards, whitened ``over`` the tokens of the batch (as in verl) or its samples (as in the paper).

    Over tokens, groups of equal rewards have a gradient.
    """

    title: ClassVar[str] = "REINFORCE++ with baseline"
    source: ClassVar[str] = "arXiv 2501.03262 v9, Eq 6 and 7; verl"
    caution: ClassVar[str] = (
        "groups of equal rewards have a gradient, which raises the probability of wrong answers in all-wrong groups if "
        "wrong answers are longer"
    )

    over: Over = "tokens"

    def __post_init__(self) -> None:
        if self.over == "samples":
            object.__setattr__(self, "caution", "")

    def advantages(self, rewards: GroupedRewards) -> Float[Tensor, "prompt group"]:
        """Whiten the group-centred rewards. Raise ``ValueError`` for groups of one.

        >>> import torch
        >>> reward_PG = torch.tensor([[1.0, 0.0], [0.0, 0.0]])
        >>> n_tokens_PG = torch.tensor([[1, 3], [2, 2]])
        >>> whiten(centre_rewards(reward_PG), n_tokens_PG, "tokens")  # the second group is all wrong
        tensor([[ 1.7678, -1.0607],
                [ 0.3536,  0.3536]])
        """
        return whiten(centre_rewards(rewards.reward_PG), rewards.n_tokens_PG, self.over)


PART = ReinforcePpBaseline
