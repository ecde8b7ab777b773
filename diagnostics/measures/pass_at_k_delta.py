"""Pass@k against base: the paired difference, problem by problem.

Meaning: coverage gained (above 0) or lost (below 0) since the base. A gain at k = 1 with a loss at large k is the
signature of over-sharpening. Scope ``all`` is the whole problem set, ``task:NAME`` one task of several. The base
itself has no row.
Unit: probability (difference, −1 to 1). Estimator: mean over problems of the difference of the unbiased estimates;
95 % paired t interval over problems with a variance floor.
Limits: one interval per (k, checkpoint), not adjusted for looking at many: a single interval below 0 is no verdict.
Unknown for k > n; no interval for n/2 < k (k = 1 always has one).
Source: Chen et al. 2021 (arXiv 2107.03374), Eq 1; moderate sharpening ([A] arXiv 2601.15609, Def 2.1) cannot lower
pass@k at any k.

>>> from diagnostics.measures._example import tiny_evidence
>>> evidence = tiny_evidence("sampled_counts", "checkpoint_id problem_id n n_correct", [
...     ("base", "q1", 4, 1), ("base", "q2", 4, 2), ("late", "q1", 4, 0), ("late", "q2", 4, 4)], n=4, ks=(1, 2))
>>> [(f.checkpoint_id, f.k, round(f.value, 4)) for f in compute(evidence)]
[('late', 1, 0.125), ('late', 2, -0.1667)]
"""

from __future__ import annotations

import itertools

from diagnostics.measures._counts import has_interval, sampled_counts, scopes, too_few_samples
from diagnostics.measures._findings import comparisons, known, unknown, without_interval
from diagnostics.measures.contract import Evidence, Measure, Plot
from diagnostics.records.types import Finding
from diagnostics.statistics.intervals import share_interval


def compute(evidence: Evidence) -> list[Finding]:
    """One finding per k, scope and checkpoint but the base; unknown where either lacks samples or k > n."""
    counts = sampled_counts(evidence)
    findings = []
    for (checkpoint_id, incomplete), k in itertools.product(comparisons(evidence, counts.why), evidence.ks):
        least = 0 if incomplete else min(counts.least(checkpoint_id), counts.least(evidence.base_id))
        why_not = incomplete or too_few_samples(k, least)
        if why_not:
            findings.append(unknown(MEASURE, checkpoint_id, why_not, k=k))
            continue
        delta_P = counts.pass_at_k(checkpoint_id, k) - counts.pass_at_k(evidence.base_id, k)
        for scope, in_scope_P in scopes(counts.task_P):
            interval = share_interval(delta_P[in_scope_P], bounds=(-1.0, 1.0))
            if not has_interval(k, least):
                interval = without_interval(interval)
            findings.append(known(MEASURE, checkpoint_id, interval, scope=scope, k=k))
    return findings


MEASURE = Measure(
    name="pass_at_k_delta",
    title="Pass@k against base",
    unit="probability",
    section="coverage",
    needs=("sampled_counts",),
    missing="no graded samples",
    plot=Plot(x="step", group="k", y_label="pass@k − base"),
    compute=compute,
    signed=True,
    of_base=False,
)
