"""Arithmetic expressions with a given value."""

import time
from fractions import Fraction
from itertools import permutations, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oversharp.diagnostics.records.errors import ProblemError
from oversharp.diagnostics.records.types import NO_ANSWER, Grade, Problem
from oversharp.diagnostics.tasks import countdown
from oversharp.diagnostics.verifiers.expression import (
    ALL_OPERATORS,
    ExpressionError,
    ExpressionVerifier,
    evaluate,
    tokenize,
)


def countdown_problem(gold: str = "54", **rules: object) -> Problem:
    meta = {"numbers": [6, 7, 12], "operators": "+-*", "brackets": False} | rules
    return Problem(task="t", prompt="6 7 12 = 54 :", gold=gold, verifier="expression", meta=meta)


def value_of(text: str, *, operators: str = ALL_OPERATORS, brackets: bool = True) -> Fraction:
    return evaluate(tokenize(text), operators=operators, brackets=brackets)


def grade(text: str, problem: Problem) -> Grade:
    return ExpressionVerifier().grade([(problem, text)])[0]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2 + 3 * 4", 14),
        ("2 - 3 - 4", -5),
        ("24 / 4 / 2", 3),
        ("(2 + 3) * 4", 20),
        ("8/(3-8/3)", 24),
        ("1 / 3 + 1 / 6", Fraction(1, 2)),
        (" 7 ", 7),
    ],
)
def test_values_are_exact_under_the_usual_precedence(text: str, value: Fraction) -> None:
    assert value_of(text) == value


@pytest.mark.parametrize(
    "text",
    ["", "+", "1 +", "1 2", "-3", "2 ** 3", "2 ^ 3", "(1", "1)", "()", "x", "1.5", "6 * 7 = 42", "¹", "٣", "import os"],
)
def test_anything_else_is_no_expression(text: str) -> None:
    with pytest.raises(ExpressionError):
        value_of(text)


def test_operators_and_brackets_can_be_forbidden() -> None:
    with pytest.raises(ExpressionError, match="'/' is not allowed"):
        value_of("4 / 2", operators="+-*")
    with pytest.raises(ExpressionError, match="unexpected '\\('"):
        value_of("(4)", brackets=False)


@pytest.mark.parametrize("text", ["(" * 5000, "1+" * 5000 + "1", "9" * 100_000])
def test_runaway_texts_are_refused_by_their_length(text: str) -> None:
    with pytest.raises(ExpressionError, match="than"):
        value_of(text)


def test_the_largest_expression_is_cheap() -> None:
    start = time.perf_counter()
    assert value_of("*".join(["9" * 12] * 64)) == (10**12 - 1) ** 64
    assert time.perf_counter() - start < 0.1


@st.composite
def expressions(draw: st.DrawFn) -> str:
    number = st.integers(0, 99).map(str)
    tree = st.recursive(
        number, lambda inner: st.tuples(inner, st.sampled_from("+-*/"), inner).map(lambda t: f"({t[0]} {t[1]} {t[2]})")
    )
    return draw(tree)


@pytest.mark.slow
@given(expressions())
def test_values_agree_with_python_on_fractions(text: str) -> None:
    as_fractions = "".join(
        f"Fraction({part})" if part.isdigit() else part
        for part in text.replace("(", "( ").replace(")", " )").split(" ")
    )
    try:
        expected = eval(as_fractions, {"Fraction": Fraction})
    except ZeroDivisionError:
        with pytest.raises(ZeroDivisionError):
            value_of(text)
    else:
        assert value_of(text) == expected


def test_spacing_does_not_split_a_mode() -> None:
    modes = {grade(text, countdown_problem()).mode for text in ("6*7+12", " 6 * 7 + 12\n", "\\boxed{6*7 + 12}")}
    assert modes == {"6 * 7 + 12"}


@pytest.mark.parametrize(
    ("text", "reward", "state"),
    [
        ("6 * 7 + 12", 1.0, "ok"),
        ("12 + 7 * 6", 1.0, "ok"),
        ("6 + 7 + 12", 0.0, "ok"),  # wrong value
        ("54", 0.0, "ok"),  # numbers not used
        ("6 * 7 + 6 + 6", 0.0, "ok"),  # numbers used twice
        ("(6 * 7) + 12", 0.0, "parse_fail"),
        ("6 * 7 + 12 = 54", 0.0, "parse_fail"),
        ("6 * 7 + 12 6", 0.0, "parse_fail"),
        ("", 0.0, "parse_fail"),
    ],
)
def test_countdown_responses(text: str, reward: float, state: str) -> None:
    got = grade(text, countdown_problem())
    assert (got.reward, got.state) == (reward, state)
    if state == "parse_fail":
        assert (got.answer, got.mode) == (NO_ANSWER, None)
        assert got.reason


def test_division_by_zero_is_a_wrong_answer_with_a_reason() -> None:
    got = grade("1 / (2 - 2)", countdown_problem(numbers=None, operators="+-*/", brackets=True))
    assert (got.reward, got.state, got.reason) == (0.0, "ok", "division by zero")


@pytest.mark.parametrize("gold", ["", "abc", "1/0", "1e999999999", "nan"])
def test_a_gold_that_is_no_number_is_an_error_of_the_data(gold: str) -> None:
    with pytest.raises(ProblemError, match="is not a number"):
        ExpressionVerifier().check_gold(countdown_problem(gold))


@pytest.mark.parametrize(
    "rules", [{"numbers": "6 7"}, {"numbers": []}, {"numbers": [1.5]}, {"operators": "^"}, {"brackets": 1}]
)
def test_rules_of_the_wrong_type_are_errors_of_the_data(rules: dict[str, object]) -> None:
    with pytest.raises(ProblemError, match=f'"{next(iter(rules))}"'):
        ExpressionVerifier().check_gold(countdown_problem(**rules))


def test_the_verifier_accepts_exactly_the_enumerated_modes_of_countdown() -> None:
    for problem in countdown.problems(limit=20):
        candidates = [
            f"{a} {first} {b} {second} {c}"
            for a, b, c in permutations(problem.meta["numbers"])
            for first, second in product("+-*", repeat=2)
        ]
        grades = ExpressionVerifier().grade([(problem, text) for text in candidates])
        assert {one.mode for one in grades if one.correct} == set(problem.modes)
        assert [one.mode for one in grades] == candidates
