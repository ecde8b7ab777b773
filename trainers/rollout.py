"""Rollouts: a compact batched decoder with a KV cache, for any causal language model of transformers.

Prompts are read once and their cache is repeated for the group. The noise of a rollout is fixed before decoding
starts, one uniform number per row and token, so what a row becomes does not depend on the rows beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

if TYPE_CHECKING:
    from transformers import PreTrainedModel

#: Finished rows are dropped from the batch once they make up half of it; below that, copying the cache costs more.
COMPACT_BELOW = 0.5


@dataclass(frozen=True, kw_only=True)
class RolloutBatch:
    """Rollouts of one step, prompt-major: row ``b`` answers prompt ``b // group_size``.

    Prompts are padded on the left, responses on the right. ``response_mask_BT`` covers the response tokens, the end
    token included. ``logp_sum_B`` and ``entropy_sum_B`` are sums over response tokens in nats, at temperature 1 and
    over the full vocabulary, whatever the sampling temperature was. ``truncated_B``: the end token never came.
    """

    group_size: int
    prompt_ids_PL: Int[Tensor, "prompt length"]
    prompt_mask_PL: Bool[Tensor, "prompt length"]
    response_ids_BT: Int[Tensor, "row token"]
    response_mask_BT: Bool[Tensor, "row token"]
    logp_sum_B: Float[Tensor, " row"]
    entropy_sum_B: Float[Tensor, " row"]
    truncated_B: Bool[Tensor, " row"]

    @property
    def n_tokens_B(self) -> Int[Tensor, " row"]:  # noqa: N802
        """Response tokens of each row, the end token included."""
        return self.response_mask_BT.sum(dim=1)


def uniform_noise(seed: int, *, rows: int, max_tokens: int) -> Float[Tensor, "row token"]:
    """The noise of one step, in [0, 1). Drawn on the CPU, so that every device gets the same."""
    return torch.rand(rows, max_tokens, generator=torch.Generator().manual_seed(seed))


def draw_tokens(
    logits_BV: Float[Tensor, "row vocabulary"], uniform_B: Float[Tensor, " row"], temperature: float
) -> Int[Tensor, " row"]:
    """One token per row from softmax(logits / temperature), by inverting the cumulative distribution.

    >>> draw_tokens(torch.log(torch.tensor([[0.25, 0.75], [0.25, 0.75]])), torch.tensor([0.2, 0.3]), 1.0).tolist()
    [0, 1]
    """
    cumulative_BV = (logits_BV / temperature).softmax(dim=-1).cumsum(dim=-1)
    total_B1 = cumulative_BV[:, -1:]  # not exactly 1 in float32
    token_B = torch.searchsorted(cumulative_BV, uniform_B[:, None] * total_B1, right=True)[:, 0]
    return token_B.clamp(max=logits_BV.shape[1] - 1)


@torch.no_grad()
def generate(
    model: PreTrainedModel,
    prompt_ids_PL: Int[Tensor, "prompt length"],
    prompt_mask_PL: Bool[Tensor, "prompt length"],
    uniform_BT: Float[Tensor, "row token"],
    *,
    temperature: float,
    end_ids: Sequence[int],
    pad_id: int,
) -> RolloutBatch:
    """Sample ``rows / prompts`` responses per prompt, each at most ``uniform_BT.shape[1]`` tokens long."""
    from transformers import DynamicCache

    device = model.device
    prompt_ids_PL, prompt_mask_PL = prompt_ids_PL.to(device), prompt_mask_PL.to(device)
    uniform_BT = uniform_BT.to(device)
    n_rows, max_tokens = uniform_BT.shape
    group_size = n_rows // len(prompt_ids_PL)
    ends_V = torch.zeros(model.config.get_text_config().vocab_size, dtype=torch.bool, device=device)
    ends_V[list(end_ids)] = True

    response_ids_BT = torch.full((n_rows, max_tokens), pad_id, device=device)
    response_mask_BT = torch.zeros((n_rows, max_tokens), dtype=torch.bool, device=device)
    logp_sum_B = torch.zeros(n_rows, device=device)
    entropy_sum_B = torch.zeros(n_rows, device=device)

    cache = DynamicCache(config=model.config)
    # without padding the model's own causal mask and positions are right, and cheaper
    padded = not bool(prompt_mask_PL.all())
    prefill = model(
        input_ids=prompt_ids_PL,
        attention_mask=prompt_mask_PL.long() if padded else None,
        position_ids=positions(prompt_mask_PL) if padded else None,
        past_key_values=cache,
        use_cache=True,
        logits_to_keep=1,
    )
    cache.batch_repeat_interleave(group_size)
    mask_BL = prompt_mask_PL.repeat_interleave(group_size, dim=0)
    logits_BV = prefill.logits[:, -1].float().repeat_interleave(group_size, dim=0)
    row_B = torch.arange(n_rows, device=device)  # the rows still in the batch
    running_B = torch.ones(n_rows, dtype=torch.bool, device=device)

    for t in range(max_tokens):
        token_B = draw_tokens(logits_BV, uniform_BT[row_B, t], temperature)
        logp_BV = logits_BV.log_softmax(dim=-1)
        live = row_B[running_B]
        response_ids_BT[live, t] = token_B[running_B]
        response_mask_BT[live, t] = True
        logp_sum_B[live] += logp_BV.gather(1, token_B[:, None])[running_B, 0]
        entropy_sum_B[live] += torch.special.entr(logp_BV.exp()).sum(dim=-1)[running_B]

        running_B = running_B & ~ends_V[token_B]
        n_running = int(running_B.sum())
        if n_running == 0 or t + 1 == max_tokens:
            break
        if n_running < COMPACT_BELOW * len(row_B):
            keep = running_B.nonzero()[:, 0]
            cache.batch_select_indices(keep)
            row_B, token_B, mask_BL, running_B = row_B[keep], token_B[keep], mask_BL[keep], running_B[keep]
        if padded:
            mask_BL = torch.cat([mask_BL, torch.ones_like(mask_BL[:, :1])], dim=1)
        step = model(
            input_ids=token_B[:, None],
            attention_mask=mask_BL.long() if padded else None,
            position_ids=positions(mask_BL)[:, -1:] if padded else None,
            past_key_values=cache,
            use_cache=True,
        )
        logits_BV = step.logits[:, -1].float()

    last_B = response_mask_BT.sum(dim=1, keepdim=True) - 1
    return RolloutBatch(
        group_size=group_size,
        prompt_ids_PL=prompt_ids_PL,
        prompt_mask_PL=prompt_mask_PL,
        response_ids_BT=response_ids_BT,
        response_mask_BT=response_mask_BT,
        logp_sum_B=logp_sum_B,
        entropy_sum_B=entropy_sum_B,
        truncated_B=~ends_V[response_ids_BT.gather(1, last_B)[:, 0]],
    )


def generate_in_parts(
    model: PreTrainedModel,
    prompt_ids_PL: Int[Tensor, "prompt length"],
    prompt_mask_PL: Bool[Tensor, "prompt length"],
    uniform_BT: Float[Tensor, "row token"],
    *,
    prompts_per_part: int,
    temperature: float,
    end_ids: Sequence[int],
    pad_id: int,
) -> RolloutBatch:
    """``generate`` for at most ``prompts_per_part`` prompts at a time, against memory."""
    group_size = len(uniform_BT) // len(prompt_ids_PL)
    parts = [
        generate(model, ids, mask, uniform, temperature=temperature, end_ids=end_ids, pad_id=pad_id)
        for ids, mask, uniform in zip(
            prompt_ids_PL.split(prompts_per_part),
            prompt_mask_PL.split(prompts_per_part),
            uniform_BT.split(prompts_per_part * group_size),
            strict=True,
        )
    ]
    return RolloutBatch(
        group_size=group_size,
        prompt_ids_PL=torch.cat([part.prompt_ids_PL for part in parts]),
        prompt_mask_PL=torch.cat([part.prompt_mask_PL for part in parts]),
        response_ids_BT=torch.cat([part.response_ids_BT for part in parts]),
        response_mask_BT=torch.cat([part.response_mask_BT for part in parts]),
        logp_sum_B=torch.cat([part.logp_sum_B for part in parts]),
        entropy_sum_B=torch.cat([part.entropy_sum_B for part in parts]),
        truncated_B=torch.cat([part.truncated_B for part in parts]),
    )


def positions(mask_BL: Bool[Tensor, "row length"]) -> Int[Tensor, "row length"]:
    """Position of each token counted without the padding on its left.

    >>> positions(torch.tensor([[False, True, True]])).tolist()
    [[0, 0, 1]]
    """
    return (mask_BL.long().cumsum(dim=1) - 1).clamp(min=0)
