"""Bounds on an induced shift: Theorem 2.4 and Corollary 2.2 of [A].

Neither bound of the theorem is valid in general. Let Δf = k^T α with α = K⁺ y. Let M(λ, ρ) be the matrix with λ on the
diagonal and ρ elsewhere. The paper's step from K ⪰ M(λ_min, ρ_min) to Σα ≤ A_sum/(λ_min + (G−1)ρ_min) has two errors.
First, the order K ⪰ M does not follow from bounds on the entries. K − M has a 0 on the diagonal where K_ii = λ_min, so
the off-diagonal entries of that row of K must all be ρ_min. Second, the order bounds 1^T K⁻¹ y only for y ∝ 1.
``benchmarks/papers/theory/coupling_bounds`` checks conditions under which the bounds are proved. Under Assumption 2.2 a
mode of the batch shifts by exactly η·y. Source: [A] (arXiv 2601.15609), 2.3, Appendices E to G.
"""

from __future__ import annotations

from oversharp.diagnostics.theory._checks import positive
from oversharp.diagnostics.theory.bound import Bound
from oversharp.diagnostics.theory.coupling import KernelExtremes


def unseen_shift_bound(extremes: KernelExtremes, *, group_size: int, target_sum: float, eta: float) -> Bound:
    """Return the printed upper bound on the shift of an unsampled mode.

    The bound is Δf ≤ η ρ_max A_sum / (λ_min + (G−1)ρ_min). The bound is undefined unless the denominator is positive.
    It is violated in a few per cent of random instances. Source: [A] Theorem 2.4, Case 1.

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
    """Return the printed lower bound, in nats, for a mode that is in the batch.

    Δf ≥ ηN(λ_min−ρ_min)/(λ_max−ρ_max) · (y − ρ_max A_sum/(λ_max+(G−1)ρ_max)), with N = ``count`` and y = ``target``.
    Under Assumption 2.2 the shift is exactly η·y, so for N ≥ 2 the lower bound can exceed the shift. The bound is
    undefined unless both denominators are positive. Source: [A] Theorem 2.4, Case 2.

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


def seen_to_unseen_ratio(
    *, target: float, target_sum: float, count: int, lambda_over_rho: float, group_size: int, as_printed: bool = False
) -> float:
    """Return R = N [ (y/A_sum)(λ/ρ + G − 1) − 1 ] for a kernel with equal λ and equal ρ.

    R is the gain of a seen mode of the other query, divided by the largest gain of an unseen mode; η cancels. R has no
    unit. ``as_printed`` returns N (y/A_sum)(λ/ρ + G − 1) − 1, as in the main text, where the last term lacks the factor
    N. Source: [A] Appendix F (correct), Corollary 2.2 (as printed).

    >>> seen_to_unseen_ratio(target=1.0, target_sum=4.0, count=2, lambda_over_rho=2.0, group_size=7)
    2.0
    >>> seen_to_unseen_ratio(target=1.0, target_sum=4.0, count=2, lambda_over_rho=2.0, group_size=7, as_printed=True)
    3.0
    """
    share = target / positive(target_sum, "target_sum")
    reach = share * (lambda_over_rho + group_size - 1)
    return count * reach - 1.0 if as_printed else count * (reach - 1.0)
