import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oversharp.diagnostics.statistics.entropy import chao_wang_jost_entropy, plug_in_entropy, simpson_index

ESTIMATORS = [plug_in_entropy, chao_wang_jost_entropy, simpson_index]


def one_group(estimate, *counts: int) -> float:
    return float(estimate(np.array(counts), np.zeros(len(counts), dtype=int), 1)[0])


def printed_chao_wang_jost(counts: list[int]) -> float:
    """Eq 7 of the paper, term by term."""
    n, once, twice = sum(counts), counts.count(1), counts.count(2)
    seen = sum(x / n * sum(1 / k for k in range(x, n)) for x in counts)
    if twice:
        a = 2 * twice / ((n - 1) * once + 2 * twice)
    elif once:
        a = 2 / ((n - 1) * (once - 1) + 2)
    else:
        a = 1.0
    if a == 1.0:
        return seen
    tail = -math.log(a) - sum((1 - a) ** r / r for r in range(1, n))
    return seen + once / n * (1 - a) ** (1 - n) * tail


@pytest.mark.parametrize(
    ("estimate", "counts", "expected"),
    [
        (plug_in_entropy, (1, 1, 2), 1.5 * math.log(2)),
        (plug_in_entropy, (7,), 0.0),
        (simpson_index, (2, 2), 4 / 12),
        (simpson_index, (1, 1, 1), 0.0),
        (simpson_index, (9,), 1.0),
        # n = 3: seen = 2/3·1/2 + 1/3·(1 + 1/2) = 5/6; A = 2/(2+2) = 1/2;
        # unseen = 1/3·(1/2)^−2·(log 2 − 1/2 − 1/8) = 4/3·(log 2 − 5/8)
        (chao_wang_jost_entropy, (2, 1), 5 / 6 + 4 / 3 * (math.log(2) - 5 / 8)),
        (chao_wang_jost_entropy, (1,), 0.0),
        (chao_wang_jost_entropy, (8,), 0.0),
    ],
)
def test_estimates_by_hand(estimate, counts, expected):
    assert one_group(estimate, *counts) == pytest.approx(expected, abs=1e-15)


@pytest.mark.slow
@settings(max_examples=120, deadline=None)
@given(st.lists(st.integers(1, 6), min_size=1, max_size=12))
def test_chao_wang_jost_is_the_printed_formula(counts):
    assert one_group(chao_wang_jost_entropy, *counts) == pytest.approx(printed_chao_wang_jost(counts), rel=1e-7)


@pytest.mark.slow
@pytest.mark.parametrize("n", [64, 256, 1024, 4096])
@pytest.mark.parametrize("twice_share", [0.0, 0.01, 0.3, 0.476])
def test_the_unseen_part_holds_where_the_printed_formula_cancels(n, twice_share):
    doubletons = int(twice_share * n)
    once = n - 2 * doubletons
    a = 2 * doubletons / ((n - 1) * once + 2 * doubletons) if doubletons else 2 / ((n - 1) * (once - 1) + 2)
    j = np.arange(1, int(45 / a) + 1 if a > 1e-5 else 1, dtype=float)
    counts = [1] * once + [2] * doubletons
    seen = sum(counts.count(c) * c / n * sum(1 / k for k in range(c, n)) for c in (1, 2))
    if a > 1e-5:  # the series itself, summed to the end
        unseen = once / n * float(np.sum((1 - a) ** j / (n - 1 + j)))
        assert one_group(chao_wang_jost_entropy, *counts) == pytest.approx(seen + unseen, rel=1e-11)
    else:
        assert one_group(chao_wang_jost_entropy, *counts) == pytest.approx(printed_chao_wang_jost(counts), rel=1e-9)


@pytest.mark.parametrize("big", [500, 4000])
def test_one_rare_answer_beside_a_common_one_stays_finite(big):
    for counts in ([big, 1, 2], [big, 1, *[2] * 200], [big, 1]):
        assert 0 < one_group(chao_wang_jost_entropy, *counts) < math.log(big)


@pytest.mark.parametrize("estimate", ESTIMATORS)
def test_groups_do_not_mix(estimate):
    counts_A, group_A = np.array([3, 4, 1, 2, 5]), np.array([0, 1, 0, 1, 0])
    together = estimate(counts_A, group_A, 2)
    assert together[0] == pytest.approx(one_group(estimate, 3, 1, 5))
    assert together[1] == pytest.approx(one_group(estimate, 4, 2))


@pytest.mark.parametrize("estimate", ESTIMATORS)
def test_a_group_without_samples_is_refused_and_no_groups_give_no_values(estimate):
    with pytest.raises(ValueError, match="group 1 has 0"):
        estimate(np.array([4]), np.array([0]), 2)
    nothing = np.array([], dtype=int)
    assert estimate(nothing, nothing, 0).shape == (0,)


def simulated_means(estimate, probabilities, n: int, repetitions: int = 1500) -> float:
    rng = np.random.default_rng(11)
    counts_RA = rng.multinomial(n, probabilities, size=repetitions)
    groups = np.repeat(np.arange(repetitions), len(probabilities))
    return float(estimate(counts_RA.reshape(-1), groups, repetitions).mean())


def test_simpson_has_no_bias_even_with_four_samples():
    probabilities = np.array([0.5, 0.2, 0.2, 0.1])
    assert simulated_means(simpson_index, probabilities, 4, 20_000) == pytest.approx(0.34, abs=0.01)


def test_chao_wang_jost_sees_most_of_what_plug_in_hides():
    # A heavy tail of 500 answers: entropy 5.2 nats, most answers never drawn in 64 samples.
    probabilities = 1 / np.arange(1, 501)
    probabilities /= probabilities.sum()
    truth = float(-(probabilities * np.log(probabilities)).sum())
    plug_in_error = simulated_means(plug_in_entropy, probabilities, 64) - truth
    corrected_error = simulated_means(chao_wang_jost_entropy, probabilities, 64) - truth
    assert plug_in_error < -1.0
    assert abs(corrected_error) < 0.35
