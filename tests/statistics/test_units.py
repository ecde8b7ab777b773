"""Intervals over clusters of related problems."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from scipy.stats import t as student_t

from oversharp.diagnostics.statistics.intervals import (
    mean_interval,
    median_interval,
    ratio_interval,
    share_interval,
    sparse_interval,
    yes_no_interval,
)
from oversharp.diagnostics.statistics.units import Interval, independent_problems, left_out_error

VALUES_G = np.random.default_rng(0).random(12)
#: Each cluster has three problems that are one problem thrice.
THRICE_P = np.repeat(np.arange(12), 3)


def _ratio(values: np.ndarray, **named: np.ndarray) -> Interval:
    return ratio_interval(values, 1.0 + values**2, floor=True, **named)


@pytest.mark.parametrize(
    "interval", [share_interval, mean_interval, sparse_interval, _ratio, partial(share_interval, floor=2.0)]
)
def test_problems_that_are_one_problem_thrice_say_no_more_than_it_says_once(
    interval: Callable[..., Interval],
) -> None:
    once, thrice = interval(VALUES_G), interval(VALUES_G[THRICE_P], cluster_P=THRICE_P)
    assert (thrice.mean, thrice.low, thrice.high) == pytest.approx((once.mean, once.low, once.high))
    assert (thrice.n, thrice.over, once.over) == (36, "clusters", "problems")
    blind = interval(VALUES_G[THRICE_P])
    assert blind.high - blind.low < 0.7 * (thrice.high - thrice.low)


@pytest.mark.parametrize("interval", [share_interval, mean_interval, sparse_interval, median_interval, _ratio])
def test_clusters_of_one_problem_each_change_nothing(interval: Callable[..., Interval]) -> None:
    assert interval(VALUES_G, cluster_P=np.arange(12)) == interval(VALUES_G)


@pytest.mark.parametrize("interval", [share_interval, mean_interval, sparse_interval, _ratio])
def test_nine_clusters_allow_no_interval_and_ten_do(interval: Callable[..., Interval]) -> None:
    values_P = np.random.default_rng(1).random(40)
    few, enough = (interval(values_P, cluster_P=np.arange(40) % n) for n in (9, 10))
    assert (few.low, few.high) == (None, None)
    assert few.mean == pytest.approx(interval(values_P).mean)
    assert few.why == "the problems form 9 clusters; an interval needs at least 10"
    assert enough.low is not None
    assert enough.why is None


def test_a_share_of_clusters_that_agree_is_worth_as_many_problems_as_there_are_clusters() -> None:
    holds_P = np.arange(40) % 2 == 0
    cluster_P = np.arange(40) % 20  # each of 20 clusters is all yes or all no
    # ¼ over the variance of a mean of 20 halves (¼ · 20/19 / 20), and less for Student's t: 19 · (2.0227/2.0930)²
    assert independent_problems(holds_P.astype(float), cluster_P, 0.95) == pytest.approx(17.745, abs=1e-3)
    apart = yes_no_interval(holds_P)
    related = yes_no_interval(holds_P, cluster_P=cluster_P)
    assert related.low < apart.low < 0.5 < apart.high < related.high


def test_where_nothing_was_lost_clusters_are_counted_in_place_of_problems() -> None:
    related = yes_no_interval(np.zeros(90, dtype=bool), cluster_P=np.arange(90) // 3)
    assert related == replace(yes_no_interval(np.zeros(30, dtype=bool)), n=90, over="clusters")


def test_a_median_of_related_problems_has_no_interval() -> None:
    median = median_interval(VALUES_G[THRICE_P], cluster_P=THRICE_P)
    assert median.mean == np.median(VALUES_G)
    assert (median.low, median.high) == (None, None)
    assert "independent" in str(median.why)


def test_of_a_large_cluster_more_is_reckoned_than_it_deviates_by() -> None:
    """Two of three problems share a cluster and 2 of 3 parts of the weight: 0, 0 and 3, with a mean of 1."""
    cluster_P, residual_P = np.array([0, 0, 1]), np.array([-1.0, -1.0, 2.0])
    error, freedom = left_out_error(residual_P, np.ones(3), cluster_P)
    # without the large one the mean is 3, without the small one 0: 2 and −1 away from 1, and (1 / 2) (2² + 1²)
    assert error == pytest.approx(math.sqrt(2.5))
    assert freedom == pytest.approx(0.8)  # 1 / (4/9 + 1/9) − 1
    assert left_out_error(np.array([0.0, 0.0]), np.array([1.0, 0.0]), np.array([0, 1]))[0] is None


def test_a_mean_over_clusters_is_a_ratio_to_their_sizes() -> None:
    cluster_P, value_P = np.minimum(np.arange(40) // 2, 11), np.arange(40) % 7 / 7
    mean = mean_interval(value_P, cluster_P=cluster_P)
    assert mean == ratio_interval(value_P, np.ones(40), floor=False, cluster_P=cluster_P)
    assert mean.over == "clusters"
    floored = ratio_interval(value_P, np.ones(40), floor=True, cluster_P=cluster_P)
    # twelve clusters: as if one more had deviated by a full point
    reach = [(one.high - one.mean) ** 2 for one in (floored, mean)]
    _, freedom = left_out_error(value_P - value_P.mean(), np.ones(40), cluster_P)
    assert reach[0] - reach[1] == pytest.approx((student_t.ppf(0.975, freedom) / 12) ** 2)
