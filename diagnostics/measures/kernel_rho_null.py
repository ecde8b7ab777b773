"""Null test of the kernel: own samples of one problem must not be coupled on average.

Meaning: of responses that a model draws itself at temperature 1, E[∇ log π] = 0, so the kernel of two independent
draws is 0 on average, whatever the model. The mean off-diagonal over the mean diagonal, over all pairs of own draws of
a problem, repeated draws included. An interval that leaves out 0 says: the samples do not come from these weights at
temperature 1, or the kernel is wrong.
Unit: fraction of the diagonal, signed. 95 % t interval over problems (ratio estimator with
problems as the unit): the standard error is its half-width over the t quantile. n counts problems.
Limits: a mean of few large terms, so a few problems give a wide interval; one interval in twenty leaves out 0 by
chance. Only own samples drawn at temperature 1 and without truncation of the distribution are in the kernel. Responses
cut at the token limit bias it little, as their prefix has mean 0 too.
Source: ours; E[∇ log π] = 0 is the score identity.

>>> from diagnostics.measures._kernel_example import gradients, tiny_kernels
>>> rows = [("q1", "own own", True), ("q1", "own own", False)]
>>> evidence = tiny_kernels({"base": gradients((1, 0), (-1, 0))}, rows)
>>> [(round(f.value, 4), f.n) for f in compute(evidence)]  # pairs of draws: two at 1, four at −1
[(-0.3333, 1)]
"""

from __future__ import annotations

import numpy as np

from diagnostics.measures._findings import known, unknown
from diagnostics.measures._kernel import NO_KERNEL, NO_OWN, Coupling, mean_diagonal, off_diagonal
from diagnostics.measures._kernel_findings import of_coupling
from diagnostics.measures.contract import Evidence, Measure, Plot
from diagnostics.statistics.intervals import ratio_interval
from diagnostics.types import Finding


def compute(evidence: Evidence) -> list[Finding]:
    """One finding per checkpoint; unknown where no problem has two own samples in the kernel."""
    return of_coupling(MEASURE, evidence, ("all",), lambda checkpoint_id, coupling: [_at(checkpoint_id, coupling)])


def _at(checkpoint_id: str, coupling: Coupling) -> Finding:
    problem_S = coupling.rows.problem_N[coupling.own_S]
    kernels = [
        coupling.rows.kernel_NN[np.ix_(position_S, position_S)]
        for problem_id in np.unique(problem_S)
        if len(position_S := coupling.own_S[problem_S == problem_id]) > 1
    ]
    if not kernels:
        why = "no problem has two own samples in the kernel" if len(coupling.own_S) else NO_OWN
        return unknown(MEASURE, checkpoint_id, why)
    diagonal_P = np.array([mean_diagonal(kernel_SS) for kernel_SS in kernels])
    if not diagonal_P.sum() > 0.0:
        return unknown(MEASURE, checkpoint_id, "the gradient of every own sample is 0")
    off_P = np.array([float(off_diagonal(kernel_SS).mean()) for kernel_SS in kernels])
    return known(MEASURE, checkpoint_id, ratio_interval(off_P, diagonal_P, floor=False))


MEASURE = Measure(
    name="kernel_rho_null",
    title="Null test: coupling of own samples",
    unit="fraction of the diagonal",
    section="kernel",
    needs=("kernel_runs", "kernel_members", "kernel_pairs"),
    missing=NO_KERNEL,
    plot=Plot(x="step", y_label="mean K_ij / mean K_ii, own samples"),
    compute=compute,
    signed=True,
)
