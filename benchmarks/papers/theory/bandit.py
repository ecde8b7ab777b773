"""[C] Appendix D: two rewarded actions of a softmax bandit, under REINFORCE and maximum likelihood.

``policy_V`` are the probabilities before the step; ``step`` is η′ = η‖x‖², the learning rate in logit space.
Source: [C] (The Reasoning Boundary Paradox, OpenReview), Appendix D.
"""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from oversharp.diagnostics.theory._checks import distribution

Objective = Literal["reinforce", "mle"]


def bandit_logit_update(
    policy_V: ArrayLike, rewarded: tuple[int, int], *, step: float, objective: Objective
) -> Float[np.ndarray, " action"]:
    """Return Δz of one gradient step on π(a₁) + π(a₂) (``reinforce``) or log π(a₁) + log π(a₂) (``mle``).

    Source: [C] Eq 19, 20 and 24.

    >>> bandit_logit_update([0.5, 0.25, 0.25], (0, 1), step=1.0, objective="mle").tolist()
    [0.0, 0.5, -0.5]
    """
    policy_V, rewarded_V = _world(policy_V, rewarded, objective)
    if objective == "mle":
        return step * (rewarded_V - 2.0 * policy_V)
    return step * policy_V * (rewarded_V - float(policy_V @ rewarded_V))


def confidence_ratio(
    policy_V: ArrayLike,
    rewarded: tuple[int, int],
    *,
    step: float,
    objective: Objective,
    as_printed: bool = False,
) -> Float[np.ndarray, " action"]:
    """Return α_i = π⁺(i)/π(i) after one step: above 1, the action has gained.

    α_i = 1 / Σ_j π(j) β_j with Lemma D.1's β (``mle``) or γ (``reinforce``). The row of Case 1 with the factor 1 is
    printed for j = y₁ but correct only for j = i; ``as_printed`` keeps y₁, which is wrong for i = y₂.
    Source: [C] Lemma D.1, Eq 21 to 23, corrected.
    >>> confidence_ratio([0.5, 0.25, 0.25], (0, 1), step=1.0, objective="mle").round(4).tolist()
    [0.94, 1.5498, 0.5701]
    """
    policy_V, rewarded_V = _world(policy_V, rewarded, objective)
    factor_VV = _factors(policy_V, rewarded_V, step, objective)
    if as_printed:
        factor_VV[list(rewarded), rewarded[0]] = 1.0
    return 1.0 / (factor_VV @ policy_V)


def _factors(policy_V: np.ndarray, rewarded_V: np.ndarray, step: float, objective: Objective) -> np.ndarray:
    """Return β_j or γ_j (columns) for every action i (rows).

    The four printed cases, i and j rewarded or not.
    """
    own_V1, other_1V = policy_V[:, None], policy_V[None, :]
    i_rewarded_V1, j_rewarded_1V = rewarded_V[:, None] > 0, rewarded_V[None, :] > 0
    gap_VV = other_1V - own_V1
    both = float(policy_V @ rewarded_V)
    if objective == "mle":
        exponent_VV = 2.0 * gap_VV + i_rewarded_V1 - 1.0 * j_rewarded_1V
    else:
        exponent_VV = both * gap_VV + i_rewarded_V1 * own_V1 - j_rewarded_1V * other_1V
    return np.exp(-step * exponent_VV)


def _world(policy_V: ArrayLike, rewarded: tuple[int, int], objective: Objective) -> tuple[np.ndarray, np.ndarray]:
    policy_V = distribution(policy_V, "policy_V", positive=True)
    if objective not in get_args(Objective):
        raise ValueError(f"objective: choose from {get_args(Objective)}; got {objective!r}")
    if len(set(rewarded)) != 2 or not all(0 <= action < len(policy_V) for action in rewarded):
        raise ValueError(f"rewarded: needs two different actions from 0 to {len(policy_V) - 1}; got {rewarded}")
    return policy_V, np.isin(np.arange(len(policy_V)), rewarded).astype(np.float64)
