import pytest

from diagnostics.measures import get_measure
from diagnostics.measures._example import tiny_evidence

compute = get_measure("answer_simpson").compute

COLUMNS = "checkpoint_id problem_id answer mode correct n"


def agreement(*rows, n):
    return {f.checkpoint_id: f for f in compute(tiny_evidence("answer_counts", COLUMNS, list(rows), n=n))}


def test_the_share_of_agreeing_pairs_over_all_answers():
    found = agreement(
        ("base", "q1", "4", "a", True, 1), ("base", "q1", "4", "b", True, 1), ("base", "q1", "5", None, False, 2),
        ("base", "q2", "4", "a", True, 4),
        n=4,
    )  # fmt: skip
    assert found["base"].value == pytest.approx((4 / 12 + 1) / 2)


def test_a_planted_collapse_agrees_and_the_twin_does_not():
    rows = [(c, "q", a, None, False, 2) for c in ("base", "twin") for a in "1234"] + [
        ("late", "q", "1", None, False, 8)
    ]
    found = agreement(*rows, n=8)
    assert found["late"].value == 1.0
    assert found["twin"].value == found["base"].value == pytest.approx(8 / 56)


def test_one_sample_has_no_pairs():
    assert agreement(("base", "q", "4", "a", True, 1), n=1)["base"].why == "one sample per problem has no pairs"
