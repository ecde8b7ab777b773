"""Countdown-mini: a task small enough to list every correct response.

A problem ``6 7 12 = 54 :`` gives three distinct integers of 1..12 in ascending order and a target of 1..99. A response
such as ``6 * 7 + 12`` uses each number once with ``+ - *``, usual precedence, no brackets. Three numbers allow 54
expressions, so all correct responses (modes) of a problem can be enumerated. Measures (Definition 2.1 of [A], arXiv
2601.15609; pass@k) can then be computed exactly instead of estimated.

Problems with the same numbers are in both the train split and the held-out split on purpose. Through this semantic
coupling, training on one problem changes another.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import cache
from itertools import combinations, permutations, product
from typing import NamedTuple

from oversharp.diagnostics.records.types import Problem
from oversharp.diagnostics.tasks.splits import Split, split_problems

TASK = "countdown"
OPERATORS = "+-*"
NUMBERS = range(1, 13)
NUMBERS_PER_QUERY = 3
MAX_TARGET = 99
HELD_OUT_SHARE = 0.2
#: Tokens of a response: three numbers, two operators and the end token.
RESPONSE_TOKENS = 2 * NUMBERS_PER_QUERY


class Query(NamedTuple):
    """Numbers in ascending order, and the value to reach with them."""

    numbers: tuple[int, ...]
    target: int

    @property
    def prompt(self) -> str:
        """The query as text for the model.

        >>> Query((6, 7, 12), 54).prompt
        '6 7 12 = 54 :'
        """
        return f"{' '.join(map(str, self.numbers))} = {self.target} :"


def value(numbers: Sequence[int], operators: Sequence[str]) -> int:
    """Return the value of ``numbers[0] operators[0] numbers[1] …`` with the usual precedence.

    >>> value([12, 6, 7], ["+", "*"])
    54
    """
    terms = [numbers[0]]
    for operator, number in zip(operators, numbers[1:], strict=True):
        if operator == "*":
            terms[-1] *= number
        else:
            terms.append(number if operator == "+" else -number)
    return sum(terms)


@cache
def expressions(numbers: tuple[int, ...]) -> dict[int, tuple[str, ...]]:
    """Return all expressions that use each number once, grouped by value, in a fixed order.

    >>> sum(len(group) for group in expressions((6, 7, 12)).values())
    54
    >>> sorted(expressions((6, 7, 12))[54])
    ['12 + 6 * 7', '12 + 7 * 6', '6 * 7 + 12', '7 * 6 + 12']
    """
    by_value: dict[int, list[str]] = {}
    for order in permutations(numbers):
        for operators in product(OPERATORS, repeat=len(numbers) - 1):
            tail = "".join(f" {operator} {number}" for operator, number in zip(operators, order[1:], strict=True))
            by_value.setdefault(value(order, operators), []).append(f"{order[0]}{tail}")
    return {result: tuple(group) for result, group in by_value.items()}


@cache
def modes(query: Query) -> tuple[str, ...]:
    """Return every correct response to ``query``, sorted. Each distinct string is a mode.

    >>> modes(Query((1, 2, 3), 7))
    ('1 + 2 * 3', '1 + 3 * 2', '2 * 3 + 1', '3 * 2 + 1')
    """
    return tuple(sorted(expressions(query.numbers).get(query.target, ())))


def wrong_expressions(query: Query) -> tuple[tuple[str, ...], ...]:
    """Return the expressions that use the right numbers but miss the target, grouped by value."""
    return tuple(group for result, group in expressions(query.numbers).items() if result != query.target)


@cache
def split_queries(seed: int = 0) -> tuple[tuple[Query, ...], tuple[Query, ...]]:
    """Return all solvable queries, shuffled by ``seed`` and split into (train, held out).

    >>> [len(part) for part in split_queries()]
    [1599, 399]
    """
    queries = sorted(
        Query(numbers, target)
        for numbers in combinations(NUMBERS, NUMBERS_PER_QUERY)
        for target in expressions(numbers)
        if 1 <= target <= MAX_TARGET
    )
    random.Random(seed).shuffle(queries)
    n_held_out = int(len(queries) * HELD_OUT_SHARE)
    return tuple(queries[n_held_out:]), tuple(queries[:n_held_out])


def problem(query: Query) -> Problem:
    """Return the query as a problem with all its modes."""
    return Problem(
        task=TASK,
        prompt=query.prompt,
        gold=str(query.target),
        verifier="expression",
        modes=modes(query),
        meta={"numbers": list(query.numbers), "operators": OPERATORS, "brackets": False},
    )


def problems(split: Split = "audit", limit: int | None = None, seed: int = 0) -> tuple[Problem, ...]:
    """Return the problems of one split, in shuffled order.

    ``seed`` determines the splits, so use the same seed for training and audit. Raises ``ProblemError`` for an unknown
    split or a limit below 1.

    >>> audit = problems()
    >>> len(audit), sum(len(problem.modes) for problem in audit)
    (100, 390)
    """
    train, held_out = split_queries(seed)
    return split_problems(TASK, split, limit, train=train, held_out=held_out, problem=problem)
