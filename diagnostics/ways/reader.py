"""Built-in reader "steps": the values computed in prose, in a program, or in one expression."""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Sequence

from oversharp.diagnostics.ways.computations import Computation
from oversharp.diagnostics.ways.contract import Signature
from oversharp.diagnostics.ways.equations import read_computations
from oversharp.diagnostics.ways.programs import read_program, split_programs

#: Reasons why a way is unknown.
EMPTY, NO_STEP = "the response is empty", "no equation or computation was found in it"
_UNKNOWN = Signature(why=NO_STEP)
#: Step for solving an equation, in addition to the value of its unknown.
UNKNOWN = "unknown"
MOST_STEPS = 128
_FAMILY = {"/": "*"}
#: Limits of an expression: number of characters, and depth of its syntax tree.
MOST_CHARACTERS, MOST_DEPTH = 300, 40
_BARE = re.compile(r"[\d\s+\-*/().^×·÷−]+")
_BOXED = re.compile(r"\\boxed\{([^{}]{1,300})\}|<answer>([^<]{1,300})</answer>")
_OPERATION = re.compile(r"\d\s*[-+*/^×·÷−]")
_SIGNS = str.maketrans({"×": "*", "·": "*", "÷": "/", "−": "-"})
#: For each operation, whether it forms a sum or a product, and the sign of its right operand.
_FAMILIES = {ast.Add: "++", ast.Sub: "+-", ast.Mult: "**", ast.Div: "*/"}
_INVERSE = {"+": "-", "*": "/"}


class StepsReader:
    """Ways by computed values. The strategy is code, algebra, arithmetic or expression.

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
    expression = _find_expression(text) if len(text) < 2_000 else None
    if expression is not None and "=" not in text:
        parsed = _read_expression(expression)
        if parsed is not None:
            return _build_signature("expression", parsed[0], written=parsed[1])
    programs, prose = split_programs(text)
    computations: list[Computation] = []
    for program in programs:
        computations += read_program(program) or []
    strategy = "code" if computations else None
    computations += read_computations(prose)
    return _build_signature(strategy, computations)


def _build_signature(strategy: str | None, computations: list[Computation], *, written: str = "") -> Signature:
    if not computations:
        return _UNKNOWN
    steps, parts = reduce_steps(computations)
    if strategy == "expression":  # every subexpression is a step
        steps, parts = tuple(sorted({c.value for c in computations})), ()
    if not steps:
        return _UNKNOWN
    return Signature(
        strategy=strategy or ("algebra" if UNKNOWN in steps else "arithmetic"),
        steps=steps,
        parts=parts,
        written=written or " ".join((*steps, *(f"({part})" for part in parts))),
        operations=count_operations(computations, every=strategy == "expression"),
        final=describe_last_step(computations),
    )


# ---------------------------------------------------------------- steps


def reduce_steps(computations: Sequence[Computation]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return steps (the computed values) and parts (products inside longer products).

    Both are sorted and have no duplicates. Order and grouping of operations have no effect. A sum that is only used in
    another sum is not a step, so adding three numbers at once or one by one is the same. A product that is only used in
    another product is a part, because a solution on one line omits it. An operation on unknowns is not a step. An
    equation counts as the value of its unknown, however often it is rearranged.

    >>> at_once = [Computation("+", ("3", "4", "5"), "12")]
    >>> reduce_steps(at_once) == reduce_steps([Computation("+", ("3", "4"), "7"), Computation("+", ("7", "5"), "12")])
    True
    >>> reduce_steps([Computation("*", ("4", "5"), "20"), Computation("/", ("20", "2"), "10")])
    (('10',), ('20',))
    """
    used_in: dict[str, set[str]] = defaultdict(set)
    steps, parts = set(), set()
    for c in reversed(computations):  # reversed, because a value is used after it is computed
        family = _FAMILY.get(c.kind, c.kind)
        if _is_step(c):
            if used_in[c.value.lstrip("-")] != {family} or family not in "+*":
                steps.add(c.value)
            elif family == "*":
                parts.add(c.value)
        for name in c.operands:
            used_in[name.lstrip("-")].add(family)
    if any(c.kind == "=" for c in computations):
        steps.add(UNKNOWN)
    if not steps:  # no values are computed: the text only rewrites expressions
        steps = {c.value for c in computations if c.kind == "~"}
    return tuple(sorted(steps)[:MOST_STEPS]), tuple(sorted(parts - steps)[:MOST_STEPS])


def count_operations(computations: Sequence[Computation], *, every: bool = False) -> str:
    """Return the number of distinct values by kind of operation.

    With ``every``, return the number of all operations.

    >>> count_operations([Computation("*", ("2", "9"), "18"), Computation("*", ("9", "2"), "18")])
    '*1'
    """
    operations = [(c.kind, c.value) for c in computations if every or _is_step(c)]
    # no values are computed: the text only rewrites expressions
    operations = operations or [(c.kind, c.value) for c in computations]
    kinds = Counter(kind for kind, _ in (operations if every else set(operations)))
    return " ".join(f"{kind}{n}" for kind, n in sorted(kinds.items()))


def describe_last_step(computations: Sequence[Computation]) -> str:
    """Return the last step: its operands (sorted), its operation and its value.

    >>> describe_last_step([Computation("+", ("16", "-3"), "13"), Computation("*", ("13", "2"), "26")])
    '13 * 2 = 26'
    """
    last = next((c for c in reversed(computations) if _is_step(c)), None)
    if last is None:
        return ""
    return f" {last.kind} ".join(sorted(last.operands)) + f" = {last.value}"


def _is_step(computation: Computation) -> bool:
    return "v" not in computation.value or computation.kind in "=#"


# ---------------------------------------------------------------- a bare expression


def _find_expression(text: str) -> str | None:
    r"""Return the expression of a response, or of its last box or answer tag.

    >>> _find_expression(" 6*7 + 12\n"), _find_expression("So \\boxed{3 \\times 4}"), _find_expression("54")
    ('6*7 + 12', None, None)
    """
    if _OPERATION.search(text) is None:  # fast path: most texts just state a number
        return None
    text = text.strip()
    if _is_bare(text):
        candidate = text
    elif boxes := _BOXED.findall(text[-1000:]) if "\\boxed" in text or "<answer>" in text else ():
        candidate = (boxes[-1][0] or boxes[-1][1]).strip()
    else:
        return None
    return candidate if _OPERATION.search(candidate) and _is_bare(candidate) else None


def _read_expression(expression: str) -> tuple[list[Computation], str] | None:
    """Return the operations of an expression and its compact text, or None.

    The value of an operation is the name of its syntax tree, which does not depend on the order of operands.

    >>> first, second = _read_expression("10 + 2 * 11"), _read_expression("(11*2) + 10")
    >>> first[0] == second[0], first[0][-1].value, first[1]
    (True, '+(*11*2)+10', '10+2*11')
    """
    plain = "".join(expression.translate(_SIGNS).split())
    operations: list[Computation] = []
    try:
        _name(ast.parse(plain.replace("^", "**"), mode="eval").body, operations, 0)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return operations, plain


def _is_bare(text: str) -> bool:
    return len(text) <= MOST_CHARACTERS and _BARE.fullmatch(text) is not None


def _name(node: ast.expr, operations: list[Computation], depth: int) -> str:
    """Return a name of a subexpression that does not depend on the order of operands, and append its operations."""
    if depth > MOST_DEPTH:
        raise ValueError("nested too deep")
    match node:
        case ast.Constant(value=int() | float() as value):
            return repr(value)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return f"-{_name(operand, operations, depth + 1)}"
        case ast.BinOp(left=left, op=ast.Pow(), right=right):
            terms = [_name(left, operations, depth + 1), _name(right, operations, depth + 1)]
            name, kind = f"({'^'.join(terms)})", "^"
        case ast.BinOp(op=op) if type(op) in _FAMILIES:
            kind = _FAMILIES[type(op)][0]
            signed = _signed_operands(node, kind, kind, operations, depth)
            terms = [term for _, term in signed]
            name = "".join(sorted(f"{sign}{term}" for sign, term in signed))
            name = name if depth == 0 else f"({name})"
        case _:
            raise ValueError("no expression")
    operations.append(Computation(kind, tuple(sorted(terms)), name))
    return name


def _signed_operands(
    node: ast.expr, kind: str, sign: str, operations: list[Computation], depth: int
) -> list[tuple[str, str]]:
    """Return the terms of a sum, or the factors of a product, each with the sign before it."""
    if isinstance(node, ast.BinOp) and _FAMILIES.get(type(node.op), " ")[0] == kind and depth <= MOST_DEPTH:
        own = _FAMILIES[type(node.op)][1]
        right = {kind: own, _INVERSE[kind]: kind if own == _INVERSE[kind] else _INVERSE[kind]}[sign]
        return [
            *_signed_operands(node.left, kind, sign, operations, depth + 1),
            *_signed_operands(node.right, kind, right, operations, depth + 1),
        ]
    return [(sign, _name(node, operations, depth + 1))]
