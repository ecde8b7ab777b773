"""[A] Theorem 2.4, Corollary 2.2, Appendix G: when the bounds on a shift are proved, and the worked numbers.

The bounds themselves are in ``oversharp.diagnostics.theory.coupling_bounds``, whose docstring explains why neither
holds in general. Source: [A] (arXiv 2601.15609), sections 2.3 and 2.4, Appendices E to G.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from oversharp.diagnostics.theory._checks import positive, vector
from oversharp.diagnostics.theory.bound import Bound
from oversharp.diagnostics.theory.coupling import KernelExtremes, dual_coefficients, symmetric

#: Tolerance for rounding in the conditions, relative to the compared quantity.
RELATIVE_ROUNDING = 1e-9


def why_unseen_unproved(
    kernel_GG: ArrayLike, cross_G: ArrayLike, target_G: ArrayLike, extremes: KernelExtremes, *, eta: float
) -> str | None:
    """Return the first condition of the proof of Case 1 that fails here, or None if the bound is proved.

    Proof: let Kα = y and α ≥ 0. If every column of K sums to at least λ_min + (G−1)ρ_min, then A_sum = Σ_j α_j Σ_i K_ij
    ≥ (λ_min + (G−1)ρ_min) Σα. With k ≤ ηρ_max entrywise, Δf ≤ ηρ_max Σα ≤ the bound. The columns do sum to that, unless
    a repeated mode has λ < ρ_min. The conditions are sufficient, not necessary.

    >>> extremes = KernelExtremes(lambda_min=2.0, lambda_max=2.0, rho_min=1.0, rho_max=1.0)
    >>> kernel_GG = [[2.0, 1.0], [1.0, 2.0]]
    >>> why_unseen_unproved(kernel_GG, [0.5, 0.5], [1.0, 1.0], extremes, eta=0.5) is None
    True
    >>> why_unseen_unproved(kernel_GG, [0.5, 0.5], [1.0, 0.1], extremes, eta=0.5)
    'α has a negative entry'
    """
    kernel_GG = symmetric(kernel_GG, "kernel_GG")
    target_G = vector(target_G, "target_G", length=len(kernel_GG))
    cross_G = vector(cross_G, "cross_G", length=len(kernel_GG))
    alpha_G = dual_coefficients(kernel_GG, target_G)
    denominator = extremes.lambda_min + (len(kernel_GG) - 1) * extremes.rho_min
    ceiling = eta * extremes.rho_max
    if denominator <= 0.0:
        return "λ_min + (G−1)·ρ_min is not positive"
    if np.abs(kernel_GG @ alpha_G - target_G).max() > 1e-7 * np.abs(target_G).max():
        return "the batch cannot reach its targets"
    if alpha_G.min() < -RELATIVE_ROUNDING * np.abs(alpha_G).max():
        return "α has a negative entry"
    if kernel_GG.sum(axis=0).min() < denominator * (1.0 - RELATIVE_ROUNDING):
        return "a column of K sums to less than λ_min + (G−1)·ρ_min"
    if ceiling < 0.0 or cross_G.max() > ceiling + RELATIVE_ROUNDING * abs(ceiling):
        return "the unseen mode is closer to the batch than η·ρ_max, or that is negative"
    return None


def why_seen_unproved(extremes: KernelExtremes, *, count: int, target: float, eta: float) -> str | None:
    """Return the first condition of the proof of Case 2 that fails under Assumption 2.2, or None.

    Proof: the shift is η·y. With ρ_max ≥ 0 the bracket of the bound is at most y, so a slope N(λ_min−ρ_min) /
    (λ_max−ρ_max) between 0 and 1 keeps the bound below η·max(y, 0). With N ≥ 2 and near-equal entries the slope is N.

    >>> extremes = KernelExtremes(lambda_min=2.0, lambda_max=2.0, rho_min=1.0, rho_max=1.0)
    >>> why_seen_unproved(extremes, count=1, target=1.0, eta=0.5) is None
    True
    >>> why_seen_unproved(extremes, count=2, target=1.0, eta=0.5)
    'the slope N·(λ_min−ρ_min)/(λ_max−ρ_max) is not between 0 and 1'
    """
    spread = extremes.lambda_max - extremes.rho_max
    if spread <= 0.0 or extremes.rho_max < 0.0:
        return "λ_max − ρ_max is not positive, or ρ_max is negative"
    if eta < 0.0 or target < 0.0:
        return "η or the target is negative"
    if not 0.0 <= count * (extremes.lambda_min - extremes.rho_min) <= spread * (1.0 + RELATIVE_ROUNDING):
        return "the slope N·(λ_min−ρ_min)/(λ_max−ρ_max) is not between 0 and 1"
    return None


def bounds_ratio(
    extremes: KernelExtremes,
    *,
    group_size: int,
    target_sum: float,
    count: int,
    target: float,
    as_printed: bool = False,
) -> Bound:
    """Return R for unequal λ and ρ: the Case-2 bound over the Case-1 bound.

    ``as_printed`` omits N in the last term. Undefined where either bound is, or ρ_max is not positive.
    Source: [A] Corollary 2.2, general form, corrected.

    >>> extremes = KernelExtremes(lambda_min=2.0, lambda_max=2.0, rho_min=1.0, rho_max=1.0)
    >>> bounds_ratio(extremes, group_size=7, target_sum=4.0, count=2, target=1.0).value
    2.0
    """
    spread = extremes.lambda_max - extremes.rho_max
    soft = extremes.lambda_min + (group_size - 1) * extremes.rho_min
    stiff = extremes.lambda_max + (group_size - 1) * extremes.rho_max
    if min(spread, soft, stiff, extremes.rho_max) <= 0.0:
        return Bound(why="ρ_max, λ_max − ρ_max or a denominator is not positive")
    reach = target / positive(target_sum, "target_sum") * soft / extremes.rho_max
    inside = count * reach - soft / stiff if as_printed else count * (reach - soft / stiff)
    return Bound(value=(extremes.lambda_min - extremes.rho_min) / spread * inside)


#: Embeddings of the toy world, [A] 2.4.
PERSIAN = (0.75, 0.5, 0.25, 0.1)


SIAMESE = {"high": (0.25, 0.5, 0.75, 0.1), "mid": (0.1, 0.5, 0.9, 0.1), "low": (0.0, 0.5, 1.0, 0.1)}


_PRINTED_RATIO = {"high": 1.38, "mid": 1.57, "low": 1.72}


@dataclass(frozen=True, kw_only=True, slots=True)
class EmbeddingSimilarity:
    """‖e_Persian‖² (λ), e_Persian · e_Siamese (ρ), and their ratio, at one of the paper's three similarities."""

    similarity: str
    self_product: float
    cross_product: float
    ratio: float


def embedding_similarities(*, as_printed: bool = False) -> tuple[EmbeddingSimilarity, ...]:
    """Return Appendix G's worked numbers, with ‖e_Persian‖² = 0.885 (printed: 0.8775).

    λ/ρ is 1.394, 1.580 and 1.735. [A] 2.4 claims that overlap raises λ/ρ; its own numbers show that it lowers it. This
    ρ is a similarity of two *queries*, the role of η in Theorem 2.4, and η cancels in R. Source: [A] 2.4 and Appendix
    G.

    >>> [round(s.ratio, 3) for s in embedding_similarities()]
    [1.394, 1.58, 1.735]
    """
    persian_D = np.array(PERSIAN)
    rows = []
    for similarity, siamese in SIAMESE.items():
        own, cross = float(persian_D @ persian_D), float(persian_D @ np.array(siamese))
        rows.append(
            EmbeddingSimilarity(
                similarity=similarity,
                self_product=0.8775 if as_printed else own,
                cross_product=cross,
                ratio=_PRINTED_RATIO[similarity] if as_printed else own / cross,
            )
        )
    return tuple(rows)
