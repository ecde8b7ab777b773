"""Measures of reliability: all (Pass^k) or a share (G-Pass@k) of k responses are correct."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from jaxtyping import Float

from oversharp.diagnostics.measures.contract import Plot, Result, Results
from oversharp.diagnostics.measures.counts import (
    EQUAL_COUNTS,
    Counts,
    keep_reliable_interval,
    look_up_by_counts,
)
from oversharp.diagnostics.measures.declare import per_checkpoint
from oversharp.diagnostics.statistics.intervals import share_interval
from oversharp.diagnostics.statistics.pass_at_k import at_least_table, mean_above_half_table

#: Scope of the mean over all shares above one half.
MEAN = "mean"
SHARES = (25, 50, 75)


@per_checkpoint(
    input=EQUAL_COUNTS,
    by_k=True,
    title="Pass^k",
    unit="probability",
    section="coverage",
    plot=Plot(x="k", group="checkpoint", y_label="pass^k", log_x=True, y_range=(0.0, 1.0)),
)
def pass_hat_k(counts: Counts, k: int) -> Result:
    """Pass^k: the probability that all of k responses are correct, averaged over problems.

    Meaning: reliability. At k = 1 both pass^k and pass@k are the accuracy. As k grows, pass@k rises and pass^k falls.
    Sharpening raises pass^k. If coverage fell while pass^k rose, the model became reliable on fewer problems.
    Unit: probability. Estimator: the unbiased C(c, k)/C(n, k) of each problem, where c of n samples are correct. 95 % t
    interval over problems with a variance floor.
    Limits: pass^k is unknown for k > n, and has no interval for k > n/2. It assumes independent samples, and not
    retries after a failure. A response that could not be graded counts as not correct.
    Source: Yao et al. 2024 (arXiv 2406.12045), pass^k.

    >>> from oversharp.diagnostics.measures.examples import tiny_evidence
    >>> evidence = tiny_evidence("sampled_counts", "checkpoint_id problem_id n n_correct", [
    ...     ("base", "q1", 4, 1), ("base", "q2", 4, 3), ("late", "q1", 4, 0), ("late", "q2", 4, 4)], n=4, ks=(1, 2))
    >>> [(f.checkpoint_id, f.k, round(f.value, 4)) for f in pass_hat_k(evidence)]
    [('base', 1, 0.5), ('base', 2, 0.25), ('late', 1, 0.5), ('late', 2, 0.5)]
    """
    return _estimate(counts, k, partial(at_least_table, k=k, least=k))


@per_checkpoint(
    input=EQUAL_COUNTS,
    by_k=True,
    scopes=(*(f"tau {percent / 100:g}" for percent in SHARES), MEAN),
    title="G-Pass@k",
    unit="probability",
    section="coverage",
    plot=Plot(x="step", group="scope", y_label="G-Pass@k", y_range=(0.0, 1.0)),
)
def g_pass_at_k(counts: Counts, k: int) -> Results:
    """G-Pass@k: the probability that at least a share τ of k responses is correct.

    Meaning: a value between pass@k (one of k) and pass^k (all of k). Scopes are ``tau 0.25``, ``tau 0.5``, ``tau
    0.75``, and ``mean``, which is the mean over shares above one half (mG-Pass@k). Training that only sharpens raises
    G-Pass@k for large τ.
    Unit: probability. Estimator: the unbiased hypergeometric probability that at least ⌈τ k⌉ of k samples are correct,
    for each problem with c of n correct samples. 95 % t interval over problems with a variance floor.
    Limits: for small k, several τ require the same number of correct responses. ``mean`` is unknown at k = 1. G-Pass@k
    is unknown for k > n, and has no interval for k > n/2. A response that could not be graded counts as not correct.
    Source: Liu et al. 2024 (arXiv 2412.13147), G-Pass@k and mG-Pass@k.

    >>> from oversharp.diagnostics.measures.examples import tiny_evidence
    >>> evidence = tiny_evidence("sampled_counts", "checkpoint_id problem_id n n_correct", [
    ...     ("base", "q1", 8, 2), ("base", "q2", 8, 6)], n=8, ks=(4,))
    >>> [(f.scope, round(f.value, 4)) for f in g_pass_at_k(evidence)]
    [('tau 0.25', 0.8929), ('tau 0.5', 0.6071), ('tau 0.75', 0.3929), ('mean', 0.25)]
    """
    # in integers, because as floats 0.55 * 20 is more than 11
    results = {
        f"tau {percent / 100:g}": _estimate(counts, k, partial(at_least_table, k=k, least=-(-percent * k // 100)))
        for percent in SHARES
    }
    if k < 2 and counts.fewest >= k:
        return results | {MEAN: "the mean over shares above one half needs k of 2 or more"}
    return results | {MEAN: _estimate(counts, k, partial(mean_above_half_table, k=k))}


def _estimate(counts: Counts, k: int, table: Callable[[int], Float[np.ndarray, " correct"]]) -> Result:
    if why_not := counts.explain_too_few(k):
        return why_not
    value_P = look_up_by_counts(counts.n_P, counts.correct_P, table)
    return keep_reliable_interval(share_interval(value_P, cluster_P=counts.cluster_P), k, counts.fewest)
