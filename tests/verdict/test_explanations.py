"""What else would explain a fall: guesses at impossible problems, samples nobody could read."""

from __future__ import annotations

import numpy as np
import pytest

from oversharp.diagnostics.statistics.keys import PairedCounts
from oversharp.diagnostics.verdict.causes.explanations import (
    Fall,
    Unread,
    cause_of,
    read_alone,
    share_explained,
    taken_for_correct,
)
from oversharp.diagnostics.verdict.causes.guesses import _largest_p, guessing_p
from oversharp.diagnostics.verdict.claims import share_of_even_loss


@pytest.mark.slow
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


@pytest.mark.slow
def test_a_given_level_saves_draws_and_not_its_side() -> None:
    rng, ks, sides = np.random.default_rng(1), [1, 2, 4, 8, 16, 32, 64, 128], []
    for seed in range(60):
        rate_P = np.where(rng.random(300) < rng.random(), 0.0, rng.beta(0.5, 1.0, size=300))
        kept_P = np.where(rng.random(300) < rng.choice([0.0, 0.02, 0.05]), 0.0, rate_P)
        accepted = rng.choice([0.003, 0.005, 0.008, 0.012, 0.03])
        base_P, late_P = rng.binomial(256, rate_P + (1 - rate_P) * accepted), rng.binomial(256, kept_P)
        counts = PairedCounts(base_P=base_P, late_P=late_P, n_base=256, n_late=256)
        whole, short = (
            guessing_p(counts, share=0.005, ks=ks, rng=np.random.default_rng(seed), level=level)
            for level in (None, 0.01)
        )
        sides.append((whole > 0.01, short > 0.01))
    assert all(whole == short for whole, short in sides)
    assert {whole for whole, _ in sides} == {True, False}


def test_the_bound_of_a_p_value_is_above_it() -> None:
    rng = np.random.default_rng(2)
    drawn_DK = rng.binomial(40, 0.1, size=(20_000, 1)) * -1.0  # 40 independent problems, each 0 or −1
    for lost in (6, 8, 10, 12):
        base_P = np.where(np.arange(40) < lost, 1, 0)
        counts = PairedCounts(base_P=base_P, late_P=np.zeros_like(base_P), n_base=1, n_late=1)
        p = float((drawn_DK <= -lost).mean())
        assert p < _largest_p(drawn_DK[:200], counts, [1]) < 60 * p**0.5
    same = PairedCounts(base_P=base_P, late_P=base_P, n_base=1, n_late=1)
    assert _largest_p(drawn_DK[:200], same, [1]) == 1.0


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


def _fall(base: int, late: int, unread: int, *, unread_base: int = 0, n_problems: int = 300) -> Fall:
    """As many hits of every problem, of 256 samples of the base and 256 late ones."""
    counts = PairedCounts(base_P=np.full(n_problems, base), late_P=np.full(n_problems, late), n_base=256, n_late=256)
    of = Unread(base_P=np.full(n_problems, unread_base), late_P=np.full(n_problems, unread))
    return Fall(counts=counts, ks=[1, 2, 4, 8, 16, 32, 64, 128], unread=of, level=0.03)


@pytest.mark.parametrize(
    ("base", "late", "unread", "unread_base", "cause"),
    [
        (192, 190, 2, 0, "format"),  # eight samples in a thousand, and pass@1 of easy problems fell by as much
        (192, 190, 0, 0, None),
        (192, 190, 2, 2, None),  # no more than of the base's
        (192, 180, 2, 0, None),  # twelve fewer are right, and only two were not read
        (128, 64, 128, 0, "format"),  # half was not read
        (128, 20, 128, 0, None),  # and of the read ones far fewer are right
    ],
)
def test_samples_that_went_unread_explain_a_fall_that_the_others_do_not_show(
    base: int, late: int, unread: int, unread_base: int, cause: str | None
):
    fall = _fall(base, late, unread, unread_base=unread_base)
    assert cause_of(fall, guess_share=0.0, guess_level=0.01, rng=np.random.default_rng(0)) == cause


def test_correct_samples_that_alone_went_unread_explain_up_to_the_whole_of_a_fall():
    fall = _fall(128, 96, 32)  # a quarter of what would be right could not be read
    read = read_alone(fall.counts, fall.unread, rng=np.random.default_rng(0))
    assert share_explained(fall.counts, read, k=1) == pytest.approx(1 - (128 / 256 - 96 / 224) / (32 / 256))
    assert share_explained(fall.counts, taken_for_correct(fall.counts, fall.unread), k=1) == 1.0


def test_the_same_share_lost_everywhere_explains_nothing_of_pass_at_1_itself():
    rng = np.random.default_rng(0)
    few_killed = PairedCounts(
        base_P=np.full(100, 200), late_P=np.where(np.arange(100) < 10, 0, 200), n_base=256, n_late=256
    )
    assert share_of_even_loss(few_killed, k=1, rng=rng) is None  # a tenth less of each takes as much, whatever was lost
    assert share_of_even_loss(few_killed, k=8, rng=rng) < 0.01
