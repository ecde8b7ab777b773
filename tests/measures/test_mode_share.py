import numpy as np
import pytest

from oversharp.diagnostics.measures.modes.mode_share import mode_share
from tests.measures.samples import drawn


def found_in(checkpoint, problem, modes):
    return drawn(checkpoint, problem, mode=modes, correct=[mode is not None for mode in modes])


def test_modes_are_ranked_on_even_base_samples_and_followed(world):
    # Even base samples: a a b; odd: a b c. Late: b b b a c d.
    samples = found_in("base", "q1", "aaabbc") + found_in("late", "q1", "bbbacd")
    found = world(samples, n=6).values(mode_share)
    assert found["base", "dominant"] == pytest.approx(1 / 3)
    assert found["base", "second"] == pytest.approx(1 / 3)
    assert found["base", "other"] == pytest.approx(1 / 3)
    assert found["late", "dominant"] == pytest.approx(1 / 6)
    assert found["late", "second"] == pytest.approx(3 / 6)
    assert found["late", "other"] == pytest.approx(2 / 6)


def test_only_correct_samples_with_a_mode_count(world):
    samples = found_in("base", "q1", ["a", "a", None, None]) + found_in("late", "q1", ["a", None, None, "b"])
    samples += found_in("base", "q2", [None, None, None, None]) + found_in("late", "q2", ["a", "a", "a", "a"])
    samples += [{"greedy": True, "checkpoint": "late", "problem": "q1", "mode": "z"}]
    rows = {(r["checkpoint_id"], r["scope"]): r for r in world(samples, n=4).sql_rows(mode_share)}
    assert rows["late", "dominant"]["value"] == 0.5
    assert rows["late", "dominant"]["n"] == 1  # q2 has no mode under the base to compare with


@pytest.mark.slow
def test_no_change_shows_no_change_even_with_few_samples(world):
    # Four equally likely modes: ranked and measured on the same samples, the base's leader would seem to hold 40 %.
    rng = np.random.default_rng(1)
    samples = [
        row
        for checkpoint in ("base", "late")
        for q in range(200)
        for row in found_in(checkpoint, f"q{q:03}", rng.choice(list("abcd"), size=16))
    ]
    rows = {(r["checkpoint_id"], r["scope"]): r for r in world(samples, n=16).sql_rows(mode_share)}
    assert rows["base", "dominant"]["value"] == pytest.approx(0.25, abs=0.03)
    assert rows["late", "dominant"]["value"] == pytest.approx(0.25, abs=0.03)
    assert rows["late", "dominant"]["low"] < 0.25 < rows["late", "dominant"]["high"]


@pytest.mark.slow
def test_a_planted_collapse_raises_the_dominant_share(world):
    samples = found_in("base", "q1", "aababbaa") + found_in("late", "q1", "aaaaaaaa")
    found = world(samples, n=8).values(mode_share)
    assert found["base", "dominant"] < found["late", "dominant"] == 1.0


@pytest.mark.slow
def test_where_no_problem_shows_a_second_correct_mode_there_are_no_rows(world):
    same = found_in("base", "q1", "aaaa") + found_in("late", "q1", "aaaa") + found_in("base", "q2", "bbbb")
    assert world(same, n=4).sql_rows(mode_share) == []
    assert world(same + found_in("late", "q2", "bbbc"), n=4).sql_rows(mode_share) != []


def test_without_named_modes_there_are_no_rows(world):
    samples = drawn("base", mode=[None] * 4) + drawn("late", mode=[None] * 4)
    assert world(samples, n=4).sql_rows(mode_share) == []
