"""GRPO's aggregation: the mean over tokens of each sample, then the mean over samples.

Tokens of short samples have more weight.

    loss = 1/N * sum over samples of 1/|y_i| * sum over tokens of loss_it

Source: DeepSeekMath (arXiv 2402.03300), Eq 3; verl calls it ``seq-mean-token-mean``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Bool, Float
from torch import Tensor

from oversharp.trainers.objectives.contract import Aggregation


@dataclass(frozen=True, kw_only=True)
class SeqMeanTokenMean(Aggregation):
    """Every sample has the same weight, regardless of its length."""

    title: ClassVar[str] = "mean over samples of the mean over tokens"
    source: ClassVar[str] = "arXiv 2402.03300, Eq 3"

    def token_weights(
        self, mask_BT: Bool[Tensor, "row token"], counted_B: Bool[Tensor, " row"], *, max_tokens: int
    ) -> Float[Tensor, "row token"]:
        """Return 1 / (N |y_i|) for each token of the N samples in the divisor.

        >>> import torch
        >>> mask_BT = torch.tensor([[True, True], [True, False]])
        >>> SeqMeanTokenMean().token_weights(mask_BT, torch.tensor([True, True]), max_tokens=2)
        tensor([[0.2500, 0.2500],
                [0.5000, 0.0000]])
        """
        used_BT = (mask_BT & counted_B[:, None]).float()
        n_rows = counted_B.sum().clamp(min=1)
        return used_BT / used_BT.sum(dim=1, keepdim=True).clamp(min=1) / n_rows


PART = SeqMeanTokenMean
