"""Means over seeds, by hand: the seed is the unit, and what a seed does not reach is said."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagnostics.statistics.matched import RunPath
from diagnostics.statistics.over_seeds import (
    PROBABILITY,
    matched_over_seeds,
    mean_over_seeds,
    paired_over_seeds,
    shared_levels,
)

T_2 = 4.302652729911275  # the 97.5 % point of Student's t with two degrees of freedom, from tables


def path(*points: tuple[float, float], steps: tuple[int, ...] | None = None) -> RunPath:
    xs, ys = zip(*points, strict=True)
    return RunPath(steps=steps or tuple(range(0, 10 * len(points), 10)), x=xs, y=ys)


def test_three_seeds_by_hand():
    # .60, .70, .80: mean .7, s = .1, half-width 4.3027 × .1 / √3
    over = mean_over_seeds([0.6, 0.7, 0.8])
    assert (over.mean, over.n, over.why) == (pytest.approx(0.7), 3, None)
    half = T_2 * 0.1 / math.sqrt(3)
    assert over.low == pytest.approx(0.7 - half)
    assert over.high == pytest.approx(0.7 + half)


def test_a_probability_ends_at_one():
    over = mean_over_seeds([0.9, 1.0, 0.95], bounds=PROBABILITY)
    assert over.low < 0.9
    assert over.high == 1.0


@pytest.mark.parametrize(
    ("values", "mean", "n", "why"),
    [
        pytest.param([0.4], 0.4, 1, "one seed has no spread to build an interval from", id="one"),
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
    # differences .1, .1, .16: mean .12, s = √((2 × .02² + .04²) / 2) = .0346
    first, second = {0: 0.2, 1: 0.5, 2: 0.8}, {0: 0.3, 1: 0.6, 2: 0.96}
    over = paired_over_seeds(first, second)
    half = T_2 * math.sqrt((2 * 0.02**2 + 0.04**2) / 2) / math.sqrt(3)
    assert over.mean == pytest.approx(0.12)
    assert over.low == pytest.approx(0.12 - half)
    assert over.low > 0
    unpaired = mean_over_seeds(list(second.values()))
    assert unpaired.low < 0.5 < unpaired.high


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


@given(st.lists(st.floats(-10, 10), min_size=2, max_size=8), st.randoms(use_true_random=False))
def test_the_order_of_seeds_does_not_matter(values: list[float], random: object):
    shuffled = list(values)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    one, other = mean_over_seeds(values), mean_over_seeds(shuffled)
    assert one.mean == pytest.approx(other.mean, abs=1e-12)
    assert (one.low is None) == (other.low is None)
    if one.low is not None and other.low is not None:
        assert one.low == pytest.approx(other.low, abs=1e-9)


def test_the_interval_covers_the_mean_of_all_seeds_as_often_as_it_says():
    """3 seeds from a normal law, 4,000 times: 95 % ± 1 %."""
    rng = np.random.default_rng(0)
    draws = rng.normal(0.5, 0.02, size=(4000, 3))
    intervals = [mean_over_seeds(row.tolist()) for row in draws]
    covered = sum(one.low is not None and one.high is not None and one.low <= 0.5 <= one.high for one in intervals)
    assert 0.94 < covered / 4000 < 0.96
