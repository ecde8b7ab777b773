"""Problems kept: solved at least once in n samples by the base and now.

Meaning: the problems that stayed within reach. What kept, lost and gained leave of 1 are the problems that neither
solves. The papers call a problem a query, hence the name.
Unit: share of problems. 95 % t interval over problems with a variance floor. The base itself has no row.
Limits: the value depends on n, which is the same for both.
Source: coverage shrinkage, [C] (The Reasoning Boundary Paradox), section 4.2; the counting rule is ours.

>>> from diagnostics.measures._example import tiny_evidence
>>> evidence = tiny_evidence("problem_counts", "checkpoint_id problem_id n n_correct", [
...     ("base", "q1", 4, 1), ("base", "q2", 4, 2), ("base", "q3", 4, 0), ("base", "q4", 4, 3),
...     ("late", "q1", 4, 0), ("late", "q2", 4, 4), ("late", "q3", 4, 1), ("late", "q4", 4, 4)], n=4)
>>> [(f.checkpoint_id, f.value, f.n) for f in compute(evidence)]
[('late', 0.5, 4)]
"""

from __future__ import annotations

import numpy as np

from diagnostics.measures._counts import common_counts
from diagnostics.measures._findings import comparisons, known, unknown
from diagnostics.measures.contract import Evidence, Measure, Plot
from diagnostics.records.types import Finding
from diagnostics.statistics.intervals import share_interval


def compute(evidence: Evidence) -> list[Finding]:
    """One finding per checkpoint but the base; unknown where a problem of either lacks samples."""
    counts = common_counts(evidence)
    findings = []
    for checkpoint_id, why_not in comparisons(evidence, counts.why):
        if why_not:
            findings.append(unknown(MEASURE, checkpoint_id, why_not))
            continue
        before_P, now_P = counts.correct_P[evidence.base_id], counts.correct_P[checkpoint_id]
        kept_P = (before_P > 0) & (now_P > 0)
        findings.append(known(MEASURE, checkpoint_id, share_interval(kept_P.astype(np.float64))))
    return findings


MEASURE = Measure(
    name="problems_kept",
    title="Problems kept",
    unit="share of problems",
    section="problems",
    needs=("problem_counts",),
    missing="no graded samples",
    plot=Plot(x="step", y_label="share of problems", y_range=(0.0, 1.0)),
    compute=compute,
    of_base=False,
)
