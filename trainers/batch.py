"""The rollouts of one step, as sampler, rewards and loss share them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional


@dataclass(frozen=True, kw_only=True)
class RolloutBatch:
    """Rollouts of one step, prompt-major: row ``b`` answers prompt ``b // group_size``.

    Prompts are padded on the left, responses on the right. ``response_mask_BT`` covers the response tokens, the end
    token included. ``behaviour_logp_BT`` is the log-probability, in nats, of each token under the law that it was
    drawn from: temperature, memory network and all; 0 behind the response. ``logp_sum_B`` and ``entropy_sum_B`` are
    the policy's own, summed over response tokens, in nats, at temperature 1 and over the full vocabulary.
    ``truncated_B``: the end token never came.
    """

    group_size: int
    prompt_ids_PL: Int[Tensor, "prompt length"]
    prompt_mask_PL: Bool[Tensor, "prompt length"]
    response_ids_BT: Int[Tensor, "row token"]
    response_mask_BT: Bool[Tensor, "row token"]
    behaviour_logp_BT: Float[Tensor, "row token"]
    logp_sum_B: Float[Tensor, " row"]
    entropy_sum_B: Float[Tensor, " row"]
    truncated_B: Bool[Tensor, " row"]

    @property
    def n_tokens_B(self) -> Int[Tensor, " row"]:  # noqa: N802
        """Response tokens of each row, the end token included."""
        return self.response_mask_BT.sum(dim=1)

    def of_prompts(self, first: int, last: int) -> RolloutBatch:
        """The rollouts of prompts ``first`` … ``last - 1``."""
        rows = slice(first * self.group_size, last * self.group_size)
        return RolloutBatch(
            group_size=self.group_size,
            prompt_ids_PL=self.prompt_ids_PL[first:last],
            prompt_mask_PL=self.prompt_mask_PL[first:last],
            response_ids_BT=self.response_ids_BT[rows],
            response_mask_BT=self.response_mask_BT[rows],
            behaviour_logp_BT=self.behaviour_logp_BT[rows],
            logp_sum_B=self.logp_sum_B[rows],
            entropy_sum_B=self.entropy_sum_B[rows],
            truncated_B=self.truncated_B[rows],
        )


def joined(parts: Sequence[RolloutBatch]) -> RolloutBatch:
    """Batches of one group size and response width as one, prompt after prompt; shorter prompts are padded."""
    width = max(part.prompt_ids_PL.shape[1] for part in parts)

    def widened(tensor_PL: Tensor) -> Tensor:
        return functional.pad(tensor_PL, (width - tensor_PL.shape[1], 0))

    return RolloutBatch(
        group_size=parts[0].group_size,
        prompt_ids_PL=torch.cat([widened(part.prompt_ids_PL) for part in parts]),
        prompt_mask_PL=torch.cat([widened(part.prompt_mask_PL) for part in parts]),
        response_ids_BT=torch.cat([part.response_ids_BT for part in parts]),
        response_mask_BT=torch.cat([part.response_mask_BT for part in parts]),
        behaviour_logp_BT=torch.cat([part.behaviour_logp_BT for part in parts]),
        logp_sum_B=torch.cat([part.logp_sum_B for part in parts]),
        entropy_sum_B=torch.cat([part.entropy_sum_B for part in parts]),
        truncated_B=torch.cat([part.truncated_B for part in parts]),
    )
