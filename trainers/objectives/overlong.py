"""DAPO's soft overlong punishment: responses that come near the longest allowed one lose reward.

    r~ = r + min(-(|y| - (L - buffer)) / buffer * factor, 0)

0 up to L - buffer tokens, then a straight line down to -factor at L. The shaped rewards of an all-wrong group are no
longer equal, so such a group teaches: calibrations that look for success must ask the verifier, not A > 0.

Source: DAPO (arXiv 2503.14476), Eq 13 (L = 20,480, buffer = 4,096, factor = 1).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from trainers.objectives.contract import GroupedRewards, PartDefaults


@dataclass(frozen=True, kw_only=True)
class Overlong(PartDefaults):
    """Length punishment near the limit.

    ``length`` is L, the run's longest response in tokens; it must be given, because a limit that no response reaches
    would punish nothing. ``buffer`` is how many tokens before it the punishment begins, L / 5 (the paper's share)
    unless given. ``factor`` is the punishment at L.
    """

    title: ClassVar[str] = "soft overlong punishment"
    source: ClassVar[str] = "arXiv 2503.14476, Eq 13"

    length: int = 0
    buffer: int | None = None
    factor: float = 1.0

    def __post_init__(self) -> None:
        if self.length < 1:
            raise ValueError(f"length {self.length}: give the run's longest response in tokens, overlong:length=512")
        if not 1 <= self._buffer <= self.length:
            raise ValueError(f"buffer {self._buffer}: must lie in 1 to length, which is {self.length}")
        if not 0 <= self.factor < float("inf"):
            raise ValueError(f"factor {self.factor}: must be 0 or more")

    @property
    def _buffer(self) -> int:
        return max(1, self.length // 5) if self.buffer is None else self.buffer

    def shape(self, rewards: GroupedRewards) -> Float[Tensor, "prompt group"]:
        """Rewards less the punishment.

        >>> import torch
        >>> false = torch.zeros(1, 4, dtype=torch.bool)
        >>> Overlong(length=20, buffer=4).shape(GroupedRewards(reward_PG=torch.ones(1, 4), correct_PG=~false,
        ...     n_tokens_PG=torch.tensor([[3, 16, 18, 20]]), truncated_PG=false))
        tensor([[1.0000, 1.0000, 0.5000, 0.0000]])
        """
        beyond_PG = (rewards.n_tokens_PG - (self.length - self._buffer)).to(rewards.reward_PG.dtype)
        return rewards.reward_PG + (-beyond_PG / self._buffer * self.factor).clamp(max=0.0)


PART = Overlong
