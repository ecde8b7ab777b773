"""REINFORCE++: whitens rewards over all tokens or all samples of the batch, without groups.

    over=tokens    A_i = (r_i - m) / sqrt(v + 1e-8)      m, v: mean and unbiased variance of r over all response tokens
    over=samples   A_i = (r_i - m) / (s + 1e-8)          m, s: mean and unbiased deviation of r over the samples

Over tokens is the form of verl and the default. Every token has the reward of its sample, so a long response has more
weight in m and v than a short response. Over samples is the form of the paper. If all values of a batch are equal,
advantages are 0. The estimator works with one rollout per prompt.

    kl=b           A_it = r_i - b * sum over tokens s >= t of log(pi_old(y_is) / pi_ref(y_is)), then whitened

``kl`` subtracts the KL to the reference from the reward, as in the paper. It is the sum of the k1 estimates from each
token to the last. Then tokens have different advantages, and m, v and s are those of the values of the tokens.
``over=tokens`` weights all tokens equally, as in Eq 5 of the paper and verl's ``use_kl_in_reward``. ``over=samples``
weights each token by one over the length of its response. The part ``kl``, in contrast, is an additional loss, in which
the expected gradient of k1 is 0. Calibrations cannot be combined with ``kl=b``.

Source: REINFORCE++ (arXiv 2501.03262 v9), section 3.1, Eq 4 and 5, and appendix B.2; verl 0.9 ``reinforce_plus_plus``
with gamma = 1, where ``kl`` is ``kl_ctrl.kl_coef``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from oversharp.trainers.objectives.contract import GroupedRewards, Need, TokenEstimator, check_range

#: Small constant of the divisor. verl adds it to the variance, the paper to the standard deviation.
EPS = 1e-8

Over = Literal["tokens", "samples"]


def whiten_over_tokens(
    value_PG: Float[Tensor, "prompt group"], n_tokens_PG: Int[Tensor, "prompt group"]
) -> Float[Tensor, "prompt group"]:
    """Whiten values, weighted by the tokens of their samples. The results are 0 if all values are equal.

    >>> whiten_over_tokens(torch.tensor([[1.0, 0.0]]), torch.tensor([[1, 3]]))  # mean 1/4, variance 1/4
    tensor([[ 1.5000, -0.5000]])
    """
    weight_PG = n_tokens_PG.to(value_PG.dtype)
    n_tokens = weight_PG.sum().clamp(min=2)
    from_mean_PG = value_PG - (weight_PG * value_PG).sum() / n_tokens
    variance = (weight_PG * from_mean_PG**2).sum() / (n_tokens - 1)
    return torch.where(value_PG.amax() == value_PG.amin(), 0.0, from_mean_PG * (variance + EPS).rsqrt())


def whiten_over_samples(value_PG: Float[Tensor, "prompt group"]) -> Float[Tensor, "prompt group"]:
    """Whiten values, with equal weights of all samples. The results are 0 if all values are equal.

    >>> whiten_over_samples(torch.tensor([[2.0, 1.0], [0.0, 1.0]]))  # mean 1, variance 2/3
    tensor([[ 1.2247,  0.0000],
            [-1.2247,  0.0000]])
    """
    if value_PG.amax() == value_PG.amin():
        return torch.zeros_like(value_PG)
    return (value_PG - value_PG.mean()) / (value_PG.std() + EPS)


def whiten(
    value_PG: Float[Tensor, "prompt group"], n_tokens_PG: Int[Tensor, "prompt group"], over: Over
) -> Float[Tensor, "prompt group"]:
    """Whiten values over tokens or samples."""
    return whiten_over_samples(value_PG) if over == "samples" else whiten_over_tokens(value_PG, n_tokens_PG)


def whiten_by_token(
    value_BT: Float[Tensor, "row token"], mask_BT: Bool[Tensor, "row token"], over: Over
) -> Float[Tensor, "row token"]:
    """Whiten the values of tokens. The results are 0 outside the responses, and everywhere if all values are equal.

    If all tokens of each response have the same value, the results equal those of ``whiten``.

    >>> whiten_by_token(torch.tensor([[1.0, 9.0], [2.0, 0.0]]), torch.tensor([[True, False], [True, True]]), "tokens")
    tensor([[ 0.,  0.],
            [ 1., -1.]])
    """
    inside = value_BT[mask_BT]
    if inside.amax() == inside.amin():
        return torch.zeros_like(value_BT)
    weight_BT = mask_BT.to(value_BT.dtype)
    if over == "samples":
        weight_BT = weight_BT / weight_BT.sum(dim=1, keepdim=True).clamp(min=1)
    n = weight_BT.sum()
    from_mean_BT = value_BT - (weight_BT * value_BT).sum() / n
    variance = (weight_BT * from_mean_BT**2).sum() / (n - 1).clamp(min=1)
    deviation = variance.sqrt() + EPS if over == "samples" else (variance + EPS).sqrt()
    return torch.where(mask_BT, from_mean_BT / deviation, 0.0)


@dataclass(frozen=True, kw_only=True)
class ReinforcePp(TokenEstimator):
    """Rewards, whitened ``over`` the tokens of the batch (as in verl) or its samples (as in the paper).

    ``kl`` is the coefficient of the KL in the reward, 0 or more.
    """

    title: ClassVar[str] = "REINFORCE++"
    source: ClassVar[str] = "arXiv 2501.03262 v9, Eq 4 and 5; verl"

    over: Over = "tokens"
    kl: float = 0.0

    def __post_init__(self) -> None:
        check_range(0, kl=self.kl)
        if self.kl:
            needs: frozenset[Need] = frozenset({"reference_logp"})
            object.__setattr__(self, "needs", needs)

    def advantages(self, rewards: GroupedRewards) -> Float[Tensor, "prompt group"]:
        """Whiten the rewards, without the KL."""
        return whiten(rewards.reward_PG, rewards.n_tokens_PG, self.over)

    def token_advantages(
        self,
        reward_PG: Float[Tensor, "prompt group"],
        reference_gap_BT: Float[Tensor, "row token"],
        mask_BT: Bool[Tensor, "row token"],
    ) -> Float[Tensor, "row token"]:
        """Whiten the rewards minus ``kl`` times the sum of the log-ratios from each token to the last.

        >>> gap_BT, mask_BT = torch.tensor([[0.0, 2.0], [0.0, 0.0]]), torch.ones(2, 2, dtype=torch.bool)
        >>> ReinforcePp(kl=0.5).token_advantages(torch.tensor([[1.0, 0.0]]), gap_BT, mask_BT)  # all values are 0
        tensor([[0., 0.],
                [0., 0.]])
        """
        ahead_BT = torch.where(mask_BT, reference_gap_BT, 0.0).flip(1).cumsum(1).flip(1)
        value_BT = reward_PG.reshape(-1, 1).to(ahead_BT) - self.kl * ahead_BT
        return whiten_by_token(value_BT, mask_BT, self.over)


PART = ReinforcePp
