"""Stores of older schemas, seen as if they were of today's: what their tables, columns and values are called now."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

from diagnostics.measures import FORMER_NAMES
from diagnostics.records.errors import StoreError

#: Table → column → type.
Columns = Mapping[str, Mapping[str, str]]

#: A store of this schema lacks no more than what ``lacking`` adds, and is read as it is; merging is for older ones.
NEARLY_TODAYS = 9
_COLUMN = "ALTER TABLE settings ADD COLUMN chat_args VARCHAR; UPDATE schema_version SET version = 10"
#: Tables that are younger than the schema: who does not know them leaves them alone.
_YOUNG = ("response_ways",)

#: Tables of every store that was audited, however old.
OLDEST_TABLES = ("checkpoints", "series", "series_checkpoints", "problems", "settings", "samples", "grades", "audits")

#: Names that tables had before.
FORMER_TABLES: Mapping[str, str] = MappingProxyType(
    {"response_logps": "response_scores", "second_logps": "second_scores"}
)
#: What stands for a column where the store lacks it; NULL for the others.
STAND_INS: Mapping[tuple[str, str], str] = MappingProxyType(
    {
        ("audits", "n_base"): "n",
        ("audits", "panel"): "0",
        ("audits", "kernel_problems"): "0",
        ("audits", "kernel_responses"): "0",
        ("audits", "looks"): "1",
        ("audits", "runs"): "1",
        ("training_responses", "draws"): "1",
    }
)
#: Values that had another name before: old → new.
FORMER_VALUES: Mapping[tuple[str, str], Mapping[str, str]] = MappingProxyType(
    {
        ("audit_findings", "measure"): FORMER_NAMES,
        ("events", "stage"): {"score": "teacher-force", "verify": "grade", "judge": "verdict"},
    }
)


def checked_schema(path: Path, found: object, there: Collection[str], *, todays: int) -> int:
    """The schema that the store at ``path`` says it has, 0 where it says none.

    Raises ``StoreError`` for a newer one, and for a damaged store: the schema is no number, or a table of every store
    is missing or a view, which would be read as empty.
    """
    if found is not None and not isinstance(found, int):
        raise StoreError(f"{path}: its schema_version is {found!r}, no number: the store is damaged; restore it")
    if found is not None and found > todays:
        raise StoreError(
            f"{path}: written by a newer oversharp (schema {found}, this one knows {todays}); "
            "upgrade oversharp or pass another --out"
        )
    missing = sorted(set(OLDEST_TABLES) - set(there))
    if missing:
        others = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise StoreError(f"{path}: no table {missing[0]}{others} in it: the store is damaged; restore it")
    return found or 0


def lacking(found: int, there: Collection[str], script: str, *, read_only: bool) -> str:
    """The statements that add what a store of schema ``found`` with these tables lacks; empty where it lacks nothing.

    Who may not write has young tables for itself.
    """
    statements = [] if read_only or found != NEARLY_TODAYS else [_COLUMN]
    for table in _YOUNG:
        made = re.search(rf"^CREATE TABLE {table} \(.*?^\);$", script, re.MULTILINE | re.DOTALL)
        if table not in there and made is not None:
            statements.append(
                made.group().replace("CREATE TABLE", "CREATE TEMP TABLE" if read_only else "CREATE TABLE")
            )
    return "; ".join(statements)


def as_today(today: Columns, there: Columns) -> Iterator[tuple[str, str]]:
    """Each of today's tables with the query on the database ``held`` that gives its rows, all of its columns typed."""
    for table, columns in today.items():
        source = table if table in there else FORMER_TABLES.get(table, table)
        known = there.get(source, {})
        chosen = ", ".join(f"{_column(table, name, known)}::{kind} AS {name}" for name, kind in columns.items())
        yield table, f"SELECT {chosen} " + (f"FROM held.{source}" if source in there else "WHERE false")


def _column(table: str, name: str, known: Mapping[str, str]) -> str:
    if name not in known:
        return STAND_INS.get((table, name), "NULL")
    renamed = FORMER_VALUES.get((table, name), {})
    whens = [f"WHEN '{old}' THEN '{new}'" for old, new in renamed.items()]
    return f"CASE {name} {' '.join(whens)} ELSE {name} END" if whens else name
