"""Operations of a solution, parsed from equations in prose or lines of a program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from oversharp.diagnostics.ways.values import Value, name_value

#: Largest number of operations per response. Further operations are dropped.
MOST_COMPUTATIONS = 400
_NEUTRAL = {"+": 0, "*": 1, "/": 1}


class Computation(NamedTuple):
    """One operation: its kind, the names of its operands, and the name of its value.

    A ``v`` in a name is an unknown. Kinds: ``+`` with any number of terms, ``*`` and ``/`` with any number of factors,
    ``^`` a power or a root, ``!`` a factorial or binomial coefficient, ``=`` an equation in one unknown (with the value
    of the unknown if it is linear), ``~`` an expression in unknowns that is rewritten, ``#`` a piece of a program with
    unknown value.
    """

    kind: str
    operands: tuple[str, ...]
    value: str


def record_operation(operations: list[Computation], kind: str, operands: Sequence[Value], value: Value) -> Value:
    """Append an operation to ``operations`` unless it changes nothing; return its value."""
    neutral = _NEUTRAL.get(kind)
    if neutral is not None and (len(operands) < 2 or (kind == "/" and _is_percentage(operands))):
        return value
    if neutral is None or sum(operand != neutral for operand in operands) > 1:
        operations.append(Computation(kind, tuple(map(name_value, operands)), name_value(value)))
    return value


def _is_percentage(operands: Sequence[Value]) -> bool:
    """Return whether the division only writes a number below 1 in hundredths, such as 25/100."""
    above, below = operands[0], operands[-1]
    return len(operands) == 2 and below == 100 and isinstance(above, int) and 0 < above < 100
