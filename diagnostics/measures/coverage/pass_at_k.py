"""Measures of pass@k from samples, and of its paired difference from the base."""

from __future__ import annotations

from oversharp.diagnostics.measures.contract import Plot, Result, Results
from oversharp.diagnostics.measures.counts import (
    SAMPLED_COUNTS,
    Counts,
    explain_too_few,
    keep_reliable_interval,
    list_task_scopes,
    select_clusters,
)
from oversharp.diagnostics.measures.declare import against_base, per_checkpoint
from oversharp.diagnostics.statistics.intervals import share_interval


@per_checkpoint(
    input=SAMPLED_COUNTS,
    by_k=True,
    title="Pass@k",
    unit="probability",
    section="coverage",
    rank=10,
    plot=Plot(x="k", group="checkpoint", y_label="pass@k", log_x=True, y_range=(0.0, 1.0)),
)
def pass_at_k(counts: Counts, k: int) -> Results:
    """Pass@k: the probability that one of k responses is correct, averaged over problems.

    Meaning: coverage. At k = 1 it is the accuracy. At large k it is the share of problems that the model can solve at
    all. Over-sharpening shows as a curve that starts above the base's curve and ends below it. Scope ``all`` is the
    whole problem set. ``task:NAME`` is one task if there are several.
    Unit: probability. Estimator: the unbiased 1 − C(n−c, k)/C(n, k) of each problem, where c of n samples are correct.
    With a stopping rule, n is the cap. Then the estimate is the share of the orders of a problem's samples that have a
    correct one among the first k, of all orders in which the rule stops at these samples. 95 % t interval over problems
    with a variance floor. Base and checkpoint use the same problems, so compare them by ``pass_at_k_delta``. An overlap
    of their intervals is not a valid test.
    Limits: pass@k is unknown for k > n. For k > n/2 it has no interval, because it depends on a few samples per
    problem; k = 1 always has an interval. A response that could not be graded counts as not correct: see
    ``timeout_rate``.
    Source: Chen et al. 2021 (arXiv 2107.03374), Eq 1; Girshick, Mosteller, Savage 1946 (Ann. Math. Stat. 17:13).

    >>> from oversharp.diagnostics.measures.examples import tiny_evidence
    >>> evidence = tiny_evidence("sampled_counts", "checkpoint_id problem_id n n_correct", [
    ...     ("base", "q1", 4, 1), ("base", "q2", 4, 2), ("late", "q1", 4, 0), ("late", "q2", 4, 4)], n=4, ks=(1, 2))
    >>> [(f.checkpoint_id, f.k, round(f.value, 4)) for f in pass_at_k(evidence)]
    [('base', 1, 0.375), ('base', 2, 0.6667), ('late', 1, 0.5), ('late', 2, 0.5)]
    """
    return _by_task(counts, None, k)


@against_base(
    input=SAMPLED_COUNTS,
    by_k=True,
    title="Pass@k against base",
    unit="probability",
    section="coverage",
    rank=20,
    plot=Plot(x="step", group="k", y_label="pass@k − base"),
    signed=True,
)
def pass_at_k_delta(base: Counts, late: Counts, k: int) -> Results:
    """Pass@k against base: the paired difference, problem by problem.

    Meaning: coverage gained (above 0) or lost (below 0) since the base. A gain at k = 1 together with a loss at large k
    is the signature of over-sharpening. Scope ``all`` is the whole problem set. ``task:NAME`` is one task if there are
    several. The base has no finding.
    Unit: probability (difference, −1 to 1). Estimator: mean over problems of the difference of the unbiased estimates.
    95 % paired t interval over problems with a variance floor.
    Limits: there is one interval per k and checkpoint, without a correction for multiple comparisons, so a single
    interval below 0 does not show a loss. The difference is unknown for k > n. It has no interval for k > n/2, except
    at k = 1.
    Source: Chen et al. 2021 (arXiv 2107.03374), Eq 1. Moderate sharpening ([A] arXiv 2601.15609, Def 2.1) cannot lower
    pass@k at any k.

    >>> from oversharp.diagnostics.measures.examples import tiny_evidence
    >>> evidence = tiny_evidence("sampled_counts", "checkpoint_id problem_id n n_correct", [
    ...     ("base", "q1", 4, 1), ("base", "q2", 4, 2), ("late", "q1", 4, 0), ("late", "q2", 4, 4)], n=4, ks=(1, 2))
    >>> [(f.checkpoint_id, f.k, round(f.value, 4)) for f in pass_at_k_delta(evidence)]
    [('late', 1, 0.125), ('late', 2, -0.1667)]
    """
    return _by_task(late, base, k)


def _by_task(counts: Counts, base: Counts | None, k: int) -> Results:
    """Return pass@k by task, or its difference from ``base`` if given, or the reason if k > n."""
    fewest = counts.fewest if base is None else min(counts.fewest, base.fewest)
    if why_not := explain_too_few(k, fewest):
        return why_not
    value_P = counts.pass_at_k(k) if base is None else counts.pass_at_k(k) - base.pass_at_k(k)
    results: dict[str, Result] = {}
    for scope, in_scope_P in list_task_scopes(counts.task_P):
        interval = share_interval(
            value_P[in_scope_P],
            bounds=(0.0 if base is None else -1.0, 1.0),
            cluster_P=select_clusters(counts.cluster_P, in_scope_P),
        )
        results[scope] = keep_reliable_interval(interval, k, fewest)
    return results
