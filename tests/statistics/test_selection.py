"""Whether the base's samples chose the problems, and falls in spite of such a choice."""

from __future__ import annotations

import numpy as np
import pytest

from oversharp.diagnostics.statistics.keys import PairedCounts, exact_key
from oversharp.diagnostics.statistics.selection import find_selection, selected_fall_p
from oversharp.diagnostics.statistics.stopping import StoppingRule

N = 16
KS = [1, 2, 4, 8]


def draw(kept: str, *, late: float = 1.0, seed: int = 0, n_problems: int = 60) -> tuple[PairedCounts, np.ndarray]:
    """Counts of problems with rare correct answers, and the base's samples of each (correct or not)."""
    rng = np.random.default_rng(seed)
    rate_P = rng.beta(0.25, 3.0, 20_000)
    right_PN = rng.random((len(rate_P), N)) < rate_P[:, None]
    hits_P, first_P = right_PN.sum(axis=1), right_PN[:, :8].sum(axis=1)
    passes_P = {
        "all": hits_P >= 0,
        "mixed": (hits_P > 0) & (hits_P < N),
        "mixed in 8": (first_P > 0) & (first_P < 8),
        "rate": (hits_P >= 0.1 * N) & (hits_P <= 0.9 * N),
    }[kept]
    chosen = np.flatnonzero(passes_P)[:n_problems]
    late_P = rng.binomial(2 * N, late * rate_P[chosen])
    return PairedCounts(base_P=hits_P[chosen], late_P=late_P, n_base=N, n_late=2 * N), right_PN[chosen]


def first(right_PN: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return (
        np.where(right_PN.any(axis=1), right_PN.argmax(axis=1), N),
        np.where((~right_PN).any(axis=1), (~right_PN).argmax(axis=1), N),
    )


@pytest.mark.parametrize("kept", ["mixed", "rate", "mixed in 8"])
def test_an_unchanged_model_seems_to_lose_on_chosen_problems_and_the_choice_explains_it(kept: str) -> None:
    counts, right_PN = draw(kept)
    rng = np.random.default_rng(1)
    assert exact_key(counts, ks=KS, rng=rng) <= 0.03
    selection = find_selection(counts, *first(right_PN))
    assert selection is not None
    assert selection.p <= 0.001
    assert selected_fall_p(counts, selection, ks=KS, rng=rng) > 0.03


def test_a_real_loss_shows_in_spite_of_the_choice() -> None:
    counts, right_PN = draw("mixed", late=0.2)
    selection = find_selection(counts, *first(right_PN))
    assert selection is not None
    assert selected_fall_p(counts, selection, ks=KS, rng=np.random.default_rng(0)) <= 0.03


def test_problems_of_which_one_was_never_solved_were_not_chosen_for_being_solved() -> None:
    assert find_selection(draw("all")[0]) is None


def test_a_loss_of_stopped_samples_does_not_look_like_a_choice() -> None:
    rng = np.random.default_rng(0)
    base_P = rng.uniform(0.04, 0.6, 100)
    late_P = np.where(np.arange(100) % 2, base_P, base_P / 20)  # a lost problem has many late samples
    rule = StoppingRule(rounds=(64, 128, 256), enough=4)
    right_PN = rng.random((100, 256)) < base_P[:, None]
    base_codes_P = rule.stop(np.stack([right_PN[:, :n].sum(axis=1) for n in rule.rounds]))
    late_codes_TP = np.stack([rule.draw(late_P, rng=rng, draws=1)[0] for _ in range(3)])
    counts = PairedCounts(base_P=base_codes_P, late_P=late_codes_TP, n_base=rule, n_late=rule)
    assert base_codes_P.min() >= 1
    selection = find_selection(counts, right_PN.argmax(axis=1), (~right_PN).argmax(axis=1))
    assert selection is not None
    assert selection.p > 0.01


def test_easy_problems_that_are_all_solved_were_not_chosen() -> None:
    same = PairedCounts(base_P=np.full(40, 12), late_P=np.full(40, 24), n_base=N, n_late=2 * N)
    selection = find_selection(same)
    assert selection is not None
    assert selection.p > 0.5


def test_the_chance_that_all_were_solved_is_exact() -> None:
    # given 2 hits among 4 + 4 samples, the base has none with C(4, 2) / C(8, 2) = 6/28
    counts = PairedCounts(base_P=np.array([1, 1]), late_P=np.array([1, 1]), n_base=4, n_late=4)
    selection = find_selection(counts)
    assert selection is not None
    assert selection.p == pytest.approx((1 - 6 / 28) ** 2)


def test_the_order_of_samples_shows_a_choice_by_the_first_ones_whatever_was_lost() -> None:
    # one hit of 64 each, always among the first 8: (8 / 64) ** 4
    counts = PairedCounts(base_P=np.ones(4, int), late_P=np.full(4, 10), n_base=64, n_late=64)
    selection = find_selection(counts, np.array([7, 0, 3, 2]), np.array([0, 1, 0, 0]))
    assert selection is not None
    assert selection.p == pytest.approx(1 / 8**4)
    assert selection.weight_C[1] == pytest.approx(1 / 8)


def test_samples_that_are_sorted_by_correctness_have_no_order() -> None:
    counts = PairedCounts(base_P=np.full(4, 2), late_P=np.full(4, 2), n_base=8, n_late=8)
    for first_correct, first_wrong in ((0, 2), (6, 0)):
        ordered = find_selection(counts, np.full(4, first_correct), np.full(4, first_wrong))
        unordered = find_selection(counts)
        assert ordered is not None
        assert unordered is not None
        assert ordered.p == unordered.p


def test_a_single_sample_says_nothing_about_the_choice() -> None:
    assert find_selection(PairedCounts(base_P=np.ones(9, int), late_P=np.zeros(9, int), n_base=1, n_late=1)) is None


def test_false_alarms_on_chosen_problems_keep_the_level() -> None:
    wrong = 0
    for seed in range(60):
        counts, right_PN = draw("mixed", seed=seed, n_problems=40)
        selection = find_selection(counts, *first(right_PN))
        assert selection is not None
        wrong += selected_fall_p(counts, selection, ks=KS, rng=np.random.default_rng(seed), draws=199) <= 0.03
    assert wrong <= 6  # 1.8 expected; P(more than 6) < 0.003


def test_with_a_stopping_rule_the_order_of_samples_shows_a_choice_by_the_first_ones() -> None:
    rule = StoppingRule(rounds=(4, 8), enough=2)
    # 2 of 4 correct: 6 orders, in one the first two are wrong, in another correct. 2 of 8: one correct sample in each
    # round (16 orders), or both in the second (6); the first two are wrong in 8 + 6 of 22 orders, and correct in none
    codes_P = rule.codes(np.array([4, 8]), np.array([2, 2]))
    counts = PairedCounts(base_P=codes_P, late_P=codes_P, n_base=rule, n_late=rule)
    selection = find_selection(counts, np.array([1, 0]), np.array([0, 1]))
    assert selection is not None
    assert selection.weight_C[codes_P].tolist() == pytest.approx([5 / 6 - 1 / 6, 8 / 22])
    assert selection.p <= 5 / 6 * 8 / 22


@pytest.mark.parametrize("is_filtered", [True, False])
def test_with_a_stopping_rule_a_choice_by_the_share_of_correct_samples_is_found(is_filtered: bool) -> None:
    rng, rule = np.random.default_rng(5), StoppingRule(rounds=(16, 32, 64), enough=4)
    rate_P = rng.beta(0.25, 1.5, 2_000)
    codes_P = rule.draw(rate_P, rng=rng, draws=1)[0]
    n_P, correct_P = rule.hits(codes_P)
    chosen = np.flatnonzero((correct_P >= 0.1 * n_P) & (correct_P <= 0.9 * n_P))[:60]
    if not is_filtered:  # other base samples of the chosen problems
        codes_P = rule.draw(rate_P, rng=rng, draws=1)[0]
        chosen = chosen[codes_P[chosen] > 0]
    late_P = rule.draw(rate_P, rng=rng, draws=1)[0]
    counts = PairedCounts(base_P=codes_P[chosen], late_P=late_P[chosen], n_base=rule, n_late=rule)
    selection = find_selection(counts)
    assert selection is not None
    assert (selection.weight_C[rule.codes(np.array([64]), np.array([6]))] == 0).all() == is_filtered  # 6/64 < .1
    assert (selection.p <= 0.001) == is_filtered
