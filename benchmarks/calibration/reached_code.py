"""The code that a result rests on: every statement of this project that a function reaches by name, in any module.

What took hours is worth keeping for as long as nothing that made it has changed, and no longer.
"""

from __future__ import annotations

import ast
import inspect
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

Case = TypeVar("Case")
#: A module, and a name that a statement of it binds; of a module that is imported as such, no module and its name.
Place = tuple[str, str]


def rows_that_stand(
    path: Path, cases: Mapping[str, Case], fingerprint: Callable[[Case], str]
) -> dict[str, dict[str, Any]]:
    """Rows of an earlier run, by the name of their case, that rest on the code as it is; none without a file."""
    if not path.is_file():
        return {}
    rows = {row["name"]: row for row in json.loads(path.read_text())["rows"] if row["name"] in cases}
    kept = {name: row for name, row in rows.items() if row["fingerprint"] == fingerprint(cases[name])}
    for name in rows.keys() - kept.keys():
        print(f"{name}: drawn again, for the code has changed that it rests on", file=sys.stderr)
    return kept


def code_reached(start: Callable[..., Any], *, root: Path) -> frozenset[tuple[str, str]]:
    """What ``start`` reaches, itself included: names, and the statements that bind them in modules below ``root``.

    Statements are those of a module's own, so that a class counts as a whole; they have no comments or docstrings, and
    no module's name, so that they may move. Followed is every name in them, annotations too. Of a function inside
    another one also the values that it holds of the outer one's variables. Modules that are looked up by a text, as
    plugins are, are not seen. Raises ``ValueError`` for what is no function.

    >>> reached = code_reached(code_reached, root=Path(__file__).parent)
    >>> [name for name in ("Place", "_bare", "Path") if name in dict(reached)]
    ['Place', '_bare']
    """
    if not inspect.isfunction(start):
        raise ValueError(f"{start!r}: the code of functions alone can be followed")
    told: set[tuple[str, str]] = set()
    waiting = list(_held(start, told))
    seen: set[Place] = set()
    while waiting:
        module, name = place = waiting.pop()
        if place in seen or not _is_below(root, module):
            continue
        seen.add(place)
        statements = _Names.of(module).statements.get(name, [])
        told.update((name, _bare(one)) for one in statements)
        waiting += _Names.of(module).leads(name)
    return frozenset(told)


def _held(function: Callable[..., Any], told: set[tuple[str, str]]) -> Iterator[Place]:
    """Where a function is bound. The values that it holds go into ``told``; of functions among them, what they hold."""
    yield function.__module__, function.__qualname__.split(".")[0]
    values = (cell.cell_contents for cell in function.__closure__ or ())
    for variable, value in zip(function.__code__.co_freevars, values, strict=True):
        told.add((f"{function.__qualname__}: {variable}", getattr(value, "__qualname__", None) or repr(value)))
        if inspect.isfunction(value):
            yield from _held(value, told)


def _is_below(root: Path, module: str) -> bool:
    """Whether a module is the project's own; it is imported then, if nobody has yet."""
    top = module.partition(".")[0]
    try:
        if not top or not _lies_below(root, find_spec(top)) or not _lies_below(root, find_spec(module)):
            return False
    except ModuleNotFoundError:  # what was asked of a module is no module
        return False
    import_module(module)
    return True


def _lies_below(root: Path, spec: ModuleSpec | None) -> bool:
    """A package that is installed in an environment inside of ``root`` is not the project's own."""
    if spec is None or spec.origin is None:
        return False
    origin = Path(spec.origin)
    return origin.is_relative_to(root) and "site-packages" not in origin.relative_to(root).parts


class _Names:
    """The statements of one module by the names that they bind, and where its imported names come from."""

    def __init__(self, module: str, source: str) -> None:
        self.module = module
        self.statements: dict[str, list[ast.stmt]] = {}
        self.imports: dict[str, Place] = {}
        for one in ast.parse(source).body:
            self.imports |= dict(_imported([one]))
            for name in _bound(one):
                self.statements.setdefault(name, []).append(one)

    @classmethod
    @cache
    def of(cls, module: str) -> _Names:
        return cls(module, inspect.getsource(sys.modules[module]))

    def leads(self, name: str) -> Iterator[Place]:
        """The places that a name of this module, or the statements that bind it, lead to."""
        if name in self.imports:
            yield self.imports[name]
        nodes = [node for one in self.statements.get(name, ()) for node in ast.walk(one)]
        imports = self.imports | dict(_imported(nodes))
        for node in nodes:
            if isinstance(node, ast.Name):
                yield imports.get(node.id, (self.module, node.id))
            elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in imports:
                yield ".".join(part for part in imports[node.value.id] if part), node.attr


def _bound(statement: ast.stmt) -> set[str]:
    """Names that a statement of a module binds, imports aside."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {statement.name}
    names = (node for node in ast.walk(statement) if isinstance(node, ast.Name))
    return {node.id for node in names if isinstance(node.ctx, ast.Store)}


def _imported(nodes: list[Any]) -> Iterator[tuple[str, Place]]:
    for node in nodes:
        if isinstance(node, ast.ImportFrom):
            yield from ((alias.asname or alias.name, (node.module or "", alias.name)) for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from ((alias.asname or alias.name, ("", alias.name)) for alias in node.names)


def _bare(statement: ast.stmt) -> str:
    """A statement as text without comments, layout and docstrings."""
    copy = ast.parse(ast.unparse(statement))
    for node in ast.walk(copy):
        documented = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        if documented and ast.get_docstring(node) is not None:
            node.body = node.body[1:] or [ast.Pass()]
    return ast.unparse(copy)
