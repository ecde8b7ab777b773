import numpy as np
import pytest
from scipy.stats import t as student_t

from diagnostics.statistics.keys import PairedCounts
from diagnostics.statistics.rule import KEY_LEVEL, MINORITY_LEVEL, Ruling, rule

KS = [1, 4, 16, 64]


def paired(base, late, n_base=256, n_late=256):
    return PairedCounts(base_P=np.asarray(base), late_P=np.asarray(late), n_base=n_base, n_late=n_late)


def ruled(total, minority=None, minority_ks=KS, seed=0):
    return rule(
        total, window=[total], ks=KS, minority=minority, minority_ks=minority_ks, rng=np.random.default_rng(seed)
    )


SAME = paired(np.full(200, 128), np.full(200, 128))
GAINED = paired(np.full(200, 100), np.full(200, 150))
LOST = paired(np.full(200, 20), np.where(np.arange(200) % 2, 200, 0))
#: Three of 60 problems lose all and one gains as much: certain here, not to be expected elsewhere.
LOST_HERE = paired([128] * 60, [0, 0, 0, 256] + [128] * 56)
NOISY = paired(np.full(20, 10), np.where(np.arange(20) % 2, 7, 13))
MINORITY_LOST = paired(np.full(50, 30), np.full(50, 2))
MINORITY_KEPT = paired(np.full(50, 30), np.full(50, 30))


def test_both_keys_make_over_sharpened():
    ruling = ruled(LOST)
    assert ruling.label == "over_sharpened"
    assert max(ruling.p_exact, ruling.p_population) <= KEY_LEVEL
    assert ruling.least_change < -0.3
    assert (ruling.p_minority, ruling.modes_collapsed) == (None, False)


def test_the_exact_key_alone_speaks_of_these_problems():
    ruling = ruled(LOST_HERE)
    assert ruling.p_exact <= KEY_LEVEL < ruling.p_population
    assert ruling.label == "over_sharpened_here"


def test_a_small_change_on_many_problems_is_no_loss():
    ruling = ruled(SAME, MINORITY_KEPT)
    assert ruling.label == "no_loss"
    # all differences 0, so the floor alone: t₁₉₉ / 200 below 0
    assert ruling.least_change == pytest.approx(-student_t.ppf(0.95, 199) / 200)
    assert ruled(SAME).label == ruled(GAINED).label == "no_loss"


def test_too_few_problems_settle_nothing():
    ruling = ruled(NOISY, MINORITY_KEPT)
    assert ruling.label == "inconclusive"
    assert ruling.p_exact > KEY_LEVEL
    assert ruling.least_change < -0.02


@pytest.mark.parametrize(
    ("total", "label"),
    [
        pytest.param(SAME, "mode_collapse", id="no loss"),
        pytest.param(GAINED, "mode_collapse", id="a gain"),
        pytest.param(NOISY, "mode_collapse", id="inconclusive"),
        pytest.param(LOST, "over_sharpened", id="a loss outranks it"),
        pytest.param(LOST_HERE, "over_sharpened_here", id="a loss here outranks it"),
    ],
)
def test_lost_minority_modes_are_a_collapse_and_still_told_where_a_loss_of_pass_at_k_outranks_them(total, label):
    ruling = ruled(total, MINORITY_LOST)
    assert ruling.label == label
    assert ruling.p_minority <= MINORITY_LEVEL
    assert ruling.modes_collapsed


def test_a_loss_that_is_significant_and_small_is_still_a_loss():
    # One point on 3,000 problems: within the margin, beyond doubt.
    small = paired(np.full(3000, 128), np.full(3000, 125))
    ruling = rule(small, window=[small], ks=[1], minority=None, minority_ks=[], rng=np.random.default_rng(0))
    assert ruling.least_change > -0.02
    assert ruling.label == "over_sharpened"


def test_how_far_it_fell_is_judged_by_checkpoint_not_by_what_they_reach_together():
    # One late checkpoint solves the odd problems, the other the even ones: together they reach all, each of them half.
    base, odd = np.full(100, 20), np.arange(100) % 2 == 1
    pooled = paired(base, np.full(100, 20), n_late=512)
    halves, same = [paired(base, np.where(side, 20, 0)) for side in (odd, ~odd)], [paired(base, base)]
    fell, held = (
        rule(pooled, window=window, ks=[64], minority=None, minority_ks=[], rng=np.random.default_rng(0)).least_change
        for window in (halves, same)
    )
    assert pooled.changes([64]).mean() > -0.1
    assert fell < -0.4
    assert held == pytest.approx(-0.02, abs=0.02)


def test_what_shows_no_modes_has_no_minority_channel():
    nothing = paired(np.array([], dtype=int), np.array([], dtype=int))
    assert ruled(SAME, nothing).p_minority is None
    assert ruled(SAME, MINORITY_LOST, minority_ks=[]).p_minority is None


def test_one_problem_is_spoken_of_alone():
    lost = ruled(paired([128], [0]))
    assert (lost.label, lost.p_population, lost.least_change) == ("over_sharpened_here", 1.0, None)
    assert ruled(paired([128], [128])).label == "inconclusive"


def test_no_problem_is_refused():
    with pytest.raises(ValueError, match="at least one problem"):
        ruled(paired(np.array([], dtype=int), np.array([], dtype=int)))


def test_more_attempts_than_samples_are_refused():
    with pytest.raises(ValueError, match="k <= n"):
        rule(SAME, window=[SAME], ks=[512], minority=None, minority_ks=[], rng=np.random.default_rng(0))


@pytest.mark.parametrize(("p_minority", "collapsed"), [(None, False), (0.005, True), (0.0051, False)])
def test_modes_collapse_at_their_level(p_minority, collapsed):
    ruling = Ruling(label="no_loss", p_exact=1.0, p_population=1.0, p_minority=p_minority, least_change=0.0)
    assert ruling.modes_collapsed is collapsed
