"""Resampling units of intervals: problems, or clusters of related problems."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
from jaxtyping import Float, Int
from scipy.special import stdtrit

from oversharp.diagnostics.records.amounts import plural

#: With fewer clusters there is no inference on the population, because their variance cannot be estimated.
FEW_CLUSTERS = 10
#: Clusters are unequal if their effective number is below this share of their number. Unequal clusters need the second
#: number.
_UNEQUAL, _FEW_UNEQUAL = 0.75, 30
#: Reason for intervals that are not implemented for clusters.
NOT_RELATED = "the interval assumes independent problems, and these have clusters"


@dataclass(frozen=True, kw_only=True, slots=True)
class Interval:
    """Interval of a mean over ``n`` problems; its bounds are None where there is none.

    ``over`` is the resampling unit. ``why`` is the reason why clusters allow no interval.
    """

    mean: float
    low: float | None
    high: float | None
    n: int
    over: Literal["problems", "clusters"] = field(default="problems", repr=False)
    why: str | None = field(default=None, repr=False)


def by_cluster(
    value_PX: Float[np.ndarray, "problem ..."], cluster_P: Int[np.ndarray, " problem"] | None
) -> Float[np.ndarray, "cluster ..."]:
    """Aggregate values per problem to one value per cluster with the same mean.

    A cluster's value is the mean plus the summed deviations of its problems, scaled to the number of clusters. So
    correlated deviations are summed before they are squared or resampled. Functions for problems (intervals, bands,
    bootstraps, tests) can be applied to these values, also if clusters have unequal sizes. Without clusters the values
    are returned unchanged.

    Source: Miller 2024, Adding Error Bars to Evals, arXiv:2411.00640, section 2.2.

    >>> by_cluster(np.array([[1.0], [2.0], [3.0]]), np.array([7, 9, 7])).round(3).tolist()
    [[2.0], [2.0]]
    >>> by_cluster(np.array([[0.0], [0.0], [3.0], [3.0]]), np.array([0, 0, 1, 1])).tolist()
    [[0.0], [3.0]]
    """
    if cluster_P is None:
        return value_PX
    _, place_P = np.unique(cluster_P, return_inverse=True)
    n_clusters = int(place_P.max(initial=-1)) + 1
    mean_X = value_PX.mean(axis=0)
    summed_GX = np.zeros((n_clusters, *value_PX.shape[1:]))
    np.add.at(summed_GX, place_P, value_PX - mean_X)
    return mean_X + summed_GX * (n_clusters / len(value_PX))


def named_clusters(cluster_P: Int[np.ndarray, " problem"] | None) -> Int[np.ndarray, " problem"] | None:
    """Return the clusters; None where no two of these problems share one.

    >>> named_clusters(np.array([4, 2, 9])) is None
    True
    """
    return None if cluster_P is None or len(np.unique(cluster_P)) == len(cluster_P) else cluster_P


def few_clusters(cluster_P: Int[np.ndarray, " problem"] | None) -> str | None:
    """Return why the clusters allow no interval; None if they do.

    >>> few_clusters(np.arange(40) // 2), few_clusters(np.arange(40) // 20)
    (None, 'the problems form 2 clusters; an interval needs at least 10')
    """
    named_P = named_clusters(cluster_P)
    if named_P is None or (n_clusters := len(np.unique(named_P))) >= FEW_CLUSTERS:
        return None
    return f"the problems form {plural(n_clusters, 'cluster')}; an interval needs at least {FEW_CLUSTERS}"


def too_few_to_generalise(cluster_P: Int[np.ndarray, " problem"] | None) -> str | None:
    """Return why the clusters allow no inference on the population; None if they do.

    They may be too few or too unequal: a t test over clusters assumes equal variances, and large clusters have larger
    ones.

    >>> too_few_to_generalise(np.arange(40) // 20), too_few_to_generalise(np.arange(40))
    ('fewer than 10 clusters', None)
    >>> too_few_to_generalise(np.minimum(np.arange(60) // 2, 12))
    'clusters so unequal that they are worth 2.7 of equal size, fewer than 30'
    """
    named_P = named_clusters(cluster_P)
    if named_P is None:
        return None
    n_clusters, worth = len(np.unique(named_P)), effective_clusters(named_P)
    if n_clusters < FEW_CLUSTERS:
        return f"fewer than {FEW_CLUSTERS} clusters"
    least = _FEW_UNEQUAL if worth < _UNEQUAL * n_clusters else FEW_CLUSTERS
    if worth >= least:
        return None
    return f"clusters so unequal that they are worth {worth:.1f} of equal size, fewer than {least}"


def over_units(
    of: Callable[[Float[np.ndarray, " unit"], float], Interval],
    values_P: Float[np.ndarray, " problem"],
    cluster_P: Int[np.ndarray, " problem"] | None,
) -> Interval:
    """Return the interval over problems or, with clusters, over one value and degrees of freedom per cluster."""
    cluster_P = named_clusters(cluster_P)
    if cluster_P is None:
        return of(values_P, len(values_P) - 1.0)
    if why := few_clusters(cluster_P):
        return Interval(mean=float(np.mean(values_P)), low=None, high=None, n=len(values_P), why=why)
    return replace(
        of(by_cluster(values_P, cluster_P), effective_clusters(cluster_P) - 1.0), n=len(values_P), over="clusters"
    )


def effective_clusters(cluster_P: Int[np.ndarray, " problem"]) -> float:
    """Return the number of equal-sized clusters with as much information about the variance: P² / Σ size².

    Source: Carter, Schnepel, Steigerwald 2017 (Rev. Econ. Stat. 99:698), if only the sizes of the clusters differ.

    >>> effective_clusters(np.array([0, 0, 1, 1])), effective_clusters(np.array([0, 0, 0, 1]))  # 4² / (3² + 1²)
    (2.0, 1.6)
    """
    _, size_G = np.unique(cluster_P, return_counts=True)
    return float(size_G.sum() ** 2 / (size_G**2).sum())


def left_out_error(
    residual_P: Float[np.ndarray, " problem"], weight_P: Float[np.ndarray, " problem"], cluster_P: np.ndarray
) -> tuple[float | None, float]:
    """Return the standard error of Σ residual / Σ weight over clusters, and degrees of freedom.

    This is a jackknife: each cluster is left out in turn. A cluster with a large weight pulls the mean towards itself,
    so its deviation is too small. With ten clusters of 1 to 15 problems, intervals by the usual standard error cover
    too rarely. With equal weights the jackknife gives the usual standard error. None if one cluster has all the weight.

    Source: MacKinnon, Nielsen and Webb 2023 (J. Appl. Econometrics 38:671), CV3, for a ratio that is linearised.

    >>> left_out_error(np.array([1.0, -1.0]), np.array([1.0, 1.0]), np.array([0, 1]))  # as of the two numbers 1 and −1
    (1.0, 1.0)
    """
    _, place_P = np.unique(cluster_P, return_inverse=True)
    share_G = np.bincount(place_P, weights=weight_P) / weight_P.sum()
    moved_G = np.bincount(place_P, weights=residual_P) / weight_P.sum()
    freedom = float(1.0 / (share_G**2).sum() - 1.0)
    if share_G.max() >= 1.0:
        return None, freedom
    n_clusters = len(share_G)
    variance = (n_clusters - 1) / n_clusters * float(((moved_G / (1.0 - share_G)) ** 2).sum())
    return float(np.sqrt(variance)), freedom


def totals(
    values_P: Float[np.ndarray, " problem"], cluster_P: Int[np.ndarray, " problem"] | None
) -> Float[np.ndarray, " unit"]:
    """Return the sum over each cluster, scaled so that the mean is that of the problems.

    Without clusters the values are returned.
    """
    if cluster_P is None:
        return values_P
    _, place_P = np.unique(cluster_P, return_inverse=True)
    sum_G = np.bincount(place_P, weights=values_P)
    return sum_G * (len(sum_G) / len(values_P))


def independent_problems(
    holds_P: Float[np.ndarray, " problem"], cluster_P: Int[np.ndarray, " problem"], confidence: float
) -> float:
    """Return the number of independent problems that would give the same variance as the clusters.

    At most the number of problems.
    """
    n, share = len(holds_P), float(holds_P.mean())
    value_G = by_cluster(holds_P, cluster_P)
    n_clusters = len(value_G)
    if share in (0.0, 1.0):  # no spread to estimate
        return float(n_clusters)
    variance = float(np.var(value_G, ddof=1)) / n_clusters
    tail = 0.5 + confidence / 2.0
    fewer = (float(stdtrit(n - 1, tail)) / float(stdtrit(effective_clusters(cluster_P) - 1, tail))) ** 2
    return min(float(n), share * (1.0 - share) / variance * fewer) if variance > 0.0 else float(n)
