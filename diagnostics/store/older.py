"""Stores of older schemas, seen as if they were of today's: what their tables, columns and values are called now."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from diagnostics.measures import FORMER_NAMES

#: Table → column → type.
Columns = Mapping[str, Mapping[str, str]]

#: Audits of stores of this schema and later can go on once they are merged.
LEAST_CONTINUED = 9

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
