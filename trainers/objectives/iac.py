"""IAC: inverse-success advantage calibration.

    A~_i = A_i * (G - |S+|)^alpha    for correct samples with A_i > 0;    A~_i = A_i    otherwise      (0^0 = 1)

|S+| counts the correct samples of the group, so the rarer success is, the more a correct sample weighs. With binary
rewards and alpha = 1 the positive advantages of a group sum to exactly (G - |S+|) times the negative ones.

Source: *When Sharpening Becomes Collapse* [A] (arXiv 2601.15609), 3.1. Two decisions are ours:

- S+ is what the *verifier* accepts, not A > 0. Under shaped rewards an all-wrong group has positive advantages too,
  and [A]'s formula read literally would raise the least bad wrong answer G-fold.
- The factor is at least 1 wherever a wrong sample exists, so IAC is also a larger step. ``scale_matched`` divides
  that out: the batch's mean |A~| is set to the uncalibrated mean |A|, which makes runs comparable.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from trainers.objectives import contract
from trainers.objectives.contract import Credit, GroupedRewards, PartDefaults


def calibrated(
    advantage_PG: Float[Tensor, "prompt group"],
    correct_PG: Bool[Tensor, "prompt group"],
    *,
    alpha: float = 1.0,
    scale_matched: bool = False,
) -> Float[Tensor, "prompt group"]:
    """Advantages with the correct samples weighted by the number of other outcomes in their group.

    >>> plain_PG = torch.tensor([[1.7321, -0.5774, -0.5774, -0.5774]])
    >>> calibrated(plain_PG, torch.tensor([[True, False, False, False]]))
    tensor([[ 5.1963, -0.5774, -0.5774, -0.5774]])
    """
    n_not_correct_P1 = (~correct_PG).sum(dim=1, keepdim=True).to(advantage_PG.dtype)
    raised_PG = torch.where(correct_PG & (advantage_PG > 0), advantage_PG * n_not_correct_P1**alpha, advantage_PG)
    return contract.scale_matched(raised_PG, advantage_PG) if scale_matched else raised_PG


@dataclass(frozen=True, kw_only=True)
class Iac(PartDefaults):
    """Inverse-success calibration of whatever the estimator says.

    ``alpha`` is the exponent, 0 or more; 0 changes nothing. ``scale_matched`` keeps the batch's mean |A|.
    """

    title: ClassVar[str] = "Inverse-success Advantage Calibration"
    source: ClassVar[str] = "arXiv 2601.15609, 3.1"

    alpha: float = 1.0
    scale_matched: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.alpha < float("inf"):
            raise ValueError(f"alpha {self.alpha}: must be 0 or more")

    def calibrate(self, credit: Credit, rewards: GroupedRewards) -> Credit:
        """``calibrated`` advantages; every sample still counts."""
        advantage_PG = calibrated(
            credit.advantage_PG, rewards.correct_PG, alpha=self.alpha, scale_matched=self.scale_matched
        )
        return Credit(advantage_PG=advantage_PG, counted_PG=credit.counted_PG)


PART = Iac
