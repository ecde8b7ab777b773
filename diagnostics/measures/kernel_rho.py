"""Coupling ρ: how far the gradients of two responses point the same way.

Meaning: the mean cosine K_ij/√(K_ii·K_jj) between fixed responses. Positive: raising one raises the other; 0: they move
apart from each other. Scopes: two responses ``within problems``, of ``related problems`` (one group), of ``unrelated
problems`` (different groups). Over-sharpening spreads between problems only as far as this is above 0.
Unit: cosine, −1 to 1. Averaged within a problem (or a pair of problems), then over these. 95 % interval over problems:
Student's t within problems, the delete-one-problem jackknife between them. n counts problems.
Limits: correct and wrong responses are mixed here, and a step on a wrong one is taken away from it:
``kernel_rho_correct`` keeps to the correct ones. Whatever all responses share (the language, the format, the prompt of
one problem) is coupling too.
Source: [A] (arXiv 2601.15609), section 2.3, ρ; the cosine is ours, because K_ij grows with the lengths.

>>> from diagnostics.measures._kernel_example import gradients, tiny_kernels
>>> rows = [("q1", "panel", True), ("q1", "panel", True), ("q2", "panel", True)]
>>> evidence = tiny_kernels({"base": gradients((2, 0), (3, 0), (0, 1))}, rows)
>>> [(f.scope, f.value, f.why) for f in compute(evidence)][:2]
[('within problems', 1.0, None), ('related problems', 0.0, None)]
>>> compute(evidence)[2].why
'all problems are one group; give them a field "group" in --problems to tell related from unrelated'
"""

from __future__ import annotations

from diagnostics.measures._findings import known, unknown
from diagnostics.measures._kernel import NO_KERNEL, Rows
from diagnostics.measures._kernel_findings import of_fixed
from diagnostics.measures._kernel_pairs import RELATED, UNRELATED, WITHIN, pair_groups, pair_mean
from diagnostics.measures.contract import Evidence, Measure, Plot
from diagnostics.records.types import Finding


def compute(evidence: Evidence) -> list[Finding]:
    """One finding per checkpoint and kind of pair; unknown where there is no such pair or no kernel."""
    return of_fixed(MEASURE, evidence, (WITHIN, RELATED, UNRELATED), _at)


def _at(checkpoint_id: str, rows: Rows) -> list[Finding]:
    return [
        unknown(MEASURE, checkpoint_id, group.why, scope=group.scope)
        if group.why
        else known(MEASURE, checkpoint_id, pair_mean(rows.cosines, rows, group), scope=group.scope)
        for group in pair_groups(rows)
    ]


MEASURE = Measure(
    name="kernel_rho",
    title="Coupling ρ",
    unit="cosine",
    section="kernel",
    needs=("kernel_runs", "kernel_members", "kernel_pairs"),
    missing=NO_KERNEL,
    plot=Plot(x="step", group="scope", y_label="mean cosine of gradients"),
    compute=compute,
    signed=True,
)
