"""Pass@k: the chance that at least one of k responses is correct, averaged over problems.

Meaning: coverage. At k = 1 it is the accuracy; at large k it asks whether the model can still solve the problem at
all. Over-sharpening shows as a curve that starts above the base's and ends below it. Scope ``all`` is the whole
problem set, ``task:NAME`` one task of several.
Unit: probability. Estimator: unbiased 1 − C(n−c, k)/C(n, k) per problem; 95 % t interval over problems with a
variance floor. Base and checkpoint share their problems, so compare them by ``pass_at_k_delta``, not by whether two
intervals overlap.
Limits: unknown for k > n. No interval for n/2 < k: there the value hangs on a few samples per problem (k = 1 always
has one). A response that could not be graded counts as not correct: see ``timeout_rate``.
Source: Chen et al. 2021 (arXiv 2107.03374), Eq 1.

>>> from diagnostics.measures._example import tiny_evidence
>>> evidence = tiny_evidence("sampled_counts", "checkpoint_id problem_id n n_correct", [
...     ("base", "q1", 4, 1), ("base", "q2", 4, 2), ("late", "q1", 4, 0), ("late", "q2", 4, 4)], n=4, ks=(1, 2))
>>> [(f.checkpoint_id, f.k, round(f.value, 4)) for f in compute(evidence)]
[('base', 1, 0.375), ('base', 2, 0.6667), ('late', 1, 0.5), ('late', 2, 0.5)]
"""

from __future__ import annotations

import itertools

from diagnostics.measures._counts import has_interval, sampled_counts, scopes, too_few_samples
from diagnostics.measures._findings import checkpoint_ids, known, unknown, without_interval
from diagnostics.measures.contract import Evidence, Measure, Plot
from diagnostics.records.types import Finding
from diagnostics.statistics.intervals import share_interval


def compute(evidence: Evidence) -> list[Finding]:
    """One finding per checkpoint, k and scope; unknown, for ``all`` only, where a problem lacks samples or k > n."""
    counts = sampled_counts(evidence)
    findings = []
    for checkpoint_id, k in itertools.product(checkpoint_ids(evidence), evidence.ks):
        why_not = counts.why.get(checkpoint_id) or too_few_samples(k, counts.least(checkpoint_id))
        if why_not:
            findings.append(unknown(MEASURE, checkpoint_id, why_not, k=k))
            continue
        value_P = counts.pass_at_k(checkpoint_id, k)
        for scope, in_scope_P in scopes(counts.task_P):
            interval = share_interval(value_P[in_scope_P])
            if not has_interval(k, counts.least(checkpoint_id)):
                interval = without_interval(interval)
            findings.append(known(MEASURE, checkpoint_id, interval, scope=scope, k=k))
    return findings


MEASURE = Measure(
    name="pass_at_k",
    title="Pass@k",
    unit="probability",
    section="coverage",
    needs=("sampled_counts",),
    missing="no graded samples",
    plot=Plot(x="k", group="checkpoint", y_label="pass@k", log_x=True, y_range=(0.0, 1.0)),
    compute=compute,
)
