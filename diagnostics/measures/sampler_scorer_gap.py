"""Sampler–scorer gap: whether the sampler ran the weights that the scorer ran.

Meaning: the sampler reports the log-probability of what it drew, and teacher forcing computes it again under the same
checkpoint. Scope ``all`` is the mean absolute difference per token, within a problem, then over problems; ``max`` the
largest of any response. Rounding leaves a small gap, larger with another engine or in less than float32. A gap far
above that of the other checkpoints means stale or damaged weights, another tokenizer or another prompt: then no number
of that checkpoint can be trusted.
Unit: nats per token. 95 % t interval over problems; n counts problems, of ``max`` responses, which has no interval.
Limits: equal texts share one teacher-forced score. A text that was drawn as other tokens than were scored, or cut just
before its end token, shows a gap that is no fault: it raises ``max`` more than ``all``. Weights that changed too
little to matter pass.
Source: ours; the samplers' contract asks for log-probabilities at temperature 1 over the full vocabulary.

>>> from diagnostics.measures._example import tiny_evidence
>>> columns = "checkpoint_id problem_id sample_index n_tokens sampler_logp_sum own_logp_sum"
>>> evidence = tiny_evidence("own_logps", columns, [
...     ("base", "q1", 0, 2, -3.0, -3.0), ("base", "q2", 0, 4, -5.0, -6.0)])
>>> [(f.scope, f.value, f.n) for f in compute(evidence)]
[('all', 0.125, 2), ('max', 0.25, 2)]
"""

from __future__ import annotations

from diagnostics.measures._findings import checkpoint_ids
from diagnostics.measures._gaps import gap_findings, unknown_gaps
from diagnostics.measures._own import NO_OWN_LOGPS, own_forced
from diagnostics.measures.contract import Evidence, Measure, Plot
from diagnostics.records.types import Finding


def compute(evidence: Evidence) -> list[Finding]:
    """Two findings per checkpoint, scopes ``all`` and ``max``; unknown where it has not scored all its samples."""
    complete, why = own_forced(evidence, "own_logp_sum")
    findings = []
    for checkpoint_id in checkpoint_ids(evidence):
        if checkpoint_id in why:
            findings += unknown_gaps(MEASURE, checkpoint_id, why[checkpoint_id])
        else:
            rows = complete[checkpoint_id]
            findings += gap_findings(MEASURE, checkpoint_id, rows, "sampler_logp_sum", "own_logp_sum")
    return findings


MEASURE = Measure(
    name="sampler_scorer_gap",
    title="Gap between sampler and scorer",
    unit="nats per token",
    section="health",
    needs=("own_logps",),
    missing=NO_OWN_LOGPS,
    plot=Plot(x="step", group="scope", y_label="|log-probability difference| (nats per token)"),
    compute=compute,
)
