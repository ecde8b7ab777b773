"""What else would explain a fall: guesses at impossible problems, samples nobody could read."""

from __future__ import annotations

import numpy as np
import pytest

from diagnostics.statistics.keys import PairedCounts
from diagnostics.verdict.explanations import Unread, guessing_p, read_alone


@pytest.mark.parametrize(("accepted", "explained"), [(0.005, 20), (0.012, 0)])
def test_guesses_at_impossible_problems_are_not_taken_for_knowledge(accepted: float, explained: int):
    # a likelihood that knows no rate below 0 calls 19 of 20 such series a loss at the assumed half a per cent
    rng = np.random.default_rng(0)
    p = []
    for _ in range(20):
        base_P = rng.binomial(256, np.full(300, accepted))
        counts = PairedCounts(base_P=base_P, late_P=np.zeros_like(base_P), n_base=256, n_late=256)
        p.append(guessing_p(counts, share=0.005, ks=[1, 2, 4, 8, 16, 32, 64], rng=rng, draws=199))
    assert abs(sum(one > 0.01 for one in p) - explained) <= 1


def test_of_every_problem_as_many_read_samples_stay_as_of_the_one_least_read():
    counts = PairedCounts(base_P=np.array([8, 0, 3, 5]), late_P=np.array([6, 0, 1, 5]), n_base=8, n_late=8)
    unread = Unread(base_P=np.array([0, 0, 0, 0]), late_P=np.array([2, 3, 1, 5]))
    read = read_alone(counts, unread, rng=np.random.default_rng(0))
    # the last problem was read in 3 of 8 and says nothing; of the others 5 stay: of 6 that were all correct, 5
    assert (read.n_base, read.n_late, read.n_problems) == (8, 5, 3)
    assert read.base_P.tolist() == [8, 0, 3]
    assert read.late_P[:2].tolist() == [5, 0]
    of_the_third = [read_alone(counts, unread, rng=np.random.default_rng(seed)).late_P[2] for seed in range(400)]
    # one correct among 7 read, of which 5 stay
    assert np.mean(of_the_third) == pytest.approx(5 / 7, abs=0.07)


def test_where_no_problem_was_read_nothing_is_left():
    counts = PairedCounts(base_P=np.array([8]), late_P=np.array([0]), n_base=8, n_late=8)
    read = read_alone(counts, Unread(base_P=np.array([0]), late_P=np.array([8])), rng=np.random.default_rng(0))
    assert read.n_problems == 0
