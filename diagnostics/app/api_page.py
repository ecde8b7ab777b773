"""Generator of ``docs/api.md``.

``python -m oversharp.diagnostics.app.api_page`` writes the page.
"""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from pathlib import Path
from typing import Any

from oversharp.diagnostics.app import api

PAGE = Path(__file__).resolve().parents[2] / "docs" / "api.md"

INTRODUCTION = """# Python API

{about}

This page is made from the docstrings by `python -m oversharp.diagnostics.app.api_page`.
"""
_SETTING = re.compile(r"^(\w+)\n    (.+(?:\n    .+)*)", re.MULTILINE)
_WIDTH = 100  # of a signature on one line


def page() -> str:
    """Return the page as Markdown. This imports every module of the API."""
    verbs = [text for name in api.VERBS for text in _verb(name)]
    records = [text for name in api.RECORDS for text in _record(name)]
    head = INTRODUCTION.format(about=_prose(inspect.getdoc(api) or "")).rstrip()
    return "\n\n".join([head, "## Verbs", *verbs, "## Settings and results", *records]) + "\n"


def write() -> None:
    """Write the page to ``docs/api.md`` in the source tree."""
    PAGE.write_text(page(), encoding="utf-8")


def _verb(name: str) -> list[str]:
    verb = getattr(api, name)
    about, arguments, examples = _sections(verb, "Parameters", "Examples")
    listed = "\n".join(f"- `{argument}`: {meaning}" for argument, meaning in _meanings(arguments).items())
    head = [f"### `{name}`", f"```python\n{signature(name, verb)}\n```", _prose(about)]
    return [*head, *filter(None, (listed, _prose(examples)))]


def _sections(documented: Any, *titles: str) -> list[str]:
    """Split a docstring at its underlined titles.

    Returns the text before the first title, then the text under each of ``titles``.
    """
    parts = re.split(r"^(\w+)\n-{3,}\n", inspect.getdoc(documented) or "", flags=re.MULTILINE)
    by_title = dict(zip(parts[1::2], parts[2::2], strict=True))
    return [parts[0], *(by_title.get(title, "") for title in titles)]


def _meanings(section: str) -> dict[str, str]:
    """Parse a section with an indented text under each name. Returns name → text."""
    return {match[1]: _line(match[2]) for match in _SETTING.finditer(section)}


def signature(name: str, verb: Any) -> str:
    """Return the signature of ``verb`` as Python code, on several lines if it is long.

    >>> signature("explain", api.explain)
    'explain(name: str) -> str'
    """
    declared = inspect.signature(verb)
    arguments: list[str] = []
    for parameter in declared.parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and "*" not in arguments:
            arguments.append("*")
        stars = "**" if parameter.kind is parameter.VAR_KEYWORD else ""
        default = "" if parameter.default is parameter.empty else f" = {parameter.default!r}"
        arguments.append(f"{stars}{parameter.name}: {parameter.annotation}{default}")
    text = f"{name}({', '.join(arguments)}) -> {declared.return_annotation}"
    if len(text) <= _WIDTH:
        return text
    inside = "".join(f"    {argument},\n" for argument in arguments)
    return f"{name}(\n{inside}) -> {declared.return_annotation}"


def _record(name: str) -> list[str]:
    """Return the Markdown of a record: docstring, fields, methods and properties."""
    record = getattr(api, name)
    about, _ = _sections(record, "Attributes")
    parts = [f"### `{name}`", _prose(about)]
    settings: dict[str, str] = {}
    for part in reversed(record.__mro__[:-1]):
        settings |= _meanings(_sections(part, "Attributes")[1])
    if is_dataclass(record):
        parts.append(_fields(record, settings))
    if settings:
        return parts
    lines = [
        f"- `{_member_name(method, member)}`: {_line(inspect.getdoc(member) or '')}"
        for method, member in _members(record)
    ]
    return [*parts, "\n".join(lines)] if lines else parts


def _member_name(name: str, member: Any) -> str:
    """Return the name of a property, or the name and arguments of a method."""
    if not callable(member):
        return name
    return str(inspect.signature(member)).replace("'", "").replace("(self, ", f"{name}(").replace("(self)", f"{name}()")


def _fields(record: Any, meanings: Mapping[str, str]) -> str:
    """Return the Markdown table of a record's fields, with meanings from the docstring."""
    rows = (
        ["| field | type | default | meaning |", "|---|---|---|---|"] if meanings else ["| field | type |", "|---|---|"]
    )
    # dataclasses list inherited fields first, but a reader looks for the record's own fields
    for field in sorted(fields(record), key=lambda field: field.name not in inspect.get_annotations(record)):
        kind = re.sub(r"^Annotated\[(.+?), (?:[A-Z]{4}|Parameter\().*", r"\1", str(field.type)).replace("|", "\\|")
        rest = f" {_default(field)} | {meanings[field.name]} |" if meanings else ""
        rows.append(f"| `{field.name}` | {kind} |{rest}")
    return "\n".join(rows)


def _default(field: Field[Any]) -> str:
    if field.default is not MISSING:
        value = str(field.default) if isinstance(field.default, Path) else field.default
        return "" if value is None else f"`{value!r}`"
    return "" if field.default_factory is MISSING else f"`{field.default_factory()!r}`"


def _members(record: type) -> Iterator[tuple[str, Any]]:
    """Yield the public methods and properties of a record."""
    for name, member in vars(record).items():
        if not name.startswith("_") and (inspect.isfunction(member) or isinstance(member, property)):
            yield name, member


def _prose(text: str) -> str:
    """Return the paragraphs of a docstring without examples.

    An indented block after ``::`` becomes a code block.
    """
    paragraphs: list[str] = []
    for paragraph in re.split(r"\n\s*\n", text):
        if paragraph.startswith("    "):
            paragraphs.append(f"```python\n{textwrap.dedent(paragraph).strip()}\n```")
        elif paragraph.strip() != "::" and not paragraph.lstrip().startswith(">>>"):
            paragraphs.append(paragraph.strip())
    return "\n\n".join(filter(None, paragraphs))


def _line(text: str) -> str:
    return " ".join(text.split())


if __name__ == "__main__":
    write()
