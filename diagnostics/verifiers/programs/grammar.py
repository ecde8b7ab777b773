"""Grammar of one-line programs, and their execution.

A program is the body of ``lambda a, b: …``: parameters, whole numbers, ``+ - * // %`` and round brackets. A text is
split into these tokens first, and its syntax tree may contain nothing else. So it can be executed in this process: it
has no calls, attributes or loops, and the length bounds its values.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import pairwise
from types import CodeType

#: Longest accepted program, in tokens, and longest number, in digits. They bound values to about 1,600 bits.
MOST_TOKENS = 256
MOST_DIGITS = 12
ALL_OPERATORS = ("+", "-", "*", "//", "%")

_TOKEN = re.compile(r"\s*(?:([A-Za-z_]\w*)|(\d+)|(//|[-+*%()]))", re.ASCII)
_LAMBDA = re.compile(r"\s*(?:\w+\s*=\s*)?lambda\s+([\w\s,]*):", re.ASCII)
_OPERATORS = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.FloorDiv: "//", ast.Mod: "%"}


class GrammarError(ValueError):
    """The text is not a program of the grammar. The message has the reason."""


@dataclass(frozen=True, kw_only=True)
class Grammar:
    """Allowed parts of a program.

    ``numbers``: allowed whole numbers, None for any. ``most_operands``: largest number of parameters and numbers in a
    program, None for any.
    """

    parameters: tuple[str, ...]
    operators: tuple[str, ...] = ALL_OPERATORS
    numbers: frozenset[int] | None = None
    most_operands: int | None = None
    brackets: bool = True


@dataclass(frozen=True, kw_only=True)
class Program:
    """A program of a grammar.

    ``text`` is Python's own notation of its syntax tree, so spaces and unnecessary brackets have no effect on it.
    """

    text: str
    function: Callable[..., int]


def parse_program(text: str, grammar: Grammar) -> Program:
    """Return the program in ``text``, which may begin with ``lambda PARAMETERS:``.

    Raises ``GrammarError`` for anything that is not a program of the grammar.

    >>> program = parse_program("lambda a, b: (a*b)+2", Grammar(parameters=("a", "b")))
    >>> program.text, program.function(3, 4)
    ('a * b + 2', 14)
    """
    start = _LAMBDA.match(text)
    if start is not None:
        parameters = tuple(start[1].replace(",", " ").split())
        if parameters != grammar.parameters:
            raise GrammarError(f"parameters {', '.join(parameters)} instead of {', '.join(grammar.parameters)}")
        text = text[start.end() :]
    tokens = _split(text, grammar)
    try:
        tree = ast.parse(" ".join(tokens), mode="eval")
    except (SyntaxError, RecursionError, MemoryError) as error:
        raise GrammarError("is not a Python expression") from error
    n_operands = _count_operands(tree.body)
    if grammar.most_operands is not None and n_operands > grammar.most_operands:
        raise GrammarError(f"{n_operands} operands; at most {grammar.most_operands} are allowed")
    # the whitelist above makes this safe: parameters, numbers and binary operators remain
    return Program(text=ast.unparse(tree), function=_function(compile(tree, "<program>", "eval"), grammar.parameters))


def run_cases(program: Program, cases: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """Return the program's results. Raises ``ZeroDivisionError`` if a divisor is 0.

    >>> run_cases(parse_program("a // b", Grammar(parameters=("a", "b"))), [(7, 2), (9, 3)])
    (3, 3)
    """
    return tuple(program.function(*case) for case in cases)


def _split(text: str, grammar: Grammar) -> list[str]:
    allowed = {*grammar.parameters, *grammar.operators, *("()" if grammar.brackets else "")}
    tokens: list[str] = []
    position, end = 0, len(text.rstrip())
    while position < end:
        match = _TOKEN.match(text, position)
        if match is None:
            raise GrammarError(f"unexpected {text[position:].strip()[:1]!r}")
        token = match[0].strip()
        if match[2] is None and token not in allowed:
            raise GrammarError(f"{token[:20]!r} is not allowed here")
        if match[2] is not None:
            _require_number(token, grammar.numbers)
        tokens.append(token)
        if len(tokens) > MOST_TOKENS:
            raise GrammarError(f"longer than {MOST_TOKENS} tokens")
        position = match.end()
    if not tokens:
        raise GrammarError("empty")
    if any(left.isalnum() and right.isalnum() for left, right in pairwise(tokens)):
        raise GrammarError("an operator is missing between two operands")
    return tokens


def _require_number(token: str, numbers: Collection[int] | None) -> None:
    if len(token) > MOST_DIGITS:
        raise GrammarError(f"a number of more than {MOST_DIGITS} digits")
    if numbers is not None and int(token) not in numbers:
        raise GrammarError(f"the number {token} is not allowed here")


def _count_operands(node: ast.expr) -> int:
    """Return the number of operands of a tree; raise ``GrammarError`` for a node outside the grammar."""
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        return _count_operands(node.left) + _count_operands(node.right)
    if isinstance(node, ast.Name) or (isinstance(node, ast.Constant) and type(node.value) is int):
        return 1
    raise GrammarError(f"{type(node).__name__} is not allowed; use parameters, numbers and binary operators")


def _function(code: CodeType, parameters: tuple[str, ...]) -> Callable[..., int]:
    def function(*values: int) -> int:
        result: int = eval(code, {"__builtins__": {}}, dict(zip(parameters, values, strict=True)))
        return result

    return function
