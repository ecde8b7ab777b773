"""[A] Theorem 2.4 and Corollary 2.2.

Bounds on an induced shift, to be compared with the exact shift.

Neither bound holds as generally as printed. Write Δf = k^T α with α = K⁺ y, and M(λ, ρ) for the matrix with λ on the
diagonal and ρ elsewhere. The paper's step from K ⪰ M(λ_min, ρ_min) to Σα ≤ A_sum/(λ_min + (G−1)ρ_min) has two errors:
the order does not follow from entrywise bounds (K − M has a 0 on the diagonal where K_ii = λ_min, so it requires that
row of K to be ρ_min throughout), and it bounds 1^T K⁻¹ y only for y ∝ 1. ``why_unseen_unproved`` and
``why_seen_unproved`` check conditions under which the bounds are true, with other proofs. Exact, under Assumption 2.2:
a mode of the batch moves by η·y. Source: [A] (arXiv 2601.15609), 2.3, Appendices E to G.
Assumption 2.2 a mode of the batch moves by η·y. Source: [A] (arXiv 2601.15609), 2.3, Appendices E to G.
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


def unseen_shift_bound(extremes: KernelExtremes, *, group_size: int, target_sum: float, eta: float) -> Bound:
    """Case 1: Δf ≤ η ρ_max A_sum / (λ_min + (G−1)ρ_min) for a mode outside the batch, as printed, in nats.

    Undefined where the denominator is not positive. True where ``why_unseen_unproved`` returns None; it failed in a few
    per cent of random instances. Source: [A] Theorem 2.4, Case 1.

    >>> extremes = KernelExtremes(lambda_min=2.0, lambda_max=2.0, rho_min=1.0, rho_max=1.0)
    >>> unseen_shift_bound(extremes, group_size=3, target_sum=4.0, eta=0.5).value
    0.5
    """
    denominator = extremes.lambda_min + (group_size - 1) * extremes.rho_min
    if denominator <= 0.0:
        return Bound(why="λ_min + (G−1)·ρ_min is not positive")
    return Bound(value=eta * extremes.rho_max * target_sum / denominator)


def seen_shift_bound(
    extremes: KernelExtremes, *, group_size: int, target_sum: float, eta: float, count: int, target: float
) -> Bound:
    """Case 2: Δf ≥ ηN(λ_min−ρ_min)/(λ_max−ρ_max) · (y − ρ_max A_sum/(λ_max+(G−1)ρ_max)), as printed, in nats.

    For a mode that is ``count`` (N) times in the batch with y = ``target``. Under Assumption 2.2 the shift is exactly
    η·y, so with N ≥ 2 the bound can exceed the shift itself. Undefined where a denominator is not positive.
    Source: [A] Theorem 2.4, Case 2.

    >>> extremes = KernelExtremes(lambda_min=2.0, lambda_max=2.0, rho_min=1.0, rho_max=1.0)
    >>> seen_shift_bound(extremes, group_size=3, target_sum=4.0, eta=0.5, count=2, target=3.0).value  # above η·y = 1.5
    2.0
    """
    spread = extremes.lambda_max - extremes.rho_max
    stiff = extremes.lambda_max + (group_size - 1) * extremes.rho_max
    if spread <= 0.0 or stiff <= 0.0:
        return Bound(why="λ_max − ρ_max or λ_max + (G−1)·ρ_max is not positive")
    slope = eta * count * (extremes.lambda_min - extremes.rho_min) / spread
    return Bound(value=slope * (target - extremes.rho_max * target_sum / stiff))


def why_unseen_unproved(
    kernel_GG: ArrayLike, cross_G: ArrayLike, target_G: ArrayLike, extremes: KernelExtremes, *, eta: float
) -> str | None:
    """Return the first condition of the proof of Case 1 that fails here, or None if the bound is proved.

    Proof: with Kα = y and α ≥ 0, A_sum = Σ_j α_j Σ_i K_ij ≥ (λ_min + (G−1)ρ_min) Σα as soon as every column sum is at
    least that; k ≤ ηρ_max entrywise then gives Δf ≤ ηρ_max Σα ≤ the bound. Column sums are, unless a repeated mode has
    λ < ρ_min. The conditions are sufficient: the bound may hold without them.

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

    Proof: the shift is η·y then. With ρ_max ≥ 0 the bracket of the bound is at most y, so a slope N(λ_min−ρ_min) /
    (λ_max−ρ_max) from 0 to 1 keeps the bound below η·max(y, 0). With N ≥ 2 and near-equal entries that slope is N.

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


def seen_to_unseen_ratio(
    *, target: float, target_sum: float, count: int, lambda_over_rho: float, group_size: int, as_printed: bool = False
) -> float:
    """Return R = N [ (y/A_sum)(λ/ρ + G − 1) − 1 ] for equal λ and equal ρ; no unit.

    It is the gain of a seen mode of the other query, relative to the largest gain of an unseen one: η cancels.
    ``as_printed`` returns the main text's N (y/A_sum)(λ/ρ + G − 1) − 1, where N misses the last term.
    Source: [A] Appendix F (right), Corollary 2.2.

    >>> seen_to_unseen_ratio(target=1.0, target_sum=4.0, count=2, lambda_over_rho=2.0, group_size=7)
    2.0
    >>> seen_to_unseen_ratio(target=1.0, target_sum=4.0, count=2, lambda_over_rho=2.0, group_size=7, as_printed=True)
    3.0
    """
    share = target / positive(target_sum, "target_sum")
    reach = share * (lambda_over_rho + group_size - 1)
    return count * reach - 1.0 if as_printed else count * (reach - 1.0)


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
