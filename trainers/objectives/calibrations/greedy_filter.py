"""SELF's filter: only prompts whose greedy response fails have a gradient.

    A~_i = A_i * 1{greedy response to x_i is wrong}

Source: *The Reasoning Boundary Paradox* [C], Eq 9. The printed indicator is "r(x, y*) not in C(x)"; according to the
text of [C], it means that the greedy response is not correct.

Eq 9 multiplies by the indicator inside the mean over all prompts. So filtered samples stay in the divisor, and the step
shrinks as the policy solves more prompts. ``counted=false`` removes them from the divisor, so that the remaining
prompts have the weight of a full batch. Penalties such as ``kl`` apply only to samples in the divisor.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from oversharp.trainers.objectives.contract import Calibration, Credit, GroupedRewards, Need


@dataclass(frozen=True, kw_only=True)
class GreedyFilter(Calibration):
    """Prompts whose greedy response is correct have no gradient.

    ``counted`` is whether their samples stay in the divisor.
    """

    title: ClassVar[str] = "learn only where the greedy response fails"
    source: ClassVar[str] = "The Reasoning Boundary Paradox, Eq 9"
    needs: ClassVar[frozenset[Need]] = frozenset({"greedy"})
    acts_on: ClassVar[str] = "prompts whose greedy response is correct"

    counted: bool = True

    def calibrate(self, credit: Credit, rewards: GroupedRewards) -> Credit:
        """Set the advantages to 0 for prompts whose greedy response is correct.

        >>> import torch
        >>> true, one = torch.ones(2, 2, dtype=torch.bool), torch.ones(2, 2)
        >>> rewards = GroupedRewards(reward_PG=one, correct_PG=true, n_tokens_PG=one.int(), truncated_PG=~true,
        ...                          greedy_correct_P=torch.tensor([True, False]))
        >>> GreedyFilter().calibrate(Credit(advantage_PG=one, counted_PG=true), rewards).advantage_PG
        tensor([[0., 0.],
                [1., 1.]])
        """
        if rewards.greedy_correct_P is None:
            raise ValueError("greedy_filter: correctness of the greedy responses is unknown")
        solved_P1 = rewards.greedy_correct_P[:, None]
        removed = credit.remove_samples(solved_P1)
        return credit.with_advantages(removed.advantage_PG) if self.counted else removed


PART = GreedyFilter
