"""k*, at which the pass@k curve falls below the base's."""

from __future__ import annotations

from collections.abc import Iterator

from oversharp.diagnostics.measures.contract import Evidence, Plot, Result, Results, Unknown
from oversharp.diagnostics.measures.counts import NO_SAMPLES
from oversharp.diagnostics.measures.coverage.changes import Changes, load_changes
from oversharp.diagnostics.measures.declare import per_series
from oversharp.diagnostics.statistics.crossing import Crossing, crossings
from oversharp.diagnostics.statistics.units import Interval, few_clusters


@per_series(
    needs=("sampled_counts",),
    missing=NO_SAMPLES,
    title="k*, where pass@k falls below the base",
    unit="samples",
    section="coverage",
    rank=50,
    plot=Plot(x="step", y_label="k*"),
    of_base=False,
)
def k_star(evidence: Evidence) -> Iterator[tuple[str, Results]]:
    """k*: the number of attempts above which a checkpoint solves fewer problems than the base.

    Meaning: with fewer than k* attempts per problem the checkpoint is better, with more the base is. If k* falls over
    training, coverage was traded for accuracy; at k* = 1 the checkpoint is worse at any number of attempts.
    Unit: samples (attempts per problem), 1 or more. Estimator: where the mean over problems of the difference of
    unbiased pass@k falls below 0 for good, interpolated on log₂ k. The 95 % interval over problems runs from the first
    to the last k at which the interval of the mean difference (paired t with a variance floor) contains 0. n counts
    problems.
    Limits: k are the powers of two up to half of the fewest samples of any problem. If pass@k does not fall below the
    base in this range, k* is unknown and ``low`` alone bounds it; an upper bound beyond the range is missing. A mean
    near 0 crosses it by chance: only a verdict says whether something was lost. With few problems the interval is
    wide, often the whole range.
    Source: the crossing of pass@k curves is Yue et al. 2025 (arXiv 2504.13837), Fig 1; the interval is ours.

    >>> from oversharp.diagnostics.measures.examples import tiny_evidence
    >>> evidence = tiny_evidence("sampled_counts", "checkpoint_id problem_id n n_correct", [
    ...     (c, f"q{i}", 8, hits) for c, even, odd in (("base", 2, 2), ("late", 7, 0), ("up", 4, 4))
    ...     for i, hits in enumerate([even, odd] * 20)], n=8)
    >>> [(f.checkpoint_id, f.value and round(f.value, 2), f.why) for f in k_star(evidence)]
    [('late', 2.16, None), ('up', None, 'pass@k does not fall below the base up to k = 4')]
    """
    changes = load_changes(evidence)
    results: dict[str, Result] = dict(changes.why)
    if changes.checkpoint_ids:
        all_crossings = crossings(changes.by_unit, changes.ks)
        results |= {
            checkpoint_id: _result(crossing, changes)
            for checkpoint_id, crossing in zip(changes.checkpoint_ids, all_crossings, strict=True)
        }
    for checkpoint_id in evidence.checkpoint_ids:
        if checkpoint_id in results:
            yield checkpoint_id, results[checkpoint_id]


def _result(crossing: Crossing, changes: Changes) -> Result:
    n_problems = changes.change_TPK.shape[1]
    few = few_clusters(changes.cluster_P)
    has_interval = n_problems > 1 and few is None
    low, high = (crossing.low, crossing.high) if has_interval else (None, None)
    if crossing.value is not None:
        return Interval(mean=crossing.value, low=low, high=high, n=n_problems, over=changes.over, why=few)
    why = f"pass@k does not fall below the base up to k = {changes.ks[-1]}"
    return Unknown(why=why, low=low, high=high, n=n_problems, over=changes.over, why_no_interval=few)
