"""Power by simulation: the planted loss is as large as named, and what is found of it is what was measured before."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit

from oversharp.diagnostics.statistics.keys import PairedCounts, inference_ks
from oversharp.diagnostics.verdict.counts import window_size
from oversharp.diagnostics.verdict.losses import ConcentratedLoss, DiffuseLoss
from oversharp.diagnostics.verdict.power import BaseRates, Design, guessed, power
from oversharp.diagnostics.verdict.rule import KEY_LEVEL, label_of
from oversharp.diagnostics.verdict.seen import SeenCounts
from oversharp.diagnostics.verdict.table import run_tests


def _wide_rates(n_problems: int, rng: np.random.Generator) -> np.ndarray:
    """Success rates of a hard set: log-odds −2.6 ± 2.6, and a tenth that cannot be solved."""
    rate_P = expit(rng.normal(-2.6, 2.6, n_problems))
    rate_P[rng.random(n_problems) < 0.1] = 0.0
    return rate_P


@lru_cache
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


@pytest.mark.slow
@settings(max_examples=10, deadline=None)
@given(
    fall=st.floats(0.01, 0.3), k=st.sampled_from([8, 32, 128]), centre=st.floats(-3.0, 0.5), spread=st.floats(0.3, 2.5)
)
def test_every_planted_loss_takes_what_was_named(fall: float, k: int, centre: float, spread: float):
    rng = np.random.default_rng(4)
    rate_P = expit(rng.normal(centre, spread, 200))
    rates = BaseRates.of(rng.binomial(256, rate_P), np.full(200, 256))
    drawn_P = rates.draw(100_000, rng)
    losses = rates.losses(fall=fall, k=k)
    assert len(losses) == 2 or fall > 0.6 * rates.pass_at_k(k)
    for loss in losses:
        fell_P = (1 - loss.late(drawn_P, rng)) ** k - (1 - drawn_P) ** k
        assert fell_P.mean() == pytest.approx(fall, abs=0.012)
        assert rates.changes(loss, [k]) == (pytest.approx(-fall, abs=1e-3),)


def test_no_loss_takes_more_than_there_is():
    rates = BaseRates.of(np.array([0, 0, 1, 2]), np.full(4, 256))
    assert rates.losses(fall=0.9, k=4) == ()


def test_a_concentrated_loss_kills_problems_within_reach_and_lets_the_others_rise():
    loss = ConcentratedLoss(least_rate=0.1, share=0.25)
    before_P = np.repeat([0.01, 0.5], 4000)
    late_P = loss.late(before_P, np.random.default_rng(0))
    assert (late_P[:4000] > 0).all()
    assert (late_P[4000:] == 0).mean() == pytest.approx(0.25, abs=0.03)
    assert np.median(late_P[:4000]) == pytest.approx(expit(np.log(0.01 / 0.99) + 0.6), abs=0.001)


def test_a_concentrated_loss_makes_up_for_what_the_others_gain():
    # 100 problems at 1/2, 100 never solved; at k = 1 the first rise to expit(0.6) = 0.645 if they are not lost
    rates = BaseRates.of(np.repeat([512, 0], 100), np.full(200, 1024))
    loss = rates.losses(fall=0.1, k=2)[-1]
    assert isinstance(loss, ConcentratedLoss)
    # pass@2 of those: 0.75 before, about 0.873 after; (1 - share) * 0.873 = 0.55
    assert loss.share == pytest.approx(1 - 0.55 / 0.873, abs=0.01)
    assert rates.share_lost(loss) == pytest.approx(loss.share / 2, abs=0.005)


def test_without_a_problem_there_is_nothing_to_learn():
    with pytest.raises(ValueError, match="no problem"):
        BaseRates.of(np.array([], dtype=int), np.array([], dtype=int))


def test_the_frequent_become_more_frequent_and_the_rare_rarer():
    late_P = DiffuseLoss(pivot=0.1, strength=2.0).moved(np.array([0.0, 0.01, 0.5, 1.0]), np.zeros(4))
    assert late_P[0] < 1e-12
    assert late_P[1] < 0.001
    assert late_P[2] > 0.95
    assert late_P[3] == pytest.approx(expit(8.0))


@pytest.mark.slow
def test_training_that_loses_nothing_is_hardly_ever_called_over_sharpened():
    design = Design(n_problems=100, n=256, n_base=512, n_late=768)
    for unchanged in (DiffuseLoss(pivot=0.025, strength=0.0), ConcentratedLoss(least_rate=0.01, share=0.0)):
        found = power(_learned(), unchanged, design, wanted=0.04, runs=60, rng=np.random.default_rng(0))
        assert found.share <= 0.05


@pytest.mark.slow
@pytest.mark.parametrize(("fall", "low", "high"), [(0.028, 0.15, 0.55), (0.053, 0.78, 0.97), (0.082, 0.93, 1.0)])
def test_power_is_what_an_independent_simulation_measured(fall: float, low: float, high: float):
    # measured with other code at 100 problems and n = n_base = 1024: .28, .86 and .97
    rates = _learned(n_problems=800, n=2048, seed=5)
    loss = rates.losses(fall=fall, k=512)[0]
    design = Design(n_problems=100, n=1024, n_base=1024, n_late=3072)
    estimate = power(rates, loss, design, wanted=(low + high) / 2, runs=100, rng=np.random.default_rng(7))
    assert low <= estimate.share <= high


@pytest.mark.slow
@pytest.mark.parametrize("law", [0, 1], ids=["diffuse", "concentrated"])
def test_what_is_promised_is_what_the_rule_itself_says(law: int):
    rates = _learned()
    design = Design(n_problems=100, n=64, n_base=128, n_late=192)
    loss = rates.losses(fall=(0.035, 0.09)[law], k=32)[law]
    promised = power(rates, loss, design, wanted=0.5, runs=200, known_to=0.0, rng=np.random.default_rng(1))
    rng = np.random.default_rng(2)
    said = [_ruled(rates, loss, design, rng) for _ in range(50)]
    both = [one.window.p_exact <= KEY_LEVEL and one.window.p_population <= KEY_LEVEL for one in said]
    assert 0.25 < promised.share < 0.85  # else both would agree by being certain
    assert np.mean(both) == pytest.approx(promised.share, abs=0.18)
    share = guessed(rates, loss, design, guess_share=0.005, runs=40, rng=rng)
    told = [label_of(one) == "guessing" for one, held in zip(said, both, strict=True) if held]
    assert share == pytest.approx(np.mean(told), abs=0.2)


def _ruled(rates, loss, design, rng):
    """The rule's own answer to an audit of one late checkpoint."""
    rate_P = rates.draw(design.n_problems, rng)
    counts = PairedCounts(
        base_P=rng.binomial(design.n_base, rate_P),
        late_P=rng.binomial(design.n_late, loss.late(rate_P, rng)),
        n_base=design.n_base,
        n_late=design.n_late,
    )
    ks = inference_ks(design.n)
    return run_tests(
        SeenCounts(total=counts, window=[counts], steps=[counts], ks=ks, step_ks=(1,), guess_share=0.005), rng=rng
    )


def test_of_a_grader_that_accepts_no_guess_nothing_is_guessed():
    rates, design = _learned(), Design(n_problems=100, n=64, n_base=128, n_late=192)
    loss = rates.losses(fall=0.08, k=32)[0]
    rng = np.random.default_rng(3)
    assert guessed(rates, loss, design, guess_share=0.0, runs=3, rng=rng) == 0.0
    assert guessed(rates, loss, design, guess_share=0.05, runs=3, rng=rng) == 1.0


def test_few_problems_say_nothing_of_others_however_much_is_lost():
    rates = BaseRates.of(np.full(50, 128), np.full(50, 256))
    loss = ConcentratedLoss(least_rate=0.1, share=0.9)
    few, enough = (
        power(
            rates,
            loss,
            Design(n_problems=n_problems, n=64, n_base=128, n_late=192),
            wanted=0.8,
            runs=20,
            rng=np.random.default_rng(0),
        )
        for n_problems in (29, 30)
    )
    assert (few.share, enough.share) == (0.0, 1.0)


@pytest.mark.slow
def test_more_problems_find_more():
    rates = _learned()
    loss = rates.losses(fall=0.04, k=128)[0]
    designs = [Design(n_problems=n_problems, n=256, n_base=512, n_late=768) for n_problems in (30, 100, 300)]
    shares = [power(rates, loss, design, wanted=0.5, runs=60, rng=np.random.default_rng(7)).share for design in designs]
    assert shares[0] + 0.2 < shares[1] < shares[2]


def test_a_hopeless_size_is_given_up_early_unless_it_must_be_known_better():
    rates = _learned()
    loss = rates.losses(fall=0.05, k=128)[0]
    hopeless = Design(n_problems=30, n=16, n_base=32, n_late=16)
    rough = power(rates, loss, hopeless, wanted=0.8, runs=400, rng=np.random.default_rng(8))
    better = power(rates, loss, hopeless, wanted=0.8, runs=400, known_to=0.1, rng=np.random.default_rng(8))
    assert rough.runs == 20
    assert rough.known_to > 0.1 >= better.known_to


def test_the_window_is_a_third_of_the_checkpoints_and_at_least_one():
    assert [window_size(n) for n in (1, 2, 3, 4, 6, 8, 12, 40)] == [1, 1, 1, 1, 2, 3, 4, 13]
