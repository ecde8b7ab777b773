"""IAC: inverse-success advantage calibration.

    A~_i = A_i * (G - |S+|)^alpha    for correct samples with A_i > 0;    A~_i = A_i    otherwise      (0^0 = 1)

|S+| is the number of correct samples of the group. The rarer success is, the larger the weight of a correct sample.
With binary rewards and alpha = 1, the sum of a group's positive advantages is exactly (G - |S+|) times the absolute sum
of its negative advantages.

Source: *When Sharpening Becomes Collapse* [A] (arXiv 2601.15609), section 3.1. Two choices are ours. First, S+ is the
set of samples that the *verifier* accepts, not those with A > 0. With shaped rewards, an all-wrong group also has
positive advantages, and the literal formula of [A] would multiply the least bad wrong answer by G.
``s_plus=positive`` selects the literal formula. Use it, or ``--correct-above``, for rewards that never reach 1. Second,
the factor is at least 1 if a wrong sample exists, so IAC takes larger steps than GRPO. ``scale_matched`` rescales the
advantages to GRPO's mean |A| of the batch, which makes runs comparable.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from oversharp.trainers.objectives.contract import Calibration, Credit, GroupedRewards, check_range


def calibrate_advantages(
    advantage_PG: Float[Tensor, "prompt group"], correct_PG: Bool[Tensor, "prompt group"], *, alpha: float = 1.0
) -> Float[Tensor, "prompt group"]:
    """Weight the advantages of correct samples by the number of incorrect samples in their group.

    >>> plain_PG = torch.tensor([[1.7321, -0.5774, -0.5774, -0.5774]])
    >>> calibrate_advantages(plain_PG, torch.tensor([[True, False, False, False]]))
    tensor([[ 5.1963, -0.5774, -0.5774, -0.5774]])
    """
    n_not_correct_P1 = (~correct_PG).sum(dim=1, keepdim=True).to(advantage_PG.dtype)
    return torch.where(correct_PG & (advantage_PG > 0), advantage_PG * n_not_correct_P1**alpha, advantage_PG)


@dataclass(frozen=True, kw_only=True)
class Iac(Calibration):
    """``alpha`` is the exponent, 0 or more; 0 changes nothing. ``scale_matched`` keeps the batch's mean |A|.

    ``s_plus`` defines S+: samples that the verifier accepts, or samples with positive advantage (Algorithm 1 of [A]).
    """

    title: ClassVar[str] = "Inverse-success Advantage Calibration"
    source: ClassVar[str] = "arXiv 2601.15609, section 3.1"
    acts_on: ClassVar[str] = "positive advantages of correct samples"

    alpha: float = 1.0
    scale_matched: bool = False
    s_plus: Literal["correct", "positive"] = "correct"

    def __post_init__(self) -> None:
        check_range(0, alpha=self.alpha)

    def calibrate(self, credit: Credit, rewards: GroupedRewards) -> Credit:
        """Apply ``calibrate_advantages``. No sample is removed."""
        is_plus_PG = rewards.correct_PG if self.s_plus == "correct" else credit.advantage_PG > 0
        raised_PG = calibrate_advantages(credit.advantage_PG, is_plus_PG, alpha=self.alpha)
        return credit.with_advantages(raised_PG, keep_scale=self.scale_matched)


PART = Iac
