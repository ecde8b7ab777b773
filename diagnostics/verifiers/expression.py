"""Verifier "expression", which accepts arithmetic expressions with a given value."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction

from oversharp.diagnostics.records.errors import ProblemError
from oversharp.diagnostics.records.types import NO_ANSWER, Grade, Problem
from oversharp.diagnostics.verifiers.extraction import collapse_whitespace, last_boxed, tagged_answer, unwrap
from oversharp.diagnostics.verifiers.reading.responses import answer_text

#: Longest accepted expression, in characters. With at most 12 digits per number, values stay below 1,600 bits.
MAX_TOKENS = 128
MAX_DIGITS = 12
ALL_OPERATORS = "+-*/"

_TOKEN = re.compile(r"\s*(?:(\d+)|([-+*/()]))", re.ASCII)


class ExpressionError(ValueError):
    """The text is not an expression of the grammar. The message has the reason."""


def tokenize(text: str) -> list[str]:
    """Split ``text`` into numbers, operators and brackets.

    Raises ``ExpressionError`` for anything else.

    >>> tokenize("6*7 + 12")
    ['6', '*', '7', '+', '12']
    """
    tokens: list[str] = []
    position, end = 0, len(text.rstrip())
    while position < end:
        match = _TOKEN.match(text, position)
        if match is None:
            raise ExpressionError(f"unexpected {text[position:].strip()[:1]!r}")
        tokens.append(match.group(1) or match.group(2))
        if len(tokens) > MAX_TOKENS:
            raise ExpressionError(f"longer than {MAX_TOKENS} tokens")
        if len(tokens[-1]) > MAX_DIGITS:
            raise ExpressionError(f"a number of more than {MAX_DIGITS} digits")
        position = match.end()
    if not tokens:
        raise ExpressionError("empty")
    return tokens


def evaluate(tokens: Sequence[str], *, operators: str = ALL_OPERATORS, brackets: bool = True) -> Fraction:
    """Return the exact rational value of an expression split by ``tokenize``, with the usual precedence.

    The grammar has non-negative integers, the binary ``operators``, and round brackets if ``brackets``. It has no signs
    and no powers. Raises ``ExpressionError`` for anything else and ``ZeroDivisionError`` if a divisor is zero.

    >>> evaluate(tokenize("6 * 7 + 12")), evaluate(tokenize("8 / (3 - 8 / 3)"))
    (Fraction(54, 1), Fraction(24, 1))
    """
    value, position = _sum(tokens, 0, operators, brackets)
    if position != len(tokens):
        raise ExpressionError(f"unexpected {tokens[position]!r} after a complete expression")
    return value


def _sum(tokens: Sequence[str], position: int, operators: str, brackets: bool) -> tuple[Fraction, int]:
    value, position = _product(tokens, position, operators, brackets)
    while position < len(tokens) and tokens[position] in ("+", "-"):
        operator = _require_operator(tokens[position], operators)
        right, position = _product(tokens, position + 1, operators, brackets)
        value = value + right if operator == "+" else value - right
    return value, position


def _product(tokens: Sequence[str], position: int, operators: str, brackets: bool) -> tuple[Fraction, int]:
    value, position = _atom(tokens, position, operators, brackets)
    while position < len(tokens) and tokens[position] in ("*", "/"):
        operator = _require_operator(tokens[position], operators)
        right, position = _atom(tokens, position + 1, operators, brackets)
        value = value * right if operator == "*" else value / right
    return value, position


def _atom(tokens: Sequence[str], position: int, operators: str, brackets: bool) -> tuple[Fraction, int]:
    if position == len(tokens):
        raise ExpressionError("ends where a number is expected")
    token = tokens[position]
    if token.isdigit():
        return Fraction(int(token)), position + 1
    if token == "(" and brackets:
        value, position = _sum(tokens, position + 1, operators, brackets)
        if position == len(tokens) or tokens[position] != ")":
            raise ExpressionError("a bracket is not closed")
        return value, position + 1
    raise ExpressionError(f"unexpected {token!r} where a number is expected")


def _require_operator(operator: str, operators: str) -> str:
    if operator not in operators:
        raise ExpressionError(f"operator {operator!r} is not allowed here")
    return operator


class ExpressionVerifier:
    r"""Accept an expression that has the gold's value and obeys the rules in ``problem.meta``.

    ``meta`` may contain ``numbers`` (each must be used exactly once), ``operators`` (default ``+-*/``) and ``brackets``
    (default true). The expression is the content of the last ``\boxed{…}`` or ``<answer>…</answer>``, else the whole
    response. If there is any other text, the response is ``parse_fail``. Answer and mode are the tokens joined by
    single spaces, so that spacing has no effect.

    >>> rules = {"numbers": [6, 7, 12]}
    >>> problem = Problem(task="t", prompt="6 7 12 = 54 :", gold="54", verifier="expression", meta=rules)
    >>> [(g.mode, g.reward) for g in ExpressionVerifier().grade([(problem, "6*7+12"), (problem, "54")])]
    [('6 * 7 + 12', 1.0), ('54', 0.0)]
    """

    name = "expression"

    def check_gold(self, problem: Problem) -> None:
        """Raise ``ProblemError`` unless the gold is a number and ``problem.meta`` has valid rules."""
        _target(problem)
        _rules(problem)

    def guess_share(self, problem: Problem) -> float | None:
        """Return 0 if the numbers are given, because any expression that uses them is a solution; else None."""
        return None if _rules(problem)[0] is None else 0.0

    def grade(self, items: Sequence[tuple[Problem, str]]) -> list[Grade]:
        """Return one grade per (problem, response text), in order; ``parse_fail`` without an expression."""
        return [self._grade(problem, text) for problem, text in items]

    def _grade(self, problem: Problem, text: str) -> Grade:
        numbers, operators, brackets = _rules(problem)
        text = answer_text(text, prompt=problem.prompt)
        candidate = last_boxed(text) or tagged_answer(text) or text
        try:
            tokens = tokenize(unwrap(candidate))
            mode = " ".join(tokens)
            value = evaluate(tokens, operators=operators, brackets=brackets)
        except ExpressionError as error:
            return Grade(answer=NO_ANSWER, mode=None, reward=0.0, state="parse_fail", reason=str(error))
        except ZeroDivisionError:
            return Grade(answer=mode, mode=mode, reward=0.0, reason="division by zero")
        if numbers is not None and sorted(int(token) for token in tokens if token.isdigit()) != numbers:
            return Grade(answer=mode, mode=mode, reward=0.0, reason=f"does not use {numbers} once each")
        return Grade(answer=mode, mode=mode, reward=float(value == _target(problem)))


def _target(problem: Problem) -> Fraction:
    gold = collapse_whitespace(problem.gold)
    try:
        # reject exponents, because Fraction("1e999999999") would never return
        if len(gold) > 2 * MAX_DIGITS or "e" in gold.lower():
            raise ValueError(gold)
        return Fraction(gold)
    except (ValueError, ZeroDivisionError) as error:
        raise ProblemError(
            f'answer {gold[:40]!r} is not a number; the verifier "expression" needs a number such as "54"'
        ) from error


def _rules(problem: Problem) -> tuple[list[int] | None, str, bool]:
    """Return the sorted numbers (None: any), the operators, and whether brackets are allowed."""
    meta = problem.meta
    numbers, operators, brackets = meta.get("numbers"), meta.get("operators", ALL_OPERATORS), meta.get("brackets", True)
    if numbers is not None:
        whole = isinstance(numbers, list | tuple) and all(type(number) is int and number >= 0 for number in numbers)
        if not whole or not numbers:
            raise ProblemError('"numbers" must be a list of non-negative integers, such as [6, 7, 12]')
        numbers = sorted(numbers)
    if not isinstance(operators, str) or not operators or not set(operators) <= set(ALL_OPERATORS):
        raise ProblemError(f'"operators" must be a string of characters from {ALL_OPERATORS}')
    if not isinstance(brackets, bool):
        raise ProblemError('"brackets" must be true or false')
    return numbers, operators, brackets
