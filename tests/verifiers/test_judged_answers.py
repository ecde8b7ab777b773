"""The table of judged answers: what is accepted, what is refused, and what states no single answer."""

import pytest
from latex2sympy2_extended.math_normalization import units

from oversharp.diagnostics.records.errors import ProblemError
from oversharp.diagnostics.records.types import Grade, Problem
from oversharp.diagnostics.verifiers.math import MathVerifier
from oversharp.diagnostics.verifiers.reading.units import DROPPED
from tests.verifiers.judged_answers import NO_GOLDS, rows

pytestmark = pytest.mark.xdist_group("judged answers")  # they share what takes seconds to make

ROWS = rows()


def problem(gold: str) -> Problem:
    return Problem(task="t", prompt="p", gold=gold, verifier="math")


@pytest.fixture(scope="module")
def grades(math_verifier: MathVerifier) -> dict[tuple[str, str], Grade]:
    """All rows graded as one batch."""
    pairs = [(gold, response) for _, gold, _, response in ROWS]
    graded = math_verifier.grade([(problem(gold), response) for gold, response in pairs])
    return dict(zip(pairs, graded, strict=True))


def test_the_table_is_large_and_judges_no_pair_twice() -> None:
    assert len(ROWS) >= 300
    assert len({(gold, response) for _, gold, _, response in ROWS}) == len(ROWS)


@pytest.mark.parametrize(("why", "gold", "outcome", "response"), ROWS)
def test_a_judged_answer(
    grades: dict[tuple[str, str], Grade], why: str, gold: str, outcome: str, response: str
) -> None:
    grade = grades[gold, response]
    found = "right" if grade.correct else {"ok": "wrong", "parse_fail": "unread"}.get(grade.state, grade.state)
    assert found == outcome, f"{why}: {grade}"


def test_no_answer_is_the_label_of_right_and_wrong_responses(grades: dict[tuple[str, str], Grade]) -> None:
    right = {(gold, grade.answer) for (gold, _), grade in grades.items() if grade.correct}
    wrong = {(gold, grade.answer) for (gold, _), grade in grades.items() if not grade.correct}
    assert not right & wrong


def test_every_gold_of_the_table_passes_the_check(math_verifier: MathVerifier) -> None:
    for gold in dict.fromkeys(gold for _, gold, _, _ in ROWS):
        math_verifier.check_gold(problem(gold))


@pytest.mark.parametrize(("gold", "why"), NO_GOLDS.items())
def test_what_is_no_gold_is_refused(math_verifier: MathVerifier, gold: str, why: str) -> None:
    with pytest.raises(ProblemError, match=f"answer .* cannot be graded .*{why}"):
        math_verifier.check_gold(problem(gold))


def test_the_letters_that_math_verify_drops_are_those_that_are_known_here() -> None:
    assert {unit for unit in units if unit.isascii() and unit.isalpha() and len(unit) <= 3} == DROPPED
