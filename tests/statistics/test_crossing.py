import numpy as np
import pytest

from oversharp.diagnostics.statistics.crossing import Crossing, crossing, crossings
from oversharp.diagnostics.statistics.keys import inference_ks
from oversharp.diagnostics.statistics.pass_at_k import pass_at_k_table


def k_star(*mean_K, ks=(1, 2, 4, 8), n_problems=20):
    return crossing(np.tile(mean_K, (n_problems, 1)), ks)


@pytest.mark.parametrize(
    ("mean_K", "k"),
    [
        ((0.3, 0.2, 0.1, -0.1), 2**2.5),  # half-way from 4 to 8
        ((0.3, 0.3, -0.1, -0.2), 2**1.75),  # three quarters of the way from 2 to 4
        ((0.1, -0.1, 0.1, -0.3), 2**2.25),  # the first crossing is not for good
        ((-0.1, 0.2, -0.2, -0.2), 2**1.5),
        ((0.2, 0.1, 0.0, -0.2), 4.0),  # 0 is not below 0
        ((-0.1, -0.2, -0.1, -0.2), 1.0),
    ],
)
def test_k_star_by_hand(mean_K, k):
    assert k_star(*mean_K).value == pytest.approx(k)


@pytest.mark.parametrize(
    ("mean_K", "low"), [((0.2, 0.2, 0.2, 0.2), None), ((-0.2, -0.2, -0.2, 0.2), 1.0), ((0.0, 0.0, 0.0, 0.0), 1.0)]
)
def test_a_curve_that_ends_above_the_base_never_crosses_for_good(mean_K, low):
    assert k_star(*mean_K) == Crossing(value=None, low=low, high=None)


def test_one_k_crosses_at_itself_or_beyond_and_rounding_is_not_a_loss():
    assert k_star(-0.1, ks=[1]).value == 1.0
    assert k_star(0.1, ks=[1]).value is None
    # Half of the samples are correct on both sides, yet tables of two sample sizes may differ in the last digit.
    assert k_star(-1e-16, ks=[1]).value is None
    assert k_star(0.2, -1e-16, -0.1, -0.1).value == 2.0


def test_the_interval_may_be_open_above():
    change_PK = np.array([[0.2, 0.1, 0.05, -0.02]] * 30 + [[0.2, 0.1, 0.05, 0.017]] * 30)
    found = crossing(change_PK, [1, 2, 4, 8])
    assert found.value == pytest.approx(2 ** (2 + 0.05 / 0.0515))
    assert 4 < found.low < found.value
    assert found.high is None


def test_a_value_beyond_the_range_may_be_bounded_from_below():
    change_PK = np.array([[0.2, -0.02]] * 30 + [[0.2, 0.025]] * 30)
    found = crossing(change_PK, [1, 2])
    assert (found.value, found.high) == (None, None)
    assert 1 < found.low < 2


def test_one_problem_says_nothing_of_others():
    assert k_star(0.1, -0.1, ks=(1, 2), n_problems=1) == Crossing(value=2**0.5, low=1.0, high=None)


def test_checkpoints_together_are_checkpoints_alone():
    change_TPK = np.random.default_rng(5).normal(0.0, 0.2, size=(3, 40, 4)) + np.array([0.1, 0.05, 0.0, -0.1])
    together = crossings(change_TPK, [1, 2, 4, 8])
    alone = [crossing(change_PK, [1, 2, 4, 8]) for change_PK in change_TPK]
    assert [c.value for c in together] == pytest.approx([c.value for c in alone])
    assert [c.low for c in together] == pytest.approx([c.low for c in alone])


@pytest.mark.parametrize(
    ("shape", "ks", "match"),
    [((5, 2), ks, "must ascend from 1") for ks in ([2, 1], [1, 1], [0, 1], [1], [1, 2, 4])]
    + [(shape, [1, 2], "a problem and a k") for shape in ((0, 2), (3, 0))],
)
def test_ks_that_do_not_fit_and_nothing_to_cross_are_refused(shape, ks, match):
    with pytest.raises(ValueError, match=match):
        crossing(np.zeros(shape), ks)


def sharpened(rng, n_problems):
    """Success rates of base and checkpoint: easy problems become easier, hard ones harder."""
    odds_P = rng.normal(-2.6, 2.6, n_problems)
    late_P = odds_P + 1.2 + 0.8 * np.minimum(odds_P + 2.6, 4.0)
    return 1 / (1 + np.exp(-odds_P)), 1 / (1 + np.exp(-late_P))


def test_the_bounds_are_where_the_ends_of_the_intervals_of_the_means_meet_zero():
    # equal problems: the margin is t / P at every k, here 2.0930 / 20
    found, margin = k_star(0.3, 0.3, 0.2, -0.3), 2.0930240544082634 / 20
    assert found.value == pytest.approx(2 ** (2 + 0.2 / 0.5))
    assert found.low == pytest.approx(2 ** (2 + (0.2 - margin) / 0.5))
    assert found.high == pytest.approx(2 ** (2 + (0.2 + margin) / 0.5))


def planted(rng, n_problems):
    """Most problems become easier, one in twelve is all but lost: the crossing hangs on few."""
    base_P = rng.beta(0.6, 0.8, n_problems)
    lost_P = rng.random(n_problems) < 0.08
    return base_P, np.where(lost_P, base_P * 0.02, 1 - (1 - base_P) ** 2)


def test_thirty_problems_cover_k_star_of_the_population():
    n, ks = 64, inference_ks(64)
    base_P, late_P = planted(np.random.default_rng(0), 400_000)
    truth_K = np.array([np.mean((1 - base_P) ** k - (1 - late_P) ** k) for k in ks])
    truth = crossing(truth_K[None], ks).value
    assert 2 < truth < 32
    rng, table = np.random.default_rng(1), pass_at_k_table(n, ks)
    drawn = [planted(rng, 30) for _ in range(400)]
    found = crossings(
        np.stack([table[rng.binomial(n, late)] - table[rng.binomial(n, base)] for base, late in drawn]), ks
    )
    covered = np.mean([(one.low or np.inf) <= truth <= (one.high or np.inf) for one in found])
    assert covered >= 0.93  # a percentile bootstrap of the same: 0.84
