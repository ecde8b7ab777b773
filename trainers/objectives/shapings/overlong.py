"""DAPO's soft overlong punishment: lowers the reward of responses near the maximum length.

    r~ = r + min(-(|y| - (L - buffer)) / buffer * factor, 0)

The punishment is 0 up to L - buffer tokens, then falls linearly to -factor at L. The shaped rewards of an all-wrong
group may differ. Then the group has a gradient, and calibrations of correct samples must use the verifier's decision,
not A > 0.

Source: DAPO (arXiv 2503.14476), section 3.4, Eq 13 (section 4.1: L = 20,480, buffer = 4,096; factor 1).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from oversharp.trainers.objectives.contract import GroupedRewards, Shaping, check_range


@dataclass(frozen=True, kw_only=True)
class Overlong(Shaping):
    """``length`` is L, which should be the run's ``--max-tokens``.

    ``buffer`` is the number of tokens before L with a punishment, by default L / 5 as in the paper. ``factor`` is the
    punishment at L.
    """

    title: ClassVar[str] = "soft overlong punishment"
    source: ClassVar[str] = "arXiv 2503.14476, Eq 13"
    acts_on: ClassVar[str] = "rewards"

    length: int
    buffer: int | None = None
    factor: float = 1.0

    def __post_init__(self) -> None:
        check_range(1, length=self.length)
        check_range(1, self.length + 1, buffer=self.buffer)
        check_range(0, factor=self.factor)

    def shape(self, rewards: GroupedRewards) -> Float[Tensor, "prompt group"]:
        """Subtract the punishment from the rewards.

        >>> import torch
        >>> false = torch.zeros(1, 4, dtype=torch.bool)
        >>> Overlong(length=20, buffer=4).shape(GroupedRewards(reward_PG=torch.ones(1, 4), correct_PG=~false,
        ...     n_tokens_PG=torch.tensor([[3, 16, 18, 20]]), truncated_PG=false))
        tensor([[1.0000, 1.0000, 0.5000, 0.0000]])
        """
        buffer = max(1, self.length // 5) if self.buffer is None else self.buffer
        beyond_PG = (rewards.n_tokens_PG - (self.length - buffer)).to(rewards.reward_PG.dtype)
        return rewards.reward_PG + (-beyond_PG / buffer * self.factor).clamp(max=0.0)


PART = Overlong
