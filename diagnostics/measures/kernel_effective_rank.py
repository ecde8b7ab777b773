"""Effective rank of the kernel: in how many directions the fixed responses can move apart.

Meaning: exp of the entropy of the normalised eigenvalues of the cosine kernel. N responses without any coupling have
rank N; responses that can only move as one have rank 1. Scope ``all``: all fixed responses together; ``within
problems``: those of one problem, averaged over problems with at least two. A fall over training says that the
responses become tied together.
Unit: directions, 1 to the number of responses. ``all`` has no interval and its n counts responses; ``within problems``
has a 95 % t interval over problems and its n counts those.
Limits: grows with the number of responses, so compare audits of equal size only, and checkpoints of one audit.
Source: Roy and Vetterli 2007 (EUSIPCO, The effective rank), on the kernel of [A] (arXiv 2601.15609), section 2.3.

>>> from oversharp.diagnostics.measures._kernel_example import gradients, tiny_kernels
>>> rows = [("q1", "panel", True), ("q1", "panel", True), ("q2", "panel", False)]
>>> evidence = tiny_kernels({"base": gradients((1, 0), (9, 0), (0, 5))}, rows)
>>> [(f.scope, round(f.value, 4), f.n) for f in compute(evidence)]  # eigenvalues 2, 1, 0 of 3
[('all', 1.8899, 3), ('within problems', 1.0, 1)]
"""

from __future__ import annotations

import math

import numpy as np

from oversharp.diagnostics.measures._findings import known, unknown
from oversharp.diagnostics.measures._kernel import NO_KERNEL, Rows
from oversharp.diagnostics.measures._kernel_findings import number, of_fixed
from oversharp.diagnostics.measures._kernel_pairs import NO_TWO, WITHIN
from oversharp.diagnostics.measures.contract import Evidence, Measure, Plot
from oversharp.diagnostics.records.types import Finding
from oversharp.diagnostics.statistics.intervals import mean_interval
from oversharp.diagnostics.theory.coupling import effective_rank


def compute(evidence: Evidence) -> list[Finding]:
    """Two findings per checkpoint; ``within problems`` is unknown where no problem has two responses."""
    return of_fixed(MEASURE, evidence, ("all", WITHIN), _at)


def _at(checkpoint_id: str, rows: Rows) -> list[Finding]:
    whole = known(MEASURE, checkpoint_id, number(effective_rank(rows.cosines), len(rows)))
    some = [own for own in rows.by_problem() if len(own) > 1]
    if not some:
        return [whole, unknown(MEASURE, checkpoint_id, NO_TWO, scope=WITHIN)]
    rank_P = np.array([effective_rank(own.cosines) for own in some])
    return [whole, known(MEASURE, checkpoint_id, mean_interval(rank_P, bounds=(1.0, math.inf)), scope=WITHIN)]


MEASURE = Measure(
    name="kernel_effective_rank",
    title="Effective rank of the kernel",
    unit="directions",
    section="kernel",
    needs=("kernel_runs", "kernel_members", "kernel_pairs"),
    missing=NO_KERNEL,
    plot=Plot(x="step", group="scope", y_label="effective rank"),
    compute=compute,
)
