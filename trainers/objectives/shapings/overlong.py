"""DAPO's soft overlong punishment: responses that come near the longest allowed one lose reward.

    r~ = r + min(-(|y| - (L - buffer)) / buffer * factor, 0)

0 up to L - buffer tokens, then a straight line down to -factor at L. The shaped rewards of an all-wrong group are no
longer equal, so such a group teaches: calibrations that look for success must ask the verifier, not A > 0.

Source: DAPO (arXiv 2503.14476), section 3.4, Eq 13 (section 4.1: L = 20,480, buffer = 4,096; factor 1).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from oversharp.trainers.objectives.contract import GroupedRewards, PartDefaults, check_range


@dataclass(frozen=True, kw_only=True)
class Overlong(PartDefaults):
    """``length`` is L, the run's ``--max-tokens``: a limit that no response reaches would punish nothing.

    ``buffer`` is how many tokens before L the punishment begins, L / 5 (the paper's share) unless given. ``factor`` is
    the punishment at L.
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
        """Rewards less the punishment.

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
