import numpy as np
import pytest

from oversharp.diagnostics.statistics.crossing import Onset, onset
from oversharp.diagnostics.statistics.pass_at_k import pass_at_k_table

STEPS = list(range(10, 101, 10))


def began(mean_T, *, steps=STEPS, base_step=0, n_problems=20):
    return onset(
        np.tile(np.asarray(mean_T)[:, None], (1, n_problems)), steps, base_step, rng=np.random.default_rng(0), draws=99
    )


def bend(s0, slope=-0.004):
    return slope * np.maximum(0.0, np.array(STEPS) - s0)


@pytest.mark.parametrize("s0", [0, 20, 34, 50, 78, 90])
def test_a_hinge_without_noise_is_found_where_it_bends(s0):
    found = began(bend(s0))
    assert found.step == pytest.approx(s0, abs=0.25)
    assert found.low == pytest.approx(found.step)
    assert found.high == pytest.approx(found.step)


def test_a_lucky_base_does_not_move_the_bend_much():
    # All late checkpoints lie 0.03 below the base before anything happens.
    assert began(bend(50) - 0.03).step == pytest.approx(50, abs=6)


def test_steps_need_not_be_even_and_the_base_need_not_be_zero():
    steps = [110, 120, 150, 200, 210, 300]
    mean_T = -0.002 * np.maximum(0.0, np.array(steps) - 160)
    assert began(mean_T, steps=steps, base_step=100).step == pytest.approx(160, abs=0.5)


@pytest.mark.parametrize("mean_T", [np.zeros(10), np.linspace(0.01, 0.1, 10), 1e-14 * bend(50)])
def test_what_does_not_fall_has_no_onset(mean_T):
    assert began(mean_T) is None


def test_two_late_checkpoints_are_the_least():
    assert began([-0.1], steps=[10]) is None
    assert began([0.0, -0.1], steps=[10, 20]).step == pytest.approx(10.0)
    assert began([-0.1, -0.2], steps=[10, 20]).step == pytest.approx(0.0)


def test_one_problem_may_have_begun_at_any_time():
    found = began(bend(50), n_problems=1)
    assert (found.low, found.high) == (0.0, None)
    assert found.step == pytest.approx(50, abs=0.25)


def test_problems_that_bend_at_different_steps_widen_the_interval():
    early_late = np.stack([bend(20), bend(80)] * 15, axis=1)
    found = onset(early_late, STEPS, 0, rng=np.random.default_rng(0))
    assert 20 <= found.low < found.step < found.high <= 80
    assert found.high - found.low > 5


def test_where_a_resample_may_not_fall_the_interval_is_open():
    change_TP = np.stack([bend(50)] * 3 + [-0.6 * bend(50)] * 4, axis=1)
    found = onset(change_TP, STEPS, 0, rng=np.random.default_rng(0))
    assert isinstance(found, Onset)
    assert found.high is None


@pytest.mark.parametrize(("steps", "base_step"), [([20, 10], 0), ([10, 20], 10), ([10], 0), ([10, 10], 0)])
def test_steps_that_do_not_ascend_from_the_base_are_refused(steps, base_step):
    with pytest.raises(ValueError, match="steps must ascend"):
        onset(np.zeros((2, 4)), steps, base_step, rng=np.random.default_rng(0))


def test_no_problem_is_refused():
    with pytest.raises(ValueError, match="at least one problem"):
        onset(np.zeros((2, 0)), [10, 20], 0, rng=np.random.default_rng(0))


def test_a_planted_decline_is_dated_and_the_first_below_zero_is_early():
    rng, table_C = np.random.default_rng(1), pass_at_k_table(256, [32])[:, 0]
    odds_P = rng.normal(-2.6, 2.6, 200)
    dated, covered, first_below = [], [], []
    for _ in range(80):
        # Four in ten problems are lost, one after the other from step 45 on.
        lost_at_P = np.where(rng.random(200) < 0.4, rng.uniform(45, 110, 200), np.inf)
        factor_TP = np.where(np.array(STEPS)[:, None] > lost_at_P, 0.01, 1.0)
        p_P = 1 / (1 + np.exp(-odds_P))
        change_TP = table_C[rng.binomial(256, p_P * factor_TP)] - table_C[rng.binomial(256, p_P)]
        found = onset(change_TP, STEPS, 0, rng=rng, draws=199)
        dated.append(found.step)
        covered.append(found.low <= 45 <= (found.high or 1000))
        first_below.append(STEPS[int(np.argmax(change_TP.mean(axis=1) < 0))])
    assert 35 <= np.median(dated) <= 55
    assert np.mean(covered) >= 0.85
    assert np.mean(np.array(first_below) < 45) > 0.5
    assert np.mean(np.array(dated) < 30) < 0.1
