import pytest

from diagnostics.measures import get_measure
from diagnostics.measures._example import tiny_evidence

compute = get_measure("interference_magnitude").compute

COLUMNS = "checkpoint_id problem_id sample_index correct logp_sum n_tokens"


def finding(*changes_of_problems, correct=(True, False)):
    rows = [
        (checkpoint, f"q{i}", j, correct[j], -9.0 + change * (checkpoint == "late"), 5)
        for checkpoint in ("base", "late")
        for i, changes in enumerate(changes_of_problems)
        for j, change in enumerate(changes)
    ]
    (one,) = compute(tiny_evidence("panel_logps", COLUMNS, rows))
    return one


def test_squares_of_right_and_wrong_responses_are_averaged_without_a_root():
    one = finding((2.0, -4.0), (1.0, 1.0))
    assert one.value == pytest.approx(((4 + 16) / 2 + 1) / 2)
    assert (one.unit, one.n) == ("nats²", 2)


def test_opposite_changes_do_not_cancel():
    assert finding((3.0, -3.0)).value == 9.0
    assert finding((0.0, 0.0)).value == 0.0


def test_wrong_responses_alone_have_a_magnitude():
    assert finding((1.0, 2.0), correct=(False, False)).value == 2.5


def test_the_interval_is_over_problems_and_never_below_zero():
    one = finding((0.0, 0.0), (10.0, 10.0), (0.0, 0.0))
    assert one.low == 0.0
    assert one.high > 100.0


def test_a_checkpoint_that_scored_a_part_of_the_panel_is_unknown():
    rows = [("base", "q", 0, True, -1.0, 5), ("base", "q", 1, True, -1.0, 5), ("late", "q", 0, True, -2.0, 5)]
    (one,) = compute(tiny_evidence("panel_logps", COLUMNS, rows))
    assert one.value is None
    assert one.why.startswith("1 of 2 panel responses")
