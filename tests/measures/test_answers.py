import math

import numpy as np
import pytest

from oversharp.diagnostics.measures import get_measure
from oversharp.diagnostics.measures.examples import tiny_evidence

COLUMNS = "checkpoint_id problem_id answer mode correct n"


def of_answers(name, rows, *, n):
    findings = get_measure(name)(tiny_evidence("answer_counts", COLUMNS, rows, n=n))
    return {(f.checkpoint_id, f.scope): f for f in findings}


def entropies(rows, *, n):
    return of_answers("answer_entropy", rows, n=n)


def agreement(rows, *, n):
    return of_answers("answer_simpson", rows, n=n)


def test_one_answer_found_in_two_ways_is_one_answer():
    split = entropies([("base", "q", "4", "a", True, 2), ("base", "q", "4", "b", True, 2)], n=4)
    assert split["base", "plug_in"].value == 0.0
    assert split["base", "all"].value == pytest.approx(0.0, abs=1e-12)


def test_problems_count_equally():
    rows = [("base", "q1", "4", "a", True, 2), ("base", "q1", "5", None, False, 2), ("base", "q2", "4", "a", True, 4)]
    found = entropies(rows, n=4)["base", "plug_in"]
    assert (found.value, found.n) == (pytest.approx(math.log(2) / 2), 2)


def test_the_plug_in_has_no_interval_and_the_estimate_has_room_for_answers_that_no_sample_showed():
    rows = [("base", f"q{i}", a, None, False, n) for i in range(30) for a, n in (("4", 3), ("5", 1)) if i < 12 or n > 1]
    rows += [("base", f"q{i}", "4", None, False, 1) for i in range(12, 30)]
    found = entropies(rows, n=4)
    assert (found["base", "plug_in"].low, found["base", "plug_in"].high) == (None, None)
    one = found["base", "all"]
    # each of the 12 has one answer of 4 that was drawn once: room of ¼ (1 + log 4)
    assert one.high - one.value == pytest.approx(one.value - one.low + 0.4 * 0.25 * (1 + math.log(4)))


def test_where_hardly_any_problem_shows_two_answers_the_entropy_has_no_interval():
    rows = [("base", f"q{i}", "4", None, False, 2) for i in range(30)]
    rows += [("base", f"q{i}", "5" if i < 4 else "4", None, False, 2) for i in range(30)]
    one = entropies(rows, n=4)["base", "all"]
    assert one.value > 0
    assert (one.low, one.high) == (None, None)


def test_a_planted_collapse_falls_and_the_clean_twin_does_not():
    rng = np.random.default_rng(2)
    flat, sharp = np.full(20, 0.05), np.r_[0.9, np.full(19, 0.1 / 19)]
    rows = []
    for checkpoint, probabilities in (("base", flat), ("late", sharp), ("twin", flat)):
        for q in range(40):
            counts = rng.multinomial(64, probabilities)
            rows += [(checkpoint, f"q{q:02}", f"{a}", None, False, int(c)) for a, c in enumerate(counts) if c]
    found = entropies(rows, n=64)
    assert found["base", "all"].value == pytest.approx(math.log(20), abs=0.03)
    assert found["late", "all"].high < found["base", "all"].low
    assert found["twin", "all"].low < found["base", "all"].value < found["twin", "all"].high


def test_the_share_of_agreeing_pairs_is_over_all_answers():
    q1 = [("base", "q1", "4", "a", True, 1), ("base", "q1", "4", "b", True, 1), ("base", "q1", "5", None, False, 2)]
    found = agreement([*q1, ("base", "q2", "4", "a", True, 4)], n=4)
    assert found["base", "all"].value == pytest.approx((4 / 12 + 1) / 2)


def test_answers_of_a_planted_collapse_agree_and_those_of_the_twin_do_not():
    rows = [(c, "q", a, None, False, 2) for c in ("base", "twin") for a in "1234"]
    found = agreement([*rows, ("late", "q", "1", None, False, 8)], n=8)
    assert found["late", "all"].value == 1.0
    assert found["twin", "all"].value == found["base", "all"].value == pytest.approx(8 / 56)


@pytest.mark.parametrize(("name", "lacks"), [("answer_entropy", "entropy"), ("answer_simpson", "pairs")])
def test_one_sample_is_too_few(name, lacks):
    found = of_answers(name, [("base", "q", "4", "a", True, 1)], n=1)
    assert found["base", "all"].why == f"one sample per problem has no {lacks}"
