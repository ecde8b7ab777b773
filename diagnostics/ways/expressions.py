"""Parse a response that is a bare arithmetic expression, as tasks with a target value require."""

from __future__ import annotations

import ast
import re

from oversharp.diagnostics.ways.computations import Computation

MOST_CHARACTERS, MOST_DEPTH = 300, 40
_BARE = re.compile(r"[\d\s+\-*/().^×·÷−]+")
_BOXED = re.compile(r"\\boxed\{([^{}]{1,300})\}|<answer>([^<]{1,300})</answer>")
_OPERATION = re.compile(r"\d\s*[-+*/^×·÷−]")
_SIGNS = str.maketrans({"×": "*", "·": "*", "÷": "/", "−": "-"})
#: Whether an operation makes a sum or a product, and the sign of its right operand.
_FAMILIES = {ast.Add: "++", ast.Sub: "+-", ast.Mult: "**", ast.Div: "*/"}
_INVERSE = {"+": "-", "*": "/"}


def bare_expression(text: str) -> str | None:
    r"""Return the expression of a response, or of its last box or answer tag, if it contains an operation.

    >>> bare_expression(" 6*7 + 12\n"), bare_expression("So \\boxed{3 \\times 4}"), bare_expression("54")
    ('6*7 + 12', None, None)
    """
    if _OPERATION.search(text) is None:  # true of most texts that state a number
        return None
    text = text.strip()
    if _is_bare(text):
        candidate = text
    elif boxes := _BOXED.findall(text[-1000:]) if "\\boxed" in text or "<answer>" in text else ():
        candidate = (boxes[-1][0] or boxes[-1][1]).strip()
    else:
        return None
    return candidate if _OPERATION.search(candidate) and _is_bare(candidate) else None


def read_expression(expression: str) -> tuple[list[Computation], str] | None:
    """Return the operations of an expression, each named by its tree up to order, and the text without spaces.

    None if it is not an expression within the limits.

    >>> first, second = read_expression("10 + 2 * 11"), read_expression("(11*2) + 10")
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
    """Return the name of a subexpression up to order; append its operations."""
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
