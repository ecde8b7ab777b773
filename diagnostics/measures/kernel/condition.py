"""Condition number of the kernel."""

from __future__ import annotations

from statistics import median

import numpy as np
from jaxtyping import Float

from oversharp.diagnostics.measures.contract import Plot, Result, Results
from oversharp.diagnostics.measures.declare import per_checkpoint
from oversharp.diagnostics.measures.kernel.gradients.coupling import LIVE_ROWS, RESOLUTION, Rows, number
from oversharp.diagnostics.measures.kernel.gradients.pairs import NO_TWO


@per_checkpoint(
    input=LIVE_ROWS,
    scopes=("cosine", "sum"),
    title="Condition of the kernel",
    unit="ratio",
    section="kernel",
    rank=170,
    folded=True,
    plot=Plot(x="step", group="scope", y_label="condition, median over problems", log_y=True),
)
def kernel_condition(rows: Rows) -> Results:
    """Condition of the kernel: the condition number of the kernel between the responses to one problem.

    Meaning: largest over smallest eigenvalue of the kernel between the fixed responses to one problem; the median over
    problems with at least two. A large value means that the responses are nearly one response to the model. The bounds
    and shifts of [A] need the inverse of this kernel, and its errors grow with the condition. Scopes: ``cosine``
    (primary) and ``sum``, where responses of unequal length or certainty add to it.
    Unit: ratio, at least 1; n counts problems. A median, without interval.
    Limits: above 1e6 the kernel is singular within float32; if half of the problems are, the median has no number, and
    the reason says so. More responses raise it, so compare audits of equal size only.
    Source: K⁻¹ in section 2.3 of [A] (arXiv 2601.15609), which is there assumed to exist.

    >>> from oversharp.diagnostics.measures.kernel.gradients.examples import gradients, tiny_kernels
    >>> evidence = tiny_kernels({"base": gradients((1, 0), (0, 2))}, [("q1", "panel", True), ("q1", "panel", True)])
    >>> [(f.scope, f.value, f.n) for f in kernel_condition(evidence)]
    [('cosine', 1.0, 1), ('sum', 4.0, 1)]
    """
    problems = [own for own in rows.by_problem() if len(own) > 1]
    return {
        "cosine": _median([_condition(own.cosines) for own in problems]),
        "sum": _median([_condition(own.kernel_NN) for own in problems]),
    }


def _median(conditions: list[float]) -> Result:
    if not conditions:
        return NO_TWO
    middle = median(conditions)  # infinite if either of two middle values is
    if np.isinf(middle):
        n_singular = sum(map(np.isinf, conditions))
        return f"the kernel is singular in {n_singular} of {len(conditions)} problems, so its median has no number"
    return number(middle, len(conditions))


def _condition(kernel_NN: Float[np.ndarray, "row row"]) -> float:
    """Return the condition number, infinite if the smallest eigenvalue is below the rounding of the largest."""
    value_N = np.linalg.eigvalsh(kernel_NN)
    smallest, largest = float(value_N[0]), float(value_N[-1])
    return largest / smallest if smallest > RESOLUTION * largest else np.inf
