"""The policy-gradient step: from advantages to gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from trainers.rollout import RolloutBatch, positions

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def logp_mean(
    model: PreTrainedModel, rollouts: RolloutBatch, row_R: Int[Tensor, " used"], temperature: float
) -> Float[Tensor, " used"]:
    """Mean log-probability per response token of the rollouts in ``row_R``, in nats, with gradient.

    Taken under softmax(logits / temperature), the distribution that the rollouts were drawn from.
    """
    mask_RT = rollouts.response_mask_BT[row_R]
    width = int(mask_RT.sum(dim=1).max())
    mask_RT, target_RT = mask_RT[:, :width], rollouts.response_ids_BT[row_R, :width]
    prompt_R = row_R // rollouts.group_size
    prompt_mask_RL = rollouts.prompt_mask_PL[prompt_R]
    # nothing follows the last token, so it is never an input
    ids_RS = torch.cat([rollouts.prompt_ids_PL[prompt_R], target_RT[:, :-1]], dim=1)
    # padding on the right lies behind every scored token; causality hides it, only the left needs a mask
    padded = not bool(prompt_mask_RL.all())
    mask_RS = torch.cat([prompt_mask_RL, torch.ones_like(mask_RT[:, :-1])], dim=1)
    logits_RTV = model(
        input_ids=ids_RS,
        attention_mask=mask_RS.long() if padded else None,
        position_ids=positions(mask_RS) if padded else None,
        use_cache=False,
        logits_to_keep=width,
    ).logits.float()
    nll_RT = functional.cross_entropy((logits_RTV / temperature).flatten(0, 1), target_RT.flatten(), reduction="none")
    return -(nll_RT.view_as(target_RT) * mask_RT).sum(dim=1) / mask_RT.sum(dim=1)


def backward(
    model: PreTrainedModel,
    rollouts: RolloutBatch,
    advantage_B: Float[Tensor, " row"],
    *,
    temperature: float,
    micro_batch: int | None,
) -> float:
    """Add the gradient of the loss to the parameters and return the loss.

        loss = - 1/(P G) * sum over rollouts of A_i * (1/|y_i|) * sum over tokens of log pi(y_it)

    The gradient of GRPO's clipped surrogate (arXiv 2402.03300, Eq 3) at the policy that sampled, where every ratio
    is 1: with one update per batch nothing is ever clipped. Rollouts without advantage are skipped but stay in the
    divisor. Splitting into micro-batches changes the memory, not the sum.
    """
    row_R, weight_R = distinct_rollouts(rollouts, advantage_B)
    loss = 0.0
    parts = micro_batch or max(1, len(row_R))
    for part_R, part_weight_R in zip(row_R.split(parts), weight_R.split(parts), strict=True):
        if len(part_R) == 0:
            continue
        weighted_R = part_weight_R * logp_mean(model, rollouts, part_R, temperature)
        part_loss = -weighted_R.sum() / len(advantage_B)
        part_loss.backward()
        loss += float(part_loss.detach())
    return loss


def distinct_rollouts(
    rollouts: RolloutBatch, advantage_B: Float[Tensor, " row"]
) -> tuple[Int[Tensor, " used"], Float[Tensor, " used"]]:
    """One row for each distinct response to a prompt, with the summed advantage of all its copies; none of zero.

    Copies have one and the same log-probability, and a policy that sharpens samples more and more of them.
    """
    prompt_B1 = torch.arange(len(advantage_B), device=advantage_B.device)[:, None] // rollouts.group_size
    response_BT = rollouts.response_ids_BT.masked_fill(~rollouts.response_mask_BT, -1)
    distinct, copy_of_B = torch.cat([prompt_B1, response_BT], dim=1).unique(dim=0, return_inverse=True)
    weight_R = torch.zeros(len(distinct), device=advantage_B.device).index_add_(0, copy_of_B, advantage_B)
    row_B = torch.arange(len(advantage_B), device=advantage_B.device)
    row_R = torch.full((len(distinct),), len(advantage_B), device=advantage_B.device)
    row_R = row_R.scatter_reduce(0, copy_of_B, row_B, reduce="amin")
    return row_R[weight_R != 0], weight_R[weight_R != 0]
