"""The letter of one option."""

import pytest

from oversharp.diagnostics.records.errors import ProblemError
from oversharp.diagnostics.records.types import NO_ANSWER, Problem
from oversharp.diagnostics.verifiers.choice import ChoiceVerifier, choice_letter

PROBLEM = Problem(task="t", prompt="Capital?\n\nA. Lyon\nB. Paris", gold="B", verifier="choice")


ALONE = ["B", "b", "$B$", "(B)", "[B]", "**B**", r"\textbf{(B)}", "B. Paris", "(B) Paris", "choice B: Paris"]
NOT_ALONE = ["B Paris", "A and B", "A, B", "a. Paris", "Paris", "10", ""]


@pytest.mark.parametrize(
    ("answer", "letter"), [("I", "I"), *((one, "B") for one in ALONE), *((one, None) for one in NOT_ALONE)]
)
def test_a_letter_counts_alone_or_before_its_options_text(answer: str, letter: str | None) -> None:
    assert choice_letter(answer) == letter


@pytest.mark.parametrize(
    "text",
    [
        r"The answer is A. No: \boxed{B}",
        r"\boxed{A} or rather \boxed{\text{B}}.",
        r"It is \boxed{42}. The answer is (B).",
        "<answer>B</answer> for sure",
        "so\n#### B",
        "Answer: B. Paris\nDone.",
        "We think.\n(B)",
    ],
)
def test_the_first_place_that_states_a_letter_gives_it(text: str) -> None:
    [grade] = ChoiceVerifier().grade([(PROBLEM, text)])
    assert (grade.answer, grade.mode, grade.correct) == ("B", "B", True)


def test_another_letter_is_wrong_and_the_options_text_is_no_answer() -> None:
    wrong, text, blank = ChoiceVerifier().grade([(PROBLEM, "\\boxed{A}"), (PROBLEM, "\\boxed{Paris}"), (PROBLEM, " ")])
    assert (wrong.state, wrong.answer, wrong.reward) == ("ok", "A", 0.0)
    assert [(grade.state, grade.answer, grade.mode) for grade in (text, blank)] == [("parse_fail", NO_ANSWER, None)] * 2


def test_a_gold_that_is_no_letter_is_an_error_of_the_data() -> None:
    with pytest.raises(ProblemError, match="answer 'Paris' is not a letter"):
        ChoiceVerifier().check_gold(Problem(task="t", prompt="p", gold="Paris", verifier="choice"))


@pytest.mark.parametrize(
    "text",
    [
        "The answer is (B) or (C).",
        "The answer is B or C",
        "Answer: B, C",
        "Answer: not B",
        r"\boxed{B} or \boxed{C}",
        r"\boxed{B \text{ or } C}",
        r"\boxed{\text{(B) or (C)}}",
        r"The answer is (B). So \boxed{B, C}",
        r"\boxed{\text{not } B}",
    ],
)
def test_several_options_or_a_negated_one_are_ambiguous(text: str) -> None:
    [got] = ChoiceVerifier().grade([(PROBLEM, text)])
    assert (got.state, got.correct) == ("ambiguous", False)
