"""Overlong filtering: removes truncated responses from the loss and its divisor.

A response may be wrong only because it was truncated at the limit, so its reward is noise. It is still part of its
group's mean and standard deviation, because the estimator comes first.

Source: DAPO (arXiv 2503.14476), section 3.4, "Overlong Filtering".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from oversharp.trainers.objectives.contract import Calibration, Credit, GroupedRewards


@dataclass(frozen=True, kw_only=True)
class OverlongFilter(Calibration):
    """Removes truncated samples from the loss and its divisor."""

    title: ClassVar[str] = "overlong filtering"
    source: ClassVar[str] = "arXiv 2503.14476, section 3.4"
    acts_on: ClassVar[str] = "truncated samples"

    def calibrate(self, credit: Credit, rewards: GroupedRewards) -> Credit:
        """Remove truncated samples.

        >>> import torch
        >>> cut, one = torch.tensor([[False, True]]), torch.ones(1, 2)
        >>> rewards = GroupedRewards(reward_PG=one, correct_PG=~cut, n_tokens_PG=one.int(), truncated_PG=cut)
        >>> OverlongFilter().calibrate(Credit(advantage_PG=torch.tensor([[1.0, -1.0]]), counted_PG=cut | True), rewards)
        Credit(advantage_PG=tensor([[1., 0.]]), counted_PG=tensor([[ True, False]]))
        """
        return credit.remove_samples(rewards.truncated_PG)


PART = OverlongFilter
