"""Ratio of self-influence to coupling, λ/ρ."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from oversharp.diagnostics.measures.contract import Plot, Result, Results
from oversharp.diagnostics.measures.declare import per_checkpoint
from oversharp.diagnostics.measures.kernel.gradients.coupling import LIVE_ROWS, Rows, mean_diagonal, off_diagonal
from oversharp.diagnostics.measures.kernel.gradients.pairs import NO_TWO, NO_TWO_CORRECT, fieller

SCOPES = ("cosine", "cosine correct", "sum", "per token")
NOT_ABOVE = "ρ is not above 0: a ratio to it has no meaning"
NOT_SIGNIFICANT = (
    "ρ is not distinguishable from 0, so a ratio to it has no upper bound; more --kernel-problems narrow ρ"
)


@per_checkpoint(
    input=LIVE_ROWS,
    scopes=SCOPES,
    title="λ/ρ within problems",
    unit="ratio",
    section="kernel",
    rank=80,
    folded=True,
    plot=Plot(x="step", group="scope", y_label="λ/ρ within problems"),
)
def kernel_lambda_rho(rows: Rows) -> Results:
    """λ/ρ: how much more a response gains from a step on itself than from a step on its neighbour.

    Meaning: mean diagonal over mean off-diagonal of the kernel between fixed responses to one problem, pooled over
    problems with at least two. Large: updates affect only the response they were made for; near 1: all responses of a
    problem move together. Scopes: ``cosine`` (primary), ``cosine correct`` over the correct responses alone, and
    ``sum`` and ``per token`` for the kernel of summed and of averaged log-probabilities.
    Unit: ratio, at least 1, because no two vectors have an inner product above the mean of their squares. 95 %
    interval of Fieller over problems, which for a cosine is 1 over the interval of ρ; n counts problems.
    Limits: it has no meaning for ρ ≤ 0, and no upper bound if the interval of ρ reaches 0; in both cases it is
    unknown: a model's own samples have a negative inner product as often as a positive one (``kernel_rho_null``), so a
    positive ρ is not the rule. One problem has a ratio without interval. In Appendix G of [A] the same ratio is formed
    across problems.
    Source: [A] (arXiv 2601.15609), section 2.3 and Corollary 2.2.

    >>> from oversharp.diagnostics.measures.kernel.gradients.examples import gradients, tiny_kernels
    >>> rows = [("q1", "panel", True), ("q1", "panel", False)]
    >>> evidence = tiny_kernels({"base": gradients((1, 0), (1, 1))}, rows)
    >>> [(f.scope, f.value and round(f.value, 4), f.n) for f in kernel_lambda_rho(evidence)]
    [('cosine', 1.4142, 1), ('cosine correct', None, None), ('sum', 1.5, 1), ('per token', 1.5, 1)]
    """
    correct = rows.take(np.flatnonzero(rows.correct_N))
    return {
        "cosine": _ratio([own.cosines for own in _problems(rows)], NO_TWO),
        "cosine correct": _ratio([own.cosines for own in _problems(correct)], NO_TWO_CORRECT),
        "sum": _ratio([own.kernel_NN for own in _problems(rows)], NO_TWO),
        "per token": _ratio([own.per_token for own in _problems(rows)], NO_TWO),
    }


def _problems(rows: Rows) -> list[Rows]:
    return [own for own in rows.by_problem() if len(own) > 1]


def _ratio(kernels: list[Float[np.ndarray, "row row"]], why_none: str) -> Result:
    if not kernels:
        return why_none
    lambda_P = np.array([mean_diagonal(kernel_NN) for kernel_NN in kernels])
    rho_P = np.array([float(off_diagonal(kernel_NN).mean()) for kernel_NN in kernels])
    if rho_P.sum() <= 0.0:
        return NOT_ABOVE
    return fieller(lambda_P, rho_P, least=1.0) or NOT_SIGNIFICANT
