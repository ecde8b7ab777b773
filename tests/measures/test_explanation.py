"""What ``oversharp explain`` has to say about a measure."""

import re
from dataclasses import replace
from operator import attrgetter

import pytest

from oversharp.diagnostics.measures import PAPERS, all_measures, explanation, get_measure
from tests.cases import each_case

every_measure = each_case("measure", all_measures().values(), name_of=attrgetter("name"))


@pytest.mark.slow
@every_measure
def test_it_says_what_is_measured_and_shows_no_code(measure):
    head, unit, blank, *rest = explanation(measure).splitlines()
    assert head == f"{measure.name}: {measure.title}"
    assert unit == f"Unit: {measure.unit}. Section: {measure.section}"
    assert blank == ""
    assert rest[0] == measure.doc.splitlines()[0]
    text = "\n".join(rest)
    assert all(f"\n{part}: " in text for part in ("Meaning", "Unit", "Limits", "Source"))
    assert ">>>" not in text
    assert "examples import" not in text


@every_measure
def test_every_cited_paper_is_in_the_references_and_no_other(measure):
    text, _, references = explanation(measure).partition("\n\nReferences:\n")
    cited = set(re.findall(r"\[([A-Z])\]", text))
    assert {line[1] for line in references.splitlines()} == cited
    assert cited <= set(PAPERS)


def test_two_papers_come_in_alphabetical_order_with_where_to_find_them():
    measure = replace(get_measure("pass_at_k"), doc="One.\n\nSource: [C], and [A] before it.")
    assert explanation(measure).splitlines()[-3:] == [
        "References:",
        "[A] When Sharpening Becomes Collapse, arXiv 2601.15609",
        "[C] The Reasoning Boundary Paradox, OpenReview",
    ]


def test_a_measure_that_cites_none_of_them_has_no_references():
    assert "References" not in explanation(get_measure("truncation_rate"))


@pytest.mark.parametrize(
    "example",
    [">>> 1 + 1\n2", "Example:\n>>> 1 + 1\n2", "Examples\n--------\n>>> 1 + 1\n2", "Example:\n\n    >>> 1\n    1"],
)
def test_an_example_is_left_out_whatever_its_heading(example):
    measure = replace(get_measure("pass_at_k"), doc=f"One.\n\n{example}\n\nExample sentences stay.")
    assert explanation(measure).splitlines()[3:] == ["One.", "", "Example sentences stay."]


def test_a_measure_without_a_docstring_is_still_named():
    measure = replace(get_measure("pass_at_k"), doc="")
    assert explanation(measure) == "pass_at_k: Pass@k\nUnit: probability. Section: coverage"
