"""PPO's clipped surrogate, with separate bounds and an optional dual clip.

    rho_t = pi(y_t) / pi_old(y_t)       loss_t = -min(rho_t A, clip(rho_t, 1 - low, 1 + high) A)
    with a dual clip c, where A < 0:                           loss_t = min(loss_t, -c A)

With one update per batch, every rho is 1, so nothing is clipped, and the gradient is the plain policy gradient.

Source: PPO (arXiv 1707.06347), Eq 7; clip-higher: DAPO (arXiv 2503.14476), section 3.1, Eq 10; dual clip: Ye et al.
(arXiv 1912.09729), Eq 5.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from oversharp.trainers.objectives.contract import Surrogate, SurrogateLoss, TokenLogps, as_column, check_range


@dataclass(frozen=True, kw_only=True)
class Clip(Surrogate):
    """The ratio is clipped to 1 - ``low`` and 1 + ``high``. ``dual`` is c, above 1, or 0 for no dual clip."""

    title: ClassVar[str] = "PPO's clipped surrogate"
    source: ClassVar[str] = "arXiv 1707.06347, Eq 7; 2503.14476, Eq 10; 1912.09729, Eq 5"

    low: float = 0.2
    high: float = 0.2
    dual: float = 0.0

    def __post_init__(self) -> None:
        check_range(0, 1, low=self.low)
        check_range(0, high=self.high)
        if self.dual and not 1 < self.dual < float("inf"):
            raise ValueError(f"dual {self.dual}: must be above 1, or 0 for none")

    def token_loss(self, tokens: TokenLogps, advantage_B: Float[Tensor, "row ..."]) -> SurrogateLoss:
        """Return the clipped loss of each token.

        >>> tokens = TokenLogps(logp_BT=torch.tensor([[2.0]]), entropy_BT=torch.zeros(1, 1),
        ...                     old_logp_BT=torch.zeros(1, 1), mask_BT=torch.ones(1, 1, dtype=torch.bool))
        >>> Clip().token_loss(tokens, torch.tensor([1.0])).loss_BT
        tensor([[-1.2000]])
        """
        advantage_B1 = as_column(advantage_B)
        ratio_BT = (tokens.logp_BT - tokens.old_logp_BT).exp()
        free_BT = -advantage_B1 * ratio_BT
        bounded_BT = -advantage_B1 * ratio_BT.clamp(1 - self.low, 1 + self.high)
        loss_BT, clipped_BT = torch.maximum(free_BT, bounded_BT), bounded_BT > free_BT
        if self.dual:
            limit_B1 = -advantage_B1 * self.dual
            exceeds_BT = (advantage_B1 < 0) & (loss_BT > limit_B1)
            loss_BT, clipped_BT = torch.where(exceeds_BT, limit_B1, loss_BT), clipped_BT | exceeds_BT
        return SurrogateLoss(loss_BT=loss_BT, clipped_BT=clipped_BT & tokens.mask_BT)


PART = Clip
