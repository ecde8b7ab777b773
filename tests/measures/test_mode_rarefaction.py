import itertools

import pytest

from oversharp.diagnostics.measures.counts import ONE_MODE
from oversharp.diagnostics.measures.examples import tiny_evidence
from oversharp.diagnostics.measures.modes.mode_rarefaction import NO_MODES, mode_rarefaction

COLUMNS = "checkpoint_id problem_id answer mode correct n"


def expected_modes(*rows, n, ks):
    return {
        (f.checkpoint_id, f.k): f
        for f in mode_rarefaction(tiny_evidence("answer_counts", COLUMNS, list(rows), n=n, ks=ks))
    }


def test_it_is_the_mean_over_all_ways_to_choose_k_samples():
    found = expected_modes(
        ("base", "q", "4", "a", True, 3), ("base", "q", "4", "b", True, 1), ("base", "q", "5", "x", False, 2),
        n=6, ks=(1, 2, 4),
    )  # fmt: skip
    samples = ["a", "a", "a", "b", None, None]
    for k in (1, 2, 4):
        drawn = list(itertools.combinations(samples, k))
        mean = sum(len(set(chosen) - {None}) for chosen in drawn) / len(drawn)
        assert found["base", k].value == pytest.approx(mean)


def test_problems_that_are_never_solved_show_no_mode():
    found = expected_modes(
        ("base", "q1", "4", "a", True, 3), ("base", "q1", "4", "b", True, 1), ("base", "q2", "5", None, False, 4),
        n=4, ks=(1,),
    )  # fmt: skip
    assert found["base", 1].value == pytest.approx(0.5)
    assert found["base", 1].n == 2


def test_a_planted_collapse_shows_fewer_modes_while_all_is_solved():
    found = expected_modes(
        ("base", "q", "4", "a", True, 2), ("base", "q", "4", "b", True, 2), ("late", "q", "4", "a", True, 4),
        ("twin", "q", "4", "b", True, 2), ("twin", "q", "4", "a", True, 2), n=4, ks=(4,),
    )  # fmt: skip
    assert [found[name, 4].value for name in ("base", "late", "twin")] == [2.0, 1.0, 2.0]


def test_intervals_end_at_half_of_the_samples_and_values_at_all():
    rows = [("base", f"q{i}", "4", "a", True, 1 + i % 2) for i in range(6)]
    rows += [("base", f"q{i}", "5", None, False, 3 - i % 2) for i in range(5)]
    rows += [("base", "q5", "4", "b", True, 2)]
    found = expected_modes(*rows, n=4, ks=(2, 4, 8))
    assert found["base", 2].low < found["base", 2].value < found["base", 2].high
    assert (found["base", 4].value, found["base", 4].low) == (pytest.approx(7 / 6), None)
    assert found["base", 8].value is None


def test_a_grader_for_which_all_correct_answers_are_one_mode_is_a_reason():
    rows = [(c, f"q{i}", "4", "4", True, 2) for c in ("base", "late") for i in range(6)]
    rows += [(c, f"q{i}", "5", "5", False, 2) for c in ("base", "late") for i in range(6)]  # wrong ones do not count
    assert {f.why for f in expected_modes(*rows, n=4, ks=(1, 2)).values()} == {ONE_MODE}
    # once the base shows a second one, a checkpoint that has lost it has a value
    found = expected_modes(*rows, ("base", "q9", "4", "4", True, 2), ("base", "q9", "4", "3 + 1", True, 2),
                           ("late", "q9", "4", "4", True, 4), n=4, ks=(4,))  # fmt: skip
    assert (found["base", 4].value, found["late", 4].value) == (pytest.approx(8 / 7), 1.0)


def test_a_grader_without_modes_is_a_reason():
    assert expected_modes(("base", "q", "4", None, True, 4), n=4, ks=(1,))["base", 1].why == NO_MODES
