"""The documented relations of a store: rows, columns and units, as ``COMMENT`` statements of its SQL declare them.

``views.sql`` and ``tables.sql`` are the only declaration; ``docs/views.md`` is generated from here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Literal, cast, get_args

#: The unit of a column that is a name, a text or a flag.
NO_UNIT = ""
#: The relation whose comments apply to all others.
_EVERY = "every_view"
_COMMENT = re.compile(r"^COMMENT ON (VIEW|TABLE|COLUMN) (\w+)(?:\.(\w+))? IS '((?:[^']|'')*)';$", re.MULTILINE)
_BRACKET = re.compile(r"(.*?)(?: \[([^]]+)\])?", re.DOTALL)

#: Facts about the rows of a view that decide whether a measure can have a value.
#: needs checkpoints: samples alone do not give them; from texts: they are read in the texts of responses;
#: token files: they are in Parquet files; training prompts: of the trainer's problems, not the audit's;
#: first series: a series that was graded again has none; largest: one row per sample.
Tag = Literal["needs checkpoints", "from texts", "token files", "training prompts", "first series", "largest"]


@dataclass(frozen=True, kw_only=True)
class Meaning:
    """Meaning and unit of a column; the text has no full stop."""

    text: str
    unit: str = NO_UNIT


@dataclass(frozen=True, kw_only=True)
class View:
    """A view or table that users may query: what one row is, and the columns with a meaning of their own."""

    name: str
    row: str
    is_table: bool = False
    tags: frozenset[Tag] = frozenset()
    columns: Mapping[str, Meaning] = field(default_factory=dict)


@cache
def documented_views() -> Mapping[str, View]:
    """Return every documented view by name, in the order of the SQL, then the tables.

    >>> documented_views()["panel_tokens"].tags == {"needs checkpoints", "token files"}
    True
    """
    rows: dict[str, View] = {}
    columns = _columns()
    for kind, name, _, text in _comments():
        if kind != "COLUMN":
            row, tags = _split(text)
            known = frozenset(cast(Tag, tag) for tag in tags.split(", ") if tag)
            if not known <= set(get_args(Tag)):
                raise ValueError(f"{name}: unknown tag in {tags!r}; choose from {get_args(Tag)}")
            own = MappingProxyType(columns.get(name, {}))
            rows[name] = View(name=name, row=row, is_table=kind == "TABLE", tags=known, columns=own)
    return MappingProxyType(rows)


def tags_of(view: str) -> frozenset[Tag]:
    """Return the tags of a view; none for an undocumented one, which a measure of another package may read."""
    documented = documented_views()
    return documented[view].tags if view in documented else frozenset()


def common_columns() -> Mapping[str, Meaning]:
    """Return the columns that mean the same in every view."""
    return _columns()[_EVERY]


def meaning_of(view: str, column: str) -> Meaning:
    """Return the meaning of ``column`` in ``view``. Raises ``KeyError`` for an undocumented one.

    >>> meaning_of("findings", "k").unit, meaning_of("graded_samples", "step").unit
    ('samples', 'steps')
    """
    own = documented_views()[view].columns
    return own[column] if column in own else common_columns()[column]


@cache
def _columns() -> Mapping[str, dict[str, Meaning]]:
    found: dict[str, dict[str, Meaning]] = {}
    for kind, name, column, text in _comments():
        if kind == "COLUMN":
            meaning, unit = _split(text)
            found.setdefault(name, {})[column] = Meaning(text=meaning, unit=unit)
    return found


@cache
def _comments() -> tuple[tuple[str, str, str, str], ...]:
    """Return kind, relation, column and text of every comment."""
    scripts = [(Path(__file__).parent / name).read_text(encoding="utf-8") for name in ("views.sql", "tables.sql")]
    return tuple(
        (kind, name, column, text.replace("''", "'"))
        for script in scripts
        for kind, name, column, text in _COMMENT.findall(script)
    )


def _split(text: str) -> tuple[str, str]:
    """Split a comment into its text and what is in brackets at its end."""
    match = _BRACKET.fullmatch(text)
    assert match is not None  # the pattern matches every text
    return match[1], match[2] or ""
