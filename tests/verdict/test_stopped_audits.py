"""Planned audits whose problems are sampled until solved: cost and power are those of their simulation."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pytest
from scipy.special import expit

from oversharp.diagnostics.statistics.keys import PairedCounts, inference_ks
from oversharp.diagnostics.statistics.stopping import StoppingRule
from oversharp.diagnostics.verdict.audit_sizes import SampleLengths, audit_cost, audit_design, settle
from oversharp.diagnostics.verdict.power import BaseRates, Design, _audits, power
from oversharp.diagnostics.verdict.rule import KEY_LEVEL
from oversharp.diagnostics.verdict.seen import SeenCounts
from oversharp.diagnostics.verdict.table import run_tests

P = 200


@lru_cache
def _rates(n: int = 256) -> BaseRates:
    """A hard set: log-odds −2.6 ± 2.6."""
    rng = np.random.default_rng(0)
    return BaseRates.of(rng.binomial(n, expit(rng.normal(-2.6, 2.6, P))), np.full(P, n))


class NoLoss:
    """Training that changes no success rate."""

    law = "diffuse"

    def late(self, rate_P: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return rate_P


def _designs(n: int = 64, n_checkpoints: int = 6) -> tuple[Design, Design]:
    """A uniform audit, and one that stops after 4 correct samples."""
    return audit_design(P, n, n_checkpoints), audit_design(P, n, n_checkpoints, first=16, enough=4)


def test_expected_samples_are_those_of_the_simulated_audits() -> None:
    _, design = _designs()
    audits = list(_audits(_rates(), NoLoss(), design, 60, np.random.default_rng(1)))
    base = np.mean([counts.base_hits[0].sum() for counts, _ in audits])
    window = np.mean([counts.late_hits[0].sum() for counts, _ in audits])
    assert {counts.late_P.shape for counts, _ in audits} == {(2, P)}
    assert audit_cost(_rates(), design, 6, None)[0] == pytest.approx(base + 3 * window, rel=0.02)
    # the base goes on to 128 samples where the checkpoints end at 64
    assert base > 1.15 * window / 2


def test_a_uniform_audit_costs_its_samples_and_one_that_never_stops_the_same() -> None:
    uniform, _ = _designs()
    assert audit_cost(_rates(), uniform, 6, SampleLengths(mean=10.0)) == (P * 8 * 64, 10.0 * P * 8 * 64)
    # 64 correct samples of at most 64 is a rule, but the first round is the only one
    never = audit_design(P, 64, 6, n_base=64, first=64, enough=64)
    assert audit_cost(_rates(), never, 6, None)[0] == P * 7 * 64


def test_long_responses_of_hard_problems_save_fewer_tokens_than_samples() -> None:
    uniform, stopped = _designs()
    hard_P = _rates().a_P / (_rates().a_P + _rates().b_P) < 0.05
    assert 0.2 < hard_P.mean() < 0.8
    lengths = SampleLengths(mean=float(np.where(hard_P, 300.0, 100.0).mean()), mean_P=np.where(hard_P, 300.0, 100.0))
    all_samples, all_tokens = audit_cost(_rates(), uniform, 6, lengths)
    samples, tokens = audit_cost(_rates(), stopped, 6, lengths)
    assert all_tokens is not None
    assert tokens is not None
    base, late = (_rates().expected_samples(rule) for rule in (stopped.of_base, stopped.of_checkpoint))
    per_problem_P = base + 6 * late
    assert tokens == pytest.approx(300 * per_problem_P[hard_P].sum() + 100 * per_problem_P[~hard_P].sum())
    assert samples / all_samples + 0.1 < tokens / all_tokens < 1
    # with equal lengths, as many tokens as samples are saved
    equal = SampleLengths(mean=200.0, mean_P=np.full(P, 200.0))
    assert audit_cost(_rates(), stopped, 6, equal)[1] == pytest.approx(200 * per_problem_P.sum())


def test_checkpoints_that_lost_problems_cost_more_than_the_base() -> None:
    uniform, stopped = _designs()
    lost_P = np.where(np.arange(P) % 4 == 0, 0, 64)
    lost, kept = (BaseRates.of(correct_P, np.full(P, 64)) for correct_P in (lost_P, np.full(P, 64)))
    # 16 samples of every problem, and 64 of the lost quarter
    means = [audit_cost(_rates(), stopped, 6, None, trained)[0] for trained in ([lost], [kept], [lost, kept])]
    assert means[0] - means[1] == pytest.approx(6 * P / 4 * 48, rel=0.02)
    assert means[2] == pytest.approx((means[0] + means[1]) / 2, abs=1)
    assert audit_cost(_rates(), uniform, 6, None, [lost]) == audit_cost(_rates(), uniform, 6, None)


def test_uniform_audits_are_simulated_as_before_stopping_rules() -> None:
    """Numbers that were computed when there were no stopping rules."""
    rng = np.random.default_rng(0)
    rates = BaseRates.of(rng.binomial(64, expit(rng.normal(-2.6, 2.6, 100))), np.full(100, 64))
    design = Design(n_problems=60, n=32, n_base=64, n_late=96)
    assert rates.pass_at_k(16) == pytest.approx(0.6030451604183587, abs=1e-12)
    found = [
        power(rates, loss, design, wanted=0.8, runs=40, rng=np.random.default_rng(3))
        for fall in (0.06, 0.1)
        for loss in rates.losses(fall=fall, k=16)
    ]
    assert [(one.found, one.runs) for one in found] == [(10, 20), (3, 20), (38, 40), (6, 20)]


def test_a_rule_needs_its_first_round_and_its_number_of_correct_samples() -> None:
    with pytest.raises(ValueError, match="needs first and enough; got 16 and None"):
        audit_design(P, 64, 6, first=16)
    base = audit_design(P, 64, 6, first=16, enough=4).of_base
    assert base == StoppingRule(rounds=(16, 32, 64, 128), enough=4)


@pytest.mark.slow
def test_stopped_audits_that_lose_nothing_are_hardly_ever_called_a_loss() -> None:
    _, design = _designs()
    found = power(_rates(), NoLoss(), design, wanted=0.04, runs=60, rng=np.random.default_rng(0))
    assert found.share <= 0.05


@pytest.mark.slow
def test_the_power_of_a_stopped_audit_is_what_the_rule_itself_finds() -> None:
    _, design = _designs()
    loss = _rates().losses(fall=0.035, k=32)[0]
    promised = power(_rates(), loss, design, wanted=0.5, runs=150, known_to=0.0, rng=np.random.default_rng(1))
    ks, rng, found = inference_ks(design.n), np.random.default_rng(2), []
    base, late = (StoppingRule.doubling(first=16, cap=cap, enough=4) for cap in (128, 64))
    for _ in range(50):
        rate_P = _rates().draw(P, rng)
        late_P = loss.late(rate_P, rng)
        counts = PairedCounts(
            base_P=base.draw(rate_P, rng=rng, draws=1)[0],
            late_P=late.draw(late_P, rng=rng, draws=2),  # the last two of six checkpoints
            n_base=base,
            n_late=late,
        )
        seen = SeenCounts(total=counts, window=[counts], steps=[counts], ks=ks, step_ks=(1,))
        window = run_tests(seen, rng=rng).window
        found.append(window.p_exact <= KEY_LEVEL and window.p_population <= KEY_LEVEL)
    assert 0.25 < promised.share < 0.9  # else both would agree by being certain
    assert np.mean(found) == pytest.approx(promised.share, abs=0.18)


@pytest.mark.slow
def test_stopping_costs_little_power_and_too_early_costs_more() -> None:
    loss = _rates().losses(fall=0.05, k=64)[0]

    def share(first: int | None, enough: int | None) -> float:
        design = audit_design(P, 128, 3, first=first, enough=enough)
        return power(_rates(), loss, design, wanted=0.5, runs=60, known_to=0.0, rng=np.random.default_rng(5)).share

    uniform, stopped, early = share(None, None), share(16, 4), share(4, 1)
    assert 0.7 < uniform < 0.98
    assert stopped == pytest.approx(uniform, abs=0.1)
    assert early < stopped - 0.3


@pytest.mark.slow
def test_the_audit_that_settles_a_stopped_one_has_the_same_rule_and_its_expected_cost() -> None:
    rng = np.random.default_rng(0)
    rate_P = expit(rng.normal(-2.0, 2.0, 100))
    rule = StoppingRule.doubling(first=16, cap=128, enough=4)
    drawn_P, correct_P = rule.hits(rule.draw(rate_P, rng=rng, draws=1)[0])
    lengths = SampleLengths(mean=10.0, mean_P=np.where(correct_P < 4, 20.0, 5.0))

    def settled(first: int | None, enough: int | None):
        return settle(
            correct_P, 128, n=64, drop=0.05, lengths=lengths, n_checkpoints=6, rng=np.random.default_rng(0), k=32,
            drawn_P=drawn_P, first=first, enough=enough,
        )  # fmt: skip

    stopped, uniform = settled(16, 4), settled(None, None)
    assert stopped is not None
    assert uniform is not None
    assert (stopped.first, stopped.enough, uniform.first, uniform.enough) == (16, 4, None, None)
    assert uniform.samples == uniform.n_problems * (6 * uniform.n + uniform.n_base)
    assert uniform.tokens == 10.0 * uniform.samples
    design = audit_design(stopped.n_problems, stopped.n, 6, n_base=stopped.n_base, first=16, enough=4)
    assert (stopped.samples, stopped.tokens) == audit_cost(BaseRates.of(correct_P, drawn_P), design, 6, lengths)
    assert stopped.samples < 0.7 * stopped.n_problems * (6 * stopped.n + stopped.n_base)
    assert stopped.tokens > 11 * stopped.samples  # mostly of the long problems
