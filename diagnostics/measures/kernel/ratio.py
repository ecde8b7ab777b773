"""R of Corollary 2.2 of [A]."""

from __future__ import annotations

import numpy as np

from oversharp.diagnostics.measures.contract import Plot, Result
from oversharp.diagnostics.measures.declare import per_checkpoint
from oversharp.diagnostics.measures.kernel.gradients.batch import NO_ADVANTAGE, TrainingBatch
from oversharp.diagnostics.measures.kernel.gradients.coupling import (
    COUPLINGS,
    NO_OWN,
    Coupling,
    mean_diagonal,
    number,
)
from oversharp.diagnostics.theory.coupling_bounds import seen_to_unseen_ratio


@per_checkpoint(
    input=COUPLINGS,
    title="Seen over unseen, R of Corollary 2.2",
    unit="ratio",
    section="kernel",
    rank=100,
    folded=True,
    plot=Plot(x="step", y_label="R, median over problems"),
    signed=True,
)
def kernel_ratio(coupling: Coupling) -> Result:
    """R of Corollary 2.2: how much more a sampled solution may gain than an unsampled one.

    Meaning: R = N·[(y/A_sum)·(λ/ρ + G − 1) − 1] for the correct response that was sampled most often at a problem,
    with λ and ρ the mean diagonal and off-diagonal of the kernel of its own samples. Above 1 the seen response must
    gain more than an unseen one may, by [A]'s simplified bounds. The median over problems.
    Unit: ratio, signed. n counts problems whose own samples are partly correct, partly wrong, and have ρ > 0; the
    median has no interval.
    Limits: assumes one λ and one ρ for all responses, and the bounds that ``kernel_bound_failures`` checks; the exact
    answer is ``kernel_shift``. As in the paper the sign of the advantage is in the gradient; for ρ ≤ 0, R has no
    meaning and the problem is excluded. η cancels.
    Source: [A] (arXiv 2601.15609), Appendix F; the printed forms of Corollary 2.2 omit N from the last term.

    >>> from oversharp.diagnostics.measures.kernel.gradients.examples import gradients, tiny_kernels
    >>> rows = [("q", "own", True), ("q", "own", False)]
    >>> evidence = tiny_kernels({"base": gradients((2, 0), (-1, 1))}, rows)
    >>> [(round(f.value, 4), f.n) for f in kernel_ratio(evidence)]  # λ = 3, ρ = 2, G = 2: ½·(3/2 + 1) − 1
    [(0.25, 1)]
    """
    batches = coupling.informative()
    ratios = [ratio for batch in batches if (ratio := _ratio(coupling, batch)) is not None]
    if ratios:
        return number(float(np.median(ratios)), len(ratios))
    if not len(coupling.own_S):
        return NO_OWN
    return f"ρ ≤ 0 at all {len(batches)} problems with advantages, so R has no meaning" if batches else NO_ADVANTAGE


def _ratio(coupling: Coupling, batch: TrainingBatch) -> float | None:
    kernel_SS, target_S = coupling.aligned_kernel(batch), np.abs(batch.targets)
    rho = float(kernel_SS[batch.mode_S[:, None] != batch.mode_S].mean())
    if rho <= 0.0:
        return None
    # Correct modes share one advantage, so the most sampled one has the largest target as well.
    count_M = np.where(batch.correct_S[batch.first_draws], batch.counts, 0)
    most = int(count_M.argmax())
    return seen_to_unseen_ratio(
        target=float(target_S[batch.first_draws[most]]),
        target_sum=float(target_S.sum()),
        count=int(count_M[most]),
        lambda_over_rho=mean_diagonal(kernel_SS) / rho,
        group_size=len(target_S),
    )
