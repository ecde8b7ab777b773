"""Judged answers in data files: what is accepted, what is refused, and what states no single answer."""

from dataclasses import replace

import pytest
from latex2sympy2_extended.math_normalization import units

from oversharp.diagnostics.records.errors import ProblemError
from oversharp.diagnostics.records.types import Grade, Problem
from oversharp.diagnostics.verifiers.math import MathVerifier
from oversharp.diagnostics.verifiers.reading.units import DROPPED
from tests.verifiers.judged import load_rows, misjudged, problem_of

pytestmark = pytest.mark.xdist_group("judged answers")  # they share what takes seconds to make

ROWS = load_rows("judged_answers.jsonl")


@pytest.fixture(scope="module")
def grades(math_verifier: MathVerifier) -> list[Grade]:
    """All rows graded as one batch."""
    return math_verifier.grade([(problem_of(row), row["response"]) for row in ROWS])


def test_the_table_is_large_and_judges_no_pair_twice() -> None:
    assert len(ROWS) >= 750
    assert len({(row["gold"], row["response"]) for row in ROWS}) == len(ROWS)


@pytest.mark.slow
def test_every_judged_answer_is_graded_as_judged(grades: list[Grade]) -> None:
    lines = misjudged(ROWS, grades)
    assert not lines, "\n".join(lines)


@pytest.mark.slow
def test_a_grade_that_differs_from_the_judgement_is_reported_with_its_reason(grades: list[Grade]) -> None:
    row = {**ROWS[0], "outcome": "wrong|unread"}
    assert [line.partition(": ")[0] for line in misjudged([row], grades[:1])] == [row["why"]]
    assert misjudged([ROWS[0]], grades[:1]) == []
    assert misjudged([row], [replace(grades[0], reward=0.0)]) == []


@pytest.mark.slow
def test_no_answer_is_the_label_of_right_and_wrong_responses(grades: list[Grade]) -> None:
    labels = [(row["gold"], grade.answer, grade.correct) for row, grade in zip(ROWS, grades, strict=True)]
    right = {(gold, answer) for gold, answer, is_correct in labels if is_correct}
    wrong = {(gold, answer) for gold, answer, is_correct in labels if not is_correct}
    assert not right & wrong


@pytest.mark.slow
def test_every_gold_of_the_table_passes_the_check(math_verifier: MathVerifier) -> None:
    for problem in {row["gold"]: problem_of(row) for row in ROWS}.values():
        math_verifier.check_gold(problem)


def test_what_is_no_gold_is_refused(math_verifier: MathVerifier) -> None:
    rows = load_rows("refused_golds.jsonl")
    assert len(rows) >= 12
    for row in rows:
        with pytest.raises(ProblemError, match=f"answer .* cannot be graded .*{row['why']}"):
            math_verifier.check_gold(Problem(task="t", prompt="p", gold=row["gold"], verifier="math"))


def test_the_letters_that_math_verify_drops_are_those_that_are_known_here() -> None:
    assert {unit for unit in units if unit.isascii() and unit.isalpha() and len(unit) <= 3} == DROPPED
