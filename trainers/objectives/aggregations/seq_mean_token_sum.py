"""Sum over the tokens of each sample, then mean over samples. Its gradient is that of the mean of A log pi(y|x).

    loss = 1/N * sum over samples and tokens of loss_it

The loss is not divided by a length, so the step is larger for longer responses.

Source: REINFORCE with the response as one action, *Back to Basics* (arXiv 2402.14740); verl calls it
``seq-mean-token-sum``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Bool, Float
from torch import Tensor

from oversharp.trainers.objectives.contract import Aggregation


@dataclass(frozen=True, kw_only=True)
class SeqMeanTokenSum(Aggregation):
    """Every token has the weight 1 / (number of samples)."""

    title: ClassVar[str] = "mean over samples of the sum over tokens"
    source: ClassVar[str] = "arXiv 2402.14740"

    def token_weights(
        self, mask_BT: Bool[Tensor, "row token"], counted_B: Bool[Tensor, " row"], *, max_tokens: int
    ) -> Float[Tensor, "row token"]:
        """Return 1 / N for each token of the N samples in the divisor.

        >>> import torch
        >>> mask_BT = torch.tensor([[True, True], [True, False]])
        >>> SeqMeanTokenSum().token_weights(mask_BT, torch.tensor([True, True]), max_tokens=2)
        tensor([[0.5000, 0.5000],
                [0.5000, 0.0000]])
        """
        used_BT = (mask_BT & counted_B[:, None]).float()
        return used_BT / counted_B.sum().clamp(min=1)


PART = SeqMeanTokenSum
