"""Effect of a training step on one batch, from the gradient kernel ([A] 2.3 and [C] 3).

K_ij = ⟨∇f_i, ∇f_j⟩, where f_i is the probability, log-probability or logit of row i. ``kernel_GG`` is the kernel of the
G samples of a batch. ``cross_TG`` is the kernel of T other responses (targets) with these samples. The unit of a kernel
is nats² per squared parameter. ``target_G`` (y) is the change in log-probability, in nats, that the batch requires of
each of its samples.

Source: [A] (arXiv 2601.15609), section 2.3 and Appendix D; [C] (The Reasoning Boundary Paradox, OpenReview).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import ArrayLike

from oversharp.diagnostics.theory._checks import counts, positive, vector

#: The pseudo-inverse treats eigenvalues below this share of the largest one as zero.
RELATIVE_CUTOFF = 1e-10


def symmetric(kernel_NN: ArrayLike, name: str = "kernel") -> Float[np.ndarray, "row row"]:
    """Return ``kernel_NN`` in float64, with the rounding asymmetry of a matrix product removed.

    Raises ``ValueError`` unless ``kernel_NN`` is square and finite, has a positive diagonal, and is symmetric to within
    1e-6 of its largest diagonal entry.

    >>> symmetric([[2.0, 1.0], [1.0, 2.0]]).tolist()
    [[2.0, 1.0], [1.0, 2.0]]
    """
    kernel_NN = np.asarray(kernel_NN, dtype=np.float64)
    if kernel_NN.ndim != 2 or kernel_NN.shape[0] != kernel_NN.shape[1] or not kernel_NN.size:
        raise ValueError(f"{name}: needs a square matrix; got shape {kernel_NN.shape}")
    if not np.isfinite(kernel_NN).all() or np.diag(kernel_NN).min() <= 0.0:
        raise ValueError(f"{name}: needs finite entries and a positive diagonal: leave out rows without gradient")
    if np.abs(kernel_NN - kernel_NN.T).max() > 1e-6 * np.diag(kernel_NN).max():
        raise ValueError(f"{name}: needs a symmetric matrix")
    return (kernel_NN + kernel_NN.T) / 2.0


def target_shifts(
    mode_G: Int[np.ndarray, " sample"], advantage_G: ArrayLike, *, beta: float, signed: bool = False
) -> Float[np.ndarray, " sample"]:
    """Return the target shift y_s = N_s |A_s| / (βG) of each sample, in nats.

    N_s is the number of samples in the batch that have the mode of s. ``mode_G`` has equal labels for samples of the
    same mode. The paper uses |A| and moves the sign of A into the gradient. For a kernel of plain gradients, pass
    ``signed`` to get N A/(βG); otherwise wrong answers count as rewarded. Both forms give the same shift if the rows
    and columns of the kernel are multiplied by the signs. Source: [A] 2.3, Appendix E.

    >>> target_shifts(np.array([7, 7, 3, 5]), [1.0, 1.0, -1.0, -1.0], beta=0.5).tolist()
    [1.0, 1.0, 0.5, 0.5]
    >>> target_shifts(np.array([7, 7, 3, 5]), [1.0, 1.0, -1.0, -1.0], beta=0.5, signed=True).tolist()
    [1.0, 1.0, -0.5, -0.5]
    """
    advantage_G = vector(advantage_G, "advantage_G")
    mode_G = np.asarray(mode_G)
    if mode_G.shape != advantage_G.shape:
        raise ValueError(f"mode_G: needs one label for each of the {len(advantage_G)} advantages; got {mode_G.shape}")
    _, number_G, size_M = np.unique(mode_G, return_inverse=True, return_counts=True)
    shift_G = size_M[number_G] * advantage_G / (positive(beta, "beta") * len(advantage_G))
    return shift_G if signed else np.abs(shift_G)


def dual_coefficients(
    kernel_GG: ArrayLike, target_G: ArrayLike, *, relative_cutoff: float = RELATIVE_CUTOFF
) -> Float[np.ndarray, " sample"]:
    """Return α = K⁺ y, the smallest gradient weights that shift the batch by y.

    The function uses the pseudo-inverse, because K is singular if a mode repeats, and then the paper's K⁻¹ does not
    exist. ``relative_cutoff`` must exceed the rounding error of the kernel, about 1e-6 for float32 gradients.
    Source: [A] 2.3 and Appendix D, corrected.

    >>> dual_coefficients([[2.0, 2.0], [2.0, 2.0]], [1.0, 1.0]).round(6).tolist()
    [0.25, 0.25]
    """
    kernel_GG = symmetric(kernel_GG, "kernel_GG")
    target_G = vector(target_G, "target_G", length=len(kernel_GG))
    return np.linalg.pinv(kernel_GG, rcond=relative_cutoff, hermitian=True) @ target_G


def induced_shift(
    kernel_GG: ArrayLike, cross_TG: ArrayLike, target_G: ArrayLike, *, relative_cutoff: float = RELATIVE_CUTOFF
) -> Float[np.ndarray, " target"]:
    """Return the first-order shift Δf = k^T K⁺ y of each target, in nats.

    A target in the batch shifts by its own y. A target whose cross kernel is η times such a row shifts by η·y.
    Source: [A] 2.3, Appendix D.

    >>> induced_shift([[2.0, 0.0], [0.0, 4.0]], [[1.0, 1.0]], [2.0, 4.0]).round(6).tolist()
    [2.0]
    """
    cross_TG = np.asarray(cross_TG, dtype=np.float64)
    alpha_G = dual_coefficients(kernel_GG, target_G, relative_cutoff=relative_cutoff)
    if cross_TG.ndim != 2 or cross_TG.shape[1] != len(alpha_G):
        raise ValueError(f"cross_TG: needs {len(alpha_G)} columns, one per sample; got shape {cross_TG.shape}")
    return cross_TG @ alpha_G


def cosine_kernel(kernel_NN: ArrayLike) -> Float[np.ndarray, "row row"]:
    """Return K_ij / √(K_ii K_jj), from −1 to 1.

    The division corrects for the length of responses.

    >>> cosine_kernel([[4.0, 1.0], [1.0, 1.0]]).tolist()
    [[1.0, 0.5], [0.5, 1.0]]
    """
    kernel_NN = symmetric(kernel_NN)
    norm_N = np.sqrt(np.diag(kernel_NN))
    cosine_NN = np.clip(kernel_NN / np.outer(norm_N, norm_N), -1.0, 1.0)
    np.fill_diagonal(cosine_NN, 1.0)
    return cosine_NN


def kernel_of_means(kernel_NN: ArrayLike, n_tokens_N: ArrayLike) -> Float[np.ndarray, "row row"]:
    """Return K_ij / (T_i T_j), the kernel of per-token means ([C] Eq 16).

    >>> kernel_of_means([[4.0, 2.0], [2.0, 9.0]], [2, 1]).tolist()
    [[1.0, 1.0], [1.0, 9.0]]
    """
    kernel_NN = symmetric(kernel_NN)
    n_tokens_N = counts(n_tokens_N, "n_tokens_N", length=len(kernel_NN))
    if n_tokens_N.min() < 1:
        raise ValueError("n_tokens_N: needs at least one token in every response")
    return kernel_NN / np.outer(n_tokens_N, n_tokens_N)


def effective_rank(kernel_NN: ArrayLike) -> float:
    """Return exp(−Σ p log p), where p are the eigenvalues of the kernel divided by their sum.

    It is the effective number of independent gradient directions. The gradient matrix has the square roots as singular
    values, so its effective rank is larger. Negative eigenvalues are rounding errors and count as 0. Source: Roy and
    Vetterli 2007 (EUSIPCO), Definition 1. [C] C.2 refers to the rank of this kernel.

    >>> round(effective_rank([[1.0, 0.0], [0.0, 1.0]]), 6), round(effective_rank([[1.0, 1.0], [1.0, 1.0]]), 6)
    (2.0, 1.0)
    """
    eigenvalue_N = np.maximum(np.linalg.eigvalsh(symmetric(kernel_NN)), 0.0)
    share_N = eigenvalue_N / eigenvalue_N.sum()
    share_N = share_N[share_N > 0.0]
    return float(np.exp(-np.sum(share_N * np.log(share_N))))


@dataclass(frozen=True, kw_only=True, slots=True)
class KernelExtremes:
    """Extremes of self-similarity λ = K_ii, and of cross-similarity ρ = K_ij.

    ρ is taken over pairs of different modes.
    """

    lambda_min: float
    lambda_max: float
    rho_min: float
    rho_max: float


def kernel_extremes(kernel_NN: ArrayLike, mode_N: Int[np.ndarray, " row"] | None = None) -> KernelExtremes:
    """Return the extremes of λ over rows, and of ρ over pairs of rows of different modes.

    By default each row is a separate mode. The paper takes ρ over all i ≠ j. Then two samples of one mode make ρ_max
    equal to a λ, and Assumption 2.3 is void. Raises ``ValueError`` for fewer than two modes. Source: [A] 2.3.

    >>> kernel_extremes([[2.0, 2.0, 0.5], [2.0, 2.0, 0.5], [0.5, 0.5, 3.0]], np.array([0, 0, 1]))
    KernelExtremes(lambda_min=2.0, lambda_max=3.0, rho_min=0.5, rho_max=0.5)
    """
    kernel_NN = symmetric(kernel_NN)
    mode_N = np.arange(len(kernel_NN)) if mode_N is None else np.asarray(mode_N)
    if mode_N.shape != (len(kernel_NN),):
        raise ValueError(f"mode_N: needs one label for each of the {len(kernel_NN)} rows; got shape {mode_N.shape}")
    rho_X = kernel_NN[mode_N[:, None] != mode_N[None, :]]
    if not rho_X.size:
        raise ValueError("mode_N: cross-similarity needs two different modes")
    lambda_N = np.diag(kernel_NN)
    return KernelExtremes(
        lambda_min=float(lambda_N.min()),
        lambda_max=float(lambda_N.max()),
        rho_min=float(rho_X.min()),
        rho_max=float(rho_X.max()),
    )


def first_order_influence(
    cross_RB: Float[np.ndarray, "response batch"], advantage_B: ArrayLike, *, learning_rate: float
) -> Float[np.ndarray, " response"]:
    """Return Δ log π(y′|x′) ≈ η Σ_b K(b, ·) A_b in nats, to first order in η.

    The paper states it for a batch of one pair. The effects of several pairs add up. If the loss is a mean over the
    batch, divide η by the batch size. The error is O(η²).
    Source: [C] Proposition 3.1, Eq 3.

    >>> first_order_influence(np.array([[2.0, 1.0]]), [1.0, -1.0], learning_rate=0.1).round(6).tolist()
    [0.1]
    """
    cross_RB = np.asarray(cross_RB, dtype=np.float64)
    advantage_B = vector(advantage_B, "advantage_B")
    if cross_RB.ndim != 2 or cross_RB.shape[1] != len(advantage_B):
        raise ValueError(f"cross_RB: needs {len(advantage_B)} columns, one per advantage; got shape {cross_RB.shape}")
    return learning_rate * (cross_RB @ advantage_B)


def group_advantages(reward_G: ArrayLike, *, ddof: int = 1) -> Float[np.ndarray, " sample"]:
    """Return the advantages (r − mean)/std of a group, 0 if all rewards are equal.

    [C] A.1 gives a correct answer the reward 1, a wrong answer −0.5 and a missing answer −1. With these rewards a group
    of incorrect responses can have nonzero advantages, which contradicts section 5 of [C] ("A = 0 if all sampled
    actions are incorrect"). Source: [C] Eq 10.

    >>> group_advantages([1.0, 0.0, 0.0, 0.0]).tolist()
    [1.5, -0.5, -0.5, -0.5]
    >>> group_advantages([-0.5, -1.0]).round(4).tolist()
    [0.7071, -0.7071]
    """
    reward_G = vector(reward_G, "reward_G")
    if ddof not in (0, 1) or len(reward_G) < 2:
        raise ValueError(f"reward_G: needs at least 2 rewards and ddof 0 or 1; got {len(reward_G)} and {ddof}")
    # The computed standard deviation of equal rewards can be a rounding error instead of 0, so compare the extremes.
    if reward_G.max() == reward_G.min():
        return np.zeros_like(reward_G)
    return (reward_G - reward_G.mean()) / reward_G.std(ddof=ddof)
