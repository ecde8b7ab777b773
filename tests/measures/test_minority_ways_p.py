import numpy as np
import pytest

from oversharp.diagnostics.measures.examples import tiny_ways
from oversharp.diagnostics.measures.modes.ways.losses import minority_ways_p

N = 32


def p_value(late_of, scope="all"):
    """Rates of a leading way, a minority way and unknown ways: 0.6, 0.2, 0 at the base, ``late_of`` later."""
    rng, rows = np.random.default_rng(0), []
    for i in range(40):
        for half in (True, False):
            led, beside, _ = rng.multinomial(N // 2, [0.6, 0.2, 0.2])
            rows += [("base", f"q{i}", "a", half, int(led)), ("base", f"q{i}", "b", half, int(beside))]
        drawn = rng.multinomial(N, [*late_of, 1 - sum(late_of)])[:3]
        rows += [("late", f"q{i}", way, True, int(n)) for way, n in zip(("a", "b", None), drawn, strict=True)]
    found = {one.scope: one.value for one in minority_ways_p(tiny_ways([row for row in rows if row[-1]], n=N))}
    return found[scope]


@pytest.mark.slow
def test_a_lost_minority_way_is_found_and_a_kept_one_is_not():
    assert p_value((0.8, 0.05, 0)) < 0.01
    assert p_value((0.6, 0.2, 0)) > 0.05
    assert p_value((0.75, 0.2, 0)) > 0.05  # the leading way rose alone


def test_what_cannot_be_read_any_more_is_no_loss():
    assert p_value((0.6, 0.05, 0.35)) > 0.05


@pytest.mark.slow
def test_samples_taken_to_be_like_the_others_show_a_loss_that_unread_ones_may_hide():
    assert p_value((0.6, 0.05, 0.15)) > 0.05
    assert p_value((0.6, 0.05, 0.15), "alike") < 0.01
    assert p_value((0.51, 0.17, 0.12), "alike") > 0.05  # a part of every way went unread


def test_of_a_problem_without_any_known_way_the_unread_samples_are_like_those_of_all_problems():
    rows = [("base", f"q{i}", way, half, 8) for i in range(30) for way in "ab" for half in (True, False)]
    late = [("late", f"q{i}", way, True, 16) for i in range(15) for way in "ab"]
    unread = [("late", f"q{i}", None, True, 32) for i in range(15, 30)]
    found = {one.scope: one.value for one in minority_ways_p(tiny_ways([*rows, *late, *unread], n=32))}
    none = [("late", f"q{i}", "a", True, 32) for i in range(15)]
    gone = {one.scope: one.value for one in minority_ways_p(tiny_ways([*rows, *none, *unread], n=32))}
    assert found["alike"] > 0.05
    assert gone["alike"] < 0.01


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        ([("base", "q", None, True, 4), ("late", "q", "a", True, 4)], "no problem shows a way in the first half"),
        ([("base", "q", "a", True, 1), ("late", "q", "a", True, 1)], "problems have unequal numbers of samples"),
    ],
)
def test_without_a_leading_way_or_enough_samples_there_is_no_p(rows, why):
    for found in minority_ways_p(tiny_ways(rows, n=4 if "shows" in why else 2)):
        assert found.value is None
        assert found.why.startswith(why)
