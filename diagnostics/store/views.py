"""Documentation of the relations of a store.

It is parsed from the ``COMMENT`` statements in ``views.sql`` and ``tables.sql``. ``python -m
oversharp.diagnostics.store.views`` writes ``docs/views.md``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import Literal, cast, get_args

import pandas as pd

from oversharp.diagnostics.store.store import Store

#: Unit of columns without a quantity: names, texts and flags.
NO_UNIT = ""
#: Name in ``COMMENT`` statements that apply to a column of every relation.
_EVERY = "every_view"
_COMMENT = re.compile(r"^COMMENT ON (VIEW|TABLE|COLUMN) (\w+)(?:\.(\w+))? IS '((?:[^']|'')*)';$", re.MULTILINE)
_BRACKET = re.compile(r"(.*?)(?: \[([^]]+)\])?", re.DOTALL)

#: Properties of a view's rows that decide whether a measure can be computed. "needs checkpoints": absent for imported
#: samples. "from texts": parsed from response texts. "token files": stored in Parquet files. "training prompts": about
#: the trainer's problems, not the audit's. "first series": absent for regraded series. "largest": one row per sample.
#: "trajectories": only in series with them; without any row, measures have no findings at all.
Tag = Literal[
    "needs checkpoints", "from texts", "token files", "training prompts", "first series", "largest", "trajectories"
]


@dataclass(frozen=True, kw_only=True)
class Meaning:
    """Meaning and unit of a column. The meaning has no full stop."""

    text: str
    unit: str = NO_UNIT


@dataclass(frozen=True, kw_only=True)
class View:
    """Documentation of a view or table: meaning of a row, tags, and columns.

    ``columns`` has only those with a separate comment.
    """

    name: str
    row: str
    is_table: bool = False
    tags: frozenset[Tag] = frozenset()
    columns: Mapping[str, Meaning] = field(default_factory=dict)


@cache
def documented_views() -> Mapping[str, View]:
    """Return all documented relations by name: views in the order of the SQL, then tables.

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
    """Return the tags of a view.

    The set is empty for an undocumented view, which the measure of a plugin may query.
    """
    documented = documented_views()
    return documented[view].tags if view in documented else frozenset()


def common_columns() -> Mapping[str, Meaning]:
    """Return the columns that have the same meaning in every view."""
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
    columns: dict[str, dict[str, Meaning]] = {}
    for kind, name, column, text in _comments():
        if kind == "COLUMN":
            meaning, unit = _split(text)
            columns.setdefault(name, {})[column] = Meaning(text=meaning, unit=unit)
    return columns


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
    """Split a comment into its text and the content of the square brackets at its end."""
    match = _BRACKET.fullmatch(text)
    assert match is not None  # the pattern matches every text
    return match[1], match[2] or ""


# ---------------------------------------------------------------- docs/views.md

PAGE = Path(__file__).resolve().parents[2] / "docs" / "views.md"

_INTRODUCTION = """# Views

Public relations for `oversharp sql STORE "SELECT …"` and `oversharp.open_store(path).frame("SELECT …")`. Their names,
types and meanings do not change between versions; new columns are added at the end. Other tables of the store are
internal and may change. [queries.md](queries.md) has examples.

The views show the latest audit of every series. Token scores (`token_logps`, `token_entropies`) are in Parquet files in
the folder `audit.tokens` next to the store: keep both together. NULL is unknown, never 0.

This page is generated from the comments in `diagnostics/store/views.sql` and `tables.sql` by
`python -m oversharp.diagnostics.store.views`.
"""


def views_page() -> str:
    """Return the text of ``docs/views.md``. The column types are those of a new, empty store."""
    columns = store_columns()
    views = documented_views().values()
    rows_of = {view.name: f"{view.row} (table)" if view.is_table else view.row for view in views}
    paragraphs = [_INTRODUCTION.rstrip(), "\n".join(f"- [`{name}`](#{name}): {row}" for name, row in rows_of.items())]
    for name, one_row in rows_of.items():
        rows = [
            f"| `{row.column}` | {row.type} | {meaning.unit} | {meaning.text} |"
            for row in columns[columns["name"] == name].itertuples()
            if (meaning := meaning_of(name, str(row.column)))
        ]
        table = "\n".join(["| column | type | unit | meaning |", "|---|---|---|---|", *rows])
        paragraphs += [f"## {name}", f"One row: {one_row}.", table]
    return "\n\n".join(paragraphs) + "\n"


def store_columns() -> pd.DataFrame:
    """Return ``name, column, type`` of every relation of a new store."""
    with TemporaryDirectory() as folder, Store.open(Path(folder) / "audit.duckdb") as store:
        return store.columns()


if __name__ == "__main__":
    PAGE.write_text(views_page(), encoding="utf-8")
