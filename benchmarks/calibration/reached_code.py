"""Collect the code that a function uses, so that stored results can be invalidated.

A result that took hours is kept until the code that produced it changes.
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
#: (module, name that a statement of it binds). For an imported module: ("", module).
Place = tuple[str, str]


def rows_that_stand(
    path: Path, cases: Mapping[str, Case], fingerprint: Callable[[Case], str]
) -> dict[str, dict[str, Any]]:
    """Return the rows of an earlier run whose code has not changed, by the name of their case.

    Empty without a file.
    """
    if not path.is_file():
        return {}
    rows = {row["name"]: row for row in json.loads(path.read_text())["rows"] if row["name"] in cases}
    kept = {name: row for name, row in rows.items() if row["fingerprint"] == fingerprint(cases[name])}
    for name in rows.keys() - kept.keys():
        print(f"{name}: drawn again, for the code has changed that it rests on", file=sys.stderr)
    return kept


def code_reached(start: Callable[..., Any], *, root: Path) -> frozenset[tuple[str, str]]:
    """Return the names that ``start`` uses, with the statements that bind them below ``root``.

    Statements are top-level statements of a module, so a class counts as a whole. They are compared without comments,
    docstrings and module names, so that code may move. Every name in a statement is followed, annotations too. For a
    nested function the captured variables of the outer function are included. Modules that are imported by a string,
    such as plugins, are not followed. Raises ``ValueError`` if ``start`` is not a function.

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
        told.update((name, bare) for bare in _Names.of(module).bare(name))
        waiting += _Names.of(module).leads(name)
    return frozenset(told)


def _held(function: Callable[..., Any], told: set[tuple[str, str]]) -> Iterator[Place]:
    """Yield where a function is bound.

    Its captured values are added to ``told``, also those of captured functions.
    """
    yield function.__module__, function.__qualname__.split(".")[0]
    values = (cell.cell_contents for cell in function.__closure__ or ())
    for variable, value in zip(function.__code__.co_freevars, values, strict=True):
        told.add((f"{function.__qualname__}: {variable}", getattr(value, "__qualname__", None) or repr(value)))
        if inspect.isfunction(value):
            yield from _held(value, told)


def _is_below(root: Path, module: str) -> bool:
    """Return whether a module belongs to the project, and import it if so."""
    top = module.partition(".")[0]
    try:
        if not top or not _lies_below(root, find_spec(top)) or not _lies_below(root, find_spec(module)):
            return False
    except ModuleNotFoundError:  # an attribute that is not a module
        return False
    import_module(module)
    return True


def _lies_below(root: Path, spec: ModuleSpec | None) -> bool:
    """Return whether a module is below ``root`` and not in an environment's site-packages."""
    if spec is None or spec.origin is None:
        return False
    origin = Path(spec.origin)
    return origin.is_relative_to(root) and "site-packages" not in origin.relative_to(root).parts


class _Names:
    """Statements of one module by the names that they bind, and the origin of its imported names."""

    def __init__(self, module: str, source: str) -> None:
        self.module = module
        self.statements: dict[str, list[ast.stmt]] = {}
        self.imports: dict[str, Place] = {}
        self._bare: dict[str, tuple[str, ...]] = {}
        self._leads: dict[str, tuple[Place, ...]] = {}
        for one in ast.parse(source).body:
            self.imports |= dict(_imported([one]))
            for name in _bound(one):
                self.statements.setdefault(name, []).append(one)

    @classmethod
    @cache
    def of(cls, module: str) -> _Names:
        return cls(module, inspect.getsource(sys.modules[module]))

    def bare(self, name: str) -> tuple[str, ...]:
        """Return the statements that bind a name, as text."""
        if name not in self._bare:
            self._bare[name] = tuple(bare_statement(one) for one in self.statements.get(name, ()))
        return self._bare[name]

    def leads(self, name: str) -> tuple[Place, ...]:
        """Return the places that a name, or the statements that bind it, refer to."""
        if name not in self._leads:
            self._leads[name] = tuple(self._follow(name))
        return self._leads[name]

    def _follow(self, name: str) -> Iterator[Place]:
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
    """Return the names that a top-level statement binds, except imports."""
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


def bare_statement(statement: ast.stmt) -> str:
    """Return a statement as text without comments, layout and docstrings."""
    copy = ast.parse(ast.unparse(statement))
    for node in ast.walk(copy):
        documented = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        if documented and ast.get_docstring(node) is not None:
            node.body = node.body[1:] or [ast.Pass()]
    return ast.unparse(copy)
