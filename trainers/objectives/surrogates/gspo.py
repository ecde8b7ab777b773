"""GSPO: the clipped surrogate with one ratio per sequence, which is the geometric mean of its token ratios.

    s_i = exp(1/|y_i| * sum over tokens of log rho_it)      loss_it = -min(s_it A, clip(s_it, 1 - low, 1 + high) A)
    s_it = sg[s_i] * pi(y_it) / sg[pi(y_it)]                sg: no gradient

s_it has the value of s_i at every token, and the gradient of the token, so it works with every aggregation. With
``seq_mean_token_mean``, the default, the gradient is that of the paper's sequence-level loss. Clipping removes the
gradient of a whole sequence. The default bounds are from section 5.1 of the paper, about a thousandth of PPO's.

Source: *Group Sequence Policy Optimization* (arXiv 2507.18071), section 4.1, Eq 5 and 7; token form: section 4.3,
Eq 13 and 14. verl caps log s_it at 10; TRL and this part do not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from oversharp.trainers.objectives.contract import Surrogate, SurrogateLoss, TokenLogps, as_column, check_range


@dataclass(frozen=True, kw_only=True)
class Gspo(Surrogate):
    """Sequence-level clipped surrogate. The ratio is clipped to 1 - ``low`` and 1 + ``high``."""

    title: ClassVar[str] = "Group Sequence Policy Optimization"
    source: ClassVar[str] = "arXiv 2507.18071, Eq 5, 7, 13, 14"

    low: float = 3e-4
    high: float = 4e-4

    def __post_init__(self) -> None:
        check_range(0, 1, low=self.low)
        check_range(0, high=self.high)

    def token_loss(self, tokens: TokenLogps, advantage_B: Float[Tensor, "row ..."]) -> SurrogateLoss:
        """Return the clipped loss of each token.

        >>> tokens = TokenLogps(logp_BT=torch.tensor([[0.3, 0.1]]), entropy_BT=torch.zeros(1, 2),
        ...                     old_logp_BT=torch.zeros(1, 2), mask_BT=torch.ones(1, 2, dtype=torch.bool))
        >>> Gspo().token_loss(tokens, torch.tensor([-1.0])).loss_BT  # exp(0.2): A < 0 has no upper clip
        tensor([[1.2214, 1.2214]])
        """
        advantage_B1 = as_column(advantage_B)
        log_ratio_BT = torch.where(tokens.mask_BT, tokens.logp_BT - tokens.old_logp_BT, 0.0).detach()
        log_ratio_B1 = log_ratio_BT.sum(dim=1, keepdim=True) / tokens.mask_BT.sum(dim=1, keepdim=True).clamp(min=1)
        ratio_BT = (log_ratio_B1 + tokens.logp_BT - tokens.logp_BT.detach()).exp()
        free_BT = -advantage_B1 * ratio_BT
        bounded_BT = -advantage_B1 * ratio_BT.clamp(1 - self.low, 1 + self.high)
        return SurrogateLoss(
            loss_BT=torch.maximum(free_BT, bounded_BT), clipped_BT=(bounded_BT > free_BT) & tokens.mask_BT
        )


PART = Gspo
