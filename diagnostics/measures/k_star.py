"""k*: the number of attempts from which on a checkpoint solves fewer problems than the base.

Meaning: with fewer than k* attempts per problem the checkpoint is ahead, with more the base is. A k* that falls over
training is coverage spent for accuracy; k* = 1 is worse at any number of attempts.
Unit: samples (attempts per problem), 1 or more. Estimator: where the mean over problems of the difference of unbiased
pass@k falls below 0 and stays there, interpolated on log₂ k. The 95 % interval over problems holds every k at which
that of the mean difference (paired t with a variance floor) holds 0, from the first to the last. n counts problems.
Limits: k are the powers of two up to half of the fewest samples that any problem has. Where pass@k does not fall below
the base in this range, k* is unknown and ``low`` alone bounds it; an upper bound beyond the range is missing. A mean
that stays near 0 crosses it by chance: only a verdict says whether something was lost. With few problems the interval
is wide, often all of the range.
Source: the crossing of pass@k curves is Yue et al. 2025 (arXiv 2504.13837), Fig 1; the interval is ours.

>>> from oversharp.diagnostics.measures._example import tiny_evidence
>>> evidence = tiny_evidence("sampled_counts", "checkpoint_id problem_id n n_correct", [
...     (c, f"q{i}", 8, hits) for c, even, odd in (("base", 2, 2), ("late", 7, 0), ("up", 4, 4))
...     for i, hits in enumerate([even, odd] * 20)], n=8)
>>> [(f.checkpoint_id, f.value and round(f.value, 2), f.why) for f in compute(evidence)]
[('late', 2.16, None), ('up', None, 'pass@k does not fall below the base up to k = 4')]
"""

from __future__ import annotations

from dataclasses import replace

from oversharp.diagnostics.measures._changes import Changes, changes_of
from oversharp.diagnostics.measures._findings import checkpoint_ids, unknown
from oversharp.diagnostics.measures.contract import Evidence, Measure, Plot
from oversharp.diagnostics.records.types import Finding
from oversharp.diagnostics.statistics.crossing import Crossing, crossings
from oversharp.diagnostics.statistics.units import few_clusters


def compute(evidence: Evidence) -> list[Finding]:
    """One finding per checkpoint but the base; unknown where either lacks samples or pass@k does not cross."""
    changes = changes_of(evidence)
    findings = {i: unknown(MEASURE, i, why_not) for i, why_not in changes.why.items()}
    if changes.checkpoint_ids:
        found = crossings(changes.by_unit, changes.ks)
        for checkpoint_id, k_star in zip(changes.checkpoint_ids, found, strict=True):
            findings[checkpoint_id] = _finding(checkpoint_id, k_star, changes)
    return [findings[i] for i in checkpoint_ids(evidence) if i in findings]


def _finding(checkpoint_id: str, k_star: Crossing, changes: Changes) -> Finding:
    n_problems = changes.change_TPK.shape[1]
    if k_star.value is None:
        why = f"pass@k does not fall below the base up to k = {changes.ks[-1]}"
        finding = unknown(MEASURE, checkpoint_id, why)
    else:
        finding = Finding(checkpoint_id=checkpoint_id, measure=MEASURE.name, unit=MEASURE.unit, value=k_star.value)
    if few := few_clusters(changes.cluster_P):
        finding = replace(finding, why_no_interval=few)
    elif n_problems > 1 and (k_star.low, k_star.high) != (None, None):
        finding = replace(finding, low=k_star.low, high=k_star.high, interval_over=changes.over)
    return replace(finding, n=n_problems)


MEASURE = Measure(
    name="k_star",
    title="k*, where pass@k falls below the base",
    unit="samples",
    section="coverage",
    needs=("sampled_counts",),
    missing="no graded samples",
    plot=Plot(x="step", y_label="k*"),
    compute=compute,
    of_base=False,
)
