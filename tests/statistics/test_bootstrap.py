import numpy as np
import pytest

from oversharp.diagnostics.statistics import intervals
from oversharp.diagnostics.statistics.intervals import percentile_bounds, resampled_means


def test_columns_of_a_problem_stay_together():
    values_P = np.random.default_rng(0).normal(size=20)
    mean_DX = resampled_means(np.stack([values_P, -values_P], axis=1), rng=np.random.default_rng(1), draws=50)
    np.testing.assert_allclose(mean_DX[:, 0], -mean_DX[:, 1])
    assert len(np.unique(mean_DX[:, 0])) == 50


def test_means_spread_like_the_error_of_a_mean():
    values_P = np.random.default_rng(0).normal(size=200)
    mean_D = resampled_means(values_P[:, None], rng=np.random.default_rng(1), draws=4000)[:, 0]
    assert mean_D.mean() == pytest.approx(values_P.mean(), abs=0.005)
    assert mean_D.std() == pytest.approx(values_P.std() / np.sqrt(200), rel=0.05)


def test_drawing_in_pieces_changes_nothing(monkeypatch):
    values_PX = np.random.default_rng(0).normal(size=(30, 2))
    whole = resampled_means(values_PX, rng=np.random.default_rng(1), draws=17)
    monkeypatch.setattr(intervals, "_NUMBERS_AT_ONCE", 100)
    np.testing.assert_allclose(resampled_means(values_PX, rng=np.random.default_rng(1), draws=17), whole)


def test_without_a_problem_nothing_is_drawn():
    with pytest.raises(ValueError, match="where there is at least one"):
        resampled_means(np.empty((0, 2)), rng=np.random.default_rng(0), draws=3)


def test_bounds_leave_one_in_forty_draws_outside_on_each_side():
    assert percentile_bounds(np.arange(1.0, 1000.0)[::-1]) == (25.0, 975.0)


def test_infinite_draws_make_infinite_bounds_and_nothing_between():
    values_D = np.append(np.arange(1.0, 900.0), [np.inf] * 100)
    assert percentile_bounds(values_D) == (25.0, np.inf)
    assert percentile_bounds(np.full(99, np.inf)) == (np.inf, np.inf)


def test_few_draws_give_the_extremes():
    assert percentile_bounds(np.array([3.0, 1.0, 2.0])) == (1.0, 3.0)
    with pytest.raises(ValueError, match="at least one draw"):
        percentile_bounds(np.array([]))
