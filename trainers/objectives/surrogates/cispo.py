"""CISPO: REINFORCE with a clipped importance weight, which has no gradient.

    loss_t = -sg[clip(rho_t, 1 - low, 1 + high)] * A * log pi(y_t)          sg: no gradient

PPO's clip removes the gradient of a token whose ratio is outside the bounds. Here only the weight of the token is
clipped, so every token has a gradient. ``clip_fraction`` in the metrics is the share of clipped weights.

Source: MiniMax-M1 (arXiv 2506.13585), section 3.1, Eq 4 and 5, with the mean over tokens, which this part brings. The
bounds differ between codebases. The paper has no lower bound (``low=1``) and does not print the upper bound. TRL clamps
at ``epsilon_high`` and recommends 5, which is ``high=4``, the default here. verl clamps at 1 - 0.2 and 1 + 0.2, which
is ``cispo:low=0.2,high=0.2``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from oversharp.trainers.objectives.contract import Surrogate, SurrogateLoss, TokenLogps, as_column, check_range


@dataclass(frozen=True, kw_only=True)
class Cispo(Surrogate):
    """The weights are clipped to 1 - ``low`` and 1 + ``high``. ``low=1`` is no lower bound."""

    title: ClassVar[str] = "Clipped IS-weight Policy Optimization"
    source: ClassVar[str] = "arXiv 2506.13585, Eq 4 and 5"
    brings: ClassVar[str] = "token_mean"

    low: float = 1.0
    high: float = 4.0

    def __post_init__(self) -> None:
        if not 0 <= self.low <= 1:
            raise ValueError(f"low {self.low}: must be in [0, 1]")
        check_range(0, high=self.high)

    def token_loss(self, tokens: TokenLogps, advantage_B: Float[Tensor, "row ..."]) -> SurrogateLoss:
        """Return the weighted negative log-probability of each token.

        >>> import torch
        >>> tokens = TokenLogps(logp_BT=torch.tensor([[-1.0]]), entropy_BT=torch.zeros(1, 1),
        ...                     old_logp_BT=torch.tensor([[-3.0]]), mask_BT=torch.ones(1, 1, dtype=torch.bool))
        >>> Cispo().token_loss(tokens, torch.tensor([1.0]))  # exp(2) is above 5
        SurrogateLoss(loss_BT=tensor([[5.]]), clipped_BT=tensor([[True]]))
        """
        ratio_BT = (tokens.logp_BT - tokens.old_logp_BT).detach().exp()
        weight_BT = ratio_BT.clamp(1 - self.low, 1 + self.high)
        loss_BT = -weight_BT * as_column(advantage_B) * tokens.logp_BT
        return SurrogateLoss(loss_BT=loss_BT, clipped_BT=(weight_BT != ratio_BT) & tokens.mask_BT)


PART = Cispo
