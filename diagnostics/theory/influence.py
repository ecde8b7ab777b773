"""[C] 3 to 6: per-step influence, interference, perplexity, and the objective of SELF.

log π is in nats and a *sum* over response tokens in [C] 3 and 4, a *mean* in its Eq 16: every function states which.
Axis ``R`` is responses of a fixed panel, ``B`` of a training batch, ``P`` problems, ``V`` actions.
Source: [C] (The Reasoning Boundary Paradox, OpenReview).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float
from numpy.typing import ArrayLike

from oversharp.diagnostics.theory._checks import counts, distribution, flags, positive, vector


def first_order_influence(
    cross_RB: Float[np.ndarray, "response batch"], advantage_B: ArrayLike, *, learning_rate: float
) -> Float[np.ndarray, " response"]:
    """Return Δ log π(y′|x′) ≈ η Σ_b K(b, ·) A_b in nats, for a step of η Σ_b A_b ∇log π(y_b|x_b).

    The paper has one pair in the batch; steps add. Divide η by the batch size for a mean. The error is O(η²).
    Source: [C] Proposition 3.1, Eq 3.

    >>> first_order_influence(np.array([[2.0, 1.0]]), [1.0, -1.0], learning_rate=0.1).round(6).tolist()
    [0.1]
    """
    cross_RB = np.asarray(cross_RB, dtype=np.float64)
    advantage_B = vector(advantage_B, "advantage_B")
    if cross_RB.ndim != 2 or cross_RB.shape[1] != len(advantage_B):
        raise ValueError(f"cross_RB: needs {len(advantage_B)} columns, one per advantage; got shape {cross_RB.shape}")
    return learning_rate * (cross_RB @ advantage_B)


def kernel_lower_bound(
    change_R: ArrayLike, *, learning_rate: float, largest_advantage: float
) -> Float[np.ndarray, " response"]:
    """Return |Δ log π| / (ηC) ≤ |K| with C ≥ |A|.

    The least influence that explains a change in nats.

    For a batch of one pair, to first order: the paper's Eq 4 silently drops the O(η²) of its Eq 3. Source: [C] Eq 4.

    >>> kernel_lower_bound([-0.2], learning_rate=0.1, largest_advantage=2.0).tolist()
    [1.0]
    """
    scale = positive(learning_rate, "learning_rate") * positive(largest_advantage, "largest_advantage")
    return np.abs(vector(change_R, "change_R")) / scale


@dataclass(frozen=True, kw_only=True, slots=True)
class Interference:
    """Δ⁺ in nats (negative: correct answers became less likely), None without a correct response; ‖Δ‖ in nats²."""

    direction_nats: float | None
    magnitude_nats2: float


def interference(change_R: ArrayLike, correct_R: Bool[np.ndarray, " response"]) -> Interference:
    """Return Δ⁺, the mean of Δ log π over correct responses, and ‖Δ‖, the mean of (Δ log π)² over all.

    ‖Δ‖ is a mean square without a root. ``change_R`` must have equally many responses of every problem; average within
    problems first otherwise. Source: [C] Definition 4.1, Eq 5.

    >>> interference([-1.0, 3.0], np.array([True, False]))
    Interference(direction_nats=-1.0, magnitude_nats2=5.0)
    """
    change_R = vector(change_R, "change_R")
    correct_R = flags(correct_R, "correct_R", length=len(change_R))
    return Interference(
        direction_nats=float(change_R[correct_R].mean()) if correct_R.any() else None,
        magnitude_nats2=float(np.mean(change_R**2)),
    )


def mean_logp(logp_sum_R: ArrayLike, n_tokens_R: ArrayLike) -> Float[np.ndarray, " response"]:
    """Return log π(y|x) / |y| in nats per token: log π of [C] Eq 16, unlike its section 3.

    >>> mean_logp([-4.0], [2]).tolist()
    [-2.0]
    """
    logp_sum_R = vector(logp_sum_R, "logp_sum_R")
    n_tokens_R = counts(n_tokens_R, "n_tokens_R", length=len(logp_sum_R))
    if n_tokens_R.min() < 1:
        raise ValueError("n_tokens_R: needs at least one token in every response")
    return logp_sum_R / n_tokens_R


def perplexity(logp_sum_R: ArrayLike, n_tokens_R: ArrayLike) -> float:
    """Return the mean over responses of exp(−log π(y|x)/|y|): at least 1, no unit.

    A single very unlikely response dominates it.

    Source: [C] Eq 6.

    >>> round(perplexity([2 * np.log(0.5), np.log(0.25)], [2, 1]), 6)
    3.0
    """
    return float(np.mean(np.exp(-mean_logp(logp_sum_R, n_tokens_R))))


def accuracy_flow(
    success_before_P: ArrayLike, success_after_P: ArrayLike
) -> tuple[Bool[np.ndarray, " problem"], Bool[np.ndarray, " problem"]]:
    """Return (D↑, D↓): the problems whose success probability rose and fell.

    Δr = 0 is in neither.

    Source: [C] Eq 7.

    >>> [mask.tolist() for mask in accuracy_flow([0.5, 0.5, 0.5], [0.75, 0.25, 0.5])]
    [[True, False, False], [False, True, False]]
    """
    before_P = vector(success_before_P, "success_before_P")
    change_P = vector(success_after_P, "success_after_P", length=len(before_P)) - before_P
    return change_P > 0.0, change_P < 0.0


def reinforce_logit_gradient(policy_V: ArrayLike, action: int, advantage: float) -> Float[np.ndarray, " action"]:
    """Return A π(y)(e_y − π): the gradient of A·π(y) in the logits of a softmax policy.

    Vanishes with π(y).

    Source: [C] Eq 8.

    >>> reinforce_logit_gradient([0.5, 0.5], 0, 1.0).tolist()
    [0.25, -0.25]
    """
    policy_V = distribution(policy_V, "policy_V")
    if not 0 <= action < len(policy_V):
        raise ValueError(f"action: needs 0 to {len(policy_V) - 1}; got {action}")
    return advantage * policy_V[action] * ((np.arange(len(policy_V)) == action) - policy_V)


def self_learns(
    greedy_correct_P: Bool[np.ndarray, " problem"], *, as_printed: bool = False
) -> Bool[np.ndarray, " problem"]:
    """Return where SELF takes its reward: the problems whose greedy response fails.

    ``as_printed`` follows Eq 9's 1{r(x, y*) ∉ C(x)} literally: a reward is never in a set of responses, so it filters
    nothing. The paper's text is "only on problems where the greedy response fails". Source: [C] Eq 9.

    >>> self_learns(np.array([True, False])).tolist()
    [False, True]
    """
    greedy_correct_P = flags(greedy_correct_P, "greedy_correct_P", length=len(greedy_correct_P))
    return np.ones_like(greedy_correct_P) if as_printed else ~greedy_correct_P


def forward_kl(base_V: ArrayLike, policy_V: ArrayLike) -> float:
    """Return KL(π_base‖π_θ) = Σ π_base log(π_base/π_θ) in nats, SELF's regulariser.

    Swap the arguments for the RL objective's. Raises ``ValueError`` where the policy gives probability 0 to an action
    of the base: the divergence is infinite there. Source: [C] Eq 9.

    >>> round(forward_kl([1.0, 0.0], [0.5, 0.5]), 4)
    0.6931
    """
    base_V = distribution(base_V, "base_V")
    policy_V = distribution(policy_V, "policy_V", length=len(base_V))
    said_V = base_V > 0.0
    if policy_V[said_V].min() <= 0.0:
        raise ValueError("policy_V: the divergence is infinite, an action of the base has probability 0")
    return float(np.sum(base_V[said_V] * np.log(base_V[said_V] / policy_V[said_V])))


def self_objective(
    reward_P: ArrayLike, forward_kl_nats_P: ArrayLike, greedy_correct_P: Bool[np.ndarray, " problem"], *, beta: float
) -> float:
    """Return the mean over problems of 1{greedy fails} E[r] − β KL(π_base‖π_θ).

    The KL is on every problem.

    ``reward_P`` is the mean reward of a problem's samples. Source: [C] Eq 9, as corrected in ``self_learns``.

    >>> round(self_objective([1.0, 0.5], [0.1, 0.1], np.array([True, False]), beta=1.0), 6)
    0.15
    """
    reward_P = vector(reward_P, "reward_P")
    kl_P = vector(forward_kl_nats_P, "forward_kl_nats_P", length=len(reward_P))
    learns_P = self_learns(flags(greedy_correct_P, "greedy_correct_P", length=len(reward_P)))
    return float(np.mean(np.where(learns_P, reward_P, 0.0) - beta * kl_P))


def group_advantages(reward_G: ArrayLike, *, ddof: int = 1) -> Float[np.ndarray, " sample"]:
    """Return (r − mean)/std of a group, 0 where all rewards are equal.

    Ddof 1 is [C]'s, 0 that of [A] and [B].

    With rewards 1, −0.5 (wrong) and −1 (no answer) as in [C] A.1, a group of wrong answers still has advantages,
    against its section 5 ("A = 0 if all sampled actions are incorrect"). Source: [C] Eq 10.

    >>> group_advantages([1.0, 0.0, 0.0, 0.0]).tolist()
    [1.5, -0.5, -0.5, -0.5]
    >>> group_advantages([-0.5, -1.0]).round(4).tolist()
    [0.7071, -0.7071]
    """
    reward_G = vector(reward_G, "reward_G")
    if ddof not in (0, 1) or len(reward_G) < 2:
        raise ValueError(f"reward_G: needs at least 2 rewards and ddof 0 or 1; got {len(reward_G)} and {ddof}")
    # Compare the extremes: the standard deviation of equal rewards is a rounding error, not 0.
    if reward_G.max() == reward_G.min():
        return np.zeros_like(reward_G)
    return (reward_G - reward_G.mean()) / reward_G.std(ddof=ddof)
