import itertools

import duckdb
import numpy as np
import pandas as pd
import pytest

from oversharp.diagnostics.measures import get_measure
from tests.measures.samples import drawn

pytestmark = pytest.mark.slow


def found(world, name, samples, ks):
    rows = world(samples, n=max(row["sample_index"] for row in samples) + 1, ks=ks).sql_rows(get_measure(name))
    return {(row["checkpoint_id"], row["scope"], row["k"]): row for row in rows}


def test_the_mean_of_the_highest_over_all_choices_with_and_without_replacement(world):
    rewards = np.random.default_rng(0).normal(size=(2, 6)).round(1)
    samples = [row for i, one in enumerate(rewards) for row in drawn("base", f"q{i}", reward=one.tolist())]
    rows = found(world, "best_at_k", samples, (1, 2, 3, 6))
    for k in (1, 2, 3, 6):
        once = np.mean([np.mean([max(c) for c in itertools.combinations(one, k)]) for one in rewards])
        assert rows["base", "all", k]["value"] == pytest.approx(once)
        again = np.mean([np.mean([max(c) for c in itertools.product(one, repeat=k)]) for one in rewards])
        assert rows["base", "with_replacement", k]["value"] == pytest.approx(again)


@pytest.mark.slow
def test_of_rewards_0_and_1_it_is_pass_at_k(world):
    samples = [row for i in range(3) for row in drawn("base", f"q{i}", reward=[1.0] * i + [0.0] * (8 - i))]
    rows = found(world, "best_at_k", samples, (1, 4, 8))
    own = {f.k: f.value for f in get_measure("pass_at_k")(world(samples, n=8, ks=(1, 4, 8)).evidence())}
    assert {k: rows["base", "all", k]["value"] for k in (1, 4, 8)} == pytest.approx(own)
    assert rows["base", "with_replacement", 8]["value"] == pytest.approx(
        np.mean([1 - (1 - c / 8) ** 8 for c in range(3)])
    )


def test_it_has_the_rewards_of_a_verifier_only_if_one_of_them_is_partial(world):
    assert found(world, "best_at_k", drawn("base", correct=[True, False]), (1, 2)) == {}
    graded_samples = pd.DataFrame({
        "series": "run", "checkpoint_id": "base", "step": 0, "problem_id": "q", "greedy": False,
        "in_first_round": True, "state": "ok", "reward": [0.2, 0.6, 0.0],
    })  # fmt: skip
    with duckdb.connect() as connection:
        connection.register("graded_samples", graded_samples)
        rows = connection.execute(get_measure("best_at_k").sql, {"series": "run", "ks": [1, 2]}).fetchall()
    assert [row[3] for row in rows if row[1] == "all"] == pytest.approx([0.8 / 3, (0.6 + 0.6 + 0.2) / 3])


def test_no_value_stands_for_fewer_problems_than_there_are(world):
    samples = drawn("base", "q1", reward=[0.5] * 4) + drawn("base", "q2", reward=[0.5] * 2)
    assert {k for _, _, k in found(world, "best_at_k", samples, (1, 2, 4))} == {1, 2}


def test_an_interval_holds_its_value_and_stays_within_the_rewards(world):
    samples = [row for i in range(40) for row in drawn("base", f"q{i:02}", reward=[-1.0, 1.0 if i % 8 else -1.0])]
    rows = found(world, "best_at_k", samples, (1, 2))
    assert rows["base", "all", 2]["value"] == pytest.approx(2 * 35 / 40 - 1)
    for row in rows.values():
        if row["scope"] == "all":
            assert -1 <= row["low"] < row["value"] < row["high"] <= 1
        else:
            assert row["low"] is row["high"] is None


def test_the_one_with_the_highest_recorded_reward_is_judged_by_the_other_verifier(world):
    own, right = [0.1, 0.4, 0.9, 0.9], [True, True, False, True]
    samples = drawn("base", reward=own, correct=right, own_correct=[False] * 4)
    rows = found(world, "best_of_k", samples, (1, 2, 4))
    for k in (1, 2, 4):
        chosen = []
        for of in itertools.combinations(range(4), k):
            best = max(own[i] for i in of)
            chosen.append(np.mean([right[i] for i in of if own[i] == best]))
        assert rows["base", "all", k]["value"] == pytest.approx(np.mean(chosen))


@pytest.mark.slow
def test_a_reward_that_prefers_what_is_wrong_falls_with_k(world):
    samples = drawn("base", reward=[0.1, 0.2, 0.3, 0.9], correct=[True, True, True, False], own_correct=[True] * 4)
    values = [found(world, "best_of_k", samples, (1, 2, 4))["base", "all", k]["value"] for k in (1, 2, 4)]
    assert values == pytest.approx([0.75, 0.5, 0.0])
