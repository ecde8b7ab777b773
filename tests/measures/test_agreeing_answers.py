import numpy as np
import pytest

from oversharp.diagnostics.measures.coverage.sharpening.controls import agreeing_pass_at_k, agreeing_shares


def share_by_hand(counts, right, draws):
    ways = [float(np.prod([max(c - i, 0) for i in range(draws)])) for c in counts]
    return sum(w for w, ok in zip(ways, right, strict=True) if ok) / (sum(ways) or 1.0)


def jackknifed_by_hand(counts, right, silent, draws, k):
    """Every sample left out once, one by one."""

    def passed(own):
        return 1 - (1 - share_by_hand(own, right, draws)) ** k

    n, whole = sum(counts) + silent, passed(counts)
    without = [passed([c - (i == j) for j, c in enumerate(counts)]) for i, own in enumerate(counts) for _ in range(own)]
    return n * whole - (n - 1) * (sum(without) + silent * whole) / n


@pytest.mark.parametrize("draws", [2, 3, 8])
def test_leaving_out_one_sample_of_each_answer_is_leaving_out_every_sample(draws):
    problems = (((9, 8, 3, 1), (0, 1, 0, 1), 4), ((12, 2), (1, 0), 0), ((1, 1, 1), (1, 0, 0), 2))
    count_A = np.concatenate([one for one, _, _ in problems])
    right_A = np.concatenate([one for _, one, _ in problems]).astype(float)
    problem_A = np.repeat(range(3), [4, 2, 3])
    n_P = np.array([sum(counts) + silent for counts, _, silent in problems])
    first_P, later_P = agreeing_pass_at_k(count_A, right_A, problem_A, n_P, draws=draws, k=4)
    assert first_P == pytest.approx([jackknifed_by_hand(*one, draws, 1) for one in problems])
    assert later_P == pytest.approx([jackknifed_by_hand(*one, draws, 4) for one in problems])


def test_shares_are_of_the_ways_to_agree_and_without_a_way_none():
    # 20·19 of 20·19 + 12·11, and three answers that were seen once
    count_A, right_A = np.array([20, 12, 1, 1, 1]), np.array([1.0, 0, 1, 0, 0])
    shares = agreeing_shares(count_A, right_A, np.array([0, 0, 1, 1, 1]), 2, draws=2)
    assert shares == pytest.approx([380 / 512, 0.0])


def test_what_is_sure_stays_sure():
    first_P, later_P = agreeing_pass_at_k(
        np.array([40, 40]), np.array([1.0, 0.0]), np.array([0, 1]), np.array([40, 40]), draws=4, k=8
    )
    assert (first_P.tolist(), later_P.tolist()) == ([1.0, 0.0], [1.0, 0.0])


def test_of_128_samples_pass_at_8_is_right_in_the_mean_where_the_plain_share_gives_two_points_too_little():
    p_A, right_A, series = np.array([0.2, 0.3, 0.25, 0.25]), np.array([1.0, 0.0, 0.0, 0.0]), 10_000
    truth = 1 - (1 - 0.04 / 0.255) ** 8
    count_PA = np.random.default_rng(0).multinomial(128, p_A, size=series)
    of = (count_PA.ravel(), np.tile(right_A, series), np.repeat(np.arange(series), 4))
    plain_P = 1 - (1 - agreeing_shares(*of, series, draws=2)) ** 8
    _, found_P = agreeing_pass_at_k(*of, np.full(series, 128), draws=2, k=8)
    assert plain_P.mean() < truth - 0.02
    assert found_P.mean() == pytest.approx(truth, abs=0.005)
    assert found_P.std() < 1.15 * plain_P.std()
