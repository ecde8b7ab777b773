"""Small batches as objectives get them, made of plain lists."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from trainers.batch import RolloutBatch
from trainers.objectives.contract import GroupedRewards, TokenLogps


def rewards_of(
    reward: Sequence[Sequence[float]] | Tensor,
    *,
    correct: list[list[bool]] | Tensor | None = None,
    n_tokens: list[list[int]] | None = None,
    truncated: list[list[bool]] | None = None,
    greedy_correct: list[bool] | None = None,
    reference_logp: Tensor | None = None,
) -> GroupedRewards:
    """Rollouts with these rewards; correct where the reward is above 0, one token each, unless told otherwise."""
    reward_PG = reward if isinstance(reward, Tensor) else torch.tensor(reward, dtype=torch.float64)
    return GroupedRewards(
        reward_PG=reward_PG,
        correct_PG=reward_PG > 0 if correct is None else torch.as_tensor(correct),
        n_tokens_PG=torch.ones_like(reward_PG, dtype=torch.int64) if n_tokens is None else torch.tensor(n_tokens),
        truncated_PG=torch.zeros_like(reward_PG, dtype=torch.bool) if truncated is None else torch.tensor(truncated),
        greedy_correct_P=None if greedy_correct is None else torch.tensor(greedy_correct),
        reference_logp_PG=reference_logp,
    )


def tokens_of(logp_BT: Tensor, old_logp_BT: Tensor, mask_BT: Tensor | None = None) -> TokenLogps:
    """Tokens without entropies; all belong to the response unless a mask is given."""
    return TokenLogps(
        logp_BT=logp_BT,
        old_logp_BT=old_logp_BT,
        mask_BT=torch.ones_like(logp_BT, dtype=torch.bool) if mask_BT is None else mask_BT,
    )


def text_of(rollouts: RolloutBatch, row: int) -> tuple[Tensor, Tensor]:
    """The token ids of one rollout's prompt and of its response, without padding."""
    prompt = row // rollouts.group_size
    return (
        rollouts.prompt_ids_PL[prompt][rollouts.prompt_mask_PL[prompt]],
        rollouts.response_ids_BT[row][rollouts.response_mask_BT[row]],
    )
