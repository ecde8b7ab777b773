"""NSR: the loss and its divisor have only incorrect samples.

    remove correct samples;      A~_i = A_i    for the others, which is -1 with the default estimator

By default it brings ``w_reinforce`` (-1 for incorrect samples) and ``token_mean``. This is the paper's objective.
``grpo+nsr`` uses GRPO's advantages of incorrect samples instead. Then all-wrong groups have no gradient, unlike in the
paper. ``negative_only`` differs in two ways: correct samples stay in the divisor, and the criterion is A < 0.

Source: *The Surprising Effectiveness of Negative Reinforcement* (arXiv 2506.01347), section 2.2, L_NSR.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from oversharp.trainers.objectives.contract import Calibration, Credit, GroupedRewards


@dataclass(frozen=True, kw_only=True)
class Nsr(Calibration):
    """Removes correct samples from the loss and its divisor."""

    title: ClassVar[str] = "Negative Sample Reinforcement"
    source: ClassVar[str] = "arXiv 2506.01347, section 2.2"
    brings: ClassVar[str] = "w_reinforce+token_mean"
    acts_on: ClassVar[str] = "correct samples"

    def calibrate(self, credit: Credit, rewards: GroupedRewards) -> Credit:
        """Remove correct samples.

        >>> import torch
        >>> right, one = torch.tensor([[True, False]]), torch.ones(1, 2)
        >>> rewards = GroupedRewards(reward_PG=one, correct_PG=right, n_tokens_PG=one.int(), truncated_PG=~right)
        >>> Nsr().calibrate(Credit(advantage_PG=torch.tensor([[0.1, -1.0]]), counted_PG=right | True), rewards)
        Credit(advantage_PG=tensor([[ 0., -1.]]), counted_PG=tensor([[False,  True]]))
        """
        return credit.remove_samples(rewards.correct_PG)


PART = Nsr
