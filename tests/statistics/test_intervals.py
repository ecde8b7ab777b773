import math

import numpy as np
import pytest

from oversharp.diagnostics.statistics.intervals import (
    mean_interval,
    median_interval,
    ratio_interval,
    share_interval,
    sparse_interval,
    yes_no_interval,
)
from oversharp.diagnostics.statistics.pass_at_k import pass_at_k_table

T_975_DF_4 = 2.7764451051977987


def test_the_share_interval_adds_one_point_of_spread():
    values_P = np.array([0.1, 0.2, 0.3, 0.2, 0.2])  # s² = .005
    half_width = T_975_DF_4 * math.sqrt((4 * 0.005 + 1) / 25)
    interval = share_interval(values_P, bounds=(-1.0, 1.0))
    assert interval.low == pytest.approx(0.2 - half_width)
    assert interval.high == pytest.approx(0.2 + half_width)


def test_equal_values_are_not_certainty_on_the_probability_scale():
    interval = share_interval(np.zeros(10), bounds=(-1.0, 1.0))
    assert interval.low < 0 < interval.high
    assert mean_interval(np.zeros(10)).low == 0.0


def test_bounds_cut_the_interval_but_never_the_mean():
    interval = share_interval(np.array([1.0, 1.0, 1.0]))
    assert (interval.mean, interval.high) == (1.0, 1.0)
    rounded = share_interval(np.array([1.0 + 1e-15, 1.0, 1.0]))
    assert rounded.low <= rounded.mean <= rounded.high


def shares_of_one(values_P):
    return ratio_interval(values_P, np.ones(len(values_P)), floor=True)


@pytest.mark.parametrize("interval_of", [share_interval, mean_interval, sparse_interval, shares_of_one])
def test_one_problem_has_no_interval_and_none_is_refused(interval_of):
    interval = interval_of(np.array([0.3]))
    assert (interval.mean, interval.low, interval.high, interval.n) == (0.3, None, None, 1)
    with pytest.raises(ValueError, match=r"at least one problem|positive denominator"):
        interval_of(np.array([]))


def test_a_ratio_without_a_denominator_is_refused():
    with pytest.raises(ValueError, match="positive denominator"):
        ratio_interval(np.zeros(2), np.zeros(2), floor=False)


def test_a_ratio_with_equal_denominators_is_the_plain_mean():
    values_P = np.array([1.0, 2.0, 4.0])
    ratio = ratio_interval(values_P, np.ones(3), floor=False)
    plain = mean_interval(values_P)
    assert (ratio.mean, ratio.low, ratio.high) == pytest.approx((plain.mean, plain.low, plain.high))


def test_a_ratio_weighs_problems_by_their_size():
    # 9 of 10 modes of one query fell, 0 of 2 of the other.
    assert ratio_interval(np.array([9.0, 0.0]), np.array([10.0, 2.0]), floor=True).mean == 0.75


def coverage(draw, truth: float, interval_of, repetitions: int) -> float:
    hits = 0
    for _ in range(repetitions):
        interval = interval_of(draw())
        hits += interval.low <= truth <= interval.high
    return hits / repetitions


@pytest.mark.parametrize("n_problems", [10, 30, 100])
def test_the_paired_interval_of_pass_at_k_covers_the_truth(n_problems):
    rng = np.random.default_rng(n_problems)
    n, k = 64, 16
    table_C = pass_at_k_table(n, [k])[:, 0]
    population = 1 / (1 + np.exp(-rng.normal(-2.6, 2.6, 200_000)))
    changed = np.where(rng.random(200_000) < 0.2, population / 10, population)
    truth = float(np.mean((1 - population) ** k - (1 - changed) ** k))

    def draw():
        problem_P = rng.integers(0, len(population), n_problems)
        return table_C[rng.binomial(n, changed[problem_P])] - table_C[rng.binomial(n, population[problem_P])]

    covered = coverage(draw, truth, lambda delta_P: share_interval(delta_P, bounds=(-1.0, 1.0)), 600)
    assert covered >= 0.93


@pytest.mark.slow
def test_without_the_floor_rare_losses_would_be_missed():
    # 3 % of problems lose everything: 30 problems often show no loss at all, and a plain t then claims certainty.
    rng = np.random.default_rng(5)

    def draw():
        return -(rng.random(30) < 0.03).astype(float)

    assert coverage(draw, -0.03, mean_interval, 600) < 0.7
    assert coverage(draw, -0.03, lambda delta_P: share_interval(delta_P, bounds=(-1.0, 1.0)), 600) > 0.93


def test_the_ratio_interval_covers_the_truth_when_modes_of_a_query_move_together():
    rng = np.random.default_rng(6)

    def draw():
        modes_P = rng.integers(1, 12, 40)
        fell_P = modes_P * (rng.random(40) < 0.3)
        return fell_P.astype(float), modes_P.astype(float)

    assert coverage(draw, 0.3, lambda pair: ratio_interval(*pair, floor=True), 600) >= 0.92


def test_the_interval_of_a_yes_or_no_is_the_exact_binomial_one():
    # 3 of 20, from tables of Clopper and Pearson
    interval = yes_no_interval(np.arange(20) < 3)
    assert (interval.mean, interval.n) == (0.15, 20)
    assert (interval.low, interval.high) == pytest.approx((0.0321, 0.3789), abs=1e-4)
    whole = yes_no_interval(np.ones(20, dtype=bool))
    assert (whole.low, whole.high) == (pytest.approx(0.025 ** (1 / 20)), 1.0)


@pytest.mark.parametrize("solved", [0.03, 0.05, 0.1, 0.3])
def test_values_that_are_zero_for_most_problems_are_covered_where_there_is_an_interval(solved):
    rng = np.random.default_rng(int(1000 * solved))
    intervals = [sparse_interval(4 * rng.random(100) * (rng.random(100) < solved)) for _ in range(600)]
    covers = [one.low <= 2 * solved <= one.high for one in intervals if one.low is not None]
    assert len(covers) > 60
    assert np.mean(covers) >= 0.93


def test_equal_values_and_few_above_zero_have_no_interval_of_their_own():
    assert sparse_interval(np.full(50, 0.7)).low is None
    assert sparse_interval(np.r_[np.full(4, 0.7), np.zeros(96)]).high is None
    assert sparse_interval(np.r_[np.full(5, 0.7), np.zeros(95)]).high is not None


@pytest.mark.slow
def test_the_median_is_covered_where_three_in_a_hundred_problems_carry_the_mean():
    rng = np.random.default_rng(3)
    moved_RP = rng.normal(-0.5, 1.0, (1000, 30)) - 30.0 * (rng.random((1000, 30)) < 0.03)
    true_mean, true_median = -0.5 - 0.9, -0.539  # the median of the mixture: Φ(z) = .47 / .97
    means, medians = ([of(row) for row in moved_RP] for of in (mean_interval, median_interval))
    assert np.mean([one.low <= true_mean <= one.high for one in means]) < 0.65
    assert np.mean([one.low <= true_median <= one.high for one in medians]) >= 0.95


def test_five_problems_are_too_few_for_the_interval_of_a_median():
    assert median_interval(np.arange(5.0)).low is None
    assert (median_interval(np.arange(6.0)).low, median_interval(np.arange(6.0)).high) == (0.0, 5.0)
