"""Mean over all tokens of the batch. All tokens have the same weight, so long samples have more weight.

    loss = 1 / (sum over samples of |y_i|) * sum over samples and tokens of loss_it

Source: DAPO (arXiv 2503.14476), section 3.3, Eq 12; verl calls it ``token-mean``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Bool, Float
from torch import Tensor

from oversharp.trainers.objectives.contract import Aggregation


@dataclass(frozen=True, kw_only=True)
class TokenMean(Aggregation):
    """All tokens of the samples in the divisor have the same weight."""

    title: ClassVar[str] = "mean over tokens"
    source: ClassVar[str] = "arXiv 2503.14476, Eq 12"

    def token_weights(
        self, mask_BT: Bool[Tensor, "row token"], counted_B: Bool[Tensor, " row"], *, max_tokens: int
    ) -> Float[Tensor, "row token"]:
        """Return 1 / (number of tokens) for each token of the samples in the divisor.

        >>> import torch
        >>> mask_BT = torch.tensor([[True, True], [True, False], [True, True]])
        >>> TokenMean().token_weights(mask_BT, torch.tensor([True, False, True]), max_tokens=2)
        tensor([[0.2500, 0.2500],
                [0.0000, 0.0000],
                [0.2500, 0.2500]])
        """
        used_BT = (mask_BT & counted_B[:, None]).float()
        return used_BT / used_BT.sum().clamp(min=1)


PART = TokenMean
