"""Parse the arithmetic in a text.

Which values are computed from which, exactly and in bounded time.

Handles digits, the four operations, powers, roots, factorials, brackets, and the LaTeX and units around them. Anything
else is skipped. A general parser would need milliseconds per equation.
"""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache
from math import comb, factorial

from oversharp.diagnostics.ways.computations import MOST_COMPUTATIONS, Computation, record_operation
from oversharp.diagnostics.ways.notation import RELATION, in_one_notation
from oversharp.diagnostics.ways.values import (
    NoValueError,
    Polynomial,
    Value,
    add,
    divide,
    linear_root,
    multiply,
    name_value,
    negate,
    normalise_equation,
    power,
    root,
    symbol,
)

#: Limits: length of a run of arithmetic, its tokens, and the depth of its brackets.
MOST_RUN, MOST_TOKENS, MOST_DEPTH = 400, 200, 24
MOST_FACTORIAL = 60
_DIGITS = 24


def read_computations(text: str) -> list[Computation]:
    r"""Return the operations of every equation in ``text``, in order.

    >>> [(c.kind, c.value) for c in read_computations("She has 16 - 3 = 13 eggs, so \\(13 \\cdot 2 = \\$26\\).")]
    [('+', '13'), ('*', '26')]
    >>> [(c.kind, c.value) for c in read_computations("So 0.40n = 1.20 and n = \\frac{1.20}{0.40} = 3")]
    [('=', '3'), ('/', '3')]
    """
    operations: list[Computation] = []
    if RELATION.search(text) is None:
        return operations
    for run in [run for run in _RUN.findall(in_one_notation(text)) if "=" in run]:
        for part in (run,) if len(run) <= MOST_RUN else _SENTENCE.split(run):
            if "=" in part and len(part) <= MOST_RUN:
                operations += _read_run(part.strip(_AROUND))
        if len(operations) >= MOST_COMPUTATIONS:
            return operations[:MOST_COMPUTATIONS]
    return operations


_RUN = re.compile(
    r"(?:[-+*/^=(){}\[\]\d.,%!:; ]++|\\(?:frac|sqrt|pi|binom)|(?<![A-Za-z\\])(?:[A-Za-z]|[A-Z]{2,3})(?![A-Za-z]))++"
)
_AROUND = " .,;:!"
_EQUALS = re.compile("=+")
_SENTENCE = re.compile(r"[;:]|[.,](?=\s|$)")
_TOKEN = re.compile(r"\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?|\.\d+|\\[a-z]+|[A-Z]{2,3}|[A-Za-z]|\S")


@lru_cache(maxsize=1 << 15)
def _read_run(run: str) -> tuple[Computation, ...]:
    """Parse one run; cached, because responses to the same problem share most of their equations."""
    operations: list[Computation] = []
    for sentence in _SENTENCE.split(run):
        if "=" in sentence:
            operations += _read_chain(sentence)
    return tuple(operations)


def _read_chain(sentence: str) -> list[Computation]:
    """Return the operations of one chain of relations: a = b = c."""
    operations: list[Computation] = []
    before: Value | None = None
    sides = _EQUALS.split(sentence)
    for place, side in enumerate(sides):
        tokens = _TOKEN.findall(side)[:MOST_TOKENS]
        if len(tokens) == 1 and tokens[0][0].isdigit():  # as most right sides are
            parsed = _bare_number(tokens[0])
        else:
            parsed = _last_expression(tokens) if place == 0 else _first_expression(tokens)
        if parsed is None:
            before = None
            continue
        value, made = parsed
        solved = None if before is None else _relate(before, value)
        if solved is not None and len(sides) == 2:
            return [solved]  # moving terms from side to side is not a step
        operations += made if solved is None else [*made, solved]
        before = value
    return operations


def _relate(left: Value, right: Value) -> Computation | None:
    """Return the computation that an equation of two values adds.

    A solved unknown, or a relation of unknowns.
    """
    open_sides = [side for side in (left, right) if isinstance(side, Polynomial) and side.unknowns]
    if not open_sides or any(side.is_symbol for side in open_sides):  # known values; a name for a value, or a formula
        return None
    try:
        difference = add(left, negate(right))
        if not isinstance(difference, Polynomial):
            return Computation("~", (), name_value(right))
        if len(difference.unknowns) != 1:
            return None
        solution = linear_root(difference)
        equation = "0=" + name_value(normalise_equation(difference)) if solution is None else name_value(solution)
        return Computation("=", (), equation)
    except NoValueError:
        return None


def _bare_number(token: str) -> tuple[Value, list[Computation]] | None:
    try:
        return _number(token), []
    except NoValueError:
        return None


def _last_expression(tokens: list[str]) -> tuple[Value, list[Computation]] | None:
    """Return the longest expression that ends at the last token, among a few starts."""
    start = 0
    for _ in range(8):
        if start >= len(tokens):
            return None
        reader = _Reader(tokens, start)
        value = reader.value()
        if value is not None and reader.place == len(tokens):
            return value, reader.operations
        start = max(reader.place, start) + 1 if value is None else max(reader.place, start + 1)
    return None


def _first_expression(tokens: list[str]) -> tuple[Value, list[Computation]] | None:
    reader = _Reader(tokens, 0)
    value = reader.value()
    return None if value is None else (value, reader.operations)


#: Tokens that no further factor begins with; "" is the end.
_NO_FACTOR = frozenset({"", "+", "-", ")", "]", "}"})
_SIGNS = frozenset({"+", "-"})


class _Reader:
    """Recursive-descent parser of one expression that records each operation."""

    def __init__(self, tokens: list[str], place: int) -> None:
        self.tokens, self.place, self.depth = [*tokens, ""], place, 0
        self.operations: list[Computation] = []

    def value(self) -> Value | None:
        try:
            return self._sum()
        except NoValueError:
            return None

    def _sum(self) -> Value:
        self.depth += 1
        if self.depth > MOST_DEPTH:
            raise NoValueError("brackets too deep")
        sign = self.tokens[self.place]
        if sign in _SIGNS:
            self.place += 1
        total = self._product()
        total = negate(total) if sign == "-" else total
        if self.tokens[self.place] not in _SIGNS:
            self.depth -= 1
            return total
        terms = [total]
        while (sign := self.tokens[self.place]) in _SIGNS:
            place, n_operations = self.place, len(self.operations)
            self.place += 1
            try:
                term = self._product()
            except NoValueError:
                self.place = place  # the expression ends before the sign
                del self.operations[n_operations:]
                break
            terms.append(negate(term) if sign == "-" else term)
            total = add(total, terms[-1])
        self.depth -= 1
        return self._record("+", terms, total)

    def _product(self) -> Value:
        total = self._power()
        if self.tokens[self.place] in _NO_FACTOR:
            return total
        factors = [total]
        kind = "*"
        while True:
            sign = self.tokens[self.place]
            if sign in _NO_FACTOR:
                break
            place, n_operations = self.place, len(self.operations)
            if sign in ("*", "/"):
                self.place += 1
            elif not (sign in ("(", "[", "\\frac", "\\sqrt", "\\pi", "{") or sign.isalpha()):
                break
            try:
                factor = self._signed_power()
                total = divide(total, factor) if sign == "/" else multiply(total, factor)
            except NoValueError:
                self.place = place
                del self.operations[n_operations:]
                break
            kind = "/" if sign == "/" else kind
            factors.append(factor)
        return self._record(kind, factors, total)

    def _signed_power(self) -> Value:
        if self.tokens[self.place] == "-":
            self.place += 1
            return negate(self._power())
        return self._power()

    def _power(self) -> Value:
        base = self._atom()
        while (sign := self.tokens[self.place]) in ("!", "^", "%"):
            self.place += 1
            if sign == "^":
                exponent = self._group() if self.tokens[self.place] in ("{", "(") else self._signed_atom()
                base = self._record("^", [base, exponent], power(base, exponent))
            elif sign == "%":
                base = divide(base, 100)
            elif isinstance(base, int) and 0 <= base <= MOST_FACTORIAL:
                base = self._record("!", [base], factorial(base))
            else:
                raise NoValueError("a factorial that is too large")
        return base

    def _signed_atom(self) -> Value:
        if self.tokens[self.place] == "-":
            self.place += 1
            return negate(self._atom())
        return self._atom()

    def _atom(self) -> Value:
        token = self.tokens[self.place]
        if token in ("(", "[", "{"):
            return self._group()
        self.place += 1
        if token[:1].isdigit() or (len(token) > 1 and token[0] == "."):
            return self._mixed_number(_number(token)) if self.tokens[self.place] == "\\frac" else _number(token)
        if token == "\\frac":
            return self._fraction()
        if token == "\\sqrt":
            inside = self._argument()
            value = root(inside)
            is_number = isinstance(value, Polynomial) and value.is_symbol
            return value if is_number else self._record("^", [inside], value)
        if token == "\\binom":
            return self._choices()
        if token == "\\pi":
            return symbol("π")
        if token.isalpha():
            return symbol(token)
        self.place -= 1
        raise NoValueError("no expression")

    def _mixed_number(self, whole: Value) -> Value:
        r"""Parse an integer with a fraction of two numbers after it: 3\frac{4}{5} is 3 + 4/5."""
        six = self.tokens[self.place : self.place + 7]  # the first is the command
        if len(six) == 7 and six[1] == six[4] == "{" and six[2].isdigit() and six[5].isdigit() and six[6]:
            self.place += 7
            return add(whole, divide(_number(six[2]), _number(six[5])))
        return whole

    def _fraction(self) -> Value:
        start = self.place
        above, below = self._argument(), self._argument()
        value = divide(above, below)
        if self.place - start <= 7 and isinstance(value, Fraction) and above in (value.numerator, -value.numerator):
            return value  # one half is a number; 480/6 is a division
        return self._record("/", [above, below], value)

    def _choices(self) -> Value:
        above, below = self._argument(), self._argument()
        if not isinstance(above, int) or not isinstance(below, int) or not 0 <= below <= above <= MOST_FACTORIAL:
            raise NoValueError("a binomial coefficient that is too large")
        self.operations.append(Computation("!", (str(above), str(below)), f"C({above},{below})"))
        return comb(above, below)

    def _argument(self) -> Value:
        if self.tokens[self.place] == "{":
            return self._group()
        token = self.tokens[self.place]  # \frac23 is two digits
        if len(token) > 1 and token.isdigit():
            self.tokens = [*self.tokens[: self.place], *token, *self.tokens[self.place + 1 :]]
        return self._atom()

    def _group(self) -> Value:
        close = {"(": ")", "[": "]", "{": "}"}[self.tokens[self.place]]
        self.place += 1
        value = self._sum()
        if self.tokens[self.place] != close:
            raise NoValueError("a bracket is not closed")
        self.place += 1
        return value

    def _record(self, kind: str, operands: list[Value], value: Value) -> Value:
        return record_operation(self.operations, kind, operands, value)


def _number(token: str) -> Value:
    if len(token) > _DIGITS:
        raise NoValueError("a number too long")
    if token.isdecimal():
        return int(token)
    whole, _, decimals = token.replace(",", "").partition(".")
    exact = Fraction(int(whole + decimals), 10 ** len(decimals))
    return exact.numerator if exact.denominator == 1 else exact
