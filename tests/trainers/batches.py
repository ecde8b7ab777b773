"""Build small batches for objectives from plain lists."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import torch
from scipy.stats import chisquare
from torch import Tensor

from oversharp.trainers.batch import RolloutBatch
from oversharp.trainers.objectives.contract import GroupedRewards, TokenLogps


def rewards_of(
    reward: Sequence[Sequence[float]] | Tensor,
    *,
    correct: list[list[bool]] | Tensor | None = None,
    n_tokens: list[list[int]] | None = None,
    truncated: list[list[bool]] | None = None,
    greedy_correct: list[bool] | None = None,
    reference_logp: Tensor | None = None,
) -> GroupedRewards:
    """Rollouts with these rewards; correct where the reward is above 0, one token each by default."""
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


def rollouts_of(prompt_ids_PL: Tensor, response_ids_BT: Tensor, response_mask_BT: Tensor) -> RolloutBatch:
    """Return rollouts without log-probabilities; 0 is the padding of prompts."""
    n_rows = len(response_ids_BT)
    return RolloutBatch(
        group_size=n_rows // len(prompt_ids_PL),
        prompt_ids_PL=prompt_ids_PL,
        prompt_mask_PL=prompt_ids_PL != 0,
        response_ids_BT=response_ids_BT,
        response_mask_BT=response_mask_BT,
        behaviour_logp_BT=torch.zeros(response_ids_BT.shape),
        logp_sum_B=torch.zeros(n_rows),
        entropy_sum_B=torch.zeros(n_rows),
        truncated_B=torch.zeros(n_rows, dtype=torch.bool),
    )


def text_of(rollouts: RolloutBatch, row: int) -> tuple[Tensor, Tensor]:
    """The token ids of one rollout's prompt and of its response, without padding."""
    prompt = row // rollouts.group_size
    return (
        rollouts.prompt_ids_PL[prompt][rollouts.prompt_mask_PL[prompt]],
        rollouts.response_ids_BT[row][rollouts.response_mask_BT[row]],
    )


def check_ends(rollouts: RolloutBatch, end_ids: Collection[int]) -> None:
    """Every response ends with its first end token, or is truncated; both kinds occur."""
    for row, truncated in enumerate(rollouts.truncated_B.tolist()):
        response = text_of(rollouts, row)[1].tolist()
        ended = [place for place, token in enumerate(response) if token in end_ids]
        assert ended == ([] if truncated else [len(response) - 1])
    assert 0 < rollouts.truncated_B.sum() < len(rollouts.truncated_B)


def p_value(count_V: Tensor, expected_V: Tensor) -> float:
    """Return the p-value of a chi-square test; categories expected less than five times are merged."""
    rare = expected_V < 5
    bins = [torch.cat([counts[~rare], counts[rare].sum()[None]]) for counts in (count_V, expected_V)]
    kept = bins[1] > 1e-6  # no merged category
    return float(chisquare(*(counts[kept].numpy() for counts in bins), sum_check=False).pvalue)
