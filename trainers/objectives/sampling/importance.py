"""Importance weights for rollouts that are not samples of the policy, because of rounding or DLC.

    w_t = pi_old(y_t) / behaviour(y_t)                      level=token
    w   = product of w_t over the response                  level=sequence, one weight for all its tokens

    mode=truncate: min(w, cap)        mode=mask: w where w <= cap, else 0        mode=exact: w

Exact sequence weights are unbiased, but their variance grows exponentially with length. Token weights are biased and
have a small variance. With DLC, the choice matters: in the softmax worlds, the benefit of DLC vanishes with exact
weights.

Source: Ionides 2008, *Truncated Importance Sampling*, for truncated weights. For RL with a separate rollout engine:
verl's rollout correction (``rollout_is``, cap 2) and TRL's ``vllm_importance_sampling_mode``. verl clamps the log-ratio
to +-20; this part does not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from oversharp.trainers.objectives.contract import Correction


@dataclass(frozen=True, kw_only=True)
class Importance(Correction):
    """``cap`` is above 0. ``mode=exact`` does not use it."""

    title: ClassVar[str] = "importance correction of rollouts"
    source: ClassVar[str] = "Ionides 2008; verl 0.9 rollout correction"

    level: Literal["token", "sequence"] = "token"
    mode: Literal["truncate", "mask", "exact"] = "truncate"
    cap: float = 2.0

    def __post_init__(self) -> None:
        if not 0 < self.cap < float("inf"):
            raise ValueError(f"cap {self.cap}: must be above 0")

    def importance(
        self, log_ratio_BT: Float[Tensor, "row token"], mask_BT: Bool[Tensor, "row token"]
    ) -> Float[Tensor, "row token"]:
        """Return the weights, which have no gradient. They are 0 outside the response.

        >>> log_ratio_BT, mask_BT = torch.tensor([[2.0, 2.0]]).log(), torch.ones(1, 2, dtype=torch.bool)
        >>> Importance(level="sequence", mode="exact").importance(log_ratio_BT, mask_BT)
        tensor([[4., 4.]])
        """
        log_weight_BT = torch.where(mask_BT, log_ratio_BT.detach(), 0.0)
        if self.level == "sequence":
            log_weight_BT = log_weight_BT.sum(dim=1, keepdim=True).expand_as(mask_BT)
        weight_BT = torch.where(mask_BT, log_weight_BT.exp(), 0.0)
        if self.mode == "exact":
            return weight_BT
        return weight_BT.clamp(max=self.cap) if self.mode == "truncate" else weight_BT.where(weight_BT <= self.cap, 0.0)


PART = Importance
