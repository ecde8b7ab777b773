"""The letter of one option."""

import pytest

from diagnostics.records.errors import ProblemError
from diagnostics.records.types import NO_ANSWER, Problem
from diagnostics.verifiers.choice import ChoiceVerifier, choice_letter

PROBLEM = Problem(task="t", prompt="Capital?\n\nA. Lyon\nB. Paris", gold="B", verifier="choice")


@pytest.mark.parametrize(
    ("answer", "letter"),
    [
        ("B", "B"),
        ("b", "B"),
        ("$B$", "B"),
        ("(B)", "B"),
        ("[B]", "B"),
        ("**B**", "B"),
        (r"\textbf{(B)}", "B"),
        ("B. Paris", "B"),
        ("(B) Paris", "B"),
        ("choice B: Paris", "B"),
        ("I", "I"),
        ("B Paris", None),
        ("A and B", None),
        ("A, B", None),
        ("a. Paris", None),
        ("Paris", None),
        ("10", None),
        ("", None),
    ],
)
def test_a_letter_counts_alone_or_before_its_options_text(answer: str, letter: str | None) -> None:
    assert choice_letter(answer) == letter


@pytest.mark.parametrize(
    ("text", "letter"),
    [
        (r"The answer is A. No: \boxed{B}", "B"),
        (r"\boxed{A} or rather \boxed{\text{B}}.", "B"),
        (r"It is \boxed{42}. The answer is (B).", "B"),
        ("<answer>B</answer> for sure", "B"),
        ("so\n#### B", "B"),
        ("Answer: B. Paris\nDone.", "B"),
        ("We think.\n(B)", "B"),
    ],
)
def test_the_first_place_that_states_a_letter_gives_it(text: str, letter: str) -> None:
    [grade] = ChoiceVerifier().grade([(PROBLEM, text)])
    assert (grade.answer, grade.mode, grade.correct) == (letter, letter, True)


def test_another_letter_is_wrong_and_the_options_text_is_no_answer() -> None:
    wrong, text, blank = ChoiceVerifier().grade([(PROBLEM, "\\boxed{A}"), (PROBLEM, "\\boxed{Paris}"), (PROBLEM, " ")])
    assert (wrong.state, wrong.answer, wrong.reward) == ("ok", "A", 0.0)
    assert [(grade.state, grade.answer, grade.mode) for grade in (text, blank)] == [("parse_fail", NO_ANSWER, None)] * 2


def test_a_gold_that_is_no_letter_is_an_error_of_the_data() -> None:
    with pytest.raises(ProblemError, match="answer 'Paris' is no letter"):
        ChoiceVerifier().check_gold(Problem(task="t", prompt="p", gold="Paris", verifier="choice"))
