"""The house rule that everything public says what it means."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.cases import each_case

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("diagnostics", "trainers", "reports")
SOURCES = sorted(path.relative_to(ROOT).as_posix() for package in PACKAGES for path in (ROOT / package).rglob("*.py"))

Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def says_something(node: Documented) -> bool:
    """Whether the docstring begins with words; an example alone gives no meaning."""
    text = ast.get_docstring(node) or ""
    return bool(text.strip()) and not text.startswith(">>>")


def public_definitions(node: ast.AST, owner: str = "") -> Iterator[tuple[int, str, Documented]]:
    """Line, dotted name and node of public classes, functions and methods; what lies inside a function is private."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            if child.name.startswith("_"):
                continue
            yield child.lineno, owner + child.name, child
            if isinstance(child, ast.ClassDef):
                yield from public_definitions(child, f"{owner}{child.name}.")
        elif isinstance(child, ast.If | ast.Try):
            yield from public_definitions(child, owner)


def without_docstring(source: str, path: str) -> list[str]:
    """``file:line name`` of the module and of every public definition that has no docstring."""
    tree = ast.parse(source)
    definitions = [(1, "(the module)", tree), *public_definitions(tree)]
    return [f"{path}:{line} {name}" for line, name, node in definitions if not says_something(node)]


@each_case("path", SOURCES)
def test_everything_public_has_a_docstring(path: str) -> None:
    missing = without_docstring((ROOT / path).read_text(encoding="utf-8"), path)
    assert not missing, "no docstring that begins with words: " + ", ".join(missing)


def test_what_is_missing_is_named_by_file_and_line() -> None:
    source = '''
class Verifier(Protocol):
    """Grades."""
    name: str
    def __enter__(self): ...
    def grade(self): ...
    def close(self):
        """Ends."""
    @property
    def size(self):
        """
        >>> 1
        1
        """
def _private(): ...
def outer():
    """Meaning."""
    def inner(): ...
if True:
    async def draw(): ...
'''
    assert without_docstring(source, "a.py") == [
        "a.py:1 (the module)",
        "a.py:6 Verifier.grade",
        "a.py:10 Verifier.size",
        "a.py:20 draw",
    ]
