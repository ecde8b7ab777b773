import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oversharp.diagnostics.statistics.keys import (
    PairedCounts,
    checkpoint_keys,
    exact_key,
    inference_ks,
    population_key,
    sums_of_rows,
)


def paired(base, late, n_base=64, n_late=64):
    return PairedCounts(base_P=np.asarray(base), late_P=np.asarray(late), n_base=n_base, n_late=n_late)


def p_exact(base, late, *, ks=(1, 4, 16), n_base=64, n_late=64, seed=0):
    return exact_key(paired(base, late, n_base, n_late), ks=ks, rng=np.random.default_rng(seed))


def p_population(base, late, *, ks=(1, 4, 16), seed=0):
    return population_key(paired(base, late), ks=ks, rng=np.random.default_rng(seed))


def success(rng, n_problems):
    return 1 / (1 + np.exp(-rng.normal(-2.6, 2.6, n_problems)))


def sharpened(p_P):
    """Half of the problems become easy, the other half is nearly lost."""
    return np.where(np.arange(len(p_P)) % 2, np.sqrt(p_P), p_P / 20)


@pytest.mark.parametrize(
    ("base", "late"), [([1, 2], [1]), ([65], [0]), ([0], [65]), ([-1], [0]), ([3, 3], [3, -2]), ([], [1])]
)
def test_counts_that_cannot_be_are_refused(base, late):
    with pytest.raises(ValueError, match="counts "):
        paired(base, late)


def test_changes_are_differences_of_unbiased_estimates():
    counts = paired([1, 4], [4, 0], n_base=4, n_late=8)
    assert counts.n_problems == 2
    assert counts.changes([1, 2]).tolist() == pytest.approx(
        [pytest.approx([0.25, 1 - 6 / 28 - 0.5]), pytest.approx([-1.0, -1.0])]
    )
    with pytest.raises(ValueError, match="k <= n"):
        counts.changes([8])


@given(st.integers(1, 5000))
def test_ks_are_all_powers_of_two_up_to_half_the_samples(n):
    ks = inference_ks(n)
    assert ks == tuple(2**i for i in range(len(ks)))
    assert ks[-1] <= max(1, n / 2) < 2 * ks[-1] or n == 1


def test_an_unchanged_series_passes_both_keys_and_a_loss_neither():
    same, lost = np.full(40, 8), np.zeros(40, dtype=int)
    assert p_exact(same, same) > 0.2
    assert p_population(same, same) > 0.2
    assert p_exact(same, lost) == pytest.approx(1 / 600)
    assert p_population(same, lost) == pytest.approx(1 / 1000)


def test_a_loss_at_one_k_hidden_by_a_gain_at_another_is_found():
    base = np.full(100, 6)
    late = np.where(np.arange(100) % 2, 40, 0)
    assert paired(base, late).changes([1]).mean() > 0.2
    for p_value in (p_exact, p_population):
        assert p_value(base, late, ks=[1]) > 0.9
        assert p_value(base, late, ks=[1, 4, 16, 32]) < 0.01


def test_problems_that_are_always_or_never_solved_say_nothing_about_these_problems():
    rng = np.random.default_rng(0)
    base, late = rng.integers(5, 30, 30), rng.integers(0, 25, 30)
    silent = np.array([0, 64, 0, 64])
    assert p_exact(base, late) == p_exact(np.append(base, silent), np.append(late, silent))
    assert p_exact(silent, silent) == 1.0


def test_more_hits_late_in_training_never_make_a_loss_likelier():
    base = np.full(50, 12)
    late_by_hits = [np.full(50, hits) for hits in (4, 8, 10, 11, 12, 14, 20)]
    for p_value in (p_exact, p_population):
        p = [p_value(base, late) for late in late_by_hits]
        assert p == sorted(p)
        assert p[0] < 0.01 < 0.9 < p[-1]


def test_the_same_generator_gives_the_same_p():
    rng = np.random.default_rng(3)
    base, late = rng.integers(0, 30, 40), rng.integers(0, 30, 40)
    assert p_exact(base, late, seed=5) == p_exact(base, late, seed=5)
    assert p_population(base, late, seed=5) == p_population(base, late, seed=5)


def test_the_exact_key_is_exact_on_one_problem():
    # 4 of 4 before, 0 of 4 after: the after side holds none of the 4 hits in one of C(8, 4) = 70 ways.
    p = exact_key(paired([4], [0], 4, 4), ks=[1, 2], rng=np.random.default_rng(0), draws=20_000)
    assert p == pytest.approx(1 / 70, abs=0.004)
    # at k = 1, one hit or none: 17 of 70 ways
    p = [exact_key(paired([3], [1], 4, 4), ks=[1], rng=np.random.default_rng(seed)) for seed in range(300)]
    assert np.mean(p) == pytest.approx(17 / 70, abs=0.012)


@pytest.mark.slow
@pytest.mark.parametrize(("n_base", "n_late"), [(64, 64), (32, 96)])
def test_where_nothing_changed_the_exact_key_keeps_every_level(n_base, n_late):
    rng, p = np.random.default_rng(n_base), []
    for _ in range(500):
        p_P = success(rng, 20)
        counts = paired(rng.binomial(n_base, p_P), rng.binomial(n_late, p_P), n_base, n_late)
        p.append(exact_key(counts, ks=inference_ks(min(n_base, n_late)), rng=rng, draws=99))
    # An exact p is uniform on its multiples of 1/100; three standard errors of 500 draws.
    for level in (0.05, 0.2, 0.5):
        assert np.mean(np.array(p) <= level) == pytest.approx(level, abs=3 * np.sqrt(level * (1 - level) / 500))


def test_a_checkpoint_that_only_gained_is_accused_less_often_than_the_level():
    rng, p = np.random.default_rng(0), []
    for _ in range(200):
        p_P = success(rng, 30)
        counts = paired(rng.binomial(64, p_P), rng.binomial(64, np.sqrt(p_P)))
        p.append(exact_key(counts, ks=inference_ks(64), rng=rng, draws=99))
    assert np.mean(np.array(p) <= 0.05) <= 0.01


def test_the_population_key_keeps_its_level_at_thirty_problems():
    rng, p = np.random.default_rng(1), []
    ks = inference_ks(64)
    for _ in range(200):
        p_P = success(rng, 30)
        p.append(population_key(paired(rng.binomial(64, p_P), rng.binomial(64, p_P)), ks=ks, rng=rng, draws=199))
    assert np.mean(np.array(p) <= 0.05) <= 0.09  # 0.05 and three standard errors


def test_the_population_key_asks_about_problems_like_these():
    # Of all problems a third gets easier and a third harder by as much, so no pass@k of the population falls; on the
    # very problems of a set it does in every second one.
    rng, exact, population = np.random.default_rng(2), [], []
    for _ in range(80):
        shift_P = rng.choice([-0.15, 0.0, 0.15], 30)
        counts = paired(rng.binomial(256, 0.5, 30), rng.binomial(256, 0.5 + shift_P), 256, 256)
        exact.append(exact_key(counts, ks=[1], rng=rng, draws=99))
        population.append(population_key(counts, ks=[1], rng=rng, draws=199))
    assert np.mean(np.array(exact) <= 0.05) > 0.25
    assert np.mean(np.array(population) <= 0.05) <= 0.12


@pytest.mark.slow
def test_both_keys_find_a_planted_loss():
    rng = np.random.default_rng(4)
    p_P = success(rng, 100)
    found = []
    for _ in range(30):
        counts = paired(rng.binomial(256, p_P), rng.binomial(768, sharpened(p_P)), 256, 768)
        ks = inference_ks(256)
        found.append(max(exact_key(counts, ks=ks, rng=rng), population_key(counts, ks=ks, rng=rng)) <= 0.04)
    assert np.mean(found) > 0.9


def test_one_problem_is_no_population_and_none_is_no_evidence():
    assert p_population([60], [0]) == 1.0
    assert p_exact([60], [0]) < 0.01
    nothing = np.array([], dtype=int)
    assert p_exact(nothing, nothing) == p_population(nothing, nothing) == 1.0


def test_drawing_stops_where_enough_draws_were_as_low():
    from oversharp.diagnostics.statistics import keys

    # hits of one problem, one of them late: lower than that, or as low, is half of all draws
    p = [exact_key(paired([1], [0], 64, 64), ks=[1], rng=np.random.default_rng(seed)) for seed in range(200)]
    assert np.mean(p) == pytest.approx(0.5, abs=0.02)
    stopped = {round(keys._ENOUGH / one, 6) for one in p}
    assert stopped == {round(one) for one in stopped}
    assert max(stopped) < keys.EXACT_DRAWS / 4


def test_sample_sizes_may_differ():
    assert p_exact(np.full(30, 16), np.full(30, 48), ks=[1], n_base=64, n_late=192) > 0.2
    assert p_exact(np.full(30, 16), np.full(30, 16), ks=[1], n_base=64, n_late=192) < 0.01


def p_checkpoints(base, *late, ks=(1, 4, 16), n_late=64, seed=0):
    steps = [paired(base, late_P, n_late=n_late) for late_P in late]
    return checkpoint_keys(steps, ks=ks, rng=np.random.default_rng(seed), draws=3_600)


def test_only_the_checkpoints_that_fell_are_significant():
    base_P = np.full(40, 8)
    few_lost_P = np.where(np.arange(40) < 5, 0, base_P)
    p_T = p_checkpoints(base_P, base_P, few_lost_P, base_P + 1, base_P // 4)
    assert (p_T <= 0.005).tolist() == [False, True, False, True]
    assert p_T[3] <= p_T[1]


def test_a_fall_counts_less_among_more_checkpoints():
    base_P, fell_P = np.full(40, 8), np.full(40, 7)
    [alone] = p_checkpoints(base_P, fell_P)
    among = p_checkpoints(base_P, fell_P, *[base_P] * 30)
    assert alone < among[0] < 0.6


def test_a_fall_of_the_base_alone_is_not_taken_for_many_falls():
    """All checkpoints share the base's samples, so its luck moves all of them together."""
    rng = np.random.default_rng(3)
    rate_P = success(rng, 60)
    n_false = 0
    for _ in range(150):
        base_P = rng.binomial(64, rate_P)
        late = [rng.binomial(64, rate_P) for _ in range(8)]
        n_false += p_checkpoints(base_P, *late, seed=rng.integers(1 << 30)).min() <= 0.05
    assert n_false <= 15  # 150 times 5 % is 7.5


def test_single_samples_have_the_largest_variance():
    base_P = np.full(40, 1)
    lost, kept = p_checkpoints(base_P, np.zeros(40, dtype=int), base_P, ks=(1,), n_late=1)
    assert lost > 0.005
    assert kept == 1.0


@pytest.mark.parametrize(("n_draws", "n_problems"), [(0, 40), (1, 40), (32, 40), (75, 40), (75, 2)])
def test_rows_are_summed_for_any_number_of_draws(n_draws, n_problems):
    rng = np.random.default_rng(3)
    table_CK, count_DP = rng.random((33, 4)), rng.integers(0, 33, (n_draws, n_problems))
    expected = [[sum(table_CK[count, k] for count in row) for k in range(4)] for row in count_DP.tolist()]
    assert sums_of_rows(table_CK, count_DP) == pytest.approx(np.reshape(expected, (n_draws, 4)), rel=1e-13)
