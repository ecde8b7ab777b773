"""Power by simulation: the planted loss is as large as named, and what is found of it is what was measured before."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit

from diagnostics.verdict.power import BaseRates, Design, Loss, Power, power, window_size


def _wide_rates(n_problems: int, rng: np.random.Generator) -> np.ndarray:
    """Success rates of a hard set: log-odds −2.6 ± 2.6, and a tenth that cannot be solved."""
    rate_P = expit(rng.normal(-2.6, 2.6, n_problems))
    rate_P[rng.random(n_problems) < 0.1] = 0.0
    return rate_P


def _learned(n_problems: int = 400, n: int = 512, seed: int = 0) -> BaseRates:
    rng = np.random.default_rng(seed)
    return BaseRates.of(rng.binomial(n, _wide_rates(n_problems, rng)), np.full(n_problems, n))


def test_a_problem_that_was_never_solved_is_neither_impossible_nor_as_likely_as_the_flat_prior_has_it():
    rng = np.random.default_rng(1)
    correct_P = rng.binomial(64, _wide_rates(300, rng))
    rates = BaseRates.of(correct_P, np.full(300, 64))
    mean_P = rates.a_P / (rates.a_P + rates.b_P)
    assert 0 < mean_P[correct_P == 0].max() < 1 / 66  # the flat prior's (c + 1) / (n + 2)


def test_pass_at_k_of_the_posterior_is_that_of_the_true_rates():
    rng = np.random.default_rng(2)
    rate_P = _wide_rates(2000, rng)
    rates = BaseRates.of(rng.binomial(256, rate_P), np.full(2000, 256))
    for k in (1, 16, 128):
        assert rates.pass_at_k(k) == pytest.approx(np.mean(1 - (1 - rate_P) ** k), abs=0.015)


def test_raw_shares_underrate_pass_at_large_k_and_the_posterior_does_not():
    rng = np.random.default_rng(3)
    rate_P = np.full(1000, 0.004)
    correct_P = rng.binomial(64, rate_P)
    truth = 1 - (1 - 0.004) ** 128
    raw = np.mean(1 - (1 - correct_P / 64) ** 128)
    learned = BaseRates.of(correct_P, np.full(1000, 64)).pass_at_k(128)
    assert truth - raw > 0.1
    assert learned == pytest.approx(truth, abs=0.05)


@settings(max_examples=20, deadline=None)
@given(
    fall=st.floats(0.01, 0.3), k=st.sampled_from([8, 32, 128]), centre=st.floats(-3.0, 0.5), spread=st.floats(0.3, 2.5)
)
def test_the_planted_loss_takes_what_was_named(fall: float, k: int, centre: float, spread: float):
    rng = np.random.default_rng(4)
    rate_P = expit(rng.normal(centre, spread, 200))
    rates = BaseRates.of(rng.binomial(256, rate_P), np.full(200, 256))
    loss = rates.loss(fall=fall, k=k)
    if loss is None:
        assert fall > 0.6 * rates.pass_at_k(k)
        return
    drawn_P = rates.draw(200_000, rng)
    late_P = loss.late(drawn_P, rng.normal(size=len(drawn_P)))
    fell_P = (1 - late_P) ** k - (1 - drawn_P) ** k
    assert fell_P.mean() == pytest.approx(fall, abs=0.01)


def test_no_loss_takes_more_than_there_is():
    rates = BaseRates.of(np.array([0, 0, 1, 2]), np.full(4, 256))
    assert rates.loss(fall=0.9, k=4) is None


def test_without_a_problem_there_is_nothing_to_learn():
    with pytest.raises(ValueError, match="no problem"):
        BaseRates.of(np.array([], dtype=int), np.array([], dtype=int))


def test_the_frequent_become_more_frequent_and_the_rare_rarer():
    late_P = Loss(pivot=0.1, strength=2.0).late(np.array([0.0, 0.01, 0.5, 1.0]), np.zeros(4))
    assert late_P[0] < 1e-12
    assert late_P[1] < 0.001
    assert late_P[2] > 0.95
    assert late_P[3] == pytest.approx(expit(8.0))


def test_training_that_loses_nothing_is_hardly_ever_called_over_sharpened():
    design = Design(n_problems=100, n=256, n_base=512, n_late=768)
    unchanged = Loss(pivot=0.025, strength=0.0)
    found = power(_learned(), unchanged, design, wanted=0.04, runs=100, rng=np.random.default_rng(0))
    assert found.share <= 0.05


@pytest.mark.parametrize(("fall", "low", "high"), [(0.028, 0.15, 0.55), (0.053, 0.78, 0.97), (0.082, 0.93, 1.0)])
def test_power_is_what_an_independent_simulation_measured(fall: float, low: float, high: float):
    # measured with other code at 100 problems and n = n_base = 1024: .28, .86 and .97
    rates = _learned(n_problems=2000, n=2048, seed=5)
    loss = rates.loss(fall=fall, k=512)
    design = Design(n_problems=100, n=1024, n_base=1024, n_late=3072)
    estimate = power(rates, loss, design, wanted=(low + high) / 2, runs=120, rng=np.random.default_rng(6))
    assert low <= estimate.share <= high


def test_more_problems_find_more():
    rates = _learned()
    loss = rates.loss(fall=0.04, k=128)
    designs = [Design(n_problems=n_problems, n=256, n_base=512, n_late=768) for n_problems in (30, 100, 300)]
    shares = [power(rates, loss, design, wanted=0.5, runs=60, rng=np.random.default_rng(7)).share for design in designs]
    assert shares[0] + 0.2 < shares[1] < shares[2]


def test_a_hopeless_size_is_given_up_early_and_a_close_one_is_not():
    rates = _learned()
    loss = rates.loss(fall=0.05, k=128)
    hopeless = Design(n_problems=20, n=16, n_base=32, n_late=16)
    assert power(rates, loss, hopeless, wanted=0.8, runs=400, rng=np.random.default_rng(8)).runs == 20
    close = Power(found=84, runs=100)
    low, high = close.interval()
    assert low < 0.8 < high


def test_the_window_is_a_third_of_the_checkpoints_and_at_least_one():
    assert [window_size(n) for n in (1, 2, 3, 4, 6, 8, 12, 40)] == [1, 1, 1, 1, 2, 3, 4, 13]
