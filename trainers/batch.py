"""Tensors of the rollouts of one step, which sampler, rewards and loss use."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional


@dataclass(frozen=True, kw_only=True)
class RolloutBatch:
    """Rollouts of one step. Rows are in order of the prompts: row ``b`` answers prompt ``b // group_size``.

    Prompts are padded on the left, responses on the right. ``response_mask_BT`` covers the response tokens including
    the end token. ``behaviour_logp_BT`` is the log-probability, in nats, of each token under the distribution it was
    sampled from, including temperature and memory network; it is 0 after the response. ``logp_sum_B`` and
    ``entropy_sum_B`` are sums over the response tokens of the policy's log-probability and entropy, in nats, at
    temperature 1 and over the full vocabulary. ``truncated_B`` is whether the response has no end token.
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
        """Number of response tokens of each row, including the end token."""
        return self.response_mask_BT.sum(dim=1)

    def select_prompts(self, first: int, last: int) -> RolloutBatch:
        """Return the rollouts of prompts ``first`` … ``last - 1``."""
        rows = slice(first * self.group_size, last * self.group_size)
        cut: dict[str, Any] = {name: getattr(self, name)[rows] for name in _BY_ROW}
        return replace(
            self, prompt_ids_PL=self.prompt_ids_PL[first:last], prompt_mask_PL=self.prompt_mask_PL[first:last], **cut
        )


#: Names of the tensors that have one row per response.
_BY_ROW = tuple(field.name for field in fields(RolloutBatch) if field.name.endswith(("_B", "_BT")))


def concatenate(parts: Sequence[RolloutBatch]) -> RolloutBatch:
    """Concatenate batches of equal group size and response width. Shorter prompts are padded."""
    width = max(part.prompt_ids_PL.shape[1] for part in parts)

    def pad_left(tensor_PL: Tensor) -> Tensor:
        return functional.pad(tensor_PL, (width - tensor_PL.shape[1], 0))

    by_row: dict[str, Any] = {name: torch.cat([getattr(part, name) for part in parts]) for name in _BY_ROW}
    return replace(
        parts[0],
        prompt_ids_PL=torch.cat([pad_left(part.prompt_ids_PL) for part in parts]),
        prompt_mask_PL=torch.cat([pad_left(part.prompt_mask_PL) for part in parts]),
        **by_row,
    )


def positions(mask_BL: Bool[Tensor, "row length"]) -> Int[Tensor, "row length"]:
    """Return the position of each token. Padding on the left is not counted.

    >>> positions(torch.tensor([[False, True, True]])).tolist()
    [[0, 0, 1]]
    """
    return (mask_BL.long().cumsum(dim=1) - 1).clamp(min=0)


def distinct_rollouts(
    rollouts: RolloutBatch, used_B: Bool[Tensor, " row"]
) -> tuple[Int[Tensor, " distinct"], Int[Tensor, " row"]]:
    """Find copies among the used rows, which have the same prompt and response.

    Returns the row index of each distinct response, and for each row its position among the distinct responses, -1 for
    an unused row. Copies have equal log-probabilities, so one computation suffices. A sharpening policy samples more
    and more copies.
    """
    row_B = torch.arange(len(used_B), device=used_B.device)
    copy_of_B = torch.full_like(row_B, -1)
    used_R = row_B[used_B]
    if len(used_R) == 0:
        return used_R, copy_of_B
    response_RT = rollouts.response_ids_BT.masked_fill(~rollouts.response_mask_BT, -1)[used_R]
    prompt_R1 = (used_R // rollouts.group_size)[:, None]
    distinct, copy_of_R = torch.cat([prompt_R1, response_RT], dim=1).unique(dim=0, return_inverse=True)
    copy_of_B[used_R] = copy_of_R
    first_U = torch.full((len(distinct),), len(used_B), device=used_B.device)
    return first_U.scatter_reduce(0, copy_of_R, used_R, reduce="amin"), copy_of_B
