"""Condition of the kernel: how nearly the responses of a problem are one response to the model.

Meaning: largest over smallest eigenvalue of the kernel between the fixed responses to one problem; the median over
problems with at least two. The bounds and shifts of [A] need the inverse of this kernel, and its errors grow with the
condition. Scopes: ``cosine`` (primary) and ``sum``, where responses of unequal length or certainty add to it.
Unit: ratio, at least 1; n counts problems. A median, without interval.
Limits: above 1e6 the kernel is singular as far as float32 can tell; where half of the problems are, the median has no
number, and says so. More responses raise it, so compare audits of equal size only.
Source: K⁻¹ in section 2.3 of [A] (arXiv 2601.15609), which is there assumed to exist.

>>> from oversharp.diagnostics.measures._kernel_example import gradients, tiny_kernels
>>> evidence = tiny_kernels({"base": gradients((1, 0), (0, 2))}, [("q1", "panel", True), ("q1", "panel", True)])
>>> [(f.scope, f.value, f.n) for f in compute(evidence)]
[('cosine', 1.0, 1), ('sum', 4.0, 1)]
"""

from __future__ import annotations

from statistics import median

import numpy as np
from jaxtyping import Float

from oversharp.diagnostics.measures._findings import known, unknown
from oversharp.diagnostics.measures._kernel import NO_KERNEL, RESOLUTION, Rows
from oversharp.diagnostics.measures._kernel_findings import number, of_fixed
from oversharp.diagnostics.measures._kernel_pairs import NO_TWO
from oversharp.diagnostics.measures.contract import Evidence, Measure, Plot
from oversharp.diagnostics.records.types import Finding

SCOPES = ("cosine", "sum")


def compute(evidence: Evidence) -> list[Finding]:
    """Two findings per checkpoint; unknown where no problem has two responses, or most kernels are singular."""
    return of_fixed(MEASURE, evidence, SCOPES, _at)


def _at(checkpoint_id: str, rows: Rows) -> list[Finding]:
    some = [own for own in rows.by_problem() if len(own) > 1]
    findings = []
    for scope in SCOPES:
        kernels = [own.cosines if scope == "cosine" else own.kernel_NN for own in some]
        ordered = sorted(_condition(kernel_NN) for kernel_NN in kernels)
        middle = median(ordered) if ordered else None  # infinite where either of two middle values is
        if middle is None:
            findings.append(unknown(MEASURE, checkpoint_id, NO_TWO, scope=scope))
        elif np.isinf(middle):
            n_singular = sum(map(np.isinf, ordered))
            why = f"the kernel is singular in {n_singular} of {len(ordered)} problems, so its median has no number"
            findings.append(unknown(MEASURE, checkpoint_id, why, scope=scope))
        else:
            findings.append(known(MEASURE, checkpoint_id, number(middle, len(ordered)), scope=scope))
    return findings


def _condition(kernel_NN: Float[np.ndarray, "row row"]) -> float:
    """Infinite where the smallest eigenvalue is lost in the rounding of the largest."""
    value_N = np.linalg.eigvalsh(kernel_NN)
    smallest, largest = float(value_N[0]), float(value_N[-1])
    return largest / smallest if smallest > RESOLUTION * largest else np.inf


MEASURE = Measure(
    name="kernel_condition",
    title="Condition of the kernel",
    unit="ratio",
    section="kernel",
    needs=("kernel_runs", "kernel_members", "kernel_pairs"),
    missing=NO_KERNEL,
    plot=Plot(x="step", group="scope", y_label="condition, median over problems"),
    compute=compute,
)
