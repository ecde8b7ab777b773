"""Easy-query filter: removes the prompts of the batch with the highest success rates.

    remove the floor(share * P) prompts with the largest share of correct samples (of equal ones, the first)

Source: *When Sharpening Becomes Collapse* [A] (arXiv 2601.15609), Table 5 and Appendix I: "discards the easiest 25 % of
training queries according to their empirical success rate". [A] does not say when the rate is measured. Here it is
measured in each batch, so that no pass over the training set is needed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Bool
from torch import Tensor

from oversharp.trainers.objectives.contract import Calibration, Credit, GroupedRewards, check_range


def easiest_prompts(correct_PG: Bool[Tensor, "prompt group"], *, share: float) -> Bool[Tensor, " prompt"]:
    """Return a mask of the easiest prompts of the batch. ``share`` is their share of all prompts.

    >>> easiest_prompts(torch.tensor([[False, False], [True, False], [True, True], [True, True]]), share=0.25)
    tensor([False, False,  True, False])
    """
    # add 1e-9 because of rounding errors: 0.29 * 100 is a little less than 29
    n_dropped = math.floor(share * len(correct_PG) + 1e-9)
    easiest_first_P = correct_PG.sum(dim=1).argsort(descending=True, stable=True)
    easy_P = torch.zeros(len(correct_PG), dtype=torch.bool, device=correct_PG.device)
    easy_P[easiest_first_P[:n_dropped]] = True
    return easy_P


@dataclass(frozen=True, kw_only=True)
class EasyFilter(Calibration):
    """Removes the easiest prompts of each batch. ``share`` is their share of all prompts, in [0, 1)."""

    title: ClassVar[str] = "easy-query filter"
    source: ClassVar[str] = "arXiv 2601.15609, Table 5"
    acts_on: ClassVar[str] = "the easiest prompts"

    share: float = 0.25

    def __post_init__(self) -> None:
        check_range(0, 1, share=self.share)

    def calibrate(self, credit: Credit, rewards: GroupedRewards) -> Credit:
        """Remove the samples of the ``easiest_prompts``."""
        easy_P1 = easiest_prompts(rewards.correct_PG, share=self.share)[:, None]
        return credit.remove_samples(easy_P1)


PART = EasyFilter
