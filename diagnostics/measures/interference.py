"""Interference against base: how the log-probability of the base's correct responses has changed.

Meaning: Δ⁺. Correct responses drawn once from the base, apart from the audit's samples, are scored under every
checkpoint; below 0, training made solutions that the base had less likely. Scope ``all`` is the whole problem set,
``task:NAME`` one task of several, ``base 0`` the problems that no base sample solved, ``base 0-10%`` … ``base 90-100%``
those with a base success rate above the one and up to the other bound. These rates come from other samples than the
panel. The base itself has no row.
Unit: nats per response: the sum over its tokens. Estimator: mean over the correct panel responses of a problem, then
over problems (Def 4.1 averages over pairs of problem and response; problems with many correct responses would weigh
more). 95 % paired t interval over problems; n counts problems with a correct panel response.
Limits: no test of Def 2.1 of [A]: a mode keeps its probability while its wordings trade places, and one nat of such
phrasing noise makes Δ⁺ negative in nearly all unchanged modes. The panel is drawn at the panel temperature, which
favours what the base finds likely where it is below 1. Long responses change by more nats. Intervals of single
checkpoints are not adjusted for looking at many.
Source: [C] (The Reasoning Boundary Paradox), Def 4.1, Eq 5, with the base as μ and all training as the update.

>>> from dataclasses import replace
>>> from diagnostics.measures._example import tiny_evidence
>>> panel = tiny_evidence("panel_logps", "checkpoint_id problem_id sample_index correct logp_sum n_tokens", [
...     ("base", "q1", 0, True, -8.0, 9), ("base", "q1", 1, False, -7.0, 9), ("base", "q2", 0, True, -5.0, 9),
...     ("base", "q2", 1, True, -4.0, 9), ("late", "q1", 0, True, -9.0, 9), ("late", "q1", 1, False, -1.0, 9),
...     ("late", "q2", 0, True, -5.5, 9), ("late", "q2", 1, True, -7.5, 9)])
>>> counts = tiny_evidence("sampled_counts", "checkpoint_id problem_id n n_correct", [
...     ("base", "q1", 4, 0), ("base", "q2", 4, 3), ("late", "q1", 4, 0), ("late", "q2", 4, 4)])
>>> evidence = replace(panel, frames={**panel.frames, **counts.frames})
>>> [(f.scope, f.value, f.n) for f in compute(evidence)]  # q2: (−0.5 − 3.5) / 2 = −2
[('all', -1.5, 2), ('base 0', -1.0, 1), ('base 70-80%', -2.0, 1)]
"""

from __future__ import annotations

from diagnostics.measures._findings import comparisons, unknown
from diagnostics.measures._interference import direction_findings
from diagnostics.measures._panel import NO_PANEL, base_success_scopes, panel_of
from diagnostics.measures.contract import Evidence, Measure, Plot
from diagnostics.records.types import Finding


def compute(evidence: Evidence) -> list[Finding]:
    """One finding per scope and checkpoint but the base; unknown where either has scored a part of the panel only."""
    panel = panel_of(evidence)
    pairs = [(evidence.base_id, checkpoint_id, why) for checkpoint_id, why in comparisons(evidence, panel.why)]
    if not pairs or not panel.logp_R:
        return direction_findings(MEASURE, panel, pairs, [])
    by_success, why_not = base_success_scopes(evidence, panel.problem_ids)
    findings = direction_findings(MEASURE, panel, pairs, [*panel.task_scopes(), *by_success])
    if why_not:
        findings += [unknown(MEASURE, after_id, why_not, scope="base success") for _, after_id, _ in pairs]
    return findings


MEASURE = Measure(
    name="interference",
    title="Interference against base",
    unit="nats per response",
    section="interference",
    needs=("panel_logps", "sampled_counts"),
    missing=NO_PANEL,
    plot=Plot(x="step", group="scope", y_label="Δ⁺ (nats per response)"),
    compute=compute,
    signed=True,
    of_base=False,
)
