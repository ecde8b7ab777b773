"""KL to the reference policy as a loss on each token, with one of three estimators.

    d = log pi(y_t) - log pi_ref(y_t)          k1 = d          k2 = d^2 / 2          k3 = exp(-d) - 1 + d

The values of k1 and k3 are unbiased estimates of KL(pi||pi_ref). As a *loss*, only k2 has the gradient of that KL in
expectation. The expected gradient of k1 is 0, so it only adds noise. The expected gradient of k3 is that of the forward
KL(pi_ref||pi).

The penalty applies to every sample in the divisor, including groups of equal rewards, as in verl and TRL. ``nsr``,
``easy_filter`` and ``overlong_filter`` remove samples from the penalty too.

Source: Schulman, *Approximating KL Divergence* (2020); k3 as GRPO's penalty: DeepSeekMath (arXiv 2402.03300), Eq 4.
For k3, verl clamps d to +-20 and the value to +-10; TRL and this part do not. The default beta is verl's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from oversharp.trainers.objectives.contract import Need, Penalty, TokenLogps, check_range

Kind = Literal["k1", "k2", "k3"]


def kl_estimate(
    logp_BT: Float[Tensor, "row token"], reference_logp_BT: Float[Tensor, "row token"], kind: Kind
) -> Float[Tensor, "row token"]:
    """Return the estimate of the KL at each token, in nats.

    >>> double = torch.tensor([[2.0]]).log()  # the policy gives the token twice the reference's probability
    >>> [round(kl_estimate(double, torch.zeros(1, 1), kind).item(), 4) for kind in ("k1", "k2", "k3")]
    [0.6931, 0.2402, 0.1931]
    """
    d_BT = logp_BT - reference_logp_BT
    if kind == "k3":
        return torch.expm1(-d_BT) + d_BT
    return d_BT if kind == "k1" else d_BT**2 / 2


@dataclass(frozen=True, kw_only=True)
class Kl(Penalty):
    """``beta`` is the coefficient, 0 or more.

    With ``straight_through``, the loss has the value of ``kind`` and the gradient of k2.
    """

    title: ClassVar[str] = "KL penalty to the reference"
    source: ClassVar[str] = "Schulman 2020; arXiv 2402.03300, Eq 4"
    needs: ClassVar[frozenset[Need]] = frozenset({"reference_logp"})

    kind: Kind = "k3"
    beta: float = 0.001
    straight_through: bool = False

    def __post_init__(self) -> None:
        check_range(0, beta=self.beta)

    def token_penalty(self, tokens: TokenLogps) -> Float[Tensor, "row token"]:
        """Return beta times ``kl_estimate``."""
        if tokens.reference_logp_BT is None:
            raise ValueError("kl: the tokens have no log-probabilities under the reference")
        estimate_BT = kl_estimate(tokens.logp_BT, tokens.reference_logp_BT, self.kind)
        if self.straight_through:
            slope_BT = kl_estimate(tokens.logp_BT, tokens.reference_logp_BT, "k2")
            estimate_BT = estimate_BT.detach() + slope_BT - slope_BT.detach()
        return self.beta * estimate_BT


PART = Kl
