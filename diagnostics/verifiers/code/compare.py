"""Compare outputs and results of a program with the expected ones, outside of its process."""

from __future__ import annotations

import math
import re
from decimal import Decimal
from typing import Any

#: A number in printed output that is compared by value. A longer one is compared as text.
_NUMBER = re.compile(r"[-+]?(?:\d{1,400}(?:\.\d{0,400})?|\.\d{1,400})(?:[eE][-+]?\d{1,4})?", re.ASCII)
#: Relative and absolute difference up to which floats are equal.
_RELATIVE, _ABSOLUTE = 1e-9, 1e-12


def same_output(expected: str, printed: str) -> bool:
    r"""Return whether two outputs are equal, up to spaces, trailing blank lines and the form of numbers.

    >>> same_output("1 2.50\n", "1  2.5 \n\n"), same_output("1\n2", "1 2"), same_output("yes", "Yes")
    (True, False, False)
    """
    left, right = _lines(expected), _lines(printed)
    return len(left) == len(right) and all(
        ours == theirs or _same_tokens(ours, theirs) for ours, theirs in zip(left, right, strict=True)
    )


def same_result(expected: Any, result: Any) -> bool:
    """Return whether a function's result is the expected one. Both are plain data in builtin types.

    Tuples equal lists, because JSON has only lists. Floats may differ by 1e-9 of their size.

    >>> same_result([1, [2.0]], (1, [2])), same_result(0.3, 0.1 + 0.2), same_result(1, True), same_result([], None)
    (True, True, False, False)
    """
    if isinstance(expected, list | tuple) and isinstance(result, list | tuple):
        return len(expected) == len(result) and all(map(same_result, expected, result))
    if isinstance(expected, dict) and isinstance(result, dict):
        return expected.keys() == result.keys() and all(same_result(expected[key], result[key]) for key in expected)
    if isinstance(expected, bool) or isinstance(result, bool):
        return expected is result
    if isinstance(expected, int | float) and isinstance(result, int | float):
        if isinstance(expected, int) and isinstance(result, int):
            return expected == result
        try:
            return math.isclose(expected, result, rel_tol=_RELATIVE, abs_tol=_ABSOLUTE) or (
                math.isnan(expected) and math.isnan(result)
            )
        except OverflowError:  # an integer beyond the range of floats
            return False
    return type(expected) is type(result) and bool(expected == result)


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.rstrip().splitlines()]


def _same_tokens(left: str, right: str) -> bool:
    ours, theirs = left.split(), right.split()
    return len(ours) == len(theirs) and all(map(_same_token, ours, theirs))


def _same_token(left: str, right: str) -> bool:
    if left == right:
        return True
    return bool(_NUMBER.fullmatch(left) and _NUMBER.fullmatch(right)) and Decimal(left) == Decimal(right)
