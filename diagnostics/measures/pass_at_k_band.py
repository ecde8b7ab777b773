"""Pass@k against base, one band around all of it: the paired difference at every checkpoint and every k at once.

Meaning: the same differences as ``pass_at_k_delta``, with an interval that may be read anywhere. Of the intervals
there, one at each checkpoint and k, some miss in most series that did not change; this band holds all the true
differences together in 95 % of series. Below 0 at one place means a loss, however many places were looked at.
Unit: probability (difference, −1 to 1). Estimator: mean over problems of the difference of the unbiased estimates;
simultaneous 95 % band by a Rademacher multiplier bootstrap over problems (999 draws, seed 0) with a variance floor.
n counts problems.
Limits: k are the powers of two up to half of the fewest samples that any problem has, beyond which the spread of pass@k
cannot be estimated, whatever k were asked for. Wider than ``pass_at_k_delta``: its price is power at any single place.
No band for one problem. All checkpoints share the base's samples, so its luck shifts the whole curve within the band.
Source: Chernozhukov, Chetverikov, Kato 2013 (Ann. Stat. 41:2786); pass@k as in Chen et al. 2021 (arXiv 2107.03374).

>>> from oversharp.diagnostics.measures._example import tiny_evidence
>>> evidence = tiny_evidence("sampled_counts", "checkpoint_id problem_id n n_correct", [
...     (c, f"q{i}", 4, hits) for c, hits in (("base", 1), ("late", 0)) for i in range(50)])
>>> [(f.checkpoint_id, f.k, round(f.value, 4), f.high < 0) for f in compute(evidence)]
[('late', 1, -0.25, True), ('late', 2, -0.5, True)]
"""

from __future__ import annotations

import itertools

import numpy as np

from oversharp.diagnostics.measures._changes import changes_of
from oversharp.diagnostics.measures._findings import checkpoint_ids, known, unknown
from oversharp.diagnostics.measures.contract import Evidence, Measure, Plot
from oversharp.diagnostics.records.types import Finding
from oversharp.diagnostics.statistics.band import simultaneous_band
from oversharp.diagnostics.statistics.units import Interval, few_clusters

SEED = 0


def compute(evidence: Evidence) -> list[Finding]:
    """One finding per k and checkpoint but the base; unknown where either lacks samples."""
    changes = changes_of(evidence)
    found: dict[tuple[str, int], Interval] = {}
    if changes.checkpoint_ids:
        n_problems = changes.change_TPK.shape[1]
        why = few_clusters(changes.cluster_P)
        has_band = n_problems > 1 and why is None
        band = simultaneous_band(changes.by_unit, rng=np.random.default_rng(SEED))
        for (t, checkpoint_id), (j, k) in itertools.product(enumerate(changes.checkpoint_ids), enumerate(changes.ks)):
            found[checkpoint_id, k] = Interval(
                mean=float(band.mean_TK[t, j]),
                low=float(band.low_TK[t, j]) if has_band else None,
                high=float(band.high_TK[t, j]) if has_band else None,
                n=n_problems,
                over=changes.over,
                why=why,
            )
    compared = [i for i in checkpoint_ids(evidence) if i in changes.why or i in changes.checkpoint_ids]
    return [
        known(MEASURE, checkpoint_id, found[checkpoint_id, k], k=k)
        if checkpoint_id in changes.checkpoint_ids
        else unknown(MEASURE, checkpoint_id, changes.why[checkpoint_id], k=k)
        for checkpoint_id, k in itertools.product(compared, changes.ks)
    ]


MEASURE = Measure(
    name="pass_at_k_band",
    title="Pass@k against base, one band for all",
    unit="probability",
    section="coverage",
    needs=("sampled_counts",),
    missing="no graded samples",
    plot=Plot(x="step", group="k", y_label="pass@k − base"),
    compute=compute,
    signed=True,
    of_base=False,
)
