"""Means over seeds, by hand: the seed is the unit, and what a seed does not reach is said."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oversharp.diagnostics.statistics.comparison import RunPath
from oversharp.diagnostics.statistics.over_seeds import (
    PROBABILITY,
    matched_over_seeds,
    mean_over_seeds,
    paired_over_seeds,
    shared_levels,
)

T_9 = 2.2621571627409915  # the 97.5 % point of Student's t with nine degrees of freedom, from tables


def path(*points: tuple[float, float], steps: tuple[int, ...] | None = None) -> RunPath:
    xs, ys = zip(*points, strict=True)
    return RunPath(steps=steps or tuple(range(0, 10 * len(points), 10)), x=xs, y=ys)


def half_width(variance, spread):
    """Of ten seeds: half of one more seed lies as far off as the farthest."""
    return T_9 * math.sqrt(variance / 10 + spread**2 / 2 / 100)


def test_ten_seeds_by_hand():
    # five of .6 and five of .8: mean .7, s² = 10 × .01 / 9
    over = mean_over_seeds([0.6, 0.8] * 5)
    assert (over.mean, over.n, over.why) == (pytest.approx(0.7), 10, None)
    assert over.low == pytest.approx(0.7 - half_width(0.1 / 9, 0.2))
    assert over.high == pytest.approx(0.7 + half_width(0.1 / 9, 0.2))


def test_a_probability_ends_at_one():
    over = mean_over_seeds([0.9, 1.0] * 5, bounds=PROBABILITY)
    assert over.low < 0.95
    assert over.high == pytest.approx(0.95 + half_width(0.025 / 9, 0.1))
    assert over.high < 1.0
    assert mean_over_seeds([1.0] * 9 + [0.9], bounds=PROBABILITY).high == 1.0


@pytest.mark.parametrize(
    ("values", "mean", "n", "why"),
    [
        pytest.param([0.4], 0.4, 1, "one seed is too few for an interval, which needs 10", id="one"),
        pytest.param([*[0.4, 0.6] * 4, 0.5], 0.5, 9, "9 seeds are too few for an interval", id="nine"),
        pytest.param([1.0, 1.0, 1.0], 1.0, 3, "all 3 seeds", id="equal ones do not prove that there is no spread"),
        pytest.param([0.9 - 0.7, 0.8 - 0.6, 0.7 - 0.5], 0.2, 3, "all 3 seeds", id="rounding is no spread"),
        pytest.param([None, None], None, 0, "no seed has a value", id="none"),
    ],
)
def test_seeds_without_spread_have_no_interval(values, mean, n, why):
    over = mean_over_seeds(values)
    assert (over.mean, over.low, over.high, over.n) == (mean if mean is None else pytest.approx(mean), None, None, n)
    assert why in over.why


def test_seeds_without_a_value_do_not_count_as_zero():
    assert mean_over_seeds([None, 0.5, 0.7]).mean == pytest.approx(0.6)


def test_pairing_by_seed_takes_out_what_the_seeds_share():
    # differences five times .1 and five times .14: mean .12, s² = 10 × .0004 / 9
    first = {seed: 0.08 * seed for seed in range(10)}
    second = {seed: value + (0.1 if seed % 2 else 0.14) for seed, value in first.items()}
    over = paired_over_seeds(first, second)
    assert over.mean == pytest.approx(0.12)
    assert over.low == pytest.approx(0.12 - half_width(0.004 / 9, 0.04))
    assert over.low > 0
    unpaired = mean_over_seeds(list(second.values()))
    assert unpaired.low < 0.36 < unpaired.high


def test_only_seeds_of_both_are_paired():
    over = paired_over_seeds({0: 0.2, 1: 0.4, 2: None}, {1: 0.5, 2: 0.9, 3: 0.9})
    assert (over.mean, over.n) == (pytest.approx(0.1), 1)
    assert paired_over_seeds({0: 0.2}, {1: 0.2}).why == "no seed has a value of both"


def test_each_seed_is_matched_on_its_own_course():
    slow = path((0.2, 1.0), (0.3, 0.9), (0.4, 0.8))
    fast = path((0.2, 1.0), (0.6, 0.6))
    matched = matched_over_seeds({0: slow, 1: fast}, 0.4)
    assert {seed: value.value for seed, value in matched.values.items()} == pytest.approx({0: 0.8, 1: 0.8})
    assert matched.step == pytest.approx((20 + 5) / 2)
    assert matched.reached == (0, 1)
    assert matched.missed == {}


def test_a_seed_that_never_reaches_the_level_is_named_with_its_range():
    matched = matched_over_seeds({0: path((0.2, 1.0), (0.3, 0.9)), 1: path((0.2, 1.0), (0.6, 0.6))}, 0.5)
    assert matched.reached == (1,)
    assert matched.missed == {0: "never reaches 0.5: the run covers 0.2 to 0.3"}
    assert mean_over_seeds([value.value for value in matched.values.values()]).n == 1


def to(*ends):
    """One path per seed, from 0.2 to its end."""
    return [path((0.2, 1.0), (end, 0.5)) for end in ends]


def test_levels_end_where_the_weakest_seed_ends_and_once_more_where_most_do():
    levels = shared_levels({"a": to(0.4, 0.5, 0.6), "b": to(0.45, 0.8, 0.9)}, n_levels=2)
    assert levels == pytest.approx((0.3, 0.4, 0.5))  # 0.5: two of three of a, all but one of b


@pytest.mark.parametrize(
    ("ends", "most"),
    [((0.5,), ()), ((0.3, 0.5), ()), ((0.3, 0.5, 0.6), (0.5,)), ((0.3, 0.4, 0.5, 0.6), (0.4,))],
)
def test_the_last_level_is_reached_by_more_than_half(ends, most):
    levels = shared_levels({"a": to(*ends)}, n_levels=1)
    assert levels == pytest.approx((min(ends), *most))
    assert sum(end >= levels[-1] for end in ends) > len(ends) / 2


@pytest.mark.parametrize(("most", "last"), [(0.64, 0.6), (0.66, 0.66)])  # levels lie 0.1 apart
def test_a_last_level_that_is_hardly_higher_is_left_out(most, last):
    assert shared_levels({"a": to(0.6, most, 0.9)}, n_levels=4)[-1] == last


def test_one_dead_seed_does_not_hide_the_others():
    assert shared_levels({"a": to(0.1, 0.5, 0.6)}, n_levels=4) == (0.5,)


@pytest.mark.parametrize(
    "paths",
    [
        {},
        {"a": []},
        {"a": [path((0.2, 1.0))], "b": [path((0.5, 1.0), (0.9, 0.5))]},
        {"a": [RunPath(steps=[0], x=[None], y=[None])]},
    ],
)
def test_nothing_shared_gives_no_level(paths):
    assert shared_levels(paths, n_levels=4) == ()


@pytest.mark.slow
@given(st.lists(st.floats(-10, 10), min_size=2, max_size=14), st.randoms(use_true_random=False))
def test_the_order_of_seeds_does_not_matter(values: list[float], random: object):
    shuffled = list(values)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    one, other = mean_over_seeds(values), mean_over_seeds(shuffled)
    assert one.mean == pytest.approx(other.mean, abs=1e-12)
    assert (one.low is None) == (other.low is None)
    if one.low is not None and other.low is not None:
        assert one.low == pytest.approx(other.low, abs=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("n_seeds", [10, 15, 20])
@pytest.mark.parametrize("collapsing", [0.0, 0.25])
def test_the_interval_covers_the_mean_of_all_seeds_also_where_one_in_four_collapses(n_seeds, collapsing):
    rng = np.random.default_rng(n_seeds)
    draws = rng.normal(0.9, 0.02, (4000, n_seeds)) - 0.6 * (rng.random((4000, n_seeds)) < collapsing)
    truth = 0.9 - 0.6 * collapsing
    intervals = [mean_over_seeds(row.tolist()) for row in draws]
    assert np.mean([one.low <= truth <= one.high for one in intervals]) >= 0.93
