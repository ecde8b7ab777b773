"""Parser of the arithmetic in a text, exact and in bounded time.

It handles digits, the four operations, powers, roots, factorials, brackets, and the LaTeX and units around them. It
skips everything else. A general parser would take milliseconds per equation.
"""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache
from math import comb, factorial

from oversharp.diagnostics.ways.computations import MOST_COMPUTATIONS, Computation, record_operation
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

#: Number of characters that are parsed at the beginning and at the end of a text longer than their sum.
MOST_CHARACTERS, END_CHARACTERS = 49_152, 16_384

_SIGNS_TO_ASCII = str.maketrans(
    {"×": "*", "·": "*", "∙": "*", "÷": "/", "−": "-", "–": "-", "≈": "=", "≤": "=", "≥": "=", "<": "=", ">": "=",
     "$": "", "&": "", "²": "^2 ", "³": "^3 ", "°": "", "π": "\\pi ", "⇒": ";", "→": ";", "\t": " ", "⋅": "*", "∗": "*",
     "✕": "*", "≦": "=", "≧": "=", "€": "", "£": "", "¥": "", "，": ";", "；": ";",
     **{chr(ord(sign) + 0xFEE0): sign for sign in "0123456789()*+-./<=>%"}, "＜": "=", "＞": "="}
)  # fmt: skip
#: ASCII signs of this table. For them, str.replace is faster than translate.
_ASCII_SIGNS = tuple((sign, other) for code, other in _SIGNS_TO_ASCII.items() if (sign := chr(code)).isascii())
_CALCULATOR = re.compile(r"<<[^<>\n]{0,200}>>")
_TEXT = re.compile(r"\\(?:text|textbf|mathrm|mbox|operatorname)\s?\{[^{}]{0,200}\}")
_SUBSCRIPT = re.compile(r"_(?:\{[^{}]{0,40}\}|\w)")
_COMMAND = re.compile(r"\\([A-Za-z]+|[^A-Za-z])")
_COMMANDS = {
    "times": "*", "cdot": "*", "ast": "*", "div": "/", "approx": "=", "leq": "=", "geq": "=", "le": "=", "ge": "=",
    "lt": "=", "gt": "=", "equiv": "=", "dfrac": "\\frac ", "tfrac": "\\frac ", "cfrac": "\\frac ", "frac": "\\frac ",
    "sqrt": "\\sqrt ", "pi": "\\pi ", "binom": "\\binom ", "dbinom": "\\binom ", "implies": ";", "Rightarrow": ";",
    "quad": ";", "qquad": ";", "\\": ";", "%": "%", "left": "", "right": "", "big": "", "Big": "", "bigl": "",
    "bigr": "", "circ": "", "degree": "", "angle": "", "triangle": "", "boxed": "", "displaystyle": "", "$": "",
    ",": "", "!": "", " ": "", ";": "", ":": "", "(": ";", ")": ";", "[": ";", "]": ";", "{": "(", "}": ")",
}  # fmt: skip
_EMPTY_POWER = re.compile(r"\^(?:\{ ?\}| )?(?=[\s=+*/;.,)}-]|$)")
# A pattern with a look-behind begins with the sign itself, because the regex engine finds a sign much faster than the
# text before it.
_TIMES = re.compile(r"[xX](?:(?<=[\d)%][xX])|(?<=[\d)%a-z] [xX]))(?= ?[\d(])")
#: Words after a number that separate equations and are not units.
_LINKS = r"(?!(?:x|so|and|or|then|thus|hence|is|are|was|gives?|which|because|since|when|if|while|but|therefore|to)\b)"
#: Letters of other scripts. Alone after a number they are a unit, not an unknown.
_OTHER = "À-ÖØ-öø-žͰ-ӿ぀-ヿ一-鿿가-힣"
_UNIT = re.compile(
    rf"([\d)%}}])[ ]?{_LINKS}(?:[A-Za-z{_OTHER}’'-]{{2,20}}|[{_OTHER}])"
    rf"(?:[ ]{_LINKS}[|A-Za-z{_OTHER}’'-]{{1,20}}){{0,3}}(?:/[A-Za-z{_OTHER}]{{1,20}}){{0,2}}"
    r"(?=[ ]?[-+*/=)])"
)
_PER_UNIT = re.compile(r"/(?<=[\d)%}]/)[A-Za-z]{2,20}")
_THOUSANDS = re.compile(r"(?<![\d.])\d{1,3}(?: \d{3})+(?![\d.])")
_AFTER_DIGIT = re.compile(r" \d{3}(?<=\d \d{3})")
_ARTICLE = re.compile(r"[aAI](?<!\w[aAI])(?= [A-Za-z]{2})")
RELATION = re.compile(r"[=≈<>≤≥＝＜＞≦≧\\](?:(?<!\\)|(?:approx|[lg]eq?\b))")
#: Limits: characters of one run of arithmetic, tokens of a run, and nesting depth of brackets.
MOST_RUN, MOST_TOKENS, MOST_DEPTH = 400, 200, 24
MOST_FACTORIAL = 60
_DIGITS = 24
_RUN = re.compile(
    r"(?:[-+*/^=(){}\[\]\d.,%!:; ]++|\\(?:frac|sqrt|pi|binom)|(?<![A-Za-z\\])(?:[A-Za-z]|[A-Z]{2,3})(?![A-Za-z]))++"
)
_AROUND = " .,;:!"
_EQUALS = re.compile("=+")
_SENTENCE = re.compile(r"[;:]|[.,](?=\s|$)")
_TOKEN = re.compile(r"\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?|\.\d+|\\[a-z]+|[A-Z]{2,3}|[A-Za-z]|\S")


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
    for run in [run for run in _RUN.findall(normalise_notation(text)) if "=" in run]:
        for part in (run,) if len(run) <= MOST_RUN else _SENTENCE.split(run):
            if "=" in part and len(part) <= MOST_RUN:
                operations += _read_run(part.strip(_AROUND))
        if len(operations) >= MOST_COMPUTATIONS:
            return operations[:MOST_COMPUTATIONS]
    return operations


def normalise_notation(text: str) -> str:
    r"""Return the lines of a text that contain a relation, with ASCII signs and without units.

    The LaTeX commands ``\\frac``, ``\\sqrt``, ``\\binom`` and ``\\pi`` are preserved. Other commands separate the text
    around them.

    >>> normalise_notation("We have \\(3 \\times 12 \\text{ eggs} \\approx 36\\).\nSo much.")
    'We have ;3 * 12  = 36;.'
    """
    if len(text) > MOST_CHARACTERS + END_CHARACTERS:
        text = text[:MOST_CHARACTERS] + "\n" + text[-END_CHARACTERS:]
    if "<<" in text:
        text = _CALCULATOR.sub("", text)
    text = "\n".join([line for line in text.split("\n") if RELATION.search(line)])
    text = text.replace("**", "^")
    if text.isascii():
        for sign, other in _ASCII_SIGNS:
            text = text.replace(sign, other)
    else:
        text = text.translate(_SIGNS_TO_ASCII)
    if "\\" in text:
        text = _TEXT.sub("", text)
        text = _COMMAND.sub(lambda match: _COMMANDS.get(match.group(1), ";"), text)
        text = _EMPTY_POWER.sub("", text)
    if "_" in text:
        text = _SUBSCRIPT.sub("", text)
    if _AFTER_DIGIT.search(text):
        text = _THOUSANDS.sub(lambda match: match.group().replace(" ", ""), text)
    text = _ARTICLE.sub("|", text)  # articles are not unknowns
    return _UNIT.sub(r"\1", _PER_UNIT.sub("", _TIMES.sub("*", text)))


@lru_cache(maxsize=1 << 15)
def _read_run(run: str) -> tuple[Computation, ...]:
    """Parse one run of arithmetic.

    The result is cached, because responses to one problem share most equations.
    """
    operations: list[Computation] = []
    for sentence in _SENTENCE.split(run):
        if "=" in sentence:
            operations += _read_chain(sentence)
    return tuple(operations)


def _read_chain(sentence: str) -> list[Computation]:
    """Return the operations of one chain of relations such as a = b = c."""
    operations: list[Computation] = []
    before: Value | None = None
    sides = _EQUALS.split(sentence)
    for place, side in enumerate(sides):
        tokens = _TOKEN.findall(side)[:MOST_TOKENS]
        if len(tokens) == 1 and tokens[0][0].isdigit():  # fast path: most right sides are plain numbers
            parsed = _bare_number(tokens[0])
        else:
            parsed = _last_expression(tokens) if place == 0 else _first_expression(tokens)
        if parsed is None:
            before = None
            continue
        value, operations_of_side = parsed
        solved = None if before is None else _relate(before, value)
        if solved is not None and len(sides) == 2:
            return [solved]  # moving terms to the other side is not a step
        operations += operations_of_side if solved is None else [*operations_of_side, solved]
        before = value
    return operations


def _relate(left: Value, right: Value) -> Computation | None:
    """Return the operation of an equation with unknowns: the solved unknown, or a rewritten relation."""
    open_sides = [side for side in (left, right) if isinstance(side, Polynomial) and side.unknowns]
    if not open_sides or any(side.is_symbol for side in open_sides):  # all values are known, or one side is a name
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
    """Return the longest expression that ends at the last token.

    Only a few start positions are tried.
    """
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


#: Tokens that cannot begin another factor. "" is the end of the tokens.
_NO_FACTOR = frozenset({"", "+", "-", ")", "]", "}"})
_SIGNS = frozenset({"+", "-"})


class _Reader:
    """Recursive-descent parser of one expression. It records each operation."""

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
            raise NoValueError("brackets are nested too deeply")
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
                raise NoValueError("the factorial is too large")
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
        raise NoValueError("not an expression")

    def _mixed_number(self, whole: Value) -> Value:
        r"""Parse an integer followed by a fraction of two numbers: 3\frac{4}{5} is 3 + 4/5."""
        six = self.tokens[self.place : self.place + 7]  # the first token is \frac
        if len(six) == 7 and six[1] == six[4] == "{" and six[2].isdigit() and six[5].isdigit() and six[6]:
            self.place += 7
            return add(whole, divide(_number(six[2]), _number(six[5])))
        return whole

    def _fraction(self) -> Value:
        start = self.place
        above, below = self._argument(), self._argument()
        value = divide(above, below)
        if self.place - start <= 7 and isinstance(value, Fraction) and above in (value.numerator, -value.numerator):
            return value  # \frac{1}{2} is a number, but 480/6 is a division
        return self._record("/", [above, below], value)

    def _choices(self) -> Value:
        above, below = self._argument(), self._argument()
        if not isinstance(above, int) or not isinstance(below, int) or not 0 <= below <= above <= MOST_FACTORIAL:
            raise NoValueError("the binomial coefficient is too large")
        self.operations.append(Computation("!", (str(above), str(below)), f"C({above},{below})"))
        return comb(above, below)

    def _argument(self) -> Value:
        if self.tokens[self.place] == "{":
            return self._group()
        token = self.tokens[self.place]  # \frac23 has two one-digit arguments
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
        raise NoValueError("the number is too long")
    if token.isdecimal():
        return int(token)
    whole, _, decimals = token.replace(",", "").partition(".")
    exact = Fraction(int(whole + decimals), 10 ** len(decimals))
    return exact.numerator if exact.denominator == 1 else exact
