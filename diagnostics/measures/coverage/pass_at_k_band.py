"""Simultaneous band of the paired difference of pass@k at every checkpoint and every k."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from oversharp.diagnostics.measures.contract import Evidence, Plot, Result, Results
from oversharp.diagnostics.measures.counts import NO_SAMPLES
from oversharp.diagnostics.measures.coverage.changes import load_changes
from oversharp.diagnostics.measures.declare import per_series
from oversharp.diagnostics.statistics.band import simultaneous_band
from oversharp.diagnostics.statistics.units import Interval, few_clusters

SEED = 0


@per_series(
    needs=("sampled_counts",),
    missing=NO_SAMPLES,
    title="Pass@k against base, one band for all",
    unit="probability",
    section="coverage",
    rank=30,
    plot=Plot(x="step", group="k", y_label="pass@k − base"),
    signed=True,
    of_base=False,
)
def pass_at_k_band(evidence: Evidence) -> Iterator[tuple[str, Results]]:
    """Pass@k against base in one band: the paired differences at every checkpoint and every k at once.

    Meaning: the same differences as ``pass_at_k_delta``, with simultaneous intervals. In most series without any
    change, some of those separate intervals exclude 0; this band contains all true differences in 95 % of series. If it
    is below 0 anywhere, there is a loss, with no further correction.
    Unit: probability (difference, −1 to 1). Estimator: mean over problems of the difference of the unbiased estimates;
    simultaneous 95 % band by a Rademacher multiplier bootstrap over problems (999 draws, seed 0) with a variance
    floor. n counts problems.
    Limits: k are the powers of two up to half of the fewest samples of any problem, beyond which the variance of pass@k
    cannot be estimated, regardless of the k that the user set. The band is wider than ``pass_at_k_delta``: it has less
    power at any single place. No band for one problem. All checkpoints share the base's samples, so its sampling error
    shifts the whole curve within the band.
    Source: Chernozhukov, Chetverikov, Kato 2013 (Ann. Stat. 41:2786); pass@k as in Chen et al. 2021 (arXiv
    2107.03374).

    >>> from oversharp.diagnostics.measures.examples import tiny_evidence
    >>> evidence = tiny_evidence("sampled_counts", "checkpoint_id problem_id n n_correct", [
    ...     (c, f"q{i}", 4, hits) for c, hits in (("base", 1), ("late", 0)) for i in range(50)])
    >>> [(f.checkpoint_id, f.k, round(f.value, 4), f.high < 0) for f in pass_at_k_band(evidence)]
    [('late', 1, -0.25, True), ('late', 2, -0.5, True)]
    """
    changes = load_changes(evidence)
    results: dict[str, dict[int, Result]] = {i: dict.fromkeys(changes.ks, why) for i, why in changes.why.items()}
    if changes.checkpoint_ids:
        n_problems = changes.change_TPK.shape[1]
        why = few_clusters(changes.cluster_P)
        has_band = n_problems > 1 and why is None
        band = simultaneous_band(changes.by_unit, rng=np.random.default_rng(SEED))
        for t, checkpoint_id in enumerate(changes.checkpoint_ids):
            results[checkpoint_id] = {
                k: Interval(
                    mean=float(band.mean_TK[t, j]),
                    low=float(band.low_TK[t, j]) if has_band else None,
                    high=float(band.high_TK[t, j]) if has_band else None,
                    n=n_problems,
                    over=changes.over,
                    why=why,
                )
                for j, k in enumerate(changes.ks)
            }
    for checkpoint_id in evidence.checkpoint_ids:
        yield checkpoint_id, results.get(checkpoint_id, {})
