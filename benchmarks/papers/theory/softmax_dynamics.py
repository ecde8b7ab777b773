"""[B] 3: effect of policy gradients on the probabilities of a softmax policy over V actions.

``policy_V`` are probabilities, one per action; logits are in nats. η is the learning rate. [B] analyses responses of
one token, so an action is a token. The answer entropy of [B] C.5 is
``oversharp.diagnostics.statistics.entropy.plug_in_entropy`` (in nats; [B]'s Table 4 is in bits). Source: [B] (arXiv
2510.04028).
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import ArrayLike

from oversharp.diagnostics.theory._checks import distribution, softmax, vector


def logit_update(
    policy_V: ArrayLike, action: int, advantage: float, *, learning_rate: float
) -> Float[np.ndarray, " action"]:
    """Return Δz = ηA(e_v − π) for a sampled action v.

    ΗA(1−π(v)) for v, −ηAπ(u) for every other u.

    Source: [B] Lemma 1.

    >>> logit_update([0.5, 0.25, 0.25], 0, 2.0, learning_rate=1.0).tolist()
    [1.0, -0.5, -0.5]
    """
    policy_V = distribution(policy_V, "policy_V")
    return learning_rate * advantage * (_one_hot(action, len(policy_V)) - policy_V)


def expected_logit_update(
    policy_V: ArrayLike, advantage_V: ArrayLike, *, learning_rate: float
) -> Float[np.ndarray, " action"]:
    """Return E Δz(v) = ηπ(v)[(1−π(v))A(v) − Σ_{u≠v} π(u)A(u)] = ηπ(v)[A(v) − E_π A], A fixed per action.

    Correct as printed as long as A does not depend on the other samples. GRPO's does: see ``expected_group_update``.
    Source: [B] Theorem 1.

    >>> expected_logit_update([0.5, 0.5], [1.0, 0.0], learning_rate=1.0).tolist()
    [0.25, -0.25]
    """
    policy_V = distribution(policy_V, "policy_V")
    advantage_V = vector(advantage_V, "advantage_V", length=len(policy_V))
    return learning_rate * policy_V * (advantage_V - float(policy_V @ advantage_V))


def expected_group_update(
    policy_V: ArrayLike, reward_V: ArrayLike, *, group_size: int, learning_rate: float, as_printed: bool = False
) -> Float[np.ndarray, " action"]:
    """Return E Δz of a group of G samples with advantages r − mean(r).

    ((G−1)/G) ηπ(v)[r(v) − E_π r].

    Every sample is part of its own baseline, which removes 1/G of its gradient; ``as_printed`` omits that factor.
    Advantages divided by the group's standard deviation have no such closed form.
    Source: [B] Theorem 1 with the advantage of its 3.2, corrected.

    >>> expected_group_update([0.5, 0.5], [1.0, 0.0], group_size=2, learning_rate=1.0).tolist()
    [0.125, -0.125]
    """
    if group_size < 2:
        raise ValueError(f"group_size: needs at least 2 samples to compare; got {group_size}")
    update_V = expected_logit_update(policy_V, reward_V, learning_rate=learning_rate)
    return update_V if as_printed else update_V * (group_size - 1) / group_size


def probability_change(policy_V: ArrayLike, logit_change_V: ArrayLike) -> Float[np.ndarray, " action"]:
    """Return softmax(log π + Δz) − π, exactly; actions of probability 0 keep it.

    >>> probability_change([0.5, 0.5], [np.log(3.0), 0.0]).round(4).tolist()
    [0.25, -0.25]
    """
    policy_V = distribution(policy_V, "policy_V")
    logit_change_V = vector(logit_change_V, "logit_change_V", length=len(policy_V))
    weight_V = policy_V * np.exp(logit_change_V - logit_change_V.max())
    return weight_V / weight_V.sum() - policy_V


def expected_probability_update(policy_V: ArrayLike, logit_change_V: ArrayLike) -> Float[np.ndarray, " action"]:
    """Return π(v)[Δz(v) − Σ_u π(u)Δz(u)].

    The change in probability to first order in Δz, sampled or expected.

    Source: [B] Proposition 1 for a tabular policy, where the neural tangent kernel is the identity.

    >>> expected_probability_update([0.5, 0.5], [0.1, -0.1]).round(4).tolist()
    [0.05, -0.05]
    """
    policy_V = distribution(policy_V, "policy_V")
    logit_change_V = vector(logit_change_V, "logit_change_V", length=len(policy_V))
    return policy_V * (logit_change_V - float(policy_V @ logit_change_V))


def update_signs(
    policy_V: ArrayLike, action: int, advantage: float, *, as_printed: bool = False
) -> Int[np.ndarray, " action"]:
    """Return the sign of every action's change in probability after one sampled action, for a small step.

    ``as_printed`` returns Remark 2: with A > 0 the sampled action rises and *all* others fall, with A < 0 the reverse.
    That is true for logits, but false for probabilities: with v sampled, π(u) moves as A·[Σ_{w≠v} π(w)² −
    π(v)(1−π(v)) − π(u)], so with a dominant third action the rare ones rise and fall with v. Source: [B] Remark 2.

    >>> update_signs([0.05, 0.9, 0.05], 0, 1.0).tolist()  # the third action gains although the first was rewarded
    [1, -1, 1]
    >>> update_signs([0.05, 0.9, 0.05], 0, 1.0, as_printed=True).tolist()
    [1, -1, -1]
    """
    policy_V = distribution(policy_V, "policy_V", positive=True)
    if as_printed:
        return (np.sign(advantage) * (2.0 * _one_hot(action, len(policy_V)) - 1.0)).astype(np.int64)
    logit_change_V = logit_update(policy_V, action, advantage, learning_rate=1.0)
    log_change_V = logit_change_V - float(policy_V @ logit_change_V)
    scale = float(np.abs(logit_change_V).max())
    return np.sign(np.where(np.abs(log_change_V) <= 1e-14 * scale, 0.0, log_change_V)).astype(np.int64)


def relative_negative_advantages(advantage_G: ArrayLike) -> Float[np.ndarray, " sample"]:
    """Return GRPO-N (GSPO-N) advantages: negative ones unchanged, all others 0.

    Source: [B] 4 and B.5.

    >>> relative_negative_advantages([1.5, -0.5, 0.0]).tolist()
    [0.0, -0.5, 0.0]
    """
    advantage_G = vector(advantage_G, "advantage_G")
    return np.where(advantage_G < 0.0, advantage_G, 0.0)


def tempered_policy(logit_V: ArrayLike, *, temperature: float) -> Float[np.ndarray, " action"]:
    """Return softmax(z/τ), the policy of [B] C.4's temperature experiments.


    >>> tempered_policy([np.log(4.0), 0.0], temperature=2.0).round(4).tolist()
    [0.6667, 0.3333]
    """
    if not temperature > 0.0:
        raise ValueError(f"temperature: needs a number above 0; got {temperature}")
    return softmax(vector(logit_V, "logit_V") / temperature)


def _one_hot(action: int, n_actions: int) -> np.ndarray:
    if not 0 <= action < n_actions:
        raise ValueError(f"action: needs 0 to {n_actions - 1}; got {action}")
    return (np.arange(n_actions) == action).astype(np.float64)
