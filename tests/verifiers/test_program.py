"""One-line programs that are checked against a grammar and executed."""

from __future__ import annotations

import time
from typing import Any

import pytest

from oversharp.diagnostics.records.errors import ProblemError
from oversharp.diagnostics.records.types import NO_ANSWER, Grade, Problem
from oversharp.diagnostics.verifiers.programs.grammar import Grammar, GrammarError, parse_program
from oversharp.diagnostics.verifiers.programs.verifier import ProgramVerifier

ANY = Grammar(parameters=("a", "b"))
CASES = {"inputs": [[7, 2], [9, 3], [4, 4]], "outputs": [9, 12, 8]}


def problem(gold: str = "a + b", **meta: Any) -> Problem:
    rules = {"parameters": ["a", "b"], "input_output": CASES, **meta}
    return Problem(task="t", prompt="f(7,2)= 9", gold=gold, verifier="program", meta=rules)


def grade(text: str, asked: Problem | None = None) -> Grade:
    return ProgramVerifier().grade([(asked or problem(), text)])[0]


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("a + b * 2", 11),
        ("(a + b) * 2", 18),
        ("a // b", 3),
        ("a % b", 1),
        ("a - b - 1", 4),
        ("a - (b - 1)", 6),
        ("lambda a, b: a*b", 14),
        ("f = lambda a,b: a*b", 14),
        ("12", 12),
    ],
)
def test_programs_are_executed_as_python(text: str, result: int) -> None:
    assert parse_program(text, ANY).function(7, 2) == result


@pytest.mark.parametrize(
    "text", ["a*b+2", "( a * b ) + 2", "a * b + 2\n", "(((a) * b)) + 2", "lambda a, b: (a * b) + 2", "a *\n b + 2"]
)
def test_spaces_and_unnecessary_brackets_have_no_effect_on_the_mode(text: str) -> None:
    assert parse_program(text, ANY).text == "a * b + 2"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "empty"),
        ("a b", "an operator is missing"),
        ("a +", "is not a Python expression"),
        ("a ** b", "is not a Python expression"),
        ("a * * b", "is not a Python expression"),
        ("(a + b", "is not a Python expression"),
        ("007", "is not a Python expression"),
        ("-a", "UnaryOp is not allowed"),
        ("()", "Tuple is not allowed"),
        ("a (b)", "Call is not allowed"),
        ("c + 1", "'c' is not allowed here"),
        ("lambda b, a: a", "parameters b, a instead of a, b"),
        ("lambda a: a", "parameters a instead of a, b"),
        ("a.real", "unexpected '.'"),
        ("a if b else 1", "'if' is not allowed here"),
        ("a\x00", "unexpected '\\x00'"),
        ("a = 1", "unexpected '='"),
        ("a, b", "unexpected ','"),
        ("[a for a in b]", "unexpected '['"),
        ("print(a)", "'print' is not allowed here"),
        ("__import__('os').system('x')", "'__import__' is not allowed here"),
        ("lambda a, b: exit()", "'exit' is not allowed here"),
        ("1" * 13, "a number of more than 12 digits"),
        ("a" + " + a" * 128, "longer than 256 tokens"),
        ("(" * 200 + "a" + ")" * 200, "longer than 256 tokens"),
    ],
)
def test_a_text_outside_the_grammar_is_not_executed(text: str, reason: str) -> None:
    with pytest.raises(GrammarError) as caught:
        parse_program(text, ANY)
    assert reason in str(caught.value)
    found = grade(text)
    assert (found.state, found.answer, found.mode, found.reward) == ("parse_fail", NO_ANSWER, None, 0.0)


@pytest.mark.parametrize(
    ("rules", "text", "reason"),
    [
        ({"operators": ["+"]}, "a * b", "'*' is not allowed here"),
        ({"operators": ["*"]}, "a // b", "'//' is not allowed here"),
        ({"numbers": [1, 2]}, "a + 3", "the number 3 is not allowed here"),
        ({"most_operands": 2}, "a + b + 1", "3 operands; at most 2 are allowed"),
        ({"brackets": False}, "(a + b)", "'(' is not allowed here"),
    ],
)
def test_a_problem_may_restrict_the_grammar(rules: dict[str, Any], text: str, reason: str) -> None:
    found = grade(text, problem(**rules))
    assert (found.state, found.reason) == ("parse_fail", reason)
    assert grade("a + b", problem(**({} if rules.get("operators") == ["*"] else rules))).correct


def test_programs_of_equal_behaviour_have_one_answer_and_two_modes() -> None:
    first, second, wrong = grade("a + b"), grade("b + a"), grade("a * b")
    assert first.answer == second.answer == "9 12 8" != wrong.answer
    assert (first.mode, second.mode) == ("a + b", "b + a")
    assert (first.correct, second.correct, wrong.correct) == (True, True, False)
    assert wrong.reason == "returns 14 for (7, 2); expected 9"


def test_a_division_by_zero_is_wrong_and_not_an_error() -> None:
    found = grade("a // (b - 2)")
    assert (found.state, found.reward, found.reason) == ("ok", 0.0, "division by zero")


def test_the_program_may_be_boxed_or_tagged() -> None:
    assert grade(r"The sum: \boxed{a + b}").correct
    assert grade("<answer>lambda a, b: b + a</answer>").correct


def test_the_longest_programs_are_graded_quickly() -> None:
    longest = "999999999999" + " * 999999999999" * 127
    nested = "(" * 60 + "a" + " + b)" * 60
    start = time.process_time()
    assert grade(longest).state == "ok"
    assert grade(nested).state == "ok"
    assert time.process_time() - start < 0.3


@pytest.mark.parametrize(
    ("meta", "message"),
    [
        ({"parameters": None}, '"parameters", a list of names'),
        ({"parameters": ["a b"]}, '"parameters", a list of names'),
        ({"parameters": ["lambda"]}, '"parameters", a list of names'),
        ({"operators": ["**"]}, '"operators" must be a list'),
        ({"numbers": ["1"]}, '"numbers" must be a list of whole numbers'),
        ({"numbers": [True]}, '"numbers" must be a list of whole numbers'),
        ({"most_operands": 0}, '"most_operands" must be'),
        ({"brackets": 1}, '"brackets" must be true or false'),
        ({"input_output": None}, 'needs "input_output"'),
        ({"input_output": {"inputs": [[1, 2]], "outputs": [3, 4]}}, 'needs "input_output"'),
        ({"input_output": {"inputs": [[1]], "outputs": [3]}}, '"inputs" must have 2 whole numbers per case'),
        ({"input_output": {"inputs": [], "outputs": []}}, 'needs "input_output"'),
    ],
)
def test_faulty_rules_are_rejected_with_their_field(meta: dict[str, Any], message: str) -> None:
    with pytest.raises(ProblemError) as caught:
        ProgramVerifier().check_gold(problem(**meta))
    assert message in str(caught.value)


def test_a_gold_that_is_no_correct_program_is_rejected() -> None:
    with pytest.raises(ProblemError, match=r"answer 'a \* b' is not a correct program \(returns 14 for"):
        ProgramVerifier().check_gold(problem("a * b"))
    ProgramVerifier().check_gold(problem("b + a"))


def test_false_accepts_are_excluded_only_if_all_correct_programs_are_listed() -> None:
    assert ProgramVerifier().guess_share(problem()) is None
    listed = Problem(task="t", prompt="", gold="a + b", verifier="program", modes=("a + b",), meta=problem().meta)
    assert ProgramVerifier().guess_share(listed) == 0.0
