"""Verdicts on problems that were sampled until solved: what a uniform audit says is said of them too."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import binom

from oversharp.diagnostics.statistics.keys import PairedCounts, exact_key
from oversharp.diagnostics.statistics.selection import find_selection, selected_fall_p
from oversharp.diagnostics.statistics.stopping import StoppingRule
from oversharp.diagnostics.verdict.causes.guesses import _drawn_changes, _late_rates, guessing_p
from oversharp.diagnostics.verdict.causes.unparsed import ParsedEstimates, Unread, read_alone
from oversharp.diagnostics.verdict.counts import CheckpointCounts, RoundCounts, SeriesCounts
from oversharp.diagnostics.verdict.decide import verdict_of
from oversharp.diagnostics.verdict.record import Verdict

CAP, P = 128, 100
RULE = StoppingRule.doubling(first=16, cap=CAP, enough=4)
NONE_P = np.zeros(P)


def drawn(
    step: int, correct_P: np.ndarray, rng: np.random.Generator, *, unread_P=NONE_P, lenient_P=NONE_P, rule=RULE
) -> CheckpointCounts:
    """A checkpoint whose samples are correct, unparsed, accepted by the lenient reader alone, or wrong."""
    rest_P = 1 - correct_P - unread_P - lenient_P
    chances_PX = np.clip(np.stack([correct_P, unread_P, lenient_P, rest_P], axis=1), 0, 1)
    sizes = np.diff([0, *rule.rounds])
    counts_RPX = np.stack([rng.multinomial(size, chances_PX) for size in sizes]).cumsum(axis=0)
    stop_P = np.searchsorted(rule.rounds, rule.hits(rule.stop(counts_RPX[:, :, 0]))[0])
    at_RP = np.minimum(np.arange(len(rule.rounds))[:, None], stop_P)
    correct_RP, unread_RP, more_RP = (np.take_along_axis(counts_RPX[:, :, x], at_RP, axis=0) for x in range(3))
    rounds = RoundCounts(rule=rule, correct_RP=correct_RP, unread_RP=unread_RP, lenient_RP=correct_RP + more_RP)
    return CheckpointCounts(
        step=step, checkpoint=f"checkpoint-{step}", n=rule.cap, correct_P=rounds.codes, rates=None, rounds=rounds,
        minority_P=np.zeros(len(correct_P), dtype=np.int64), unread_P=unread_RP[-1], lenient_P=rounds.lenient_codes,
    )  # fmt: skip


def series(base: CheckpointCounts, *trained: CheckpointCounts) -> SeriesCounts:
    return SeriesCounts(
        series="run", base=base, trained=trained, shows_modes_P=np.zeros(len(base.correct_P), dtype=bool),
        tasks=("sums",), graders=("exact",), tokens_per_sample=None,
    )  # fmt: skip


def label(rng: np.random.Generator, rate_P: np.ndarray, late_P: np.ndarray, **late: np.ndarray) -> str:
    base = drawn(0, rate_P, rng)
    return verdict_of(series(base, *(drawn(10 * t, late_P, rng, **late) for t in (1, 2, 3)))).label


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(7)


@pytest.fixture(name="rate_P")
def rates(rng: np.random.Generator) -> np.ndarray:
    return rng.beta(0.6, 1.5, P)


@pytest.mark.slow
def test_a_loss_is_found_and_its_twin_without_a_loss_is_not(rng: np.random.Generator, rate_P: np.ndarray) -> None:
    lost_P = np.where((np.arange(P) % 5 == 0) & (rate_P > 0.02), 0.0, rate_P)
    assert label(rng, rate_P, rate_P) in ("inconclusive", "no_loss")
    assert label(rng, rate_P, lost_P) in ("degraded", "over_sharpened")


@pytest.mark.slow
def test_the_audit_that_would_settle_an_open_verdict_has_the_same_rule(rng: np.random.Generator) -> None:
    rate_P = np.arange(12) / 16
    none_P = np.zeros(12)
    counts = series(*(drawn(step, rate_P, rng, unread_P=none_P, lenient_P=none_P) for step in (0, 10)))
    verdict = verdict_of(replace(counts, tokens_per_sample=5.0, tokens_P=np.where(rate_P < 0.1, 20.0, 2.0)))
    remedy = verdict.remedy
    assert verdict.label == "inconclusive"
    assert remedy is not None
    assert (remedy.first, remedy.enough) == (16, 4)
    assert remedy.n >= 128
    assert remedy.samples is not None
    assert remedy.tokens is not None
    assert remedy.samples < 0.8 * remedy.n_problems * (remedy.n + remedy.n_base)
    assert remedy.tokens > 8.0 * remedy.samples  # mostly of the long responses
    assert f"problems, each sampled until 4 of at most {remedy.n} samples are correct" in verdict.sentence


@pytest.mark.slow
def test_truncated_samples_explain_a_fall_and_do_not_hide_a_real_one(rng: np.random.Generator, rate_P: np.ndarray):
    cut_P = np.full(P, 0.5)
    assert label(rng, rate_P, rate_P * 0.5, unread_P=cut_P) == "format"
    lost_P = np.where(np.arange(P) % 3 == 0, 0.0, rate_P)
    assert label(rng, rate_P, lost_P * 0.9, unread_P=np.full(P, 0.1)) in ("degraded", "over_sharpened")


@pytest.mark.slow
def test_answers_that_only_the_lenient_reader_accepts_are_no_loss(rng: np.random.Generator, rate_P: np.ndarray) -> None:
    assert label(rng, rate_P, rate_P * 0.6, lenient_P=rate_P * 0.4) == "format"
    assert label(rng, rate_P, rate_P * 0.6) == "degraded"


def test_false_accepts_explain_a_fall_of_rare_problems_and_not_of_others(rng: np.random.Generator) -> None:
    def p_of(rate: float) -> float:
        base_P, late_P = (RULE.draw(np.full(300, each), rng=rng, draws=1)[0] for each in (rate, 0.0))
        counts = PairedCounts(base_P=base_P, late_P=late_P, n_base=RULE, n_late=RULE)
        assert exact_key(counts, ks=[1, 8, 64], rng=rng) < 0.01  # both are falls
        return guessing_p(counts, share=0.005, ks=[1, 2, 4, 8, 16, 32], rng=rng)

    assert p_of(0.005) > 0.01
    assert p_of(0.05) <= 0.01


def test_draws_under_false_accepts_alone_fall_by_the_accepted_share(rng: np.random.Generator) -> None:
    share = 0.05
    codes_P = RULE.draw(np.full(400, 0.1), rng=rng, draws=1)[0]
    counts = PairedCounts(base_P=codes_P, late_P=codes_P, n_base=RULE, n_late=RULE)
    rate_P = _late_rates(counts, share)
    drawn_DK = _drawn_changes(counts, share, [1, 4], rng, 200)
    before_P = rate_P + share * (1 - rate_P)
    for change, k in zip(drawn_DK.mean(axis=0), (1, 4), strict=True):
        expected = ((1 - before_P) ** k - (1 - rate_P) ** k).sum()
        assert change == pytest.approx(expected, rel=0.1)
        assert expected < -5


def test_problems_chosen_by_the_base_show_no_fall_and_a_real_one_remains(rng: np.random.Generator) -> None:
    rate_P = np.full(2000, 0.004)
    base_P, late_P = RULE.draw(rate_P, rng=rng, draws=2)
    solved_P = base_P > 0
    for late, explained in ((late_P, True), (np.zeros_like(late_P), False)):
        counts = PairedCounts(base_P=base_P, late_P=late, n_base=RULE, n_late=RULE).only(solved_P)
        found = find_selection(counts)
        assert found is not None
        assert found.p < 1e-6
        assert exact_key(counts, ks=[1, 8, 64], rng=rng) < 0.01
        if explained:
            assert selected_fall_p(counts, found, ks=[1, 8, 64], rng=rng) > 0.05
    # rates that samples know well: the filter explains nothing
    base_P, late_P = RULE.draw(np.full(60, 0.3), rng=rng, draws=1)[0], RULE.draw(np.full(60, 0.03), rng=rng, draws=1)[0]
    counts = PairedCounts(base_P=base_P, late_P=late_P, n_base=RULE, n_late=RULE)
    found = find_selection(counts)
    assert found is not None
    assert selected_fall_p(counts, found, ks=[1, 8, 64], rng=rng) < 0.01


@pytest.mark.parametrize("unread", [0.0, 0.2])
def test_pass_at_k_of_parsed_samples_is_unbiased(unread: float, rng: np.random.Generator) -> None:
    # by enumeration: end points with their probabilities, and of their wrong samples the unparsed ones
    rule, rate, ks = StoppingRule(rounds=(8, 16, 32), enough=2), 0.2, [1, 2, 4]
    of_wrong = unread / (1 - rate * (1 - unread))
    mean_K, kept = np.zeros(3), 0.0
    for code, chance in enumerate(rule.chances(np.array([rate * (1 - unread)]))[0]):
        n, correct = (int(each) for each in rule.hits(np.array(code)))
        unread_X = np.arange(n // 2 + 1)[: n - correct + 1]  # with fewer parsed samples, the problem is omitted
        counts = PairedCounts(
            base_P=np.full_like(unread_X, code), late_P=np.full_like(unread_X, code), n_base=rule, n_late=rule
        )
        read = read_alone(counts, Unread(base_P=unread_X, late_P=unread_X), rng=rng)
        assert isinstance(read, ParsedEstimates)
        weight_X = chance * binom.pmf(unread_X, n - correct, of_wrong)
        mean_K += weight_X @ read.base_pass_at_k(ks)
        kept += weight_X.sum()
    # the share of omitted problems bounds the error
    assert kept > 0.98
    assert mean_K / kept == pytest.approx([1 - (1 - rate) ** k for k in ks], abs=1.01 - kept if unread else 1e-12)


def test_a_single_round_is_the_equal_design(rng: np.random.Generator, rate_P: np.ndarray) -> None:
    single = StoppingRule(rounds=(64,), enough=1)
    by_rule = series(*(drawn(10 * t, rate_P * (1 - t / 8), rng, rule=single) for t in range(4)))
    equal = replace(by_rule, base=replace(by_rule.base, rounds=None))
    equal = replace(equal, trained=tuple(replace(one, rounds=None) for one in by_rule.trained))
    one, other = verdict_of(by_rule), verdict_of(equal)
    assert one.label == other.label
    assert [each.change for each in one.changes] == pytest.approx([each.change for each in other.changes])


def test_the_verdict_tells_how_many_samples_there_were(rng: np.random.Generator, rate_P: np.ndarray) -> None:
    verdict = verdict_of(series(drawn(0, rate_P, rng), drawn(10, rate_P, rng)))
    assert verdict.until_solved is not None
    assert (verdict.until_solved.enough, verdict.until_solved.first_round, verdict.k_most) == (4, 16, 64)
    assert 16 < verdict.until_solved.mean_base < CAP
    assert Verdict.from_json(verdict.to_json()) == verdict
    assert verdict.sample_numbers[0] == "sampled until 4 correct"
