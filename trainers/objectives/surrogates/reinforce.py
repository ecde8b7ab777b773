"""Plain policy gradient, without ratio and clip.

    loss_t = -A * log pi(y_t)

With one update per batch, its gradient equals that of ``clip``. With several updates per batch, it is off policy from
the second update on, without correction. The value of the loss is not comparable with that of clipped surrogates,
because it depends on the log-probabilities.

Source: REINFORCE (Williams 1992, *Machine Learning* 8, 229-256).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from oversharp.trainers.objectives.contract import Surrogate, SurrogateLoss, TokenLogps, as_column


@dataclass(frozen=True, kw_only=True)
class Reinforce(Surrogate):
    """Negative log-probability times advantage."""

    title: ClassVar[str] = "REINFORCE"
    source: ClassVar[str] = "Williams 1992"

    def token_loss(self, tokens: TokenLogps, advantage_B: Float[Tensor, "row ..."]) -> SurrogateLoss:
        """Return the loss of each token.

        >>> tokens = TokenLogps(logp_BT=torch.tensor([[-0.5]]), entropy_BT=torch.zeros(1, 1),
        ...                     old_logp_BT=torch.zeros(1, 1), mask_BT=torch.ones(1, 1, dtype=torch.bool))
        >>> Reinforce().token_loss(tokens, torch.tensor([2.0])).loss_BT
        tensor([[1.]])
        """
        loss_BT = -as_column(advantage_B) * tokens.logp_BT
        return SurrogateLoss(loss_BT=loss_BT, clipped_BT=torch.zeros_like(tokens.mask_BT))


PART = Reinforce
