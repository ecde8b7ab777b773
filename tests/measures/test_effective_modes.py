import pytest

from oversharp.diagnostics.measures.counts import ONE_MODE
from oversharp.diagnostics.measures.examples import tiny_evidence
from oversharp.diagnostics.measures.modes.answers import effective_modes

COLUMNS = "checkpoint_id problem_id answer mode correct n"


def effective(*rows, n):
    return {f.checkpoint_id: f for f in effective_modes(tiny_evidence("answer_counts", COLUMNS, list(rows), n=n))}


def test_the_reciprocal_of_the_mean_index():
    found = effective(
        ("base", "q1", "4", "a", True, 2), ("base", "q1", "4", "b", True, 2),  # 4 of 12 pairs agree
        ("base", "q2", "4", "c", True, 4),  # all agree
        n=4,
    )  # fmt: skip
    assert found["base"].value == pytest.approx(1 / ((1 / 3 + 1) / 2))
    assert found["base"].n == 2


def test_wrong_samples_do_not_count():
    found = effective(
        ("base", "q", "4", "a", True, 2), ("base", "q", "4", "b", True, 2), ("base", "q", "5", "x", False, 4), n=8
    )
    assert found["base"].value == pytest.approx(3.0)


def test_a_planted_collapse_is_one_mode_and_the_twin_stays():
    rows = [(c, f"q{i:02}", "4", m, True, 8) for c in ("base", "twin") for i in range(60) for m in "ab"]
    rows += [("late", f"q{i:02}", "4", "a", True, 16) for i in range(60)]
    found = effective(*rows, n=16)
    assert found["late"].value == 1.0
    assert found["twin"].value == found["base"].value == pytest.approx(16 * 15 / (2 * 8 * 7))
    assert found["base"].low < found["base"].value < found["base"].high


def test_the_upper_end_is_open_where_the_index_could_be_zero():
    found = effective(
        ("base", "q1", "4", "a", True, 3), ("base", "q1", "4", "b", True, 1), ("base", "q2", "4", "a", True, 4), n=4
    )
    assert found["base"].high is None
    assert found["base"].low == pytest.approx(1.0)


def test_a_grader_for_which_all_correct_answers_are_one_mode_is_a_reason_and_no_constant_1():
    rows = [(c, f"q{i}", "4", "4", True, 4) for c in ("base", "late") for i in range(40)]
    assert {f.why for f in effective(*rows, n=4).values()} == {ONE_MODE}
    rows[0] = ("base", "q0", "4", "3 + 1", True, 2)
    found = effective(*rows, ("base", "q0", "4", "4", True, 2), n=4)
    assert found["base"].value > found["late"].value == 1.0


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        ([("base", "q", "5", None, False, 4)], "no problem has two correct samples"),
        ([("base", "q", "4", "a", True, 1), ("base", "q", "5", None, False, 3)], "no problem has two correct samples"),
        ([("base", "q", "4", None, True, 4)], "no problem has two correct samples with a named mode"),
        ([("base", "q", "4", m, True, 1) for m in "abcd"], "no two correct samples of a problem share a mode"),
    ],
)
def test_unknown_says_why(rows, why):
    finding = effective(*rows, n=4)["base"]
    assert finding.value is None
    assert finding.why.startswith(why)
