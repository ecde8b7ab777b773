import pytest

from oversharp.diagnostics.measures.examples import tiny_evidence
from oversharp.diagnostics.measures.modes.answers import recurring_errors

COLUMNS = "checkpoint_id problem_id answer mode correct n"


def recurring(*rows, n):
    return {f.checkpoint_id: f for f in recurring_errors(tiny_evidence("answer_counts", COLUMNS, list(rows), n=n))}


def test_a_mistake_that_is_planted_everywhere_is_found_and_the_twin_errs_in_many_ways():
    twin = [("twin", f"q{i}", str(a), None, False, 1) for i in range(30) for a in range(8)]
    found = recurring(*[("base", f"q{i}", "41", None, False, 8) for i in range(30)], *twin, n=8)
    assert (found["base"].value, found["twin"].value) == (1.0, 0.0)
    assert found["base"].low < 1.0


def test_correct_and_unread_samples_do_not_count():
    found = recurring(
        ("base", "q", "42", "42", True, 3), ("base", "q", "NA", None, False, 3),
        ("base", "q", "41", None, False, 2), ("base", "q", "40", None, False, 1),
        ("base", "r", "NA", None, False, 8), ("base", "r", "1", None, False, 1),
        n=9,
    )  # fmt: skip
    assert found["base"].value == pytest.approx(2 / 6)  # 2 of 6 ordered pairs
    assert found["base"].n == 1


def test_without_two_wrong_answers_to_a_problem_nothing_is_known():
    found = recurring(("base", "q", "42", "42", True, 3), ("base", "q", "41", None, False, 1), n=4)
    assert (found["base"].value, found["base"].why) == (None, "no problem has two wrong samples with an answer")
