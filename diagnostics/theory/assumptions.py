"""Check the assumptions of Theorem 2.4 of [A] on a gradient kernel.

[A] is arXiv 2601.15609.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import ArrayLike

from oversharp.diagnostics.theory._checks import vector
from oversharp.diagnostics.theory.coupling import (
    RELATIVE_CUTOFF,
    KernelExtremes,
    dual_coefficients,
    kernel_extremes,
    symmetric,
)

#: Two rows count as equal if their squared distance is at most this share of the larger K_ii. Float32 kernel entries
#: have errors of up to 4e-7 of √(K_ii K_jj) with random weights, and of up to 6e-5 with trained weights, whose forward
#: passes round more. Repeats of a row in one batch have the same rounding error.
SAME_ROW = 4e-5
#: Rounding error of α, relative to its largest entry, and of eigenvalues, relative to λ_max times the number of rows.
RELATIVE_ROUNDING = 1e-9


@dataclass(frozen=True, kw_only=True)
class CouplingFlags:
    """The assumptions of Theorem 2.4, and whether the kernel K of one batch satisfies them.

    Attributes:
        extremes: smallest and largest λ and ρ of the batch.
        share_aligned: share of the pairs of different modes with K_ij ≥ 0. Assumption 2.1 requires all pairs.
        self_exceeds_cross: λ_min ≥ ρ_max, which is Assumption 2.3.
        psd_order: K ⪰ M(λ_min, ρ_min), which the proof uses. M has λ_min on the diagonal and ρ_min elsewhere. The order
            requires that the row of K with λ_min has ρ_min in all other entries. That is rare for three rows or more.
        denominator_positive: λ_min + (G−1)ρ_min > 0.
        n_negative_alpha: number of negative entries of α = K⁺ y.
        target_residual: ‖Kα − y‖/‖y‖.
        n_repeats: number of rows that repeat an earlier row.
        condition_number: largest eigenvalue of K divided by the smallest. None if K is singular at the cutoff.
    """

    extremes: KernelExtremes
    share_aligned: float
    self_exceeds_cross: bool
    psd_order: bool
    denominator_positive: bool
    n_negative_alpha: int
    target_residual: float
    n_repeats: int
    condition_number: float | None

    @property
    def gradients_aligned(self) -> bool:
        """Assumption 2.1 within the batch: no two modes have opposite gradients."""
        return self.share_aligned == 1.0


def repeats(kernel_NN: ArrayLike) -> Int[np.ndarray, " row"]:
    """Return, for each row, the index of the first row with the same gradient.

    Rows are the same if ‖g_i − g_j‖² = K_ii + K_jj − 2K_ij is at most 4e-5 times the larger of K_ii and K_jj.

    >>> repeats([[2.0, 2.0, 0.5], [2.0, 2.0, 0.5], [0.5, 0.5, 3.0]]).tolist()
    [0, 0, 2]
    """
    kernel_NN = symmetric(kernel_NN)
    lambda_N = np.diag(kernel_NN)
    distance_NN = lambda_N[:, None] + lambda_N[None, :] - 2.0 * kernel_NN
    same_NN = distance_NN <= SAME_ROW * np.maximum(lambda_N[:, None], lambda_N[None, :])
    return same_NN.argmax(axis=1)


def coupling_flags(
    kernel_GG: ArrayLike,
    target_G: ArrayLike,
    mode_G: Int[np.ndarray, " sample"] | None = None,
    *,
    relative_cutoff: float = RELATIVE_CUTOFF,
) -> CouplingFlags:
    """Check the assumptions of Theorem 2.4 on one batch.

    ``mode_G`` is the mode of each sample. By default, samples with the same gradient are one mode. Raises
    ``ValueError`` if the batch has fewer than two modes.

    >>> flags = coupling_flags([[2.0, 1.0], [1.0, 2.0]], [1.0, 0.1])
    >>> flags.gradients_aligned, flags.self_exceeds_cross, flags.psd_order, flags.n_negative_alpha
    (True, True, True, 1)
    """
    kernel_GG = symmetric(kernel_GG, "kernel_GG")
    target_G = vector(target_G, "target_G", length=len(kernel_GG))
    mode_G = repeats(kernel_GG) if mode_G is None else np.asarray(mode_G)
    extremes = kernel_extremes(kernel_GG, mode_G)
    alpha_G = dual_coefficients(kernel_GG, target_G, relative_cutoff=relative_cutoff)
    eigenvalue_G = np.linalg.eigvalsh(kernel_GG)
    least, most = float(eigenvalue_G[0]), float(eigenvalue_G[-1])
    target_norm = float(np.linalg.norm(target_G))
    missed = float(np.linalg.norm(kernel_GG @ alpha_G - target_G))
    pair_X = kernel_GG[mode_G[:, None] != mode_G[None, :]]
    return CouplingFlags(
        extremes=extremes,
        share_aligned=float(np.mean(pair_X >= 0.0)),
        self_exceeds_cross=extremes.lambda_min >= extremes.rho_max,
        psd_order=_dominates(kernel_GG, extremes),
        denominator_positive=extremes.lambda_min + (len(kernel_GG) - 1) * extremes.rho_min > 0.0,
        n_negative_alpha=int(np.sum(alpha_G < -RELATIVE_ROUNDING * np.abs(alpha_G).max())),
        target_residual=missed / target_norm if target_norm else 0.0,
        n_repeats=len(mode_G) - len(np.unique(mode_G)),
        condition_number=most / least if least > relative_cutoff * most else None,
    )


def _dominates(kernel_GG: np.ndarray, extremes: KernelExtremes) -> bool:
    """Return whether K ⪰ M(λ_min, ρ_min), up to rounding."""
    lower_GG = np.full_like(kernel_GG, extremes.rho_min)
    np.fill_diagonal(lower_GG, extremes.lambda_min)
    least = float(np.linalg.eigvalsh(kernel_GG - lower_GG)[0])
    return least >= -RELATIVE_ROUNDING * extremes.lambda_max * len(kernel_GG)


@dataclass(frozen=True, kw_only=True, slots=True)
class DecayFit:
    """Least-squares estimate of η in Assumption 2.2, and its residual ‖k − ηK‖/‖k‖."""

    eta: float
    residual: float


def fit_decay(cross_TG: Float[np.ndarray, "mode sample"], within_TG: Float[np.ndarray, "mode sample"]) -> DecayFit:
    """Fit k((q′,o),(q,o_s)) ≈ η K((q,o),(q,o_s)) over modes o (rows) and samples s (columns).

    Raises ``ValueError`` unless the arrays have the same shape and each has a nonzero entry. Source: [A] Assumption
    2.2.

    >>> fit_decay(np.array([[0.5, 1.0]]), np.array([[1.0, 2.0]]))
    DecayFit(eta=0.5, residual=0.0)
    """
    cross_TG, within_TG = np.asarray(cross_TG, dtype=np.float64), np.asarray(within_TG, dtype=np.float64)
    if cross_TG.shape != within_TG.shape or not cross_TG.any() or not within_TG.any():
        raise ValueError(
            "cross_TG and within_TG: need the same shape and a nonzero entry each; got "
            f"{cross_TG.shape} and {within_TG.shape}"
        )
    eta = float(np.sum(cross_TG * within_TG) / np.sum(within_TG**2))
    residual = float(np.linalg.norm(cross_TG - eta * within_TG) / np.linalg.norm(cross_TG))
    return DecayFit(eta=eta, residual=residual)
