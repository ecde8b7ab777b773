"""GRPO: standardises rewards within the group of rollouts of one prompt.

    A_i = (r_i - mean(r)) / (std(r) + eps)          A_i = 0 where all rewards of the group are equal

Source: DeepSeekMath (arXiv 2402.03300), section 4.1.2. The paper does not define eps or the degrees of freedom of std
(ddof). Codebases differ, so both are settings. ``convention`` sets both to the values of a codebase.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from oversharp.trainers.objectives.contract import Estimator, GroupedRewards, check_group, check_range, is_constant

Convention = Literal["verl", "trl", "openrlhf", "oat", "open-instruct"]

#: Codebase → (ddof, eps) of the standard deviation, for verl 0.9, TRL 1.16, OpenRLHF, oat and open-instruct.
CONVENTIONS: Mapping[Convention, tuple[int, float]] = MappingProxyType(
    {"verl": (1, 1e-6), "trl": (1, 1e-4), "openrlhf": (1, 1e-9), "oat": (1, 1e-8), "open-instruct": (0, 1e-8)}
)


def standardise_rewards(
    reward_PG: Float[Tensor, "prompt group"], *, ddof: int, eps: float
) -> Float[Tensor, "prompt group"]:
    """Subtract the mean of the group and divide by its standard deviation. Raise ``ValueError`` for groups of one.

    >>> standardise_rewards(torch.tensor([[1.0, 0.0, 0.0, 0.0]]), ddof=0, eps=0.0)
    tensor([[ 1.7321, -0.5774, -0.5774, -0.5774]])
    """
    check_group(reward_PG)
    centred_PG = reward_PG - reward_PG.mean(dim=1, keepdim=True)
    std_P1 = reward_PG.std(dim=1, correction=ddof, keepdim=True)
    return torch.where(is_constant(reward_PG)[:, None], 0.0, centred_PG / (std_P1 + eps))


@dataclass(frozen=True, kw_only=True)
class Grpo(Estimator):
    """``convention`` is the codebase whose ``ddof`` (0 or 1) and ``eps`` are used unless these are given."""

    title: ClassVar[str] = "Group Relative Policy Optimization"
    source: ClassVar[str] = "arXiv 2402.03300, section 4.1.2"

    convention: Convention = "verl"
    ddof: int | None = None
    eps: float | None = None

    def __post_init__(self) -> None:
        check_range(0, 2, ddof=self.ddof)
        check_range(0, eps=self.eps)

    def advantages(self, rewards: GroupedRewards) -> Float[Tensor, "prompt group"]:
        """Apply ``standardise_rewards``."""
        ddof, eps = CONVENTIONS[self.convention]
        ddof, eps = (ddof if self.ddof is None else self.ddof), (eps if self.eps is None else self.eps)
        return standardise_rewards(rewards.reward_PG, ddof=ddof, eps=eps)


PART = Grpo
