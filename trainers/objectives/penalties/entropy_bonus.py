"""Entropy bonus: rewards the entropy of the policy at the sampled tokens.

    loss_t = -coefficient * H(pi(.|x, y_<t))        H over the full vocabulary, in nats, at the sampling temperature

The gradient is that of the entropy at the sampled prefixes. As usual, it ignores that the policy also determines which
prefixes are sampled. The bonus applies to every sample in the divisor, regardless of its advantage.

Source: A3C (arXiv 1602.01783), section 4; in RLVR e.g. [B] (arXiv 2510.04028), appendix C.2, with coefficient 1e-4.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from oversharp.trainers.objectives.contract import Need, Penalty, TokenLogps, check_range


@dataclass(frozen=True, kw_only=True)
class EntropyBonus(Penalty):
    """Bonus for the entropy of each token's distribution. ``coefficient`` is 0 or more."""

    title: ClassVar[str] = "entropy bonus"
    source: ClassVar[str] = "arXiv 1602.01783, section 4"
    needs: ClassVar[frozenset[Need]] = frozenset({"entropy"})

    coefficient: float = 0.001

    def __post_init__(self) -> None:
        check_range(0, coefficient=self.coefficient)

    def token_penalty(self, tokens: TokenLogps) -> Float[Tensor, "row token"]:
        """Return minus the coefficient times the entropy.

        >>> import torch
        >>> tokens = TokenLogps(logp_BT=torch.zeros(1, 1), entropy_BT=torch.full((1, 1), 2.0),
        ...                     old_logp_BT=torch.zeros(1, 1), mask_BT=torch.ones(1, 1, dtype=torch.bool))
        >>> EntropyBonus(coefficient=0.1).token_penalty(tokens)
        tensor([[-0.2000]])
        """
        if tokens.entropy_BT is None:
            raise ValueError("entropy_bonus: the tokens have no entropies")
        return -self.coefficient * tokens.entropy_BT


PART = EntropyBonus
