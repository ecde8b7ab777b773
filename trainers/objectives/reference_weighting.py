"""Reweighting by the reference: advantages of correct samples divided by their probability under the reference.

    A~_i = A_i * min(1 / pi_ref(y_i|x), cap)    for correct samples with A_i > 0;     A~_i = A_i    otherwise

Source: *When Sharpening Becomes Collapse* [A] (arXiv 2601.15609), 3.1, where it is the "natural solution" that IAC
replaces. What to know before using it:

- [A] divides *all* advantages and has no cap; then the lower bound of Z'(q) is 1. That does not stop over-sharpening:
  Z'(q) itself was above 1 in all of 5,000 random draws, so modes that were not sampled still lose.
- Sequence probabilities span many orders of magnitude; without a cap one response decides the step. With long
  responses nearly every factor *is* the cap. ``samples=all`` with a large cap is [A]'s printed form.
- The factor is at least 1, so the step grows; ``scale_matched`` sets the batch's mean |A~| to the mean |A| before.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from trainers.objectives import contract
from trainers.objectives.contract import Credit, GroupedRewards, Need, PartDefaults


def weighted_by_reference(
    advantage_PG: Float[Tensor, "prompt group"],
    reference_logp_PG: Float[Tensor, "prompt group"],
    chosen_PG: Bool[Tensor, "prompt group"],
    *,
    cap: float,
    scale_matched: bool = False,
) -> Float[Tensor, "prompt group"]:
    """Advantages of the chosen samples times min(1 / pi_ref, cap).

    >>> half_and_hundredth = torch.tensor([[0.5, 0.01, 0.5]]).log()
    >>> weighted_by_reference(torch.tensor([[1.0, 1.0, -2.0]]), half_and_hundredth,
    ...                       torch.tensor([[True, True, False]]), cap=10.0)
    tensor([[ 2., 10., -2.]])
    """
    # the cap comes before exp: 1 / pi_ref of a long response overflows
    factor_PG = (-reference_logp_PG).clamp(max=math.log(cap)).exp().to(advantage_PG.dtype)
    weighted_PG = torch.where(chosen_PG, advantage_PG * factor_PG, advantage_PG)
    return contract.scale_matched(weighted_PG, advantage_PG) if scale_matched else weighted_PG


@dataclass(frozen=True, kw_only=True)
class ReferenceWeighting(PartDefaults):
    """Rare responses weigh more, as the reference sees rarity.

    ``cap`` bounds the factor, 1 or more. ``samples`` are the ones that it reaches: ``correct`` with a positive
    advantage, or ``all``. ``scale_matched`` keeps the batch's mean |A|.
    """

    title: ClassVar[str] = "reweighting by the reference probability"
    source: ClassVar[str] = "arXiv 2601.15609, 3.1"
    needs: ClassVar[frozenset[Need]] = frozenset({"reference_logp"})

    cap: float = 100.0
    samples: Literal["correct", "all"] = "correct"
    scale_matched: bool = False

    def __post_init__(self) -> None:
        if not 1 <= self.cap < float("inf"):
            raise ValueError(f"cap {self.cap}: must be 1 or more")

    def calibrate(self, credit: Credit, rewards: GroupedRewards) -> Credit:
        """``weighted_by_reference`` advantages; every sample still counts."""
        if rewards.reference_logp_PG is None:
            raise ValueError("reference_weighting: the rollouts have no log-probabilities under the reference")
        rewarded_PG = rewards.correct_PG & (credit.advantage_PG > 0)
        advantage_PG = weighted_by_reference(
            credit.advantage_PG,
            rewards.reference_logp_PG,
            torch.ones_like(rewarded_PG) if self.samples == "all" else rewarded_PG,
            cap=self.cap,
            scale_matched=self.scale_matched,
        )
        return Credit(advantage_PG=advantage_PG, counted_PG=credit.counted_PG)


PART = ReferenceWeighting
