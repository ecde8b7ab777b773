import duckdb
import numpy as np
import pandas as pd
import pytest

from oversharp.diagnostics.measures.modes.winner_take_all import winner_take_all
from oversharp.diagnostics.statistics.intervals import share_interval
from tests.measures.samples import drawn


def graded(correct_PD, name, step):
    """Graded samples of one checkpoint, by problem and draw."""
    n_problems, draws = correct_PD.shape
    return pd.DataFrame(
        {
            "series": "run",
            "checkpoint_id": name,
            "step": step,
            "is_base": step == 0,
            "problem_id": np.repeat(np.arange(n_problems), draws),
            "sample_index": np.tile(np.arange(draws), n_problems),
            "correct": correct_PD.ravel(),
            "greedy": False,
            "in_first_round": True,
            "n_planned": draws,
        }
    )


def simulated(success_P, late_P, *, n_base, n, seed):
    """Graded samples of a base and one checkpoint with these success probabilities."""
    rng = np.random.default_rng(seed)
    base_PD, late_PD = (
        rng.random((len(p_P), draws)) < p_P[:, None] for p_P, draws in ((success_P, n_base), (late_P, n))
    )
    return pd.concat([graded(base_PD, "base", 0), graded(late_PD, "late", 1)])


def rows_of(graded_samples):
    with duckdb.connect() as db:
        db.register("graded_samples", graded_samples)
        rows = db.execute(winner_take_all.sql, {"series": "run"}).fetchall()
    return {row[1]: dict(zip(("value", "low", "high", "n"), row[3:], strict=True)) for row in rows}


def test_even_base_samples_bin_and_odd_ones_are_the_level(world):
    samples = drawn("base", "q1", correct=[1, 0, 0, 0]) + drawn("late", "q1", correct=[1, 1, 1, 0])  # bin 1/2, level 0
    samples += drawn("base", "q2", correct=[0, 1, 0, 0]) + drawn("late", "q2", correct=[0, 0, 0, 1])  # bin 0, level 1/2
    samples += drawn("base", "q3", correct=[1, 1, 1, 1]) + drawn("late", "q3", correct=[1, 1, 0, 0])  # bin 1, level 1
    found = world(samples, n=4).values(winner_take_all)
    assert found == {("late", "base 0"): -0.25, ("late", "base 40-50%"): 0.75, ("late", "base 90-100%"): -0.5}


@pytest.mark.slow
def test_the_upper_edge_belongs_to_a_bin(world):
    samples = []
    for hits in range(11):
        # even samples: hits of 10
        samples += drawn("base", f"q{hits:02}", correct=[i % 2 == 0 and i // 2 < hits for i in range(20)])
        samples += drawn("late", f"q{hits:02}", correct=[True] * 20)
    rows = world(samples, n=20).sql_rows(winner_take_all)
    deciles = [f"base {10 * i}-{10 * i + 10}%" for i in range(10)]
    assert [row["scope"] for row in rows] == ["base 0", *deciles]
    assert [row["scope"] for row in rows] == sorted(row["scope"] for row in rows)
    assert {row["n"] for row in rows} == {1}


def test_no_change_shows_no_gain_in_any_bin_where_the_naive_bins_do():
    success_P = np.random.default_rng(0).random(4000)
    samples = simulated(success_P, success_P, n_base=8, n=8, seed=1)
    found = rows_of(samples)
    assert set(found) == {"base 0", "base 20-30%", "base 40-50%", "base 70-80%", "base 90-100%"}  # of four samples
    assert all(abs(row["value"]) < 0.05 for row in found.values())  # the widest standard error is 0.013
    rate = samples.groupby(["checkpoint_id", "problem_id"])["correct"].mean()
    naive = (rate["late"] - rate["base"]).groupby(np.ceil(10 * rate["base"])).mean()
    assert naive.iloc[0] > 0.08  # never solved by the base, "gained"
    assert naive.iloc[-1] < -0.08  # always solved, "lost"


def test_a_planted_winner_take_all_is_seen():
    success_P = np.linspace(0.02, 0.9, 400)
    late_P = np.where(success_P > 0.5, success_P + 0.1, success_P / 2)
    found = rows_of(simulated(success_P, late_P, n_base=64, n=64, seed=2))
    assert found["base 80-90%"]["low"] > 0
    assert found["base 30-40%"]["high"] < 0


@pytest.mark.slow
@pytest.mark.parametrize("n_problems", [2, 3, 5, 12, 60])
def test_the_interval_is_students_t_with_the_floor(n_problems):
    hits_P = np.random.default_rng(n_problems).integers(0, 5, n_problems)
    base = graded(np.tile([True, True, False, False], (n_problems, 1)), "base", 0)
    late = graded(np.arange(4) < hits_P[:, None], "late", 1)
    found = rows_of(pd.concat([base, late]))["base 40-50%"]
    expected = share_interval(hits_P / 4 - 0.5, bounds=(-1.0, 1.0))
    assert found["value"] == pytest.approx(expected.mean)
    assert (found["low"], found["high"]) == pytest.approx((expected.low, expected.high), rel=0.01, abs=0.01)


def test_one_problem_has_no_interval(world):
    (row,) = world(drawn("base", "q", correct=[1, 1]) + drawn("late", "q", correct=[1, 0]), n=2).sql_rows(
        winner_take_all
    )
    assert (row["value"], row["low"], row["high"]) == (-0.5, None, None)


@pytest.mark.slow
def test_an_incomplete_checkpoint_has_no_row_and_an_incomplete_base_leaves_none(world):
    whole = drawn("base", "q1", correct=[1, 0]) + drawn("base", "q2", correct=[1, 0])
    cut = drawn("cut", "q1", correct=[1, 0]) + drawn("cut", "q2", correct=[1])
    gap = drawn("gap", "q1", correct=[1, 0])
    late = drawn("late", "q1", correct=[1, 0]) + drawn("late", "q2", correct=[1, 1])
    rows = world(whole + cut + gap + late, n=2).sql_rows(winner_take_all)
    assert {row["checkpoint_id"] for row in rows} == {"late"}
    assert world(whole[:-1] + late, n=2).sql_rows(winner_take_all) == []


def test_a_base_with_one_sample_cannot_be_split(world):
    samples = drawn("base", "q1", correct=[1]) + drawn("late", "q1", correct=[1])
    assert world(samples, n=1).sql_rows(winner_take_all) == []


@pytest.mark.slow
def test_greedy_responses_do_not_count(world):
    samples = drawn("base", "q1", correct=[1, 1]) + drawn("late", "q1", correct=[1, 1])
    samples += [{"checkpoint": c, "problem": "q1", "greedy": True, "correct": 0} for c in ("base", "late")]
    assert world(samples, n=2).values(winner_take_all) == {("late", "base 90-100%"): 0.0}
