"""One value per cluster of related problems, such as variants of a template or questions on one text."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int


def by_cluster(
    value_PX: Float[np.ndarray, "problem ..."], cluster_P: Int[np.ndarray, " problem"] | None
) -> Float[np.ndarray, "cluster ..."]:
    """Aggregate values per problem to one value per cluster with the same mean.

    Without clusters return them as they are.

    A cluster's value is the mean plus the summed deviations of its problems, scaled to the number of clusters, so that
    correlated deviations add up before they are squared or resampled. Functions whose units are problems (intervals,
    bands, bootstraps, keys) then work on clusters, also of unequal size.

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
