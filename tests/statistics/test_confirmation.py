from fractions import Fraction
from math import comb

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import fisher_exact

from oversharp.diagnostics.statistics.confirmation import fisher_fell, holm, shortlist


@pytest.mark.slow
@given(st.integers(1, 40), st.integers(1, 40), st.data())
def test_fisher_is_scipys_one_sided_test(n_base, n_late, data):
    base, late = data.draw(st.integers(0, n_base)), data.draw(st.integers(0, n_late))
    expected = fisher_exact([[base, n_base - base], [late, n_late - late]], alternative="greater").pvalue
    assert float(fisher_fell(base, n_base, late, n_late)) == pytest.approx(expected, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize(("n_base", "n_late"), [(1, 1), (5, 3), (3, 12), (60, 40), (700, 300)])
def test_fisher_is_the_sum_of_the_chances(n_base: int, n_late: int):
    base, late = (np.unique(np.linspace(0, n, 12).astype(int)) for n in (n_base, n_late))
    base_P, late_P = (counts.ravel() for counts in np.meshgrid(base, late))
    p_P = fisher_fell(base_P, n_base, late_P, n_late)
    for p, before, after in zip(p_P.tolist(), base_P.tolist(), late_P.tolist(), strict=True):
        total = before + after
        ways = sum(comb(n_late, j) * comb(n_base, total - j) for j in range(after + 1) if j <= total)
        exact = float(Fraction(ways, comb(n_base + n_late, total)))
        assert p == pytest.approx(exact, abs=1e-11)
        assert after * n_base > before * n_late or p == pytest.approx(exact, rel=1e-10)
        assert ways != comb(n_base + n_late, total) or p == 1.0


def test_samples_may_differ_from_problem_to_problem():
    p_P = fisher_fell(np.array([4, 8]), np.array([4, 8]), np.array([0, 0]), np.array([4, 8]))
    assert p_P == pytest.approx([1 / comb(8, 4), 1 / comb(16, 8)])


@pytest.mark.parametrize("counts", [(5, 4, 0, 4), (0, 4, -1, 4), (0, 0, 0, 4), (np.array([1, 9]), 4, 0, 4)])
def test_impossible_counts_are_refused(counts):
    with pytest.raises(ValueError, match="0 <= correct <= n"):
        fisher_fell(*counts)


def test_holm_by_hand():
    # ascending .01, .02, .03, .5 times 4, 3, 2, 1, never falling
    assert holm(np.array([0.5, 0.01, 0.03, 0.02])) == pytest.approx([0.5, 0.04, 0.06, 0.06])
    assert holm(np.array([0.6, 0.7])).tolist() == [1.0, 1.0]
    assert holm(np.array([])).tolist() == []


@pytest.mark.slow
@given(st.lists(st.floats(0, 1), min_size=1, max_size=12), st.randoms(use_true_random=False))
def test_holm_never_helps_and_keeps_the_order(p, random):
    p_P = np.array(p)
    adjusted_P = holm(p_P)
    assert (adjusted_P >= p_P).all()
    assert (adjusted_P <= np.minimum(1.0, len(p) * p_P) + 1e-12).all()
    order = np.argsort(p_P, kind="stable")
    assert (np.diff(adjusted_P[order]) >= 0).all()
    shuffled = list(range(len(p)))
    random.shuffle(shuffled)
    np.testing.assert_allclose(holm(p_P[shuffled]), adjusted_P[shuffled])


@pytest.mark.parametrize("p", [-0.1, 1.1, np.nan])
def test_what_is_no_p_value_is_refused(p):
    with pytest.raises(ValueError, match="between 0 and 1"):
        holm(np.array([0.5, p]))


@pytest.mark.parametrize(
    ("base", "late", "n_base", "n_late", "most", "lost", "gained"),
    [
        pytest.param([9, 6, 10, 5, 0, 1], [1, 5, 0, 5, 9, 8], 10, 10, 2, [2, 0], [4, 5], id="the most striking first"),
        pytest.param(
            [9, 6, 10, 5, 0, 1], [1, 5, 0, 5, 9, 8], 10, 10, 9, [2, 0, 1], [4, 5], id="no more than there are"
        ),
        pytest.param([9, 6, 10, 5, 0, 1], [1, 5, 0, 5, 9, 8], 10, 10, 0, [], [], id="none"),
        pytest.param([1] * 100 + [128], [0] * 100 + [30], 256, 256, 2, [100, 0], [], id="solved once, lost by chance"),
        # 5 points of a rare success are more certain than 10 points about a half, and yet less
        pytest.param([26, 280], [1, 230], 500, 500, 2, [1, 0], [], id="the largest fall where something is left"),
        pytest.param([4, 4, 4], [3, 12, 13], 16, 48, 9, [0], [2], id="rates and not counts"),
        pytest.param([8] * 5, [0] * 5, 8, 8, 3, [0, 1, 2], [], id="ties in the order of the problems"),
    ],
)
def test_the_shortlist_holds_the_most_striking_problems_of_each_direction(
    base, late, n_base, n_late, most, lost, gained
):
    found = shortlist(np.array(base), np.array(late), n_base, n_late, most=most)
    assert [side.tolist() for side in found] == [lost, gained]


def test_problems_that_lost_every_correct_sample_come_before_those_that_lost_more_of_many():
    # p of the falls that leave something is far smaller: 60 of 64 correct against 6, of 64 against 12
    base_P, late_P = np.array([60, 64, 9, 12, 50, 40]), np.array([6, 12, 0, 0, 49, 20])
    p_P = fisher_fell(base_P, 64, late_P, 64)
    assert p_P[:2].max() < p_P[2:4].min()
    lost, gained = shortlist(base_P, late_P, 64, 64, most=5)
    assert lost.tolist() == [3, 2, 0, 1, 5]
    assert gained.tolist() == []
    back_lost, back_gained = shortlist(late_P, base_P, 64, 64, most=5)
    assert (back_lost.tolist(), back_gained.tolist()) == ([], lost.tolist())


def test_all_nine_total_losses_are_drawn_again_among_many_larger_falls():
    base_P, late_P = np.concatenate([np.full(9, 12), np.full(40, 64)]), np.concatenate([np.zeros(9), np.full(40, 2)])
    lost, _ = shortlist(base_P, late_P.astype(int), 64, 64, most=20)
    assert set(lost) >= set(range(9))


def confirmed(rng, p_base_P, p_late_P):
    """Problems that the second stage confirms as lost and as gained, of 500 with 256 samples each."""
    n = 256
    lost, gained = shortlist(rng.binomial(n, p_base_P), rng.binomial(n, p_late_P), n, n, most=20)
    fresh_base_P, fresh_late_P = rng.binomial(n, p_base_P), rng.binomial(n, p_late_P)
    p = [*fisher_fell(fresh_base_P[lost], n, fresh_late_P[lost], n)]
    p += [*fisher_fell(fresh_late_P[gained], n, fresh_base_P[gained], n)]
    sure = holm(np.array(p)) <= 0.05
    return set(lost[sure[: len(lost)]]), set(gained[sure[len(lost) :]])


@pytest.mark.slow
def test_fresh_samples_confirm_what_is_lost_and_nothing_else():
    rng = np.random.default_rng(0)
    p_P = 1 / (1 + np.exp(-rng.normal(-2.6, 2.6, 500)))
    unchanged = [confirmed(rng, p_P, p_P) for _ in range(40)]
    assert sum(bool(lost or gained) for lost, gained in unchanged) <= 4  # 5 % of 40 is 2
    p_P[:10], late_P = 0.15, p_P.copy()
    late_P[:10] = 0.005
    lost, gained = confirmed(rng, p_P, late_P)
    assert lost == set(range(10))
    assert gained == set()


def test_testing_the_shortlist_on_its_own_counts_would_cry_wolf():
    rng, n = np.random.default_rng(1), 256
    p_P = np.full(500, 0.2)
    base_P, late_P = rng.binomial(n, p_P), rng.binomial(n, p_P)
    lost, _ = shortlist(base_P, late_P, n, n, most=5)
    assert (holm(fisher_fell(base_P[lost], n, late_P[lost], n)) <= 0.05).any()
