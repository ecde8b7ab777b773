"""Smallest and largest ρ: the extreme couplings that the bounds of [A] rest on.

Meaning: the smallest and the largest cosine between the gradients of two fixed responses: scopes ``min`` and ``max``
``within problems``, of ``related problems``, of ``unrelated problems``.
Unit: cosine, −1 to 1; n counts pairs. No interval: extremes of a fixed set.
Limits: extremes follow single pairs, and two wordings of one solution are nearly one response. More responses make
them more extreme, so compare audits of equal size only. ``kernel_rho`` is the mean.
Source: [A] (arXiv 2601.15609), section 2.3, ρ_min and ρ_max; the cosine is ours.

>>> from diagnostics.measures._kernel_example import gradients, tiny_kernels
>>> rows = [("q1", "panel", True), ("q1", "panel", True), ("q1", "panel", False)]
>>> evidence = tiny_kernels({"base": gradients((2, 0), (0, 3), (-1, 0))}, rows)
>>> [(f.scope, f.value, f.n) for f in compute(evidence)][:2]
[('min within problems', -1.0, 3), ('max within problems', 0.0, 3)]
"""

from __future__ import annotations

from diagnostics.measures._findings import known, unknown
from diagnostics.measures._kernel import NO_KERNEL, Rows
from diagnostics.measures._kernel_findings import number, of_fixed
from diagnostics.measures._kernel_pairs import RELATED, UNRELATED, WITHIN, pair_groups
from diagnostics.measures.contract import Evidence, Measure, Plot
from diagnostics.records.types import Finding

_SCOPES = tuple(f"{end} {scope}" for scope in (WITHIN, RELATED, UNRELATED) for end in ("min", "max"))


def compute(evidence: Evidence) -> list[Finding]:
    """Two findings per checkpoint and kind of pair; unknown where there is no such pair or no kernel."""
    return of_fixed(MEASURE, evidence, _SCOPES, _at)


def _at(checkpoint_id: str, rows: Rows) -> list[Finding]:
    findings = []
    for group in pair_groups(rows):
        scopes = [f"{end} {group.scope}" for end in ("min", "max")]
        if group.why:
            findings += [unknown(MEASURE, checkpoint_id, group.why, scope=scope) for scope in scopes]
            continue
        cosine_E = rows.cosines[group.pairs_NN]
        for scope, value in zip(scopes, (cosine_E.min(), cosine_E.max()), strict=True):
            findings.append(known(MEASURE, checkpoint_id, number(value, len(cosine_E)), scope=scope))
    return findings


MEASURE = Measure(
    name="kernel_rho_extremes",
    title="Coupling ρ, extremes",
    unit="cosine",
    section="kernel",
    needs=("kernel_runs", "kernel_members", "kernel_pairs"),
    missing=NO_KERNEL,
    plot=Plot(x="step", group="scope", y_label="cosine of gradients"),
    compute=compute,
    signed=True,
)
