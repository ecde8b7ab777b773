"""Reweighting by the reference: divides advantages of correct samples by their probability under the reference.

    A~_i = A_i * min(1 / pi_ref(y_i|x), cap)    for correct samples with A_i > 0;     A~_i = A_i    otherwise

[A] divides *all* advantages and has no cap (``samples=all`` with a large cap). Then Z'(q) is at least 1. This does not
prevent over-sharpening: Z'(q) was above 1 in all of 5,000 random draws, so modes that were not sampled still lose
probability. Without a cap, one response can dominate the step. For long responses, nearly every factor equals the cap.

Source: *When Sharpening Becomes Collapse* [A] (arXiv 2601.15609), section 3.1: the "natural solution" that IAC
replaces.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

from jaxtyping import Float
from torch import Tensor

from oversharp.trainers.objectives.contract import Calibration, Credit, GroupedRewards, Need, check_range


def rarity(reference_logp_PG: Float[Tensor, "prompt group"], *, cap: float) -> Float[Tensor, "prompt group"]:
    """Return min(1 / pi_ref, cap), from log pi_ref.

    >>> import torch
    >>> rarity(torch.tensor([[0.5, 0.01]]).log(), cap=10.0)
    tensor([[ 2., 10.]])
    """
    return (-reference_logp_PG).clamp(max=math.log(cap)).exp()  # cap before exp, which overflows for long responses


@dataclass(frozen=True, kw_only=True)
class ReferenceWeighting(Calibration):
    """``cap`` is the maximum of the factor, 1 or more.

    ``samples`` selects ``correct`` samples with a positive advantage, or ``all``. The factor is at least 1, so steps
    are larger. ``scale_matched`` keeps the batch's mean |A|.
    """

    title: ClassVar[str] = "reweighting by the reference probability"
    source: ClassVar[str] = "arXiv 2601.15609, section 3.1"
    needs: ClassVar[frozenset[Need]] = frozenset({"reference_logp"})
    acts_on: ClassVar[str] = "positive advantages of correct samples"

    cap: float = 100.0
    samples: Literal["correct", "all"] = "correct"
    scale_matched: bool = False

    def __post_init__(self) -> None:
        check_range(1, cap=self.cap)

    def calibrate(self, credit: Credit, rewards: GroupedRewards) -> Credit:
        """Multiply advantages by ``rarity``. No sample is removed."""
        if rewards.reference_logp_PG is None:
            raise ValueError("reference_weighting: the rollouts have no log-probabilities under the reference")
        factor_PG = rarity(rewards.reference_logp_PG, cap=self.cap).to(credit.advantage_PG.dtype)
        if self.samples == "correct":
            factor_PG = factor_PG.where(rewards.correct_PG & (credit.advantage_PG > 0), 1.0)
        return credit.with_advantages(credit.advantage_PG * factor_PG, keep_scale=self.scale_matched)


PART = ReferenceWeighting
