"""Null test of the kernel: own samples of one problem must not be coupled on average.

Meaning: of responses that a model draws itself at temperature 1, E[∇ log π] = 0, so the kernel of two independent
draws is 0 on average, whatever the model. The mean off-diagonal over the mean diagonal, over all pairs of own draws of
a problem, repeated draws included. An interval that leaves out 0 says: the samples do not come from these weights at
temperature 1, or the kernel is wrong. Scope ``all``; beside it ``standard error``, that of ``all`` over problems: a
test that passes with a large one has tested little.
Unit: fraction of the diagonal, signed. ``all`` has a 95 % t interval over problems (ratio estimator); n counts
problems.
Limits: a mean of few large terms, so a few problems give a wide interval; one interval in twenty leaves out 0 by
chance, and more where a model is sharp: rare responses carry the balance then, and few draws miss them. Only own
samples drawn at temperature 1 and without truncation of the distribution are in the kernel. Responses cut at the token
limit bias it little, as their prefix has mean 0 too.
Source: ours; E[∇ log π] = 0 is the score identity.

>>> from oversharp.diagnostics.measures._kernel_example import gradients, tiny_kernels
>>> rows = [("q1", "own own", True), ("q1", "own own", False)]
>>> evidence = tiny_kernels({"base": gradients((1, 0), (-1, 0))}, rows)
>>> [(f.scope, f.value and round(f.value, 4), f.n) for f in compute(evidence)]  # pairs: two at 1, four at −1
[('all', -0.3333, 1), ('standard error', None, None)]
"""

from __future__ import annotations

import numpy as np
from scipy.stats import t as student_t

from oversharp.diagnostics.measures._findings import known, unknown
from oversharp.diagnostics.measures._kernel import NO_KERNEL, NO_OWN, Coupling, mean_diagonal, off_diagonal
from oversharp.diagnostics.measures._kernel_findings import number, of_coupling
from oversharp.diagnostics.measures.contract import Evidence, Measure, Plot
from oversharp.diagnostics.records.types import Finding
from oversharp.diagnostics.statistics.intervals import ratio_interval
from oversharp.diagnostics.statistics.units import Interval

SCOPES = ("all", "standard error")


def compute(evidence: Evidence) -> list[Finding]:
    """Two findings per checkpoint; unknown where no problem has two own samples in the kernel."""
    return of_coupling(MEASURE, evidence, SCOPES, _at)


def _at(checkpoint_id: str, coupling: Coupling) -> list[Finding]:
    made = _null(coupling)
    if isinstance(made, str):
        return [unknown(MEASURE, checkpoint_id, made, scope=scope) for scope in SCOPES]
    whole, error = known(MEASURE, checkpoint_id, made), SCOPES[1]
    if made.low is None or made.high is None:
        why = "one problem has no standard error; run the audit with more --kernel-problems"
        return [whole, unknown(MEASURE, checkpoint_id, why, scope=error)]
    standard_error = (made.high - made.low) / 2.0 / float(student_t.ppf(0.975, made.n - 1))
    return [whole, known(MEASURE, checkpoint_id, number(standard_error, made.n), scope=error)]


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


MEASURE = Measure(
    name="kernel_rho_null",
    title="Null test: coupling of own samples",
    unit="fraction of the diagonal",
    section="kernel",
    needs=("kernel_runs", "kernel_members", "kernel_pairs"),
    missing=NO_KERNEL,
    plot=Plot(x="step", group="scope", y_label="mean K_ij / mean K_ii, own samples"),
    compute=compute,
    signed=True,
)
