"""IAC: inverse-success advantage calibration on top of GRPO.

    A~_i = A_i * (G - |S+|)^alpha    for correct samples with A_i > 0;    A~_i = A_i    otherwise      (0^0 = 1)

|S+| counts the correct samples of the group, so the rarer success is, the more a correct sample weighs. With binary
rewards and alpha = 1 the positive advantages of a group sum to exactly (G - |S+|) times the negative ones.

Source: *When Sharpening Becomes Collapse* [A] (arXiv 2601.15609), 3.1. Two decisions are ours:

- S+ is what the *verifier* accepts, not A > 0. Under shaped rewards an all-wrong group has positive advantages too,
  and [A]'s formula read literally would raise the least bad wrong answer G-fold.
- The factor is at least 1 wherever a wrong sample exists, so IAC is also a larger step. ``iac_scale_matched``
  divides that out: the batch's mean |A~| is set to the uncalibrated mean |A|, which makes runs comparable.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from trainers.objectives import grpo
from trainers.objectives.contract import AdvantageSettings, Objective


def advantages(
    reward_PG: Float[Tensor, "prompt group"], correct_PG: Bool[Tensor, "prompt group"], settings: AdvantageSettings
) -> Float[Tensor, "prompt group"]:
    """GRPO advantages with the correct samples weighted by the number of other outcomes in their group.

    >>> settings = AdvantageSettings(ddof=0, eps=0.0)
    >>> advantages(torch.tensor([[1.0, 0.0, 0.0, 0.0]]), torch.tensor([[True, False, False, False]]), settings)
    tensor([[ 5.1962, -0.5774, -0.5774, -0.5774]])
    """
    plain_PG = grpo.advantages(reward_PG, correct_PG, settings)
    n_not_correct_P1 = (~correct_PG).sum(dim=1, keepdim=True).to(plain_PG.dtype)
    factor_P1 = n_not_correct_P1**settings.iac_alpha
    calibrated_PG = torch.where(correct_PG & (plain_PG > 0), plain_PG * factor_P1, plain_PG)
    if not settings.iac_scale_matched:
        return calibrated_PG
    calibrated_mean = calibrated_PG.abs().mean()
    return torch.where(calibrated_mean > 0, calibrated_PG * (plain_PG.abs().mean() / calibrated_mean), calibrated_PG)


OBJECTIVE = Objective(
    title="Inverse-success Advantage Calibration",
    source="arXiv 2601.15609, 3.1",
    advantages=advantages,
)
