"""Membership in the list of accepted responses decides."""

import pytest

from oversharp.diagnostics.records.errors import ProblemError
from oversharp.diagnostics.records.types import NO_ANSWER, Problem
from oversharp.diagnostics.verifiers.modes import ModesVerifier


def problem(*modes: str) -> Problem:
    return Problem(task="t", prompt="p", gold="54", verifier="modes", modes=modes)


def test_a_listed_response_is_correct_whatever_its_spacing() -> None:
    [grade] = ModesVerifier().grade([(problem("6 * 7 + 12", "12 + 6 * 7"), "\n6  * 7 +\t12 ")])
    assert grade.correct
    assert (grade.answer, grade.mode) == ("6 * 7 + 12", "6 * 7 + 12")


def test_a_listed_mode_is_reported_as_it_is_listed() -> None:
    # scores of enumerated modes are joined on this very text
    [grade] = ModesVerifier().grade([(problem("two  words "), "two words")])
    assert grade.mode == "two  words "


def test_a_true_but_unlisted_response_is_wrong() -> None:
    [grade] = ModesVerifier().grade([(problem("6 * 7 + 12"), "54")])
    assert (grade.reward, grade.state, grade.mode) == (0.0, "ok", "54")


def test_an_empty_response_has_no_answer() -> None:
    [grade] = ModesVerifier().grade([(problem("x"), " \n")])
    assert (grade.answer, grade.mode, grade.state) == (NO_ANSWER, None, "parse_fail")


def test_problems_do_not_share_their_modes() -> None:
    grades = ModesVerifier().grade([(problem("a"), "a"), (problem("b"), "a"), (problem("b"), "b")])
    assert [grade.correct for grade in grades] == [True, False, True]


def test_no_modes_is_an_error_of_the_data() -> None:
    with pytest.raises(ProblemError, match='needs the field "modes"'):
        ModesVerifier().check_gold(problem())
