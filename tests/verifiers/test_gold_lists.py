"""Golds that list several answers, and boxes in a model's thoughts."""

from pathlib import Path

import pytest

from oversharp.diagnostics.records.errors import ConfigError, ProblemError
from oversharp.diagnostics.records.types import Problem
from oversharp.diagnostics.tasks import load_problems
from oversharp.diagnostics.verifiers import Verifiers, in_thoughts
from oversharp.diagnostics.verifiers.reading.golds import any_of


def problem(gold: str, verifier: str = "exact", prompt: str = "p") -> Problem:
    return Problem(task="t", prompt=prompt, gold=gold, verifier=verifier)


def test_any_member_of_a_gold_list_is_right_under_one_name() -> None:
    city = problem(any_of(["Paris", "City of Light"]))
    with Verifiers() as verifiers:
        verifiers.check_gold(city)
        grades = verifiers.grade([(city, "Answer: Paris"), (city, "Answer: City of Light"), (city, "Answer: Rome")])
    assert [grade.correct for grade in grades] == [True, True, False]
    assert [grade.answer for grade in grades] == ["Paris", "Paris", "Rome"]


@pytest.mark.slow
def test_a_member_that_cannot_be_graded_leaves_the_others() -> None:
    with Verifiers() as verifiers:
        mixed = problem(any_of(["foo!@#", "42"]), "math")
        verifiers.check_gold(mixed)
        assert verifiers.grade([(mixed, r"\boxed{42}")])[0].correct
        with pytest.raises(ProblemError, match="cannot be graded"):
            verifiers.check_gold(problem(any_of(["foo!@#", "bar!@#"]), "math"))


@pytest.mark.slow
def test_a_file_says_whether_any_or_all_members_count(tmp_path: Path) -> None:
    path = tmp_path / "problems.jsonl"
    path.write_text('{"prompt": "Roots?", "answer": ["1", "2"]}\n{"prompt": "6 * 7?", "answer": [42]}\n')
    any_member, all_members = load_problems(path, None), load_problems(path, None, gold="all")
    assert [each.gold for each in any_member] == ['["1", "2"]', "42"]
    assert [each.gold for each in all_members] == ["1, 2", "42"]
    with Verifiers() as verifiers:
        assert verifiers.grade([(any_member[0], r"\boxed{2}")])[0].correct
        assert not verifiers.grade([(all_members[0], r"\boxed{2}")])[0].correct
        assert verifiers.grade([(all_members[0], r"\boxed{2, 1}")])[0].correct


@pytest.mark.slow
@pytest.mark.parametrize("name", ["choice", "exact", "math", "math_strict"])
def test_a_box_in_thoughts_counts_if_the_user_asks_for_it_and_nothing_follows(name: str) -> None:
    gold = "C" if name == "choice" else "42"
    inside, behind = rf"<think>so \boxed{{{gold}}}", rf"<think>\boxed{{{gold}}}</think> The answer is D."
    with Verifiers() as verifiers:
        for text, by_default, if_asked in (
            (inside, "parse_fail", True),
            (inside + "</think>", "parse_fail", True),
            (behind, "ok" if name != "math" and name != "math_strict" else None, False),
        ):
            grade = verifiers.grade([(problem(gold, name), text)])[0]
            assert by_default is None or grade.state == by_default
            assert not grade.correct
            assert verifiers.grade([(problem(gold, in_thoughts(name)), text)])[0].correct is if_asked
        opened = problem(gold, name, prompt="6 * 7?\n<think>\n")
        assert verifiers.grade([(opened, rf"so \boxed{{{gold}}}")])[0].state == "parse_fail"


def test_other_verifiers_do_not_look_into_thoughts() -> None:
    with pytest.raises(ConfigError, match="--answer-in-thoughts: verifier 'modes' does not support it"):
        in_thoughts("modes")
