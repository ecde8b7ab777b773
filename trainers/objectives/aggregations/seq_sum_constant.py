"""Sum over the tokens of each sample, divided by a constant length, then mean over samples.

    loss = 1/N * sum over samples of 1/L * sum over tokens of loss_it

L is the run's maximum response length unless ``divisor`` is given. The loss is that of ``seq_mean_token_sum``, scaled
by a constant.

Source: Dr. GRPO (arXiv 2503.20783), section 3.2 and Listing 1; verl calls it ``seq-mean-token-sum-norm``, where L is
the width of the padded batch unless ``loss_scale_factor`` is set.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Bool, Float
from torch import Tensor

from oversharp.trainers.objectives.contract import Aggregation, check_range


@dataclass(frozen=True, kw_only=True)
class SeqSumConstant(Aggregation):
    """Every token has the weight 1 / (samples x L).

    ``divisor`` is L in tokens. Its default is the run's maximum response length.
    """

    title: ClassVar[str] = "mean over samples of the sum over tokens, over a constant length"
    source: ClassVar[str] = "arXiv 2503.20783, section 3.2"

    divisor: int | None = None

    def __post_init__(self) -> None:
        check_range(1, divisor=self.divisor)

    def token_weights(
        self, mask_BT: Bool[Tensor, "row token"], counted_B: Bool[Tensor, " row"], *, max_tokens: int
    ) -> Float[Tensor, "row token"]:
        """Return 1 / (N L) for each token of the N samples in the divisor.

        >>> import torch
        >>> mask_BT = torch.tensor([[True, True], [True, False]])
        >>> SeqSumConstant().token_weights(mask_BT, torch.tensor([True, True]), max_tokens=5)
        tensor([[0.1000, 0.1000],
                [0.1000, 0.0000]])
        """
        used_BT = (mask_BT & counted_B[:, None]).float()
        return used_BT / counted_B.sum().clamp(min=1) / (max_tokens if self.divisor is None else self.divisor)


PART = SeqSumConstant
