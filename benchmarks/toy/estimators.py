"""Advantages from the rewards of a group, one group per seed.

Shapes: S seeds, G samples. ``normalised`` is the trainer's GRPO. The others differ from it by baseline and scale.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from oversharp.trainers.objectives.estimators import grpo

Advantages = Callable[[Float[Tensor, "seed group"]], Float[Tensor, "seed group"]]


def raw(reward_SG: Float[Tensor, "seed group"]) -> Float[Tensor, "seed group"]:
    """A_i = r_i: no baseline. Source: [A] 2.4."""
    return reward_SG


def mean_shifted(reward_SG: Float[Tensor, "seed group"]) -> Float[Tensor, "seed group"]:
    """A_i = r_i - mean(r). Source: [A] 2.4; [B] Algorithm 1.

    >>> mean_shifted(torch.tensor([[1.0, 0.0, 0.0, 0.0]])).tolist()
    [[0.75, -0.25, -0.25, -0.25]]
    """
    return reward_SG - reward_SG.mean(dim=1, keepdim=True)


def normalised(reward_SG: Float[Tensor, "seed group"]) -> Float[Tensor, "seed group"]:
    """A_i = (r_i - mean(r)) / std(r), population std; 0 where all rewards are equal. Source: [A] Thm 2.3.

    >>> normalised(torch.tensor([[1.0, 1.0, 0.0, 0.0], [1.0, 1.0, 1.0, 1.0]])).tolist()
    [[1.0, 1.0, -1.0, -1.0], [0.0, 0.0, 0.0, 0.0]]
    """
    return grpo.standardise_rewards(reward_SG, ddof=0, eps=0.0)


def rloo(reward_SG: Float[Tensor, "seed group"]) -> Float[Tensor, "seed group"]:
    """A_i = r_i - mean of the others = G / (G - 1) * (r_i - mean(r)). Source: Kool et al. 2019, RLOO.

    >>> rloo(torch.tensor([[1.0, 0.0]])).tolist()
    [[1.0, -1.0]]
    """
    group_size = reward_SG.shape[1]
    return mean_shifted(reward_SG) * (group_size / (group_size - 1))


def reinforce_pp(reward_SG: Float[Tensor, "seed group"]) -> Float[Tensor, "seed group"]:
    """Group-mean baseline, then mean and population std of the whole batch (arXiv 2501.03262, "with baseline").

    A batch of a world with one query is one group. Its mean is 0 after the first step, so the second is exactly
    ``normalised``. The two estimators differ only if a batch has several queries.
    """
    return normalised(mean_shifted(reward_SG))


def grpo_n(reward_SG: Float[Tensor, "seed group"]) -> Float[Tensor, "seed group"]:
    """Relative negatives only: min(A_i, 0) of ``normalised``. Source: [B] B.5, GRPO-N.

    >>> grpo_n(torch.tensor([[1.0, 1.0, 0.0, 0.0]])).tolist()
    [[0.0, 0.0, -1.0, -1.0]]
    """
    return normalised(reward_SG).clamp(max=0.0)


def grpo_n_shifted(reward_SG: Float[Tensor, "seed group"]) -> Float[Tensor, "seed group"]:
    """Relative negatives only, of ``mean_shifted``: [B] B.5 with the advantage of [B] Algorithm 1."""
    return mean_shifted(reward_SG).clamp(max=0.0)


#: Sampled estimators by their name in ``ToyConfig``.
ESTIMATORS: Mapping[str, Advantages] = MappingProxyType(
    {
        function.__name__: function
        for function in (raw, mean_shifted, normalised, rloo, reinforce_pp, grpo_n, grpo_n_shifted)
    }
)


def calibrated(
    advantage_SG: Float[Tensor, "seed group"],
    correct_SG: Bool[Tensor, "seed group"],
    *,
    alpha: float,
    scale_matched: bool,
) -> Float[Tensor, "seed group"]:
    """Inverse-success calibration of any estimator: A_i (G - |S+|)^alpha for a correct sample with A_i > 0.

    |S+| counts correct samples and 0^0 = 1. ``scale_matched`` restores each group's mean |A|. A group that calibration
    sets to 0 (all correct) stays 0. This is ``objectives.iac`` with batches of one group. Source: [A] 3.1.

    >>> group = torch.tensor([[1.0, 0.0, 0.0, 0.0]])
    >>> calibrated(group, group > 0, alpha=1.0, scale_matched=False).tolist()
    [[3.0, 0.0, 0.0, 0.0]]
    """
    # a table, because pow may round differently in vector lanes: a seed's result would depend on the number of seeds
    factor_N = torch.tensor([float(n) ** alpha for n in range(advantage_SG.shape[1] + 1)], dtype=advantage_SG.dtype)
    factor_S1 = factor_N[(~correct_SG).sum(dim=1, keepdim=True)]
    calibrated_SG = torch.where(correct_SG & (advantage_SG > 0), advantage_SG * factor_S1, advantage_SG)
    if not scale_matched:
        return calibrated_SG
    size_S1 = calibrated_SG.abs().mean(dim=1, keepdim=True)
    ratio_S1 = advantage_SG.abs().mean(dim=1, keepdim=True) / size_S1
    return torch.where(size_S1 > 0, calibrated_SG * ratio_S1, calibrated_SG)
