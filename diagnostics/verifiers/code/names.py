"""Names that a test script takes from the program under test."""

from __future__ import annotations

import ast
import builtins
import warnings

from oversharp.diagnostics.records.errors import ProblemError


def require_python(code: str, where: str | None) -> ast.Module | None:
    """Return the syntax tree of ``code``.

    If it is not Python, raise ``ProblemError`` with ``where``, or return None if ``where`` is None.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        if where is None:
            return None
        raise ProblemError(f"{where} is not Python ({error})") from error


def remote_names(script: str, context: str, where: str, solution: str = "") -> list[str]:
    """Return the names that ``script`` uses and that neither it, ``context`` nor Python defines; sorted.

    A name that ``solution`` defines is one too, even if it is a builtin, such as ``sum``. Raises ``ProblemError`` with
    ``where`` if the script is not Python.

    >>> remote_names("import math\\nassert area(2) == math.pi * square(2)", "def square(x): return x * x", "tests")
    ['area']
    """
    tree, before = require_python(script, where), require_python(context, None)
    assert tree is not None
    bound, used = _names(tree)
    if before is not None:
        bound |= _names(before)[0]
    solved = require_python(solution, None)
    defined = {getattr(node, "name", "") for node in solved.body} if solved is not None else set()
    return sorted((used - bound - set(dir(builtins)) - {"__name__"}) | (used & defined))


def _names(tree: ast.AST) -> tuple[set[str], set[str]]:
    """Return the names that a tree binds anywhere, and those that it loads."""
    bound, used = set[str](), set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            (used if isinstance(node.ctx, ast.Load) else bound).add(node.id)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            bound.add(node.name)
        elif isinstance(node, ast.arg):
            bound.add(node.arg)
        elif isinstance(node, ast.alias):
            bound.add((node.asname or node.name).partition(".")[0])
        elif isinstance(node, ast.ExceptHandler) and node.name:
            bound.add(node.name)
    return bound, used
