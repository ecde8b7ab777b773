"""Samples drawn until solved: estimates are unbiased, by summing over all end points with their probabilities."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain, combinations
from math import comb

import numpy as np
import pytest

from oversharp.diagnostics.statistics.keys import PairedCounts, exact_key
from oversharp.diagnostics.statistics.pass_at_k import pass_at_k_table, within_problem_covariance_table
from oversharp.diagnostics.statistics.stopping import StoppingRule

RULES = [
    StoppingRule(rounds=(8, 16, 32, 64), enough=2),
    StoppingRule(rounds=(16, 32, 64), enough=4),
    StoppingRule(rounds=(2, 8), enough=5),  # no problem stops after the first round
    StoppingRule(rounds=(5, 6, 13), enough=1),
    StoppingRule(rounds=(7, 20, 50), enough=3),
    StoppingRule.doubling(first=16, cap=100, enough=4),
    StoppingRule(rounds=(64,), enough=1),
]
RATES = (0.0, 0.001, 0.02, 0.3, 0.9, 1.0)


def probabilities(rule: StoppingRule, rate: float) -> dict[tuple[int, int], float]:
    """Probability of every end point, round by round and without the rule's own path counts."""
    going, ended, before = {0: 1.0}, {}, 0
    for n in rule.rounds:
        more = n - before
        after: dict[int, float] = {}
        for correct, p in going.items():
            for new in range(more + 1):
                chance = comb(more, new) * rate**new * (1 - rate) ** (more - new)
                after[correct + new] = after.get(correct + new, 0.0) + p * chance
        stops = {correct for correct in after if correct >= rule.enough or n == rule.cap}
        ended |= {(n, correct): after[correct] for correct in stops}
        going = {correct: p for correct, p in after.items() if correct not in stops}
        before = n
    return ended


@pytest.mark.parametrize("rule", RULES, ids=str)
@pytest.mark.parametrize("rate", RATES)
def test_pass_at_k_and_its_covariance_are_unbiased(rule: StoppingRule, rate: float) -> None:
    by_end = probabilities(rule, rate)
    p_E = np.array([by_end[end] for end in rule.ends])
    assert len(rule.ends) == len(by_end) == rule.cap + 1
    assert p_E.sum() == pytest.approx(1.0)
    ks = [k for k in (1, 2, 3, 6, 16, 32) if 2 * k <= rule.cap]
    every_EK = rule.pass_at_k_table([*ks, rule.cap])
    assert p_E @ every_EK == pytest.approx([1 - (1 - rate) ** k for k in [*ks, rule.cap]], abs=1e-12)
    pass_EK = every_EK[:, :-1]
    centred_EK = pass_EK - p_E @ pass_EK
    true_KK = np.einsum("e,ek,ej->kj", p_E, centred_EK, centred_EK)
    assert np.tensordot(p_E, rule.covariance_table(ks), 1) == pytest.approx(true_KK, abs=1e-12)
    n_E = np.array([n for n, _ in rule.ends])
    assert rule.expected_samples(np.array([rate]))[0] == pytest.approx(p_E @ n_E)


@pytest.mark.parametrize("rule", [rule for rule in RULES if len(rule.rounds) > 1 and rule.cap < 64], ids=str)
@pytest.mark.parametrize("rate", [0.05, 0.3])
def test_the_covariance_is_unbiased_at_every_pair_of_k(rule: StoppingRule, rate: float) -> None:
    by_end = probabilities(rule, rate)
    p_E = np.array([by_end[end] for end in rule.ends])
    ks = list(range(1, rule.cap // 2 + 1))
    pass_EK = rule.pass_at_k_table(ks)
    centred_EK = pass_EK - p_E @ pass_EK
    true_KK = np.einsum("e,ek,ej->kj", p_E, centred_EK, centred_EK)
    assert np.tensordot(p_E, rule.covariance_table(ks), 1) == pytest.approx(true_KK, abs=1e-12)


def test_the_share_of_correct_samples_is_biased_where_the_estimate_is_not() -> None:
    rule, rate = StoppingRule(rounds=(1, 2), enough=1), 0.5
    p_E = np.array([probabilities(rule, rate)[end] for end in rule.ends])
    n_E, correct_E = np.array(rule.ends).T
    assert p_E @ (correct_E / n_E) == pytest.approx(0.625)  # 1/2 · 1 + 1/4 · 1/2
    assert p_E @ rule.pass_at_k_table([1])[:, 0] == pytest.approx(0.5)


def test_estimates_are_probabilities_that_grow_with_k_and_covariances_are_never_negative() -> None:
    n_rules = 0
    for cap in range(2, 8):
        for inner in chain.from_iterable(combinations(range(1, cap), size) for size in range(cap)):
            for enough in range(1, cap + 1):
                rule = StoppingRule(rounds=(*inner, cap), enough=enough)
                table_EK = rule.pass_at_k_table(range(1, cap + 1))
                assert table_EK.min() == 0.0
                assert table_EK.max() == 1.0
                assert (np.diff(table_EK, axis=1) >= 0).all()
                assert (np.diff(table_EK, axis=0) >= 0).all()
                assert rule.covariance_table(range(1, cap // 2 + 1)).min() >= 0.0
                n_rules += 1
    assert n_rules == sum(2 ** (cap - 1) * cap for cap in range(2, 8))


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_codes_order_the_end_points_from_never_solved_to_always_solved(rule: StoppingRule) -> None:
    table_EK = rule.pass_at_k_table([1, rule.cap])
    assert rule.ends[0] == (rule.cap, 0)
    assert table_EK[0].tolist() == [0.0, 0.0]
    assert table_EK[-1].tolist() == [1.0, 1.0]
    assert (np.diff(table_EK, axis=0) >= 0).all()
    n_P, correct_P = np.array(rule.ends).T
    assert rule.codes(n_P, correct_P).tolist() == list(range(rule.cap + 1))


def test_a_single_round_has_the_tables_of_equally_many_samples() -> None:
    rule, ks = StoppingRule(rounds=(64,), enough=1), [1, 2, 8, 32]
    assert rule.pass_at_k_table(ks) == pytest.approx(pass_at_k_table(64, ks), abs=1e-15)
    assert rule.covariance_table(ks) == pytest.approx(within_problem_covariance_table(64, ks), abs=1e-15)


@pytest.mark.parametrize("rule", RULES, ids=str)
@pytest.mark.parametrize("n_problems", [0, 1, 40])
def test_draws_are_those_of_one_problem_rate_after_another(rule: StoppingRule, n_problems: int) -> None:
    rate_P = np.random.default_rng(1).choice([0.0, 0.1, 0.25, 0.6, 1.0], size=n_problems)
    rng, drawn_DP = np.random.default_rng(5), np.zeros((7, n_problems), dtype=np.int64)
    for rate in np.unique(rate_P):
        uniform_DX = rng.random((7, int((rate_P == rate).sum())))
        cumulative_E = rule.chances(np.array([rate]))[0].cumsum()
        drawn_DP[:, rate_P == rate] = np.minimum(np.searchsorted(cumulative_E, uniform_DX, side="right"), rule.cap)
    for _ in range(2):  # the second time with cached probabilities
        again_rng = np.random.default_rng(5)
        assert (rule.draw(rate_P, rng=again_rng, draws=7) == drawn_DP).all()
    assert again_rng.random() == rng.random()


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_samples_drawn_by_next_n_end_where_draw_ends(rule: StoppingRule) -> None:
    rng, rate = np.random.default_rng(3), 0.05
    ended = []
    for _ in range(2_000):
        n = correct = 0
        while (more := rule.next_n(n, correct)) is not None:
            correct += int(rng.binomial(more - n, rate))
            n = more
        ended.append((n, correct))
    stepped_K = rule.pass_at_k_table([1, 4])[rule.codes(*np.array(ended).T)].mean(axis=0)
    drawn_K = rule.pass_at_k_table([1, 4])[rule.draw(np.array([rate]), rng=rng, draws=20_000)[:, 0]].mean(axis=0)
    assert stepped_K == pytest.approx(drawn_K, abs=0.03)
    assert drawn_K == pytest.approx([rate, 1 - (1 - rate) ** 4], abs=0.01)


@pytest.mark.parametrize("cap", [1000, 1024])
def test_tables_of_a_large_cap_are_finite_and_monotone(cap: int) -> None:
    rule = StoppingRule.doubling(first=16, cap=cap, enough=4)
    table_EK = rule.pass_at_k_table([1, 16, cap // 2, cap])
    assert table_EK.min() == 0.0
    assert table_EK.max() == 1.0
    assert (np.diff(table_EK, axis=0) >= 0).all()
    assert (np.diff(table_EK, axis=1) >= 0).all()
    covariance_EKK = rule.covariance_table([1, 16, cap // 2])
    assert covariance_EKK.min() == 0.0
    assert covariance_EKK.max() <= 1.0


@pytest.mark.parametrize(
    ("rounds", "enough", "message"),
    [
        ((8, 8), 1, r"the rounds of a stopping rule must grow, from 1 or more samples; got \(8, 8\)"),
        ((), 1, "must grow"),
        ((0, 4), 1, "must grow"),
        ((8, 16), 17, "enough must be between 1 and 16, the cap; got 17"),
        ((8, 16), 0, "enough must be between 1 and 16, the cap; got 0"),
    ],
)
def test_rules_that_make_no_sense_are_refused(rounds: tuple[int, ...], enough: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        StoppingRule(rounds=rounds, enough=enough)


def test_counts_and_k_that_do_not_fit_the_rule_are_refused() -> None:
    rule = StoppingRule(rounds=(8, 16), enough=2)
    with pytest.raises(ValueError, match="1 correct of 8 samples: not an end point"):
        rule.codes(np.array([16, 8]), np.array([0, 1]))
    with pytest.raises(ValueError, match=r"needs 1 <= k <= 16 with at most 16 samples; got k = \[17\]"):
        rule.pass_at_k_table([17])
    with pytest.raises(ValueError, match="needs 1 <= k <= 8"):
        rule.covariance_table([9])


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_the_key_of_a_single_round_is_near_the_exact_key(seed: int) -> None:
    rng, rule = np.random.default_rng(seed), StoppingRule(rounds=(64,), enough=1)
    rate_P = rng.beta(0.5, 1.0, 100)
    base_P, late_P = (rule.draw(rate, rng=rng, draws=1)[0] for rate in (rate_P, 0.9 * rate_P))
    ks = [1, 8, 32]
    parametric = exact_key(
        PairedCounts(base_P=base_P, late_P=late_P, n_base=rule, n_late=rule), ks=ks, rng=rng, draws=4_000
    )
    exact = exact_key(PairedCounts(base_P=base_P, late_P=late_P, n_base=64, n_late=64), ks=ks, rng=rng, draws=4_000)
    assert parametric == pytest.approx(exact, rel=0.5, abs=0.05)


@pytest.mark.slow
def test_the_key_finds_lost_problems_and_calls_unchanged_ones_no_loss() -> None:
    rule, ks = StoppingRule(rounds=(8, 16, 32, 64), enough=2), [1, 8, 32]
    p_values: dict[str, list[float]] = {"unchanged": [], "lost": []}
    for rng in np.random.default_rng(5).spawn(40):
        rate_P = rng.beta(0.5, 1.0, 60)
        base_P = rule.draw(rate_P, rng=rng, draws=1)[0]
        lost_P = np.where(np.arange(60) % 6 == 0, 0.0, rate_P)
        for name, late_P in (("unchanged", rate_P), ("lost", lost_P)):
            late_TP = rule.draw(late_P, rng=rng, draws=2)
            counts = PairedCounts(base_P=base_P, late_P=late_TP, n_base=rule, n_late=rule)
            p_values[name].append(exact_key(counts, ks=ks, rng=rng))
    assert np.mean(np.array(p_values["unchanged"]) <= 0.05) <= 0.15
    assert np.mean(np.array(p_values["lost"]) <= 0.05) >= 0.6


def test_problems_that_are_always_or_never_solved_show_nothing() -> None:
    rule, rng = StoppingRule(rounds=(8, 16), enough=2), np.random.default_rng(0)
    base_P = np.array([0, rule.cap] * 10)
    counts = PairedCounts(base_P=base_P, late_P=base_P, n_base=rule, n_late=rule)
    assert exact_key(counts, ks=[1, 8], rng=rng) == 1.0
    with pytest.raises(ValueError, match="needs 1 <= k <= 8"):
        exact_key(replace(counts, base_P=base_P + 1 - 2 * (base_P > 0)), ks=[16], rng=rng)
