"""One operation of a solution, whoever wrote it down: an equation in prose, or a line of a program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from oversharp.diagnostics.ways.values import Value, named

#: More of them are left out.
MOST_COMPUTATIONS = 400
_NEUTRAL = {"+": 0, "*": 1, "/": 1}


class Computation(NamedTuple):
    """Its kind, the names of what goes in, and the name of what comes out.

    A ``v`` in a name is an unknown. ``+`` takes any number of terms, ``*`` and ``/`` of factors; ``^`` is a power or a
    root, ``!`` counts arrangements. ``=`` is an equation of one unknown, its value the unknown's where it is linear;
    ``~`` an expression in unknowns that is brought into another form; ``#`` a piece of a program whose value is not
    known.
    """

    kind: str
    operands: tuple[str, ...]
    value: str


def note(found: list[Computation], kind: str, operands: Sequence[Value], value: Value) -> Value:
    """Append an operation to ``found`` unless it changes nothing, and give its value back."""
    neutral = _NEUTRAL.get(kind)
    if neutral is not None and (len(operands) < 2 or (kind == "/" and _is_percentage(operands))):
        return value
    if neutral is None or sum(operand != neutral for operand in operands) > 1:
        found.append(Computation(kind, tuple(map(named, operands)), named(value)))
    return value


def _is_percentage(operands: Sequence[Value]) -> bool:
    """Whether it is another spelling of a number below 1, as 25/100 is."""
    above, below = operands[0], operands[-1]
    return len(operands) == 2 and below == 100 and isinstance(above, int) and 0 < above < 100
