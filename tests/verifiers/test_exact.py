"""The final answer, compared as text."""

import pytest

from oversharp.diagnostics.records.errors import ProblemError
from oversharp.diagnostics.records.types import NO_ANSWER, Problem
from oversharp.diagnostics.verifiers.exact import ExactVerifier, exact_answer

PARIS = Problem(task="t", prompt="Capital of France?", gold="Paris", verifier="exact")


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("I think.\nParis", "Paris"),
        ("Answer: Lyon. No.\nThe answer is Paris.", "Paris"),
        (r"The answer is Lyon, I mean \boxed{Paris}", "Paris"),
        ("<answer>New   York</answer> it is", "New York"),
        ("<answer>Rome</answer>, or \\boxed{Paris}", "Paris"),  # a box outranks a tag, wherever they stand
        ("#### Rome\n<answer>Paris</answer>", "Paris"),
        ("#### 42\n", "42"),
        ("$42$", "42"),
        ("   ", None),
        (r"\boxed{}", None),
    ],
)
def test_the_first_rule_that_applies_gives_the_answer(text: str, answer: str | None) -> None:
    assert exact_answer(text) == answer


def test_letter_case_matters() -> None:
    right, wrong = ExactVerifier().grade([(PARIS, "Paris"), (PARIS, "paris")])
    assert (right.correct, wrong.correct) == (True, False)
    assert wrong.answer == "paris"


def test_a_blank_response_is_not_a_wrong_answer() -> None:
    [grade] = ExactVerifier().grade([(PARIS, "")])
    assert (grade.state, grade.answer, grade.mode) == ("parse_fail", NO_ANSWER, None)


def test_a_blank_gold_is_an_error_of_the_data() -> None:
    with pytest.raises(ProblemError, match="blank"):
        ExactVerifier().check_gold(Problem(task="t", prompt="p", gold=" ", verifier="exact"))


def test_boxes_that_are_alternatives_are_ambiguous_and_a_later_box_counts() -> None:
    hedged, corrected = ExactVerifier().grade(
        [(PARIS, r"\boxed{Lyon} or \boxed{Paris}"), (PARIS, r"\boxed{Lyon}. No: \boxed{Paris}")]
    )
    assert (hedged.state, hedged.correct, hedged.n_boxed) == ("ambiguous", False, 2)
    assert (corrected.state, corrected.correct, corrected.n_boxed) == ("ok", True, 2)


@pytest.mark.parametrize(
    ("end", "answer"),
    [
        (r"so \boxed{4}.", "4"),
        (r"\boxed{}", None),
        (r"\boxed{$\frac{1}{2}$}", r"\frac{1}{2}"),
        (r"\boxed{3}, or rather \boxed{4", "3"),
        (r"\boxed{3", r"\boxed{3"),
        (r"\boxed 3", "3"),
        (r"\boxed{1\boxed{2}}", "2"),
    ],
)
def test_a_box_near_the_end_is_read_as_one_far_from_it(end: str, answer: str | None) -> None:
    assert exact_answer(end) == answer
    assert exact_answer(end + " " * 100) == answer
