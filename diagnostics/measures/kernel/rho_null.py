"""Null test of the kernel on own samples."""

from __future__ import annotations

import numpy as np
from scipy.stats import t as student_t

from oversharp.diagnostics.measures.contract import Plot, Result, Results
from oversharp.diagnostics.measures.declare import per_checkpoint
from oversharp.diagnostics.measures.kernel.gradients.coupling import (
    COUPLINGS,
    NO_OWN,
    Coupling,
    mean_diagonal,
    number,
    off_diagonal,
)
from oversharp.diagnostics.statistics.intervals import ratio_interval
from oversharp.diagnostics.statistics.units import Interval

ERROR = "standard error"


@per_checkpoint(
    input=COUPLINGS,
    scopes=("all", ERROR),
    title="Null test: coupling of own samples",
    unit="fraction of the diagonal",
    section="kernel",
    rank=30,
    plot=Plot(x="step", group="scope", y_label="mean K_ij / mean K_ii, own samples"),
    signed=True,
)
def kernel_rho_null(coupling: Coupling) -> Results:
    """Null test of the kernel: the mean coupling of own samples of one problem, which must be 0.

    Meaning: for responses that a model samples at temperature 1, E[∇ log π] = 0, so the kernel of two independent
    draws is 0 on average, for any model. The mean off-diagonal over the mean diagonal, over all pairs of own draws of
    a problem, including repeated draws. An interval that excludes 0 means that the samples do not come from these
    weights at temperature 1, or that the kernel is wrong. Scopes: ``all``, and ``standard error``, that of ``all`` over
    problems: a test that passes with a large one has little power.
    Unit: fraction of the diagonal, signed. ``all`` has a 95 % t interval over problems (ratio estimator); n counts
    problems.
    Limits: a mean of few large terms, so a few problems give a wide interval; one interval in twenty excludes 0 by
    chance, and more if a model is sharp: rare responses dominate the balance then, and few draws miss them. Only own
    samples at temperature 1 and without truncation of the distribution are in the kernel. Responses truncated at the
    token limit bias it little, because their prefix has mean 0 too.
    Source: ours; E[∇ log π] = 0 is the score identity.

    >>> from oversharp.diagnostics.measures.kernel.gradients.examples import gradients, tiny_kernels
    >>> rows = [("q1", "own own", True), ("q1", "own own", False)]
    >>> findings = kernel_rho_null(tiny_kernels({"base": gradients((1, 0), (-1, 0))}, rows))
    >>> [(f.scope, f.value and round(f.value, 4), f.n) for f in findings]  # pairs: two at 1, four at −1
    [('all', -0.3333, 1), ('standard error', None, None)]
    """
    coupled = _null(coupling)
    if isinstance(coupled, str):
        return {"all": coupled, ERROR: coupled}
    results: dict[str, Result] = {"all": coupled}
    if coupled.low is None or coupled.high is None:
        return results | {ERROR: "one problem has no standard error; run the audit with more --kernel-problems"}
    standard_error = (coupled.high - coupled.low) / 2.0 / float(student_t.ppf(0.975, coupled.n - 1))
    return {"all": coupled, ERROR: number(standard_error, coupled.n)}


def _null(coupling: Coupling) -> Interval | str:
    problem_S = coupling.rows.problem_N[coupling.own_S]
    kernels = [
        coupling.rows.kernel_NN[np.ix_(position_S, position_S)]
        for problem_id in np.unique(problem_S)
        if len(position_S := coupling.own_S[problem_S == problem_id]) > 1
    ]
    if not kernels:
        return "no problem has two own samples in the kernel" if len(coupling.own_S) else NO_OWN
    diagonal_P = np.array([mean_diagonal(kernel_SS) for kernel_SS in kernels])
    if not diagonal_P.sum() > 0.0:
        return "the gradient of every own sample is 0"
    off_P = np.array([float(off_diagonal(kernel_SS).mean()) for kernel_SS in kernels])
    return ratio_interval(off_P, diagonal_P, floor=False)
