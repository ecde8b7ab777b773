"""Stores of older schemas, seen as if they were of today's: what their tables, columns and values are called now."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

from oversharp.diagnostics.measures import FORMER_NAMES
from oversharp.diagnostics.records.errors import StoreError

#: Table → column → type.
Columns = Mapping[str, Mapping[str, str]]

#: Audits of stores of this schema and later can go on once they are merged.
LEAST_CONTINUED = 9

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
