import numpy as np
import pytest
from scipy.stats import t as student_t

from oversharp.diagnostics.statistics import band as band_module
from oversharp.diagnostics.statistics.band import simultaneous_band, stepped_down
from oversharp.diagnostics.statistics.intervals import share_interval
from oversharp.diagnostics.statistics.keys import inference_ks
from oversharp.diagnostics.statistics.pass_at_k import pass_at_k_table


def test_one_place_gets_about_the_interval_of_its_own():
    change_P = np.random.default_rng(0).normal(0.1, 0.3, 200)
    band = simultaneous_band(change_P[None, :, None], rng=np.random.default_rng(1), draws=9999)
    alone = share_interval(change_P, bounds=(-1.0, 1.0))
    assert band.mean_TK[0, 0] == pytest.approx(alone.mean)
    assert band.low_TK[0, 0] == pytest.approx(alone.low, abs=0.003)
    assert band.high_TK[0, 0] == pytest.approx(alone.high, abs=0.003)


def test_copies_of_one_place_cost_nothing_and_unrelated_places_do():
    rng = np.random.default_rng(0)
    copies = np.repeat(rng.normal(0.0, 0.3, (1, 200, 1)), 20, axis=0)
    unrelated = rng.normal(0.0, 0.3, (20, 200, 1))
    single, many, all_own = (
        simultaneous_band(change_TPK, rng=np.random.default_rng(1), draws=4999)
        for change_TPK in (copies[:1], copies, unrelated)
    )
    width = float((single.high_TK - single.low_TK)[0, 0])
    np.testing.assert_allclose(many.high_TK - many.low_TK, width)
    # Bonferroni over 20 places is what unrelated ones cost.
    bonferroni = student_t.isf(0.025 / 20, 199) / student_t.isf(0.025, 199)
    assert float((all_own.high_TK - all_own.low_TK).mean()) / width == pytest.approx(bonferroni, rel=0.06)


@pytest.mark.parametrize("n_problems", [5, 30])
def test_equal_differences_are_not_certainty(n_problems):
    band = simultaneous_band(np.zeros((1, n_problems, 2)), rng=np.random.default_rng(0), draws=9999)
    # The floor alone, as if one more problem had deviated by a full point.
    np.testing.assert_allclose(band.high_TK, student_t.isf(0.025, n_problems - 1) / n_problems, rtol=0.05)
    np.testing.assert_allclose(band.low_TK, -band.high_TK)


def test_the_alarm_is_the_first_step_that_lies_surely_below():
    change_TPK = np.zeros((5, 60, 3))
    change_TPK[2:, :, 2] = -0.5
    change_TPK[2:, :, 0] = 0.5
    assert simultaneous_band(change_TPK, rng=np.random.default_rng(0)).alarm == 2
    assert simultaneous_band(-change_TPK[:, :, 1:], rng=np.random.default_rng(0)).alarm is None


def test_the_alarm_is_one_sided():
    # Between the one-sided bound (1.70 errors) and the two-sided one (2.05).
    change_TPK = np.full((1, 30, 1), -1.85 / 30)
    band = simultaneous_band(change_TPK, rng=np.random.default_rng(0), draws=9999)
    assert band.alarm == 0
    assert band.high_TK[0, 0] > 0


def test_the_band_stays_on_the_scale_and_holds_the_mean():
    change_TPK = np.random.default_rng(0).choice([-1.0, 1.0], size=(2, 3, 2))
    band = simultaneous_band(change_TPK, rng=np.random.default_rng(0))
    assert (band.low_TK >= -1).all()
    assert (band.high_TK <= 1).all()
    assert ((band.low_TK <= band.mean_TK) & (band.mean_TK <= band.high_TK)).all()


def test_one_problem_leaves_everything_possible():
    band = simultaneous_band(np.full((2, 1, 1), -0.5), rng=np.random.default_rng(0))
    assert band.mean_TK.tolist() == [[-0.5], [-0.5]]
    assert band.low_TK.tolist() == [[-1.0], [-1.0]]
    assert band.high_TK.tolist() == [[1.0], [1.0]]
    assert band.alarm is None


@pytest.mark.parametrize("shape", [(0, 3, 2), (2, 0, 2), (2, 3, 0)])
def test_an_empty_axis_is_refused(shape):
    with pytest.raises(ValueError, match="a step, a problem and a k"):
        simultaneous_band(np.zeros(shape), rng=np.random.default_rng(0))


def test_drawing_in_pieces_keeps_the_band(monkeypatch):
    change_TPK = np.random.default_rng(0).normal(0.0, 0.3, (3, 50, 2))
    whole = simultaneous_band(change_TPK, rng=np.random.default_rng(1), draws=999)
    monkeypatch.setattr(band_module, "_NUMBERS_AT_ONCE", 1000)
    pieces = simultaneous_band(change_TPK, rng=np.random.default_rng(1), draws=999)
    np.testing.assert_allclose(pieces.high_TK, whole.high_TK, atol=0.01)


def churned(rng, n_problems, n_steps, *, n, population=None):
    """Changes of a run in which odds drift apart from problem to problem, or their means in a large ``population``."""
    ks = inference_ks(n)
    odds_P, drift_P = rng.normal(-2.6, 2.6, n_problems), rng.normal(0.0, 0.5, n_problems)
    base_P = 1 / (1 + np.exp(-odds_P))
    late_TP = 1 / (1 + np.exp(-(odds_P + drift_P * np.linspace(0, 1, n_steps)[:, None])))
    if population:
        return np.array([[np.mean((1 - base_P) ** k - (1 - late_P) ** k) for k in ks] for late_P in late_TP])
    table = pass_at_k_table(n, ks)
    return table[rng.binomial(n, late_TP)] - table[rng.binomial(n, base_P)]


@pytest.mark.slow
@pytest.mark.parametrize("n_problems", [10, 30, 100])
def test_the_band_holds_all_true_differences_together(n_problems):
    truth_TK = churned(np.random.default_rng(9), 200_000, 8, n=64, population=True)
    rng = np.random.default_rng(n_problems)
    held = []
    for _ in range(200):
        band = simultaneous_band(churned(rng, n_problems, 8, n=64), rng=rng, draws=199)
        held.append(bool(((band.low_TK <= truth_TK) & (truth_TK <= band.high_TK)).all()))
    assert np.mean(held) >= 0.95


@pytest.mark.slow
def test_without_a_loss_the_alarm_is_rare_and_a_planted_loss_is_found():
    rng = np.random.default_rng(3)
    table, alarms, found = pass_at_k_table(256, inference_ks(256)), 0, []
    for _ in range(150):
        p_P = 1 / (1 + np.exp(-rng.normal(-2.6, 2.6, 100)))
        late_TP = np.tile(p_P, (9, 1))
        base_PK = table[rng.binomial(256, p_P)]
        alarms += simultaneous_band(table[rng.binomial(256, late_TP)] - base_PK, rng=rng, draws=199).alarm is not None
        late_TP[4:, :35] /= 30
        found.append(simultaneous_band(table[rng.binomial(256, late_TP)] - base_PK, rng=rng, draws=199).alarm)
    assert alarms / 150 <= 0.06
    assert np.mean([alarm is not None and alarm >= 4 for alarm in found]) > 0.9


def test_a_test_is_compared_with_those_of_smaller_statistics_alone():
    null_DX = np.array([[2.0, 0.0, 9.0], [0.0, 1.0, 0.0], [0.0, 4.0, 0.0]])
    # the largest statistic with all three; then the first two; then the smallest alone, and never below the one before
    assert stepped_down(np.array([3.0, 1.5, 5.0]), null_DX).tolist() == [0.5, 0.5, 0.5]
    assert stepped_down(np.array([1.0, 0.5, 10.0]), null_DX).tolist() == [1.0, 1.0, 0.25]
