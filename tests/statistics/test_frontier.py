import numpy as np
import pytest
from scipy.special import expit, logit
from sklearn.isotonic import isotonic_regression

from oversharp.diagnostics.statistics.frontier import FrontierPoints, _sort_by_pooling, against_frontier, frontier_curve

BASE, COLD = (0.3, 0.9), (0.5, 0.7)


def points(*xy, limit=0.6, n=200):
    made = np.array(xy)
    return FrontierPoints(
        sharpness_S=np.linspace(0, 1, len(xy)),
        x_SP=np.repeat(made[:, :1], n, axis=1),
        y_SP=np.repeat(made[:, 1:], n, axis=1),
        limit_P=None if limit is None else np.full(n, limit),
    )


def against(frontier, *xy, groups=None):
    made = np.array(xy)
    n = frontier.x_SP.shape[1]
    return against_frontier(
        frontier,
        np.repeat(made[:, :1], n, axis=1),
        np.repeat(made[:, 1:], n, axis=1),
        groups=groups or [[place] for place in range(len(made))],
        rng=np.random.default_rng(0),
    )


def test_between_two_points_logits_of_pass_at_1_and_logarithms_of_the_missed_are_in_line():
    [found] = against(points(BASE, COLD), (0.55, 0.8))
    way = np.log(0.2 / 0.1) / np.log(0.3 / 0.1)
    x = expit(logit(0.3) + way * (logit(0.5) - logit(0.3)))
    assert found.gain.value == pytest.approx(0.55 - x, abs=2e-3)
    assert found.share.value == pytest.approx((x - 0.3) / 0.25, abs=1e-2)
    assert found.gain.low < found.gain.value < found.gain.high


def test_the_colder_base_itself_is_on_the_frontier_and_neither_better_nor_worse():
    found = against(points(BASE, (0.4, 0.85), COLD), (0.4, 0.85), COLD)
    for one in found:
        assert one.gain.value == pytest.approx(0, abs=2e-3)
        assert one.loss.value == pytest.approx(0, abs=2e-3)
        assert max(one.above, one.below) < 0.975


def test_a_run_above_the_frontier_is_better_and_its_mirror_worse():
    up, down = against(points(BASE, COLD), (0.45, 0.85), (0.35, 0.75))
    assert (up.above, up.below) == (1, 0)
    assert (down.above, down.below) == (0, 1)
    assert up.loss.value > 0 > down.loss.value
    assert down.share.value > 1


def test_beyond_the_sharpest_draw_there_are_bounds_and_no_value():
    [found] = against(points(BASE, COLD), (0.58, 0.65))
    assert found.gain.value is None
    assert "beyond the sharpest sample" in found.gain.why
    assert found.gain.low <= 0.58 - 0.6
    assert found.gain.high >= 0.58 - 0.5
    assert found.share.value is None


def test_what_no_sharpening_reaches_is_said_and_not_extrapolated():
    [higher, covered] = against(points(BASE, COLD), (0.7, 0.8), (0.4, 0.97))
    assert (higher.loss.value, higher.loss.high) == (None, None)
    assert "out of reach of sharpening the base" in higher.loss.why
    assert higher.gain.value > 0.2
    assert (covered.gain.value, covered.gain.high) == (None, None)
    assert covered.gain.low == pytest.approx(0.1, abs=0.02)


def test_less_pass_at_1_than_the_base_is_no_sharpening():
    [found] = against(points(BASE, COLD), (0.2, 0.85))
    assert found.loss.value is None
    assert "the opposite of sharpening" in found.loss.why
    assert found.below == 1
    assert found.share.why == "pass@1 did not rise significantly"


def test_an_unknown_greedy_end_bounds_nothing():
    [found] = against(points(BASE, COLD, limit=None), (0.58, 0.65))
    assert found.gain.low <= 0.58 - 1
    assert found.above == 0


def test_a_draw_out_of_order_is_pooled_with_its_neighbour():
    x, y = frontier_curve(points(BASE, (0.5, 0.7), (0.46, 0.74)))
    assert (np.diff(x) >= -1e-12).all()
    assert (np.diff(y) <= 1e-12).all()
    assert (x[-1], y[-1]) == pytest.approx((0.48, 0.72), abs=1e-6)


@pytest.mark.parametrize("n_points", [1, 2, 4, 9])
def test_rows_that_fall_are_pooled_as_by_isotonic_regression(n_points: int):
    rng = np.random.default_rng(n_points)
    value_DS = np.sort(rng.random((50, n_points)), axis=1) + rng.normal(0.0, 0.2, (50, n_points))
    expected_DS = np.array([isotonic_regression(value_S) for value_S in value_DS])
    assert _sort_by_pooling(value_DS) == pytest.approx(expected_DS, abs=1e-14)
    assert _sort_by_pooling(np.array([[3.0, 1.0, 2.0, 5.0]])).tolist() == [[2.0, 2.0, 2.0, 5.0]]
    assert _sort_by_pooling(expected_DS) == pytest.approx(expected_DS, abs=1e-14)


def test_a_group_is_matched_one_by_one_and_then_meaned():
    frontier = points(BASE, COLD)
    one, two = against(frontier, (0.45, 0.85), (0.55, 0.72))
    [both] = against(frontier, (0.45, 0.85), (0.55, 0.72), groups=[[0, 1]])
    assert both.gain.value == pytest.approx((one.gain.value + two.gain.value) / 2)


@pytest.mark.slow
def test_copies_of_a_problem_as_one_cluster_say_no_more_than_it():
    rng = np.random.default_rng(1)
    x_P, y_P = rng.uniform(0.2, 0.6, 30), rng.uniform(0.7, 0.9, 30)

    def width(copies, cluster_P):
        drawn = [np.tile(one, copies) for one in (x_P, x_P + 0.2, y_P, y_P - 0.2, x_P + 0.15)]
        frontier = FrontierPoints(
            sharpness_S=np.array([0.0, 1.0]), x_SP=np.stack(drawn[:2]), y_SP=np.stack(drawn[2:4]), limit_P=None
        )
        late = (drawn[4][None], drawn[2][None] - 0.1)
        rng = np.random.default_rng(0)
        [found] = against_frontier(frontier, *late, groups=[[0]], rng=rng, cluster_P=cluster_P, draws=2000)
        return found.gain.high - found.gain.low

    assert width(4, np.tile(np.arange(30), 4)) == pytest.approx(width(1, None), rel=0.1)
    assert width(4, None) < 0.7 * width(1, None)


def test_a_base_that_sharpening_misleads_is_not_put_below_itself() -> None:
    [found] = against(points((0.13, 0.9), (0.11, 0.7), limit=0.1), (0.13, 0.9))
    assert found.gain.value == pytest.approx(0, abs=1e-3)
    assert found.above < 0.975


@pytest.mark.slow
def test_a_run_on_the_way_that_sharpening_takes_is_not_below_it_where_that_way_leads_down():
    # half of the bases' likeliest answers are wrong: drawn colder they lose pass@1 with pass@k
    rng = np.random.default_rng(0)
    n_problems = 400
    at = {sharpness: 0.4 - 0.2 * sharpness for sharpness in (0.0, 0.25, 0.5, 1.0)}
    x = {one: np.clip(rng.normal(rate, 0.05, n_problems), 0, 1) for one, rate in at.items()}
    points = FrontierPoints(
        sharpness_S=np.array([0.0, 0.5, 1.0]),
        x_SP=np.stack([x[one] for one in (0.0, 0.5, 1.0)]),
        y_SP=np.stack([x[one] + 0.5 - 0.4 * one for one in (0.0, 0.5, 1.0)]),
        limit_P=None,
    )
    on_the_way, short = (
        against_frontier(points, run_P[None], x[0.25][None] + 0.4, groups=[[0]], rng=rng)[0]
        for run_P in (x[0.25], x[0.25] - 0.1)
    )
    assert on_the_way.gain.high < 0.0  # the base itself has more
    assert on_the_way.below < 0.5
    assert short.below > 0.99


@pytest.mark.slow
def test_the_share_of_a_rise_that_seldom_is_sure_is_held_in_the_audits_that_give_it() -> None:
    n_problems, rng = 60, np.random.default_rng(3)
    frontier = points(BASE, COLD, limit=None, n=n_problems)
    late = (0.315, 0.8)

    def audit():
        x_P = late[0] + rng.normal(0, 0.12, n_problems)  # the rise is one standard error of the mean
        [found] = against_frontier(
            frontier, x_P[None], np.full((1, n_problems), late[1]), groups=[[0]], rng=rng, draws=200
        )
        return found.share

    [exact] = against(frontier, late)
    given = [one for one in (audit() for _ in range(400)) if one.value is not None]
    assert 40 < len(given) < 100
    assert np.mean([one.low <= exact.share.value <= one.high for one in given]) >= 0.93
