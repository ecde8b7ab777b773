import math

import numpy as np
import pytest

from diagnostics.measures import get_measure
from diagnostics.measures._example import tiny_evidence

compute = get_measure("answer_entropy").compute

COLUMNS = "checkpoint_id problem_id answer mode correct n"


def entropies(rows, *, n):
    findings = compute(tiny_evidence("answer_counts", COLUMNS, rows, n=n))
    return {(f.checkpoint_id, f.scope): f for f in findings}


def test_plug_in_and_corrected_by_hand():
    found = entropies([("base", "q", "4", "a", True, 2), ("base", "q", "NA", None, False, 1)], n=3)
    assert found["base", "plug_in"].value == pytest.approx(math.log(3) - 2 / 3 * math.log(2))
    assert found["base", "all"].value == pytest.approx(5 / 6 + 4 / 3 * (math.log(2) - 5 / 8))


def test_one_answer_found_in_two_ways_is_one_answer():
    split = entropies([("base", "q", "4", "a", True, 2), ("base", "q", "4", "b", True, 2)], n=4)
    assert split["base", "plug_in"].value == 0.0
    assert split["base", "all"].value == pytest.approx(0.0, abs=1e-12)


def test_problems_count_equally():
    rows = [("base", "q1", "4", "a", True, 2), ("base", "q1", "5", None, False, 2), ("base", "q2", "4", "a", True, 4)]
    found = entropies(rows, n=4)["base", "plug_in"]
    assert (found.value, found.n) == (pytest.approx(math.log(2) / 2), 2)
    assert found.low == 0.0


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


def test_another_sample_size_is_not_compared():
    rows = [("base", "q", "4", "a", True, 4), ("late", "q", "4", "a", True, 2)]
    assert entropies(rows, n=4)["late", "all"].why.startswith("0 of 1 problems have exactly 4")


def test_one_sample_has_no_entropy():
    assert (
        entropies([("base", "q", "4", "a", True, 1)], n=1)["base", "all"].why == "one sample per problem has no entropy"
    )
