"""Reduce operations to the steps of a solution, independent of their order and grouping."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

from oversharp.diagnostics.ways.computations import Computation

#: Step of solving an equation for its unknown, in addition to the value.
UNKNOWN = "unknown"
MOST_STEPS = 128
_FAMILY = {"/": "*"}


def steps_of(computations: Sequence[Computation]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the computed values, and the values of products inside longer products.

    Each once, sorted.

    A sum that is only used in another sum is not a step: adding three numbers at once or in turn is the same. A product
    that is only used in another product is a part, because writing it in one line omits it. An operation on unknowns is
    not a step; an equation counts as the value of its unknown, however often it is rearranged.

    >>> at_once = [Computation("+", ("3", "4", "5"), "12")]
    >>> steps_of(at_once) == steps_of([Computation("+", ("3", "4"), "7"), Computation("+", ("7", "5"), "12")])
    True
    >>> steps_of([Computation("*", ("4", "5"), "20"), Computation("/", ("20", "2"), "10")])
    (('10',), ('20',))
    """
    into: dict[str, set[str]] = defaultdict(set)
    steps, parts = set(), set()
    for c in reversed(computations):  # a value is used after it is computed
        family = _FAMILY.get(c.kind, c.kind)
        if _is_step(c):
            if into[c.value.lstrip("-")] != {family} or family not in "+*":
                steps.add(c.value)
            elif family == "*":
                parts.add(c.value)
        for name in c.operands:
            into[name.lstrip("-")].add(family)
    if any(c.kind == "=" for c in computations):
        steps.add(UNKNOWN)
    if not steps:  # only rewritten expressions
        steps = {c.value for c in computations if c.kind == "~"}
    return tuple(sorted(steps)[:MOST_STEPS]), tuple(sorted(parts - steps)[:MOST_STEPS])


def operations_of(computations: Sequence[Computation], *, every: bool = False) -> str:
    """Return how many distinct values each operation yields.

    With ``every``, count each operation.

    >>> operations_of([Computation("*", ("2", "9"), "18"), Computation("*", ("9", "2"), "18")])
    '*1'
    """
    made = [(c.kind, c.value) for c in computations if every or _is_step(c)]
    made = made or [(c.kind, c.value) for c in computations]  # only rewritten expressions
    kinds = Counter(kind for kind, _ in (made if every else set(made)))
    return " ".join(f"{kind}{n}" for kind, n in sorted(kinds.items()))


def final_of(computations: Sequence[Computation]) -> str:
    """Return the last step: its operation, operands and value, without order.

    >>> final_of([Computation("+", ("16", "-3"), "13"), Computation("*", ("13", "2"), "26")])
    '13 * 2 = 26'
    """
    last = next((c for c in reversed(computations) if _is_step(c)), None)
    if last is None:
        return ""
    return f" {last.kind} ".join(sorted(last.operands)) + f" = {last.value}"


def _is_step(computation: Computation) -> bool:
    return "v" not in computation.value or computation.kind in "=#"
