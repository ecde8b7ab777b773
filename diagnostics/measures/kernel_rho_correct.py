"""Coupling of correct responses: how far raising one correct response raises the others of its problem.

Meaning: the mean cosine of gradients between the correct fixed responses of a problem (distinct texts: modes, and
correct panel responses). Above 0, learning one solution lifts the others; at 0 or below, the others are on their own
or pay for it. Beside it stands ``kernel_rho_null``, which is 0 for any model.
Unit: cosine, −1 to 1; averaged within a problem first. 95 % t interval over problems with at least two correct
responses; n counts them.
Limits: correct responses share the prompt, the format and often most of their text, and that is coupling too. Where
the modes are in the kernel they are all enumerated correct responses or the first of them; without modes, the correct
ones that the base happened to draw.
Source: Assumption 2.1 of [A] (arXiv 2601.15609), as a number; the null beside it is ours.

>>> from diagnostics.measures._kernel_example import gradients, tiny_kernels
>>> rows = [("q1", "mode", True), ("q1", "panel", True), ("q1", "panel", False)]
>>> evidence = tiny_kernels({"base": gradients((1, 0), (3, 4), (-9, 0))}, rows)
>>> [(f.value, f.n) for f in compute(evidence)]
[(0.6, 1)]
"""

from __future__ import annotations

import numpy as np

from diagnostics.measures._findings import known, unknown
from diagnostics.measures._kernel import NO_KERNEL, Rows
from diagnostics.measures._kernel_findings import of_fixed
from diagnostics.measures._kernel_pairs import pair_groups, pair_mean
from diagnostics.measures.contract import Evidence, Measure, Plot
from diagnostics.records.types import Finding


def compute(evidence: Evidence) -> list[Finding]:
    """One finding per checkpoint; unknown where no problem has two correct responses in the kernel."""
    return of_fixed(MEASURE, evidence, ("all",), _at)


def _at(checkpoint_id: str, rows: Rows) -> list[Finding]:
    correct = rows.take(np.flatnonzero(rows.correct_N))
    within = pair_groups(correct)[0]
    if within.why:
        why = "no problem has two correct responses in the kernel; run the audit with more --kernel-responses"
        return [unknown(MEASURE, checkpoint_id, why)]
    return [known(MEASURE, checkpoint_id, pair_mean(correct.cosines, correct, within))]


MEASURE = Measure(
    name="kernel_rho_correct",
    title="Coupling of correct responses",
    unit="cosine",
    section="kernel",
    needs=("kernel_runs", "kernel_members", "kernel_pairs"),
    missing=NO_KERNEL,
    plot=Plot(x="step", y_label="mean cosine, correct responses of a problem"),
    compute=compute,
    signed=True,
)
