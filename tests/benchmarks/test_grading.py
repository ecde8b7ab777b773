"""The benchmark of grading: what it reads of the two files, and what it counts."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.reading import grading
from benchmarks.speed.results import RESULTS
from oversharp.diagnostics.verifiers import RULES
from oversharp.diagnostics.verifiers.math import MathVerifier, StrictMathVerifier


@pytest.fixture(scope="module")
def verifier() -> Iterator[MathVerifier]:
    with MathVerifier(timeout_s=30.0, workers=1) as opened:
        yield opened


@pytest.fixture(scope="module")
def strict() -> Iterator[StrictMathVerifier]:
    with StrictMathVerifier(timeout_s=30.0, workers=1) as opened:
        yield opened


@pytest.fixture
def responses(tmp_path: Path) -> Path:
    """A right and a wrong one, one that the tool misjudges, one that hedges, one unread, and a gold that is none."""
    path = tmp_path / "math.jsonl"
    rows = [
        {
            "idx": 1,
            "gt": "42",
            "response": [r"\boxed{42}", r"\boxed{41}", r"\boxed{42.0}"],
            "score": ["True", "False", "False"],
        },
        {"idx": 2, "gt": "7", "response": [r"\boxed{7} or \boxed{8}", "Seven."], "score": ["True", "False"]},
        {"idx": 3, "gt": "4:30p..", "response": [r"\boxed{4:30}"], "score": ["True"]},
    ]
    path.write_text("\n".join(map(json.dumps, rows)) + "\n", encoding="utf-8")
    return path


def test_counts_and_rates_of_responses_judged_by_a_tool(
    responses: Path, verifier: MathVerifier, strict: StrictMathVerifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    solutions = list(grading.mathematics(responses))
    found = grading.measured("MATH", solutions, verifier, strict)
    assert (found["responses"], found["right_by_the_tool"], list(found["golds_refused"])) == (5, 2, ["4:30p.."])
    assert found["differ_from_the_tool"] == 2
    assert set(found["read"].values()) == {grading.UNREAD}
    assert (found["falsely_accepted"].count, found["falsely_accepted"].of) == (1, 3)  # as long as the tool is believed
    assert (found["falsely_refused"].count, found["falsely_refused"].of) == (1, 2)
    assert (found["ambiguous"].count, found["ambiguous_but_right"].count, found["unread"].count) == (1, 1, 1)
    assert (found["several_different_boxes"].count, found["strictly_ambiguous"].count) == (1, 1)

    monkeypatch.setattr(grading, "READ", {("MATH", "1/2"): (True, "the same number")})
    read = grading.measured("MATH", solutions, verifier, strict)
    assert (read["falsely_accepted"].count, read["falsely_accepted"].of, read["right"]) == (0, 2, 3)


def test_right_answers_are_held_against_the_golds_of_other_problems(responses: Path, verifier: MathVerifier) -> None:
    found = grading.crossed([one for one in grading.mathematics(responses) if one.gold != "4:30p.."], verifier)
    assert (found["responses"], found["pairs"], found["accepted"]) == (2, 2, [])


def test_solutions_of_gsm8k_end_as_they_are_told_to(tmp_path: Path) -> None:
    said = {
        model: {"solution": f"6 * 7 = 42\nA: {n}", "is_correct": n == 42} for n, model in enumerate(grading.MODELS, 41)
    }
    path = tmp_path / "gsm8k.jsonl"
    path.write_text(json.dumps({"question": "q", "ground_truth": "6 * 7 = 42\nA: 42", **said}) + "\n", encoding="utf-8")
    solutions = list(grading.gsm8k(path, "The answer is "))
    assert [(one.gold, one.text.split("\n")[1], one.right) for one in solutions] == [
        ("42", f"The answer is {n}", n == 42) for n in range(41, 45)
    ]


def test_the_published_page_is_that_of_the_result_and_nothing_in_it_is_unread() -> None:
    published = json.loads((RESULTS / "grading.json").read_text(encoding="utf-8"))
    assert (RESULTS / "grading.md").read_text(encoding="utf-8") == grading.page(published)
    assert published["rules"] == RULES["math"]  # other rules: measure again
    assert all(why != grading.UNREAD for one in published["sources"].values() for why in one["read"].values())
