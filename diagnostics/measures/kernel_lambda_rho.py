"""λ/ρ: how much more a response gains from a step on itself than from a step on its neighbour.

Meaning: mean diagonal over mean off-diagonal of the kernel between fixed responses to one problem, pooled over
problems with at least two. Large: updates stay with the response they were made for; near 1: all responses of a problem
move as one. Scopes: ``cosine`` (primary), ``cosine correct`` over the correct responses alone, and ``sum`` and ``per
token`` for the kernel of summed and of averaged log-probabilities.
Unit: ratio, at least 1, because no two vectors have an inner product above the mean of their squares. 95 % interval of
Fieller over problems, which for a cosine is 1 over the interval of ρ; n counts problems.
Limits: it has no meaning where ρ ≤ 0, and no upper bound where the interval of ρ reaches 0; in both cases it is
unknown: responses that the model drew itself push apart as often as together (``kernel_rho_null``), so positive ρ is
not the rule. One problem has a ratio without interval. In Appendix G of [A] the same ratio is formed across problems.
Source: [A] (arXiv 2601.15609), section 2.3 and Corollary 2.2.

>>> from oversharp.diagnostics.measures._kernel_example import gradients, tiny_kernels
>>> rows = [("q1", "panel", True), ("q1", "panel", False)]
>>> evidence = tiny_kernels({"base": gradients((1, 0), (1, 1))}, rows)
>>> [(f.scope, f.value and round(f.value, 4), f.n) for f in compute(evidence)]
[('cosine', 1.4142, 1), ('cosine correct', None, None), ('sum', 1.5, 1), ('per token', 1.5, 1)]
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from oversharp.diagnostics.measures._findings import known, unknown
from oversharp.diagnostics.measures._kernel import NO_KERNEL, Rows, mean_diagonal, off_diagonal
from oversharp.diagnostics.measures._kernel_findings import of_fixed
from oversharp.diagnostics.measures._kernel_pairs import NO_TWO, fieller
from oversharp.diagnostics.measures.contract import Evidence, Measure, Plot
from oversharp.diagnostics.records.types import Finding

SCOPES = ("cosine", "cosine correct", "sum", "per token")
NOT_ABOVE = "ρ is not above 0: a ratio to it has no meaning"
NOT_TOLD = "ρ is not distinguishable from 0, so a ratio to it has no upper bound; more --kernel-problems narrow ρ"
NO_TWO_CORRECT = "no problem has two correct responses in the kernel; run the audit with more --kernel-responses"


def compute(evidence: Evidence) -> list[Finding]:
    """One finding per checkpoint and normalisation; unknown where ρ is not told from 0, or has no pair."""
    return of_fixed(MEASURE, evidence, SCOPES, _at)


def _at(checkpoint_id: str, rows: Rows) -> list[Finding]:
    findings = []
    for scope in SCOPES:
        chosen = rows.take(np.flatnonzero(rows.correct_N)) if scope == "cosine correct" else rows
        some = [own for own in chosen.by_problem() if len(own) > 1]
        if not some:
            why = NO_TWO_CORRECT if scope == "cosine correct" else NO_TWO
            findings.append(unknown(MEASURE, checkpoint_id, why, scope=scope))
            continue
        kernels = [_normalised(own, scope) for own in some]
        lambda_P = np.array([mean_diagonal(kernel_NN) for kernel_NN in kernels])
        rho_P = np.array([float(off_diagonal(kernel_NN).mean()) for kernel_NN in kernels])
        if rho_P.sum() <= 0.0:
            findings.append(unknown(MEASURE, checkpoint_id, NOT_ABOVE, scope=scope))
            continue
        interval = fieller(lambda_P, rho_P, least=1.0)
        findings.append(
            unknown(MEASURE, checkpoint_id, NOT_TOLD, scope=scope)
            if interval is None
            else known(MEASURE, checkpoint_id, interval, scope=scope)
        )
    return findings


def _normalised(rows: Rows, scope: str) -> Float[np.ndarray, "row row"]:
    if scope == "sum":
        return rows.kernel_NN
    return rows.per_token if scope == "per token" else rows.cosines


MEASURE = Measure(
    name="kernel_lambda_rho",
    title="λ/ρ within problems",
    unit="ratio",
    section="kernel",
    needs=("kernel_runs", "kernel_members", "kernel_pairs"),
    missing=NO_KERNEL,
    plot=Plot(x="step", group="scope", y_label="λ/ρ within problems"),
    compute=compute,
)
