"""Worker side of the "math" verifier. Only this module imports math-verify."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import TypeAlias

import sympy
from math_verify import LatexExtractionConfig, parse, verify
from sympy import Basic, MatrixBase

from oversharp.diagnostics.verifiers.reading.texts import NO_MATHEMATICS

# Timeouts are off because the pool kills a late worker. With a timeout, math-verify logs a warning at every start.
logging.getLogger("math_verify").setLevel(logging.ERROR)

Parsed: TypeAlias = "Basic | MatrixBase | str"

# Both sides are in a box, and the first match is used (as in TRL's reward).
_BOXED = [LatexExtractionConfig(boxed_match_priority=0, try_extract_without_anchor=False)]

# exceptions that sympy raises on expressions that it cannot handle
_SYMPY_STUMBLES = (ArithmeticError, AttributeError, NotImplementedError, RecursionError, TypeError, ValueError)

#: An expression with one of these is an interval. (1, 2) without them may be a point.
_SURELY_INTERVAL = re.compile(r"[\[\]]|\\infty")
#: Longest whole number that is parsed without math-verify, in digits.
_MOST_DIGITS = 300
_WHOLE = re.compile(rf"\\boxed\{{(-?\d{{1,{_MOST_DIGITS}}})\}}", re.ASCII)
#: Limit of digits above which numbers are compared by 12 significant digits instead of exactly.
_MAX_EXACT_BITS = 512
_MAX_EXPANDED_POWER = 12
#: Number of digits to which exact irrational numbers are computed.
_EXACT_DIGITS = 60


@dataclass(frozen=True, kw_only=True, slots=True)
class MathVerdict:
    """Result of a comparison. ``answer_key`` is None if the answer could not be parsed."""

    correct: bool
    answer_key: str | None


def judge(gold: str, candidate: str, named: str | None = None, about: str | None = None) -> MathVerdict:
    r"""Compare ``candidate`` with ``gold``, and compute the canonical key of its answer.

    ``named`` is the form of the gold whose key a correct answer gets; None for ``gold`` itself. ``about`` is the value
    that the response states as approximately equal. A candidate that differs from it by more than 1 % is wrong.

    The gold is the first argument because math-verify is not symmetric. A correct answer gets the gold's key, any
    other its own key. Answers are not compared with each other, because equality in math-verify is not transitive
    (½ = 50 %, 50 % = 50, ½ ≠ 50).

    >>> judge(r"\boxed{1/2}", r"\boxed{50\%}"), judge(r"\boxed{7}", r"\boxed{\frac{10}{4}}").answer_key
    (MathVerdict(correct=True, answer_key='1/2'), '5/2')
    """
    gold_parsed, parsed = _parse_gold(gold), _parse(candidate)
    if not parsed or not gold_parsed:
        return MathVerdict(correct=False, answer_key=None if not parsed else _safe_key(parsed[0], candidate))
    named_parsed = gold_parsed if named is None else _parse_gold(named) or gold_parsed
    gold_key = _safe_key(named_parsed[0], named or gold)
    if (
        not clearly_different(gold_parsed, parsed)
        and verify(
            list(gold_parsed),
            parsed,
            timeout_seconds=None,
            allow_set_relation_comp=bool(_SURELY_INTERVAL.search(gold) or _SURELY_INTERVAL.search(candidate)),
        )
        and not (contradicts_itself(parsed[0]) or rounded_away(gold_parsed[0], parsed[0]))
        and not exactly_different(gold_parsed[0], parsed[0])
        and not (about is not None and _is_far(parsed[0], _parse(about)))
    ):
        return MathVerdict(correct=True, answer_key=gold_key)
    if equal_as_complex_numbers(gold_parsed[0], parsed[0]):
        return MathVerdict(correct=True, answer_key=gold_key)
    key = _safe_key(parsed[0], candidate)
    # otherwise a key could belong to both correct and wrong answers
    return MathVerdict(correct=False, answer_key=f"{key} (other form)" if key == gold_key else key)


def clearly_different(gold: Sequence[Parsed], answer: Sequence[Parsed]) -> bool:
    """Return whether two expressions are certainly unequal, without symbolic simplification.

    This saves math-verify's simplification (5–20 ms per pair). Two expressions whose values at one point differ by more
    than the rounding error are not identical. The variables get positive integers, for which identities hold under any
    assumption. Returns False for percentages, sets, relations and single symbols, for which math-verify has special
    rules, and in every doubtful case.

    >>> x = sympy.Symbol("x")
    >>> clearly_different([2 * x + 1], [x + 2]), clearly_different([(x + 1) ** 2], [x**2 + 2 * x + 1])
    (True, False)
    """
    left, right = gold[0], answer[0]
    if not (isinstance(left, sympy.Expr) and isinstance(right, sympy.Expr)):
        return False
    if isinstance(left, sympy.Symbol) or isinstance(right, sympy.Symbol) or set(gold[1:]) & set(answer[1:]):
        return False
    if left.has(sympy.UnevaluatedExpr) or right.has(sympy.UnevaluatedExpr):
        return False
    names = sorted(left.free_symbols | right.free_symbols, key=str)
    point = dict(zip(names, (7, 11, 13, 17, 19), strict=False))
    if len(names) > len(point):
        return False
    try:
        left_value, right_value = complex(left.subs(point)), complex(right.subs(point))
        return abs(left_value - right_value) > max(1e-5, 1e-9 * abs(left_value), 1e-9 * abs(right_value))
    except _SYMPY_STUMBLES:
        return False


def contradicts_itself(answer: Parsed) -> bool:
    """Return whether an answer equates numbers that differ by more than 1 %, as in 1 = 2.

    Without this check, only its right side would be compared.

    >>> contradicts_itself(sympy.Eq(1, 2, evaluate=False)), contradicts_itself(sympy.Eq(sympy.Symbol("x"), 2))
    (True, False)
    """
    if not isinstance(answer, Basic):
        return False
    return any(_differ(equation.lhs, equation.rhs, 0.01) for equation in answer.atoms(sympy.Eq))


def rounded_away(gold: Parsed, answer: Parsed) -> bool:
    """Return whether two small numbers are equal only because math-verify compares six decimals.

    A relative difference of up to 0.001 is allowed.

    >>> rounded_away(sympy.Float("3e-7"), sympy.Float("1e-7"))
    True
    >>> rounded_away(sympy.Rational(1, 3), sympy.Float("0.333333"))
    False
    """
    if not (isinstance(gold, sympy.Expr) and isinstance(answer, sympy.Expr)):
        return False
    small = gold.is_number and not gold.has(sympy.UnevaluatedExpr) and not answer.has(sympy.UnevaluatedExpr)
    return bool(small) and _differ(gold, answer, 0.001)


def equal_as_complex_numbers(gold: Parsed, answer: Parsed) -> bool:
    """Return whether two expressions are the same number if i is the imaginary unit.

    math-verify treats i as a variable.

    >>> i = sympy.Symbol("i")
    >>> equal_as_complex_numbers(sympy.Integer(-1), i**2), equal_as_complex_numbers(i, 2 * i)
    (True, False)
    """
    if not (isinstance(gold, sympy.Expr) and isinstance(answer, sympy.Expr)):
        return False
    both: tuple[sympy.Expr, ...] = (gold, answer)
    names = {symbol for part in both for symbol in part.free_symbols}
    if {symbol.name for symbol in names} != {"i"}:
        return False
    try:
        left, right = (complex(part.subs(dict.fromkeys(names, sympy.I)).evalf(30)) for part in both)
        return abs(left - right) <= 1e-12 * max(abs(left), abs(right))
    except _SYMPY_STUMBLES:
        return False


def exactly_different(gold: Parsed, answer: Parsed) -> bool:
    """Return whether two exact numbers differ by any amount. math-verify compares only six decimals.

    Returns False if either is a decimal, has a variable, or has no value that can be computed.

    >>> exactly_different(sympy.Rational(1, 10**400), sympy.Rational(1, 10**500))
    True
    >>> exactly_different(sympy.sqrt(8), 2 * sympy.sqrt(2)), exactly_different(sympy.Rational(1, 3), sympy.Float("0.3"))
    (False, False)
    """
    if not (isinstance(gold, sympy.Expr) and isinstance(answer, sympy.Expr)):
        return False
    try:
        both = (gold, answer)
        if any(part.free_symbols or part.atoms(sympy.Float) or part.has(sympy.UnevaluatedExpr) for part in both):
            return False
        left, right = (part.doit() for part in both)
        if left.is_Rational and right.is_Rational:
            return bool(left != right)
        if not (left.is_number and right.is_number):
            return False
        difference = sympy.Abs(left - right).evalf(_EXACT_DIGITS)
        size = max(sympy.Abs(left).evalf(20), sympy.Abs(right).evalf(20))
        return bool(difference > size * sympy.Float(10) ** (20 - _EXACT_DIGITS))
    except _SYMPY_STUMBLES:
        return False


def _is_far(answer: Parsed, about: list[Parsed]) -> bool:
    both = isinstance(answer, Basic) and bool(about) and isinstance(about[0], Basic)
    return both and _differ(answer, about[0], 0.01)


def _differ(left: Basic, right: Basic, share: float) -> bool:
    """Return whether two numbers differ by more than ``share`` of the larger; False if either has no value."""
    try:
        if left.free_symbols or right.free_symbols:
            return False
        a, b = complex(left), complex(right)
        return abs(a - b) > share * max(abs(a), abs(b))
    except _SYMPY_STUMBLES:
        return False


def gold_fault(gold: str) -> str:
    r"""Return why a gold cannot be compared with answers; "" if it can.

    >>> gold_fault(r"\boxed{2\sqrt{3}}"), gold_fault(r"\boxed{foo!@#}"), gold_fault(r"\boxed{1/0}")
    ('', 'math-verify finds no mathematics in it', 'it has no value')
    """
    values = [part for part in _parse_gold(gold) if isinstance(part, Basic | MatrixBase)]
    if not values:
        return NO_MATHEMATICS
    try:
        valueless = any(part.doit().has(sympy.zoo, sympy.nan) for part in values)
    except _SYMPY_STUMBLES:
        valueless = False
    return "it has no value" if valueless else ""


def _parse(candidate: str) -> list[Parsed]:
    r"""Return what math-verify parses from a box.

    A whole number is parsed here, with the same result: math-verify imports all names of sympy for each number.

    >>> _parse(r"\boxed{-07}"), _parse(r"\boxed{7x}"), _parse(r"\boxed{}")
    ([-7, '-07'], [7*x, '7x'], [])
    """
    if (whole := _WHOLE.fullmatch(candidate)) is not None:
        return [sympy.Integer(int(whole[1])), whole[1]]
    return list(parse(candidate, extraction_config=_BOXED, extraction_mode="first_match", parsing_timeout=None))


@lru_cache(maxsize=4096)
def _parse_gold(gold: str) -> tuple[Parsed, ...]:
    return tuple(_parse(gold))


def _safe_key(answer: Parsed, source: str) -> str:
    """Return the canonical key, or the source text if sympy fails, so that the verdict is not lost."""
    try:
        return canonical_key(answer)
    except _SYMPY_STUMBLES:
        return " ".join(source.removeprefix("\\boxed{").removesuffix("}").split())


def canonical_key(answer: Parsed) -> str:
    """Return a string that is the same for equal answers.

    It is exact if the answer is rational, else it has 12 digits, else it is sympy's normal form. It depends on the
    answer alone, not on other graded answers or their order.

    >>> canonical_key(sympy.Rational(6, 4)), canonical_key(sympy.sqrt(12)), canonical_key(sympy.sympify("(x+1)**2"))
    ('3/2', '3.46410161514', 'x**2 + 2*x + 1')
    """
    if isinstance(answer, str):
        return " ".join(answer.split())
    if isinstance(answer, MatrixBase):
        rows = [", ".join(canonical_key(entry) for entry in answer.row(row)) for row in range(answer.rows)]
        return "[" + "; ".join(rows) + "]"
    if isinstance(answer, sympy.Eq) and isinstance(answer.lhs, sympy.Symbol):
        return canonical_key(answer.rhs)  # "x = 5" is the same answer as "5"
    if isinstance(answer, sympy.Set | sympy.Tuple) and answer.args:
        keys = [canonical_key(part) for part in answer.args]
        if type(answer).__name__ == "FiniteSet":  # math-verify has its own subclass of sympy's class
            keys.sort()
            return keys[0] if len(keys) == 1 else "{" + ", ".join(keys) + "}"
        return f"{type(answer).__name__}({', '.join(keys)})"
    exact = _exact_value(answer)
    if exact is not None:
        return str(exact)
    if answer.is_number:
        return str(answer.evalf(12))
    return str(sympy.expand(answer)) if _expands_cheaply(answer) else str(answer)


def _exact_value(number: Basic) -> Fraction | None:
    """Return the value of a rational expression; None if it is irrational, symbolic or too large."""
    if isinstance(number, sympy.Rational):
        return Fraction(int(number.p), int(number.q))
    if isinstance(number, sympy.Float):
        return Fraction(str(number)) if 1e-30 < abs(number) < 1e30 or number == 0 else None
    if isinstance(number, sympy.UnevaluatedExpr):
        return _exact_value(number.args[0])
    if not isinstance(number, sympy.Add | sympy.Mul | sympy.Pow):
        return None
    parts = [_exact_value(part) for part in number.args]
    value = parts[0]
    for part in parts[1:]:
        if value is None or part is None:
            return None
        value = _combine_exact(number, value, part)
    return value


def _combine_exact(operation: Basic, left: Fraction, right: Fraction) -> Fraction | None:
    bits = max(left.numerator.bit_length(), left.denominator.bit_length())
    if isinstance(operation, sympy.Pow):
        too_large = right.denominator != 1 or bits * abs(right) > _MAX_EXACT_BITS or (left == 0 and right < 0)
        return None if too_large else Fraction(left ** int(right))
    if bits + max(right.numerator.bit_length(), right.denominator.bit_length()) > _MAX_EXACT_BITS:
        return None
    return left + right if isinstance(operation, sympy.Add) else left * right


def _expands_cheaply(expression: Basic) -> bool:
    """Return whether expanding is cheap.

    Expanding (x + 1)**1000000 for its key would exceed the timeout.
    """
    return isinstance(expression, sympy.Expr) and all(
        isinstance(power.exp, sympy.Integer) and abs(power.exp) <= _MAX_EXPANDED_POWER
        for power in expression.atoms(sympy.Pow)
    )
