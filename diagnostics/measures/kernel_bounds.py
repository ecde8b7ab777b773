"""Shifts and their bounds: Theorem 2.4's two bounds beside the exact shift of the same kernel.

Meaning: for the batch that the checkpoint's own samples of a problem make, ``unseen exact`` is the largest exact shift
kᵀK⁺y of a correct response that the batch lacks, and ``unseen bound`` what [A] says it cannot exceed (Case 1);
``seen exact`` is the shift of the own sample that comes nearest to its bound or goes farthest below, and ``seen bound``
what [A] says it cannot fall below (Case 2). Medians over the problems where the bound exists.
Unit: nats of log-probability at β = 1; n counts problems. No interval: a denominator near 0 makes the bound of one
problem huge, which a median of few problems withstands and a mean or its interval does not.
Limits: signs are absorbed and η is 1, as for ``kernel_bound_failures``, which counts where exact and bound are the
wrong way round: medians can hide it.
Source: [A] (arXiv 2601.15609), Theorem 2.4, as printed; the exact shift is its section 2.3.

>>> from diagnostics.measures._kernel_example import gradients, tiny_kernels
>>> rows = [("q", "own", True), ("q", "own", False), ("q", "panel", True)]
>>> evidence = tiny_kernels({"base": gradients((2, 0), (0, -1), (1, 1))}, rows)
>>> [(f.scope, round(f.value, 4)) for f in compute(evidence)]
[('unseen exact', 0.75), ('unseen bound', 0.0), ('seen exact', 0.5), ('seen bound', 0.125)]
"""

from __future__ import annotations

import numpy as np

from diagnostics.measures._batch import NO_ADVANTAGE
from diagnostics.measures._findings import known, unknown
from diagnostics.measures._kernel import NO_KERNEL, NO_OWN, Coupling
from diagnostics.measures._kernel_bounds import seen_case, unseen_case
from diagnostics.measures._kernel_findings import number, of_coupling
from diagnostics.measures.contract import Evidence, Measure, Plot
from diagnostics.records.types import Finding

SCOPES = ("unseen exact", "unseen bound", "seen exact", "seen bound")


def compute(evidence: Evidence) -> list[Finding]:
    """Four findings per checkpoint; unknown where no own samples have an advantage, or no bound exists."""
    return of_coupling(MEASURE, evidence, SCOPES, _at)


def _at(checkpoint_id: str, coupling: Coupling) -> list[Finding]:
    batches = coupling.informative()
    values: dict[str, list[float]] = {scope: [] for scope in SCOPES}
    for batch in batches:
        for name, case in (("unseen", unseen_case(coupling, batch)), ("seen", seen_case(coupling, batch))):
            if case is not None and case.bound is not None:
                values[f"{name} exact"].append(case.exact)
                values[f"{name} bound"].append(case.bound)
    if not len(coupling.own_S):
        why = NO_OWN
    else:
        why = "the printed bound has no positive denominator at any problem" if batches else NO_ADVANTAGE
    return [
        known(MEASURE, checkpoint_id, number(float(np.median(values[scope])), len(values[scope])), scope=scope)
        if values[scope]
        else unknown(MEASURE, checkpoint_id, why, scope=scope)
        for scope in SCOPES
    ]


MEASURE = Measure(
    name="kernel_bounds",
    title="Exact shifts beside the bounds of Theorem 2.4",
    unit="nats",
    section="kernel",
    needs=("kernel_runs", "kernel_members", "kernel_pairs"),
    missing=NO_KERNEL,
    plot=Plot(x="step", group="scope", y_label="shift of log π at β = 1, median over problems"),
    compute=compute,
    signed=True,
)
