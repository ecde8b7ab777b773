import numpy as np
import pytest
from scipy.stats import ttest_1samp

from oversharp.diagnostics.statistics.comparison import RunPath, compare_runs, value_at
from oversharp.diagnostics.statistics.confirmation import holm
from oversharp.diagnostics.statistics.intervals import share_interval
from oversharp.diagnostics.statistics.pass_at_k import pass_at_k_table
from oversharp.diagnostics.statistics.stopping import StoppingRule


def test_one_row_by_hand():
    rows = compare_runs(np.array([0, 1, 2]), np.array([2, 2, 2]), n_first=4, n_second=4, task_P=["sums"] * 3, ks=[1, 2])
    one, two = rows
    assert (one.task, one.k, one.n_problems) == ("sums", 1, 3)
    assert (one.first, one.second, one.difference) == pytest.approx((0.25, 0.5, 0.25))
    assert (two.first, two.second) == pytest.approx(((0 + 1 / 2 + 5 / 6) / 3, 5 / 6))
    alone = share_interval(np.array([0.5, 0.25, 0.0]), bounds=(-1.0, 1.0))
    assert one.low <= alone.low
    assert one.high >= alone.high


def test_the_only_comparison_has_its_plain_interval():
    rng = np.random.default_rng(0)
    first_P, second_P = rng.binomial(16, 0.4, 200), rng.binomial(16, 0.5, 200)
    (row,) = compare_runs(first_P, second_P, n_first=16, n_second=16, task_P=["t"] * 200, ks=[1])
    alone = share_interval((second_P - first_P) / 16, bounds=(-1.0, 1.0))
    assert (row.low, row.high) == pytest.approx((alone.low, alone.high), abs=5e-4)


def test_correlated_ks_cost_less_than_holm_and_more_than_one_k():
    rng = np.random.default_rng(3)
    rate_P = rng.beta(0.5, 1.0, 100)
    late_P = np.where(rng.random(100) < 0.1, 0.0, rate_P)
    rows = compare_runs(
        rng.binomial(64, rate_P), rng.binomial(64, late_P), n_first=64, n_second=64, task_P=["t"] * 100,
        ks=[1, 2, 4, 8, 16, 32],
    )  # fmt: skip
    p_K, adjusted_K = (np.array([getattr(row, name) for row in rows]) for name in ("p", "p_adjusted"))
    assert (adjusted_K >= p_K).all()
    least = int(p_K.argmin())
    assert 1.1 * p_K[least] < adjusted_K[least] < 0.7 * holm(p_K)[least]


def test_an_interval_has_values_of_both_signs_where_p_is_large_and_only_there():
    rng, seen = np.random.default_rng(4), set()
    for _ in range(40):
        rate_P = rng.beta(0.5, 1.0, 60)
        late_P = np.where(rng.random(60) < 0.15, 0.0, rate_P)
        rows = compare_runs(
            rng.binomial(32, rate_P), rng.binomial(32, late_P), n_first=32, n_second=32, task_P=["a", "b"] * 30,
            ks=[1, 4, 16],
        )  # fmt: skip
        for row in rows:
            seen.add(row.p_adjusted > 0.05)
            assert (row.low < 0 < row.high) == (row.p_adjusted > 0.05)
            assert row.low <= row.difference <= row.high
    assert seen == {True, False}


def test_several_tables_cost_their_number():
    rng = np.random.default_rng(1)
    counts = {"first_P": rng.binomial(16, 0.4, 100), "second_P": rng.binomial(16, 0.44, 100)}
    settings = {"n_first": 16, "n_second": 16, "task_P": ["t"] * 100, "ks": [1, 4]}
    (single, *_), (third, *_) = (compare_runs(**counts, **settings, n_comparisons=n) for n in (1, 3))
    assert third.p == single.p
    assert third.p_adjusted == pytest.approx(3 * single.p_adjusted)
    assert third.high - third.low > single.high - single.low


def test_p_and_interval_agree_and_p_is_the_paired_t_where_the_floor_is_small():
    rng = np.random.default_rng(0)
    first_P, second_P = rng.binomial(16, 0.4, 2000), rng.binomial(16, 0.43, 2000)
    (row,) = compare_runs(first_P, second_P, n_first=16, n_second=16, task_P=["t"] * 2000, ks=[1])
    assert (row.p < 0.05) == (row.low > 0)
    plain = ttest_1samp((second_P - first_P) / 16, 0.0).pvalue
    assert np.log(row.p) == pytest.approx(np.log(plain), rel=0.05)


def test_the_sides_swapped_change_sign_alone():
    rng = np.random.default_rng(1)
    a_P, b_P, task_P = rng.integers(0, 9, 40), rng.integers(0, 9, 40), ["x", "y"] * 20
    forth = compare_runs(a_P, b_P, n_first=8, n_second=8, task_P=task_P, ks=[1, 4])
    back = compare_runs(b_P, a_P, n_first=8, n_second=8, task_P=task_P, ks=[1, 4])
    for one, two in zip(forth, back, strict=True):
        assert (one.difference, one.low, one.high) == pytest.approx((-two.difference, -two.high, -two.low))
        assert (one.p, one.p_adjusted) == pytest.approx((two.p, two.p_adjusted))


def test_tasks_are_compared_within_themselves_and_adjusted_together():
    first_P, second_P = np.array([4] * 30 + [4] * 30), np.array([8] * 30 + [4] * 30)
    rows = compare_runs(first_P, second_P, n_first=8, n_second=8, task_P=["won"] * 30 + ["even"] * 30, ks=[1, 2])
    assert [(row.task, row.k) for row in rows] == [("even", 1), ("even", 2), ("won", 1), ("won", 2)]
    assert [row.difference for row in rows] == pytest.approx([0.0, 0.0, 0.5, 1 - 11 / 14])  # 1 − C(4,2)/C(8,2) = 11/14
    assert [row.p_adjusted == 1.0 for row in rows] == [True, True, False, False]
    assert [row.p_adjusted for row in rows[2:]] == [1e-4, 1e-4]  # above all of 9,999 draws


def test_related_problems_count_as_their_cluster():
    cluster_P = np.repeat(np.arange(12), 20)
    first_P, second_P = np.full(240, 4), 4 + np.array([2, 2, 2, -1] * 3)[cluster_P]
    alone = compare_runs(first_P, second_P, n_first=8, n_second=8, task_P=["t"] * 240, ks=[1])[0]
    (row,) = compare_runs(first_P, second_P, n_first=8, n_second=8, task_P=["t"] * 240, ks=[1], cluster_P=cluster_P)
    assert (alone.over, row.over, row.n_problems) == ("problems", "clusters", 240)
    assert row.difference == pytest.approx(alone.difference)
    # squared deviations of clusters, 9 · .09375² + 3 · .28125², and the floor; Student's t of 11 degrees
    assert row.low == pytest.approx(0.15625 - 2.201 * np.sqrt(0.3164 + 1) / 12, abs=2e-3)
    assert alone.p < 1e-6 < 0.01 < row.p
    few = compare_runs(first_P, second_P, n_first=8, n_second=8, task_P=["t"] * 240, ks=[1], cluster_P=cluster_P // 2)[
        0
    ]
    assert (few.low, few.p, few.p_adjusted) == (None, None, None)


def test_samples_may_differ_between_runs_and_problems():
    n_first = np.array([4, 8])
    (row,) = compare_runs(np.array([1, 1]), np.array([3, 3]), n_first=n_first, n_second=16, task_P=["t"] * 2, ks=[2])
    base = [pass_at_k_table(4, [2])[1, 0], pass_at_k_table(8, [2])[1, 0]]
    assert row.first == pytest.approx(np.mean(base))
    assert row.second == pytest.approx(pass_at_k_table(16, [2])[3, 0])


def test_one_problem_has_a_difference_but_no_test():
    lonely, *others = compare_runs(
        np.array([1, 4, 4]), np.array([3, 4, 5]), n_first=8, n_second=8, task_P=["a", "b", "b"], ks=[1]
    )
    assert lonely.difference == pytest.approx(0.25)
    assert (lonely.low, lonely.high, lonely.p, lonely.p_adjusted) == (None, None, None, None)
    assert others[0].p_adjusted == pytest.approx(others[0].p)  # the only test


def test_no_problem_gives_no_row():
    nothing = np.array([], dtype=int)
    assert compare_runs(nothing, nothing, n_first=4, n_second=4, task_P=[], ks=[1]) == []


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"task_P": ["t"]}, "one per problem"),
        ({"n_first": 3}, "between 0 and the number"),
        ({"ks": [9]}, "k <= n"),
        ({"first_P": np.array([-1, 2])}, "between 0 and the number"),
    ],
)
def test_what_does_not_fit_is_refused(change, match):
    counts = {"first_P": np.array([4, 2]), "second_P": np.array([1, 2]), "n_first": 8, "n_second": 8}
    with pytest.raises(ValueError, match=match):
        compare_runs(**{**counts, "task_P": ["t", "t"], "ks": [1], **change})


@pytest.mark.slow
def test_two_runs_that_do_not_differ_rarely_differ_anywhere():
    rng, alarms = np.random.default_rng(0), 0
    task_P = np.repeat(["a", "b", "c"], [30, 100, 60])
    for _ in range(150):
        p_P = 1 / (1 + np.exp(-rng.normal(-2.6, 2.6, 190)))
        rows = compare_runs(
            rng.binomial(64, p_P), rng.binomial(64, p_P), n_first=64, n_second=64, task_P=task_P, ks=[1, 8, 32]
        )
        alarms += min(row.p_adjusted for row in rows) <= 0.05
    assert alarms / 150 <= 0.05


def test_the_best_of_forty_equal_checkpoints_looks_much_better_than_it_is():
    rng, table_CK, ahead = np.random.default_rng(0), pass_at_k_table(8, [1, 8]), []
    for _ in range(400):
        p_P = 1 / (1 + np.exp(-rng.normal(-2.6, 2.6, 30)))
        best_K = table_CK[rng.binomial(8, p_P, (40, 30))].mean(axis=1).max(axis=0)
        ahead.append(best_K - [p_P.mean(), (1 - (1 - p_P) ** 8).mean()])
    assert np.mean(ahead, axis=0) == pytest.approx([0.042, 0.125], abs=0.005)


@pytest.mark.parametrize(
    ("x", "y", "at", "value", "step"),
    [
        pytest.param([0.2, 0.4, 0.6], [1.0, 0.9, 0.5], 0.45, 0.8, 12.5, id="between two checkpoints"),
        pytest.param(
            [0.2, 0.6, 0.3, 0.6], [1.0, 0.8, 0.4, 0.1], 0.4, 0.9, 5.0, id="the first passage of a path that turns"
        ),
        pytest.param([0.2, 0.6], [1.0, 0.8], 0.2, 1.0, 0.0, id="at the start"),
        pytest.param([0.2, 0.6], [1.0, 0.8], 0.6, 0.8, 10.0, id="at the end"),
        pytest.param([0.2, 0.4, 0.4], [1.0, 0.8, 0.3], 0.4, 0.8, 10.0, id="where a flat stretch is reached"),
        pytest.param([0.4, 0.2], [1.0, 0.5], 0.3, 0.75, 5.0, id="on a falling path"),
        pytest.param([0.2, None, 0.6], [1.0, 0.9, 0.8], 0.4, 0.9, 10.0, id="over an unknown checkpoint"),
    ],
)
def test_a_value_is_read_off_the_path_where_it_first_passes(x, y, at, value, step):
    found = value_at(RunPath(steps=range(0, 10 * len(x), 10), x=x, y=y), at)
    assert (found.value, found.step) == (pytest.approx(value), pytest.approx(step))


@pytest.mark.parametrize("x", [0.1, 0.7])
def test_nothing_is_extrapolated(x):
    found = value_at(RunPath(steps=[0, 10], x=[0.2, 0.6], y=[1.0, 0.8]), x)
    assert (found.value, found.step) == (None, None)
    assert "0.2 to 0.6" in found.why


def test_a_path_of_unknown_values_says_so():
    assert value_at(RunPath(steps=[0], x=[None], y=[1.0]), 0.4).why == "no checkpoint of the run has both values"


def test_paths_of_unequal_length_are_refused():
    with pytest.raises(ValueError, match="zip"):
        value_at(RunPath(steps=[0, 10], x=[0.2], y=[1.0]), 0.2)


def test_codes_of_a_stopping_rule_are_compared_by_their_estimates():
    rule = StoppingRule.doubling(first=8, cap=64, enough=2)
    rng = np.random.default_rng(2)
    first_P, second_P = (rule.draw(rng.beta(0.5, 1.0, 60), rng=rng, draws=1)[0] for _ in range(2))
    rows = compare_runs(first_P, second_P, n_first=rule, n_second=rule, task_P=["t"] * 60, ks=[1, 64])
    table_CK = rule.pass_at_k_table([1, 64])
    assert [row.first for row in rows] == pytest.approx(table_CK[first_P].mean(axis=0).tolist())
    assert [row.second for row in rows] == pytest.approx(table_CK[second_P].mean(axis=0).tolist())
    n_P, correct_P = rule.hits(first_P)
    assert abs(rows[0].first - (correct_P / n_P).mean()) > 0.005  # the share of correct samples is another number
    mixed = compare_runs(first_P, np.full(60, 3), n_first=rule, n_second=8, task_P=["t"] * 60, ks=[1])
    assert mixed[0].second == pytest.approx(3 / 8)
    single = StoppingRule(rounds=(8,), enough=1)
    counts = {"first_P": np.arange(9), "second_P": np.full(9, 4), "task_P": ["t"] * 9, "ks": [1, 4]}
    by_rule, uniform = (compare_runs(**counts, n_first=n, n_second=n) for n in (single, 8))
    assert [(row.difference, row.low, row.p) for row in by_rule] == [
        pytest.approx((row.difference, row.low, row.p)) for row in uniform
    ]
    with pytest.raises(ValueError, match="codes must be between 0 and 64"):
        compare_runs(np.array([65]), np.array([0]), n_first=rule, n_second=rule, task_P=["t"], ks=[1])
