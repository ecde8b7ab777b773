"""Measures of the change of pass@k since the base: a simultaneous band, and k*."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float, Int

from oversharp.diagnostics.measures.contract import Evidence, Plot, Result, Results, Unknown
from oversharp.diagnostics.measures.counts import NO_SAMPLES, load_sampled_counts
from oversharp.diagnostics.measures.declare import compare_with_base, per_series
from oversharp.diagnostics.statistics.band import simultaneous_band
from oversharp.diagnostics.statistics.crossing import Crossing, crossings
from oversharp.diagnostics.statistics.keys import inference_ks
from oversharp.diagnostics.statistics.units import Interval, by_cluster, few_clusters, named_clusters

SEED = 0


@dataclass(frozen=True, kw_only=True)
class _Changes:
    """Differences of pass@k from the base, for all complete checkpoints and ascending ``ks``.

    ``checkpoint_ids`` are the complete checkpoints. ``why`` has the reason for each other checkpoint, except the base.
    ``cluster_P`` has the cluster of each problem if the audit has clusters.
    """

    ks: tuple[int, ...]
    checkpoint_ids: tuple[str, ...]
    change_TPK: Float[np.ndarray, "checkpoint problem k"]
    why: Mapping[str, str]
    cluster_P: Int[np.ndarray, " problem"] | None = None

    @property
    def over(self) -> Literal["problems", "clusters"]:
        """The independent units over which intervals are computed."""
        return "problems" if self.cluster_P is None else "clusters"

    @property
    def by_unit(self) -> Float[np.ndarray, "checkpoint unit k"]:
        """The changes of each independent unit."""
        return np.stack([by_cluster(change_PK, self.cluster_P) for change_PK in self.change_TPK])


def _load_changes(evidence: Evidence) -> _Changes:
    """Compute the differences for k up to half of the smallest number of samples of any problem."""
    counts, why = load_sampled_counts(evidence)
    compared = dict(compare_with_base(evidence, why))
    complete = [checkpoint_id for checkpoint_id, why_not in compared.items() if not why_not]
    cluster_P = None
    if not complete:
        ks, change_TPK = inference_ks(evidence.n), np.empty((0, 0, 0))
    else:
        base = counts[evidence.base_id]
        cluster_P = named_clusters(base.cluster_P)
        ks = inference_ks(min(counts[checkpoint_id].fewest for checkpoint_id in (evidence.base_id, *complete)))
        base_PK = np.stack([base.pass_at_k(k) for k in ks], axis=-1)
        change_TPK = np.stack(
            [np.stack([counts[i].pass_at_k(k) for k in ks], axis=-1) - base_PK for i in complete],
        )
    return _Changes(
        ks=ks,
        checkpoint_ids=tuple(complete),
        change_TPK=change_TPK,
        why={checkpoint_id: why_not for checkpoint_id, why_not in compared.items() if why_not},
        cluster_P=cluster_P,
    )


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
    """Pass@k against base in one band: the paired differences at all checkpoints and k.

    Meaning: the same differences as in ``pass_at_k_delta``, with simultaneous intervals. With separate intervals, some
    exclude 0 by chance in most series, even if nothing changed. This band contains all true differences in 95 % of
    series. If it is below 0 anywhere, pass@k fell, and no further correction for multiple comparisons is needed.
    Unit: probability (difference, −1 to 1). Estimator: mean over problems of the difference of the unbiased estimates.
    The simultaneous 95 % band is from a Rademacher multiplier bootstrap over problems (999 draws, seed 0) with a
    variance floor. n counts problems.
    Limits: k are the powers of two up to half of the smallest number of samples of any problem (of the cap, with a
    stopping rule), also if the user set other k. For larger k the variance of pass@k cannot be estimated. The band is
    wider than the intervals of ``pass_at_k_delta``, so it has less power at any single checkpoint and k. There is no
    band for a single problem. All checkpoints are compared with the same base samples, so the sampling error of the
    base shifts the whole curve within the band.
    Source: Chernozhukov, Chetverikov, Kato 2013 (Ann. Stat. 41:2786); pass@k as in Chen et al. 2021 (arXiv 2107.03374).

    >>> from oversharp.diagnostics.measures.examples import tiny_evidence
    >>> evidence = tiny_evidence("sampled_counts", "checkpoint_id problem_id n n_correct", [
    ...     (c, f"q{i}", 4, hits) for c, hits in (("base", 1), ("late", 0)) for i in range(50)])
    >>> [(f.checkpoint_id, f.k, round(f.value, 4), f.high < 0) for f in pass_at_k_band(evidence)]
    [('late', 1, -0.25, True), ('late', 2, -0.5, True)]
    """
    changes = _load_changes(evidence)
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

    Meaning: with fewer than k* attempts per problem the checkpoint is better than the base. With more than k* attempts
    the base is better. If k* falls over training, coverage was traded for accuracy. At k* = 1 the checkpoint is worse
    for any number of attempts.
    Unit: samples (attempts per problem), at least 1. Estimator: the k above which the mean difference of the unbiased
    pass@k stays below 0, interpolated on log₂ k. The 95 % interval over problems extends from the first to the last k
    at which the interval of the mean difference (paired t with a variance floor) contains 0. n counts problems.
    Limits: k are the powers of two up to half of the smallest number of samples of any problem (of the cap, with a
    stopping rule). If pass@k does not fall below the base in this range, k* is unknown and only ``low`` is given. An
    upper bound beyond the range is missing. A mean difference near 0 crosses 0 by chance, so use the verdict to decide
    whether something was lost. With few problems the interval is wide, and often covers the whole range.
    Source: the crossing of pass@k curves is in Yue et al. 2025 (arXiv 2504.13837), Fig 1; the interval is ours.

    >>> from oversharp.diagnostics.measures.examples import tiny_evidence
    >>> evidence = tiny_evidence("sampled_counts", "checkpoint_id problem_id n n_correct", [
    ...     (c, f"q{i}", 8, hits) for c, even, odd in (("base", 2, 2), ("late", 7, 0), ("up", 4, 4))
    ...     for i, hits in enumerate([even, odd] * 20)], n=8)
    >>> [(f.checkpoint_id, f.value and round(f.value, 2), f.why) for f in k_star(evidence)]
    [('late', 2.16, None), ('up', None, 'pass@k does not fall below the base up to k = 4')]
    """
    changes = _load_changes(evidence)
    results: dict[str, Result] = dict(changes.why)
    if changes.checkpoint_ids:
        all_crossings = crossings(changes.by_unit, changes.ks)
        results |= {
            checkpoint_id: _locate_crossing(crossing, changes)
            for checkpoint_id, crossing in zip(changes.checkpoint_ids, all_crossings, strict=True)
        }
    for checkpoint_id in evidence.checkpoint_ids:
        if checkpoint_id in results:
            yield checkpoint_id, results[checkpoint_id]


def _locate_crossing(crossing: Crossing, changes: _Changes) -> Result:
    n_problems = changes.change_TPK.shape[1]
    few = few_clusters(changes.cluster_P)
    has_interval = n_problems > 1 and few is None
    low, high = (crossing.low, crossing.high) if has_interval else (None, None)
    if crossing.value is not None:
        return Interval(mean=crossing.value, low=low, high=high, n=n_problems, over=changes.over, why=few)
    why = f"pass@k does not fall below the base up to k = {changes.ks[-1]}"
    return Unknown(why=why, low=low, high=high, n=n_problems, over=changes.over, why_no_interval=few)
