"""How people write answers and golds: judged responses in a data file, and every row of the tables of rules."""

import pytest

from oversharp.diagnostics.verifiers import Verifiers
from oversharp.diagnostics.verifiers.reading.labels import labelled
from oversharp.diagnostics.verifiers.reading.languages.announcements import ANNOUNCEMENTS, Announcement
from oversharp.diagnostics.verifiers.reading.lenient import accepts_mathematics
from oversharp.diagnostics.verifiers.reading.notation import NOTATION, TYPOGRAPHY, Rewrite, as_latex_notation, typeset
from oversharp.diagnostics.verifiers.reading.page import PAGE, page
from oversharp.diagnostics.verifiers.reading.responses import THOUGHTS, final_part
from tests.verifiers.judged import load_rows, misjudged, problem_of

pytestmark = pytest.mark.xdist_group("judged answers")

ROWS = load_rows("judged_reading.jsonl")


@pytest.mark.slow
def test_every_response_is_read_as_people_read_it() -> None:
    with Verifiers() as verifiers:
        for row in ROWS:
            verifiers.check_gold(problem_of(row))
        lines = misjudged(ROWS, verifiers.grade([(problem_of(row), row["response"]) for row in ROWS]))
    assert len(ROWS) > 1700
    assert not lines, "\n".join(lines)


@pytest.mark.parametrize("rule", TYPOGRAPHY, ids=[rule.name for rule in TYPOGRAPHY])
def test_a_rule_of_typography_does_what_its_example_says(rule: Rewrite) -> None:
    assert typeset(rule.example[0]) == rule.example[1]


@pytest.mark.parametrize("rule", NOTATION, ids=[rule.name for rule in NOTATION])
def test_a_rule_of_notation_does_what_its_example_says(rule: Rewrite) -> None:
    assert as_latex_notation(rule.example[0]) == rule.example[1]


@pytest.mark.parametrize(
    "answer", ["x+1", r"\frac{1}{2}", "(1,2)", r"\begin{pmatrix}1\\ 2\end{pmatrix}", r"1\,000", "3:4"]
)
def test_what_is_written_plainly_is_left_alone(answer: str) -> None:
    assert typeset(answer) == answer
    assert as_latex_notation(answer) == answer


@pytest.mark.parametrize("announcement", ANNOUNCEMENTS, ids=[row.language for row in ANNOUNCEMENTS])
def test_an_announcement_finds_the_answer_of_its_example(announcement: Announcement) -> None:
    response, answer = announcement.example
    found = labelled(response)
    assert found is not None
    assert found.line.rstrip(".") == answer
    other = labelled(response.replace(answer, "7, not 8"))
    assert other is not None
    assert other.line.startswith("7, not 8")


@pytest.mark.parametrize(("name", "opening", "closing"), THOUGHTS)
def test_what_follows_thoughts_states_the_answer(name: str, opening: str, closing: str) -> None:
    closed = final_part(f"{opening}It is 41.{closing}It is 42.")
    assert (closed.text, closed.is_unfinished) == ("It is 42.", False), name
    without_opening = final_part(f"It is 41.{closing}It is 42.")
    assert without_opening.text == "It is 42."
    unfinished = final_part(f"{opening}It is 41.")
    assert (unfinished.text, unfinished.is_unfinished) == ("", True)
    assert final_part("It is 41.", prompt=f"6 * 7?\n{opening}\n").is_unfinished


@pytest.mark.parametrize(
    ("gold", "end", "accepted"),
    [
        ("3.5", "Es sind 3,5", True),
        ("-3.5", "also -3,5 Grad", True),
        ("18.5", "18,50 €", True),
        ("1800", "1.800 €", True),
        ("1.8", "1.800", True),
        ("1234567", "12,34,567", True),
        ("1234.56", "so 1.234,56.", True),
        ("35", "3,5", False),
        ("1800", "es sind 1.800.000", False),
        ("3.5", "es sind 3, 5", False),
    ],
)
def test_the_lenient_reader_knows_decimal_commas(gold: str, end: str, accepted: bool) -> None:
    assert accepts_mathematics(gold, end) is accepted


def test_the_page_of_the_tables_is_the_one_that_the_code_gives() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), (
        "docs/reading.md is out of date; run: python -m oversharp.diagnostics.verifiers.reading.page"
    )
