"""Reads a response that is a bare arithmetic expression, as the tasks ask for that want one of a given value."""

from __future__ import annotations

import ast
import re

from oversharp.diagnostics.ways.computations import Computation

MOST_CHARACTERS, MOST_DEPTH = 300, 40
_BARE = re.compile(r"[\d\s+\-*/().^×·÷−]+")
_BOXED = re.compile(r"\\boxed\{([^{}]{1,300})\}|<answer>([^<]{1,300})</answer>")
_OPERATION = re.compile(r"\d\s*[-+*/^×·÷−]")
_SIGNS = str.maketrans({"×": "*", "·": "*", "÷": "/", "−": "-"})
#: Whether an operation makes a sum or a product, and the sign it puts before what stands to its right.
_FAMILIES = {ast.Add: "++", ast.Sub: "+-", ast.Mult: "**", ast.Div: "*/"}
_INVERSE = {"+": "-", "*": "/"}


def bare_expression(text: str) -> str | None:
    r"""The expression that a response is, or that stands alone in its last box or answer tag, if it has an operation.

    >>> bare_expression(" 6*7 + 12\n"), bare_expression("So \\boxed{3 \\times 4}"), bare_expression("54")
    ('6*7 + 12', None, None)
    """
    if _OPERATION.search(text) is None:  # as in most texts that say a number
        return None
    text = text.strip()
    if _is_bare(text):
        candidate = text
    elif found := _BOXED.findall(text[-1000:]) if "\\boxed" in text or "<answer>" in text else ():
        candidate = (found[-1][0] or found[-1][1]).strip()
    else:
        return None
    return candidate if _OPERATION.search(candidate) and _is_bare(candidate) else None


def read_expression(expression: str) -> tuple[list[Computation], str] | None:
    """The operations of an expression, each named by its tree up to order, and the expression without its spaces.

    None where it is no expression within the bounds.

    >>> one, other = read_expression("10 + 2 * 11"), read_expression("(11*2) + 10")
    >>> one[0] == other[0], one[0][-1].value, one[1]
    (True, '+(*11*2)+10', '10+2*11')
    """
    plain = "".join(expression.translate(_SIGNS).split())
    found: list[Computation] = []
    try:
        _name(ast.parse(plain.replace("^", "**"), mode="eval").body, found, 0)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return found, plain


def _is_bare(text: str) -> bool:
    return len(text) <= MOST_CHARACTERS and _BARE.fullmatch(text) is not None


def _name(node: ast.expr, found: list[Computation], depth: int) -> str:
    """The name of a part up to order; its operations are appended to ``found``."""
    if depth > MOST_DEPTH:
        raise ValueError("nested too deep")
    match node:
        case ast.Constant(value=int() | float() as value):
            return repr(value)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return f"-{_name(operand, found, depth + 1)}"
        case ast.BinOp(left=left, op=ast.Pow(), right=right):
            terms = [_name(left, found, depth + 1), _name(right, found, depth + 1)]
            name, kind = f"({'^'.join(terms)})", "^"
        case ast.BinOp(op=op) if type(op) in _FAMILIES:
            kind = _FAMILIES[type(op)][0]
            signed = _signed(node, kind, kind, found, depth)
            terms = [term for _, term in signed]
            name = "".join(sorted(f"{sign}{term}" for sign, term in signed))
            name = name if depth == 0 else f"({name})"
        case _:
            raise ValueError("no expression")
    found.append(Computation(kind, tuple(sorted(terms)), name))
    return name


def _signed(node: ast.expr, kind: str, sign: str, found: list[Computation], depth: int) -> list[tuple[str, str]]:
    """The terms of a sum, or the factors of a product, each with the sign before it."""
    if isinstance(node, ast.BinOp) and _FAMILIES.get(type(node.op), " ")[0] == kind and depth <= MOST_DEPTH:
        own = _FAMILIES[type(node.op)][1]
        right = {kind: own, _INVERSE[kind]: kind if own == _INVERSE[kind] else _INVERSE[kind]}[sign]
        return [
            *_signed(node.left, kind, sign, found, depth + 1),
            *_signed(node.right, kind, right, found, depth + 1),
        ]
    return [(sign, _name(node, found, depth + 1))]
