"""SELF's filter: only prompts whose greedy response fails teach.

    A~_i = A_i * 1{greedy response to x_i is wrong}

Source: *The Reasoning Boundary Paradox* [C], Eq 9. The indicator printed there reads "r(x, y*) not in C(x)"; what
is meant, and what [C] says in words, is that the greedy response is not correct.

Eq 9 multiplies by the indicator inside the mean over all prompts, so filtered samples stay in the divisor and the step
shrinks as the policy solves more. ``counted=false`` takes them out of it, so that the prompts left over weigh as a
full batch. Penalties such as ``kl`` reach samples that count.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from oversharp.trainers.objectives.contract import Credit, GroupedRewards, Need, PartDefaults


@dataclass(frozen=True, kw_only=True)
class GreedyFilter(PartDefaults):
    """Prompts whose greedy response is correct teach nothing. ``counted``: their samples stay in the divisor."""

    title: ClassVar[str] = "learn only where the greedy response fails"
    source: ClassVar[str] = "The Reasoning Boundary Paradox, Eq 9"
    needs: ClassVar[frozenset[Need]] = frozenset({"greedy"})
    acts_on: ClassVar[str] = "prompts whose greedy response is correct"

    counted: bool = True

    def calibrate(self, credit: Credit, rewards: GroupedRewards) -> Credit:
        """Silences solved prompts.

        >>> import torch
        >>> true, one = torch.ones(2, 2, dtype=torch.bool), torch.ones(2, 2)
        >>> rewards = GroupedRewards(reward_PG=one, correct_PG=true, n_tokens_PG=one.int(), truncated_PG=~true,
        ...                          greedy_correct_P=torch.tensor([True, False]))
        >>> GreedyFilter().calibrate(Credit(advantage_PG=one, counted_PG=true), rewards).advantage_PG
        tensor([[0., 0.],
                [1., 1.]])
        """
        if rewards.greedy_correct_P is None:
            raise ValueError("greedy_filter: it is not known which greedy responses are correct")
        solved_P1 = rewards.greedy_correct_P[:, None]
        silenced = credit.without(solved_P1)
        return credit.with_advantages(silenced.advantage_PG) if self.counted else silenced


PART = GreedyFilter
