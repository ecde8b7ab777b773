"""Built-in reader "steps": values that a response computes, in prose, in programs, or in one expression."""

from __future__ import annotations

from collections.abc import Sequence

from oversharp.diagnostics.ways.computations import Computation
from oversharp.diagnostics.ways.contract import Signature
from oversharp.diagnostics.ways.equations import read_computations
from oversharp.diagnostics.ways.expressions import bare_expression, read_expression
from oversharp.diagnostics.ways.programs import programs_in, read_program
from oversharp.diagnostics.ways.steps import UNKNOWN, final_of, operations_of, steps_of

#: Reasons why a way is unknown.
EMPTY, NO_STEP = "the response is empty", "no equation or computation was found in it"
_UNKNOWN = Signature(why=NO_STEP)


class StepsReader:
    """Ways by computed values; the strategy is code, algebra, arithmetic or expression.

    >>> first, second, none = StepsReader().read(["16 - 3 = 13, and 13 * 2 = 26", "2 * (16 - 3) = 26", "It is 26."])
    >>> first.steps == second.steps, first.strategy, none.why
    (True, 'arithmetic', 'no equation or computation was found in it')
    """

    name = "steps"
    version = 2
    #: Midpoint of the similarities that best separate judged pairs of the same way from pairs of different ways.
    joined_from = 0.7

    def read(self, texts: Sequence[str]) -> list[Signature]:
        """Return one signature per text, in order."""
        return [_signature(text) for text in texts]


def _signature(text: str) -> Signature:
    if not text or text.isspace():
        return Signature(why=EMPTY)
    expression = bare_expression(text) if len(text) < 2_000 else None
    if expression is not None and "=" not in text:
        parsed = read_expression(expression)
        if parsed is not None:
            return _build_signature("expression", parsed[0], written=parsed[1])
    programs, prose = programs_in(text)
    computations: list[Computation] = []
    for program in programs:
        computations += read_program(program) or []
    strategy = "code" if computations else None
    computations += read_computations(prose)
    return _build_signature(strategy, computations)


def _build_signature(strategy: str | None, computations: list[Computation], *, written: str = "") -> Signature:
    if not computations:
        return _UNKNOWN
    steps, parts = (_all_of(computations), ()) if strategy == "expression" else steps_of(computations)
    if not steps:
        return _UNKNOWN
    return Signature(
        strategy=strategy or ("algebra" if UNKNOWN in steps else "arithmetic"),
        steps=steps,
        parts=parts,
        written=written or " ".join((*steps, *(f"({part})" for part in parts))),
        operations=operations_of(computations, every=strategy == "expression"),
        final=final_of(computations),
    )


def _all_of(computations: list[Computation]) -> tuple[str, ...]:
    """Return all subexpressions, by their trees."""
    return tuple(sorted({c.value for c in computations}))
