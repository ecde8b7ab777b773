"""Scoring noise: how far rounding alone moves a log-probability.

Meaning: some responses of the panel are teacher-forced twice under the same weights, the second time in float32 and in
batches of another shape. Scope ``all`` is the mean absolute difference per token, within a problem, then over problems;
``max`` the largest of any response. A change of log-probability between checkpoints that is no larger means nothing.
Unit: nats per token. 95 % t interval over problems; n counts problems, of ``max`` responses, which has no interval.
Limits: a lower bound of the numeric error: what both scores share is not in it, and in a float32 audit of a small model
it is often 0. The responses are those of the first problems in the order of their hashes, not of all. For scale:
bfloat16 moved the scores of the built-in task's model by 0.004 nats per token on average, 0.022 at most.
Source: ours; no paper states its floor.

>>> from diagnostics.measures._example import tiny_evidence
>>> columns = "checkpoint_id problem_id response_id n_tokens logp_sum second_logp_sum"
>>> evidence = tiny_evidence("repeated_logps", columns, [
...     ("base", "q1", "a", 2, -3.0, -3.0), ("base", "q2", "b", 4, -5.0, -6.0)])
>>> [(f.scope, f.value, f.n) for f in compute(evidence)]
[('all', 0.125, 2), ('max', 0.25, 2)]
"""

from __future__ import annotations

from diagnostics.measures._findings import checkpoint_ids
from diagnostics.measures._gaps import gap_findings, unknown_gaps
from diagnostics.measures.contract import Evidence, Measure, Plot
from diagnostics.records.types import Finding

NONE_TWICE = "no panel response is scored twice here; run the audit with --panel 4"


def compute(evidence: Evidence) -> list[Finding]:
    """Two findings per checkpoint, scopes ``all`` and ``max``; unknown where no response is scored twice."""
    frame = evidence.frames["repeated_logps"].sort_values(["problem_id", "response_id"])
    rows_of = dict(iter(frame.groupby("checkpoint_id")))
    findings = []
    for checkpoint_id in checkpoint_ids(evidence):
        if checkpoint_id in rows_of:
            rows = rows_of[checkpoint_id]
            findings += gap_findings(MEASURE, checkpoint_id, rows, "logp_sum", "second_logp_sum")
        else:
            findings += unknown_gaps(MEASURE, checkpoint_id, NONE_TWICE)
    return findings


MEASURE = Measure(
    name="scoring_noise",
    title="Scoring noise",
    unit="nats per token",
    section="health",
    needs=("repeated_logps",),
    missing=NONE_TWICE,
    plot=Plot(x="step", group="scope", y_label="|log-probability difference| (nats per token)"),
    compute=compute,
)
