from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import t as student_t

from oversharp.diagnostics.statistics.keys import PairedCounts
from oversharp.diagnostics.verdict.causes.unparsed import Unread
from oversharp.diagnostics.verdict.rule import KEY_LEVEL, MINORITY_LEVEL, Limits, label_of, spent_share
from oversharp.diagnostics.verdict.seen import SeenCounts
from oversharp.diagnostics.verdict.table import run_tests

KS = [1, 4, 16, 64]


def paired(base, late, n_base=256, n_late=256):
    return PairedCounts(base_P=np.asarray(base), late_P=np.asarray(late), n_base=n_base, n_late=n_late)


def _table(total, minority=None, minority_ks=KS, ks=KS, window=None, **more):
    window = [total] if window is None else window
    seen = SeenCounts(
        total=total, window=window, steps=window, ks=ks, step_ks=ks, minority=minority, minority_ks=minority_ks, **more
    )
    return run_tests(seen, rng=np.random.default_rng(0))


SAME = paired(np.full(200, 128), np.full(200, 128))
GAINED = paired(np.full(200, 100), np.full(200, 150))
LOST = paired(np.full(200, 20), np.where(np.arange(200) % 2, 200, 0))
#: Three of 60 problems lose all and one gains as much: certain here, not to be expected elsewhere.
LOST_HERE = paired([128] * 60, [0, 0, 0, 256] + [128] * 56)
NOISY = paired(np.full(20, 10), np.where(np.arange(20) % 2, 7, 13))
MINORITY_LOST = paired(np.full(50, 30), np.full(50, 2))
MINORITY_KEPT = paired(np.full(50, 30), np.full(50, 30))


def test_both_keys_make_over_sharpened():
    table = _table(LOST)
    assert label_of(table) == "over_sharpened"
    assert max(table.window.p_exact, table.window.p_population) <= KEY_LEVEL
    assert table.sizes.least_change < -0.3
    assert table.modes is None


def test_the_exact_key_alone_speaks_of_these_problems():
    table = _table(LOST_HERE)
    assert table.window.p_exact <= KEY_LEVEL < table.window.p_population
    assert label_of(table) == "over_sharpened_here"


def test_a_small_change_on_many_problems_is_no_loss():
    table = _table(SAME, MINORITY_KEPT)
    assert label_of(table) == "no_loss"
    # all differences 0, so the floor alone: t₁₉₉ / 200 below 0
    assert table.sizes.least_change == pytest.approx(-student_t.ppf(0.95, 199) / 200)
    assert label_of(_table(SAME)) == label_of(_table(GAINED)) == "no_loss"


def test_too_few_problems_settle_nothing():
    table = _table(NOISY, MINORITY_KEPT)
    assert label_of(table) == "inconclusive"
    assert table.window.p_exact > KEY_LEVEL
    assert table.sizes.least_change < -0.02


@pytest.mark.slow
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
    table = _table(total, MINORITY_LOST)
    assert label_of(table) == label
    assert table.modes.p_exact <= MINORITY_LEVEL
    assert table.modes.fell


@pytest.mark.slow
def test_a_loss_that_is_significant_and_small_is_still_a_loss():
    # One point on 3,000 problems: within the margin, beyond doubt.
    small = paired(np.full(3000, 128), np.full(3000, 125))
    table = _table(small, ks=[1])
    assert table.sizes.least_change > -0.02
    assert label_of(table) == "degraded"  # it is pass@1 that fell


def test_how_far_it_fell_is_judged_by_checkpoint_not_by_what_they_reach_together():
    # One late checkpoint solves the odd problems, the other the even ones: together they reach all, each of them half.
    base, odd = np.full(100, 20), np.arange(100) % 2 == 1
    pooled = paired(base, np.full(100, 20), n_late=512)
    halves, same = [paired(base, np.where(side, 20, 0)) for side in (odd, ~odd)], [paired(base, base)]
    fell, held = (_table(pooled, window=window, ks=[64]).sizes.least_change for window in (halves, same))
    assert pooled.changes([64]).mean() > -0.1
    assert fell < -0.4
    assert held == pytest.approx(-0.02, abs=0.02)


def test_what_shows_no_modes_has_no_minority_channel():
    nothing = paired(np.array([], dtype=int), np.array([], dtype=int))
    assert _table(SAME, nothing).modes is None
    assert _table(SAME, MINORITY_LOST, minority_ks=[]).modes is None


def test_one_problem_is_spoken_of_alone():
    lost = _table(paired([128], [0]))
    assert (label_of(lost), lost.window.p_population, lost.sizes.least_change) == ("degraded", 1.0, None)
    assert label_of(_table(paired([128], [128]))) == "inconclusive"


def test_no_problem_is_refused():
    with pytest.raises(ValueError, match="at least one problem"):
        _table(paired(np.array([], dtype=int), np.array([], dtype=int)))


def test_more_attempts_than_samples_are_refused():
    with pytest.raises(ValueError, match="k <= n"):
        _table(SAME, ks=[512])


NEVER = np.zeros(100, dtype=np.int64)
#: What a grader leaves behind that accepts one wrong answer in a thousand at the base and none later.
GUESSED = paired(np.random.default_rng(0).binomial(2048, 0.001, size=100), NEVER, n_base=2048, n_late=3072)
KILLED = paired(np.where(np.arange(100) < 20, 200, 400), np.where(np.arange(100) < 20, 0, 900), 2048, 3072)


@pytest.mark.parametrize(
    ("counts", "share", "label"),
    [
        (GUESSED, 0.0, "over_sharpened"),
        (GUESSED, 0.0001, "over_sharpened"),
        (GUESSED, 0.005, "guessing"),
        (KILLED, 0.005, "over_sharpened"),
    ],
)
def test_a_fall_that_accepted_guesses_explain_is_called_so_and_another_is_not(counts, share, label):
    assert label_of(_table(counts, ks=[1, 16, 256], guess_share=share)) == label


@pytest.mark.slow
def test_lost_modes_that_accepted_guesses_explain_are_called_so():
    assert label_of(_table(SAME, GUESSED, [1, 16, 256], guess_share=0.005)) == "guessing"
    assert label_of(_table(SAME, GUESSED, [1, 16, 256])) == "mode_collapse"


@pytest.mark.slow
@pytest.mark.parametrize(("n_unread", "label"), [(0, "over_sharpened"), (10, "over_sharpened"), (236, "format")])
def test_a_fall_among_unread_samples_alone_is_one_of_format(n_unread, label):
    # 20 of 100 problems are solved 3 times of 256 late: seldom, or every seventh time of the 20 that could be read
    falls_P = np.arange(100) % 5 == 0
    counts = paired(np.full(100, 40), np.where(falls_P, 3, 80))
    unread = Unread(base_P=NEVER, late_P=np.where(falls_P, n_unread, 0))
    assert label_of(_table(counts, unread=[unread])) == label


def test_a_fall_of_pass_at_1_with_the_rest_is_degraded():
    assert label_of(_table(paired(np.full(200, 60), np.full(200, 20)))) == "degraded"
    assert label_of(_table(LOST)) == "over_sharpened"


def test_a_loss_at_the_last_checkpoint_alone_is_told_though_the_window_hides_it():
    base, killed = np.full(300, 38), np.where(np.arange(300) < 12, 0, 42)
    kept, last = paired(base, base), paired(base, killed)
    total = paired(base, 2 * base + killed, n_late=768)
    table = _table(total, window=[kept, kept, last])
    assert [row.fell for row in table.checkpoints] == [False, False, True]
    assert [row.kept for row in table.checkpoints] == [True, True, False]
    assert label_of(table) == "lost_at_steps"


def test_related_problems_count_as_clusters():
    # every problem of two clusters in ten loses: certain for twelve problems of their own, not for two clusters
    cluster_P = np.arange(60) // 6
    lost = paired(np.full(60, 30), np.where(cluster_P < 2, 0, 40))
    assert _table(lost).window.p_population <= KEY_LEVEL < _table(lost, cluster_P=cluster_P).window.p_population
    assert _table(lost, cluster_P=np.arange(60)).window.p_population == _table(lost).window.p_population


@pytest.mark.slow
def test_each_look_spends_its_share():
    assert [spent_share(number=j, declared=4, runs=1) for j in (1, 4)] == [0.25, 0.25]
    assert sum(spent_share(number=j, declared=None, runs=1) for j in range(1, 2000)) == pytest.approx(1, abs=1e-3)
    assert spent_share(number=5, declared=4, runs=2) == 1 / 60
    rng = np.random.default_rng(7)
    almost = paired(rng.binomial(256, 0.05, 60), rng.binomial(256, 0.043, 60))
    assert label_of(_table(almost)) == "over_sharpened"
    assert label_of(_table(almost, spent=0.05)) == "inconclusive"


def _with_row(which, **columns):
    """Return the table of an unchanged series with some columns of one row changed."""
    table = _table(SAME, MINORITY_KEPT)
    if which == "checkpoint":
        return replace(table, checkpoints=(replace(table.checkpoints[0], **columns),))
    return replace(table, **{which: replace(getattr(table, which), **columns)})


@pytest.mark.parametrize(
    ("which", "columns", "limits", "label"),
    [
        ("window", {}, {}, "no_loss"),
        ("window", {}, {"few": "fewer than 30 problems"}, "inconclusive"),
        ("window", {}, {"is_end_unknown": True}, "inconclusive"),
        ("window", {"kept": False}, {}, "inconclusive"),
        ("window", {"fell": True, "p_population": 0.01}, {}, "over_sharpened"),
        ("window", {"fell": True, "p_population": 0.01}, {"few": "fewer than 10 clusters"}, "over_sharpened_here"),
        ("window", {"fell": True, "p_population": 0.01}, {"dependence": "sorted rows"}, "inconclusive"),
        ("window", {"fell": True, "cause": "format"}, {"few": "fewer than 10 clusters"}, "format"),
        ("window", {"fell": True, "cause": "selection"}, {}, "selected"),
        ("window", {"fell": True, "cause": "unread", "kept": False}, {}, "inconclusive"),
        ("modes", {"fell": True}, {"few": "fewer than 10 clusters"}, "mode_collapse"),
        ("modes", {"fell": True, "cause": "guessing"}, {}, "guessing"),
        ("checkpoint", {"fell": True}, {}, "lost_at_steps"),
        ("checkpoint", {"fell": True}, {"few": "fewer than 10 clusters"}, "inconclusive"),
        ("checkpoint", {"fell": True, "cause": "guessing"}, {}, "guessing"),
        ("checkpoint", {"fell": True, "cause": "guessing"}, {"few": "fewer than 10 clusters"}, "inconclusive"),
    ],
)
def test_the_first_condition_that_a_table_meets_is_its_label(which, columns, limits, label):
    assert label_of(replace(_with_row(which, **columns), limits=Limits(**limits))) == label
