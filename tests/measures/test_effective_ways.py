import pytest

from oversharp.diagnostics.measures.examples import tiny_ways
from oversharp.diagnostics.measures.modes.ways.counts import NO_PAIR, SCOPES
from oversharp.diagnostics.measures.modes.ways.diversity import effective_ways


def effective(rows, n):
    return {(f.checkpoint_id, f.scope): f for f in effective_ways(tiny_ways(rows, n=n))}


def test_every_level_has_its_own_number():
    found = effective([("base", "q", "a", True, 2), ("base", "q", "b", False, 2)], n=4)
    assert {scope for _, scope in found} == set(SCOPES)
    assert found["base", "all"].value == pytest.approx(3.0)  # 4 of 12 pairs agree


def test_a_planted_collapse_is_one_way_and_the_twin_stays():
    rows = [(c, f"q{i:02}", way, True, 8) for c in ("base", "twin") for i in range(40) for way in "ab"]
    found = effective(rows + [("late", f"q{i:02}", "a", True, 16) for i in range(40)], n=16)
    assert found["late", "all"].value == 1.0
    assert found["twin", "all"].value == found["base", "all"].value == pytest.approx(16 * 15 / (2 * 8 * 7))


def test_samples_of_an_unknown_way_are_left_out_and_no_class():
    found = effective([("base", "q", "a", True, 2), ("base", "q", None, True, 2), ("late", "q", None, True, 4)], n=4)
    assert (found["base", "all"].value, found["base", "all"].n) == (1.0, 1)
    assert (found["late", "all"].value, found["late", "all"].why) == (None, NO_PAIR)


def test_a_problem_with_one_sample_of_a_known_way_has_no_pair_and_is_left_out():
    rows = [("base", "q1", "a", True, 1), ("base", "q2", "a", True, 2), ("base", "q2", "b", True, 2)]
    found = effective(rows, n=4)
    assert (found["base", "all"].value, found["base", "all"].n) == (pytest.approx(3.0), 1)
