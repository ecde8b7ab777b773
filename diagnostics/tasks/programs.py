"""Programs-mini: find a one-line Python function from examples, with every correct program listed.

A problem shows three calls of a function and their results: ``f(2,1)= 5 f(1,3)= 5 f(4,2)= 10 f(a,b)=``. A response such
as ``2 * a + b`` is the body of ``lambda a, b:``. It has two or three operands from ``a``, ``b`` and 1 to 12, joined by
``+ - *``, without brackets. All 25,284 such programs are grouped by their results on the 25 pairs of arguments from 1
to 5, of which 22 are not shown. So all correct programs (modes) of a problem are known, and pass@k and the probability
of each mode can be computed exactly, as in Countdown-mini.

The split is by function: no function of the audit is trained on. No two of the functions agree on all shown calls, so
a problem has one correct function.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import cache
from itertools import product

from oversharp.diagnostics.records.types import Problem
from oversharp.diagnostics.tasks.splits import Split, split_problems

TASK = "programs"
PARAMETERS = ("a", "b")
OPERATORS = ("+", "-", "*")
NUMBERS = range(1, 13)
MOST_OPERANDS = 3
#: Arguments of the shown calls, and of all cases.
SHOWN = ((2, 1), (1, 3), (4, 2))
CASES = (*SHOWN, *(case for case in product(range(1, 6), repeat=2) if case not in SHOWN))
#: Largest result of a shown call. The smallest is 0.
MAX_RESULT = 99
HELD_OUT_SHARE = 0.2
#: Tokens of a response: three operands, two operators and the end token.
RESPONSE_TOKENS = 2 * MOST_OPERANDS
#: Words of a prompt before each shown result, and the last word.
CALLS = tuple(f"f({a},{b})=" for a, b in SHOWN)
ASKED = "f(a,b)="

#: Results of a function in all cases, in their order.
Results = tuple[int, ...]


def all_programs() -> Iterator[str]:
    """Yield every program of the grammar, the shorter ones first.

    >>> texts = list(all_programs())
    >>> len(texts), texts[0], texts[-1]
    (25284, 'a + a', '12 * 12 * 12')
    """
    operands = (*PARAMETERS, *map(str, NUMBERS))
    for n_operands in range(2, MOST_OPERANDS + 1):
        for first, *rest in product(operands, *([OPERATORS, operands] * (n_operands - 1))):
            yield " ".join((first, *rest))


@cache
def programs_by_results() -> dict[Results, tuple[str, ...]]:
    """Return all programs grouped by their results, in the order of ``all_programs``.

    >>> programs_by_results()[tuple(2 * a + b for a, b in CASES)]
    ('a + a + b', 'a + b + a', 'a * 2 + b', 'b + a + a', 'b + a * 2', 'b + 2 * a', '2 * a + b')
    """
    texts = list(all_programs())
    code = compile(f"({', '.join(texts)})", "<programs>", "eval")  # one program is slower to compile than to run
    result_CN = [eval(code, {"__builtins__": {}}, {"a": a, "b": b}) for a, b in CASES]
    groups: dict[Results, list[str]] = {}
    for text, results in zip(texts, zip(*result_CN, strict=True), strict=True):
        groups.setdefault(results, []).append(text)
    return {results: tuple(group) for results, group in groups.items()}


def modes(results: Results) -> tuple[str, ...]:
    """Return every program with these results. Each distinct text is a mode."""
    return programs_by_results().get(results, ())


@cache
def split_functions(seed: int = 0) -> tuple[tuple[Results, ...], tuple[Results, ...]]:
    """Return all functions, shuffled by ``seed`` and split into (train, held out).

    Constants are left out, and functions with a shown result that is negative or above 99.

    >>> [len(part) for part in split_functions()]
    [708, 176]
    """
    functions = sorted(
        results
        for results in programs_by_results()
        if len(set(results)) > 1 and all(0 <= result <= MAX_RESULT for result in results[: len(SHOWN)])
    )
    random.Random(seed).shuffle(functions)
    n_held_out = int(len(functions) * HELD_OUT_SHARE)
    return tuple(functions[n_held_out:]), tuple(functions[:n_held_out])


def prompt(results: Results) -> str:
    """Return the shown calls of a function as text for the model.

    >>> prompt(tuple(2 * a + b for a, b in CASES))
    'f(2,1)= 5 f(1,3)= 5 f(4,2)= 10 f(a,b)='
    """
    shown = (f"{call} {result}" for call, result in zip(CALLS, results[: len(SHOWN)], strict=True))
    return f"{' '.join(shown)} {ASKED}"


def problem(results: Results) -> Problem:
    """Return the function as a problem with all its modes. Its cases are in the format of APPS."""
    correct = modes(results)
    return Problem(
        task=TASK,
        prompt=prompt(results),
        gold=correct[0],
        verifier="program",
        modes=correct,
        meta={
            "parameters": list(PARAMETERS),
            "operators": list(OPERATORS),
            "numbers": list(NUMBERS),
            "most_operands": MOST_OPERANDS,
            "brackets": False,
            "input_output": {"fn_name": "f", "inputs": [list(case) for case in CASES], "outputs": list(results)},
        },
    )


def problems(split: Split = "audit", limit: int | None = None, seed: int = 0) -> tuple[Problem, ...]:
    """Return the problems of one split, in shuffled order.

    ``seed`` determines the splits, so use the same seed for training and audit. Raises ``ProblemError`` for an unknown
    split or a limit below 1.

    >>> audit = problems()
    >>> len(audit), sum(len(problem.modes) for problem in audit)
    (100, 509)
    """
    train, held_out = split_functions(seed)
    return split_problems(TASK, split, limit, train=train, held_out=held_out, problem=problem)
