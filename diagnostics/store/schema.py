"""The SQL scripts of a store, and the schema version that every store must have."""

from __future__ import annotations

import re
from collections.abc import Set
from functools import cache
from pathlib import Path

from oversharp.diagnostics.records.errors import StoreError

#: The schema of ``tables.sql``. Stores of another schema are refused.
SCHEMA_VERSION = 12


def script(name: str) -> str:
    """Return an SQL file of this folder without COMMENT statements, which ``views`` reads.

    A COMMENT alters a table, which DuckDB cannot replay from the log of a killed process if the table has a CHECK.
    """
    text = (Path(__file__).parent / name).read_text(encoding="utf-8")
    return re.sub(r"^COMMENT ON .*\n", "", text, flags=re.MULTILINE)


@cache
def _table_names() -> frozenset[str]:
    return frozenset(re.findall(r"^CREATE TABLE (\w+)", script("tables.sql"), flags=re.MULTILINE))


def require_schema(path: Path, version: object, tables: Set[str]) -> None:
    """Raise ``StoreError`` unless a store has this schema, and all of its tables as tables.

    A view in the place of a table would be queried as empty.
    """
    if not isinstance(version, int):
        raise StoreError(f"{path}: its schema_version is {version!r}, not a number: the store is damaged; restore it")
    if version != SCHEMA_VERSION:
        age, remedy = ("newer", "upgrade oversharp") if version > SCHEMA_VERSION else ("older", "audit again")
        raise StoreError(
            f"{path}: written by {age} oversharp (schema {version}, this version uses {SCHEMA_VERSION}); {remedy} or "
            "pass another --out"
        )
    missing = sorted(_table_names() - tables)
    if missing:
        others = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise StoreError(f"{path}: table {missing[0]}{others} missing: the store is damaged; restore it")


def empty_store(path: Path) -> StoreError:
    """Return the error for a store without tables."""
    return StoreError(f"{path}: empty, the audit that made it was killed at once; run that audit again")
