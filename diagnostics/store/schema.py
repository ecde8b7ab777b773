"""SQL scripts and schema version of a store, and checks and errors for files that are not valid stores."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence, Set
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

from oversharp.diagnostics.records.errors import StoreError

#: Version of the tables in ``tables.sql``. Stores of other versions are rejected, except those in ``COMPATIBLE``.
SCHEMA_VERSION = 14
#: Older versions with the same tables. In version 13, ``response_logps.entropy_sum`` cannot be NULL, so ``add_forced``
#: rejects scores of a server.
COMPATIBLE = frozenset({13})
#: DuckDB errors in the user's SQL. They are reported in full.
_STATEMENT_ERRORS = frozenset({"ParserException", "BinderException", "CatalogException"})


def script(name: str) -> str:
    """Return an SQL file of this folder without its COMMENT statements.

    Only ``views`` needs them. A COMMENT alters the table. DuckDB cannot replay that from the log of a killed process if
    the table has a CHECK.
    """
    text = (Path(__file__).parent / name).read_text(encoding="utf-8")
    return re.sub(r"^COMMENT ON .*\n", "", text, flags=re.MULTILINE)


@cache
def view_scripts() -> tuple[str, str]:
    """Split ``views.sql`` into the stored views and the temporary views on token files.

    Each statement starts a line. DuckDB's parser would take longer than most queries.
    """
    statements = re.split(r"^(?=CREATE OR REPLACE )", script("views.sql"), flags=re.MULTILINE)[1:]
    token_views = [statement for statement in statements if "CREATE OR REPLACE TEMP VIEW" in statement]
    return ";".join(one for one in statements if one not in token_views), ";".join(token_views)


@cache
def _table_names() -> frozenset[str]:
    return frozenset(re.findall(r"^CREATE TABLE (?!IF NOT EXISTS)(\w+)", script("tables.sql"), flags=re.MULTILINE))


def added_tables(present: Set[str] = frozenset()) -> str:
    """Return the statements that create the tables that older stores may lack, without those in ``present``."""
    statements = re.split(r"^(?=CREATE TABLE )", script("tables.sql"), flags=re.MULTILINE)
    return "".join(
        statement[: statement.index("\n);") + 3]
        for statement in statements
        if (added := re.match(r"CREATE TABLE IF NOT EXISTS (\w+)", statement)) and added[1] not in present
    )


def require_schema(path: Path, version: object, tables: Set[str]) -> None:
    """Raise ``StoreError`` unless a store has this schema, or a compatible one, and all of its tables.

    ``tables`` must not contain views, because a view in place of a table could be empty.
    """
    if not isinstance(version, int):
        raise StoreError(f"{path}: its schema_version is {version!r}, not a number: the store is damaged; restore it")
    if version != SCHEMA_VERSION and version not in COMPATIBLE:
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
    return StoreError(f"{path}: has no tables; the audit that created it was killed, run it again")


def explain_error(error: Exception, path: Path) -> StoreError:
    """Convert a DuckDB error to a one-line ``StoreError`` with a hint."""
    text = " ".join(str(error).split())
    lowered = text.lower()
    if "lock" in lowered and ("conflicting" in lowered or "could not set" in lowered):
        return StoreError(f"{path}: locked by another process; wait for it to end or close it, then run this again")
    if "no space" in lowered or "disk full" in lowered or "could not write" in lowered or "file too large" in lowered:
        return StoreError(
            f"{path}: the disk is full ({text[:120]}); free some space and run the same command again: "
            "committed rows are kept"
        )
    if type(error).__name__ == "OutOfMemoryException":
        return StoreError(
            f"{path}: the query exceeds its memory limit ({text[:120]}); select fewer columns, or one step at a time, "
            "stop other programs, free disk space for temporary files, or, for import, sql and open_store, raise "
            "--memory-gib (memory_gib=…)"
        )
    if "not a valid duckdb" in lowered:
        return StoreError(f"{path}: not a DuckDB file; pass the audit.duckdb of an audit or import")
    if "different configuration" in lowered or "unique file handle conflict" in lowered:
        return StoreError(f"{path}: already open in this process; close that store first")
    if "checksum" in lowered or "could not read" in lowered or "corrupt" in lowered:
        return StoreError(
            f"{path}: damaged ({text[:120]}); replace it with a copy, or remove it and run the audit again"
        )
    if type(error).__name__ in _STATEMENT_ERRORS:
        return StoreError(f"{path}: {text}")
    return StoreError(f"{path}: {text[:300]}")


def foreign_objects_error(path: Path, objects: Sequence[str]) -> StoreError:
    """Return the error for a store with foreign objects, such as the macro ``max``."""
    return StoreError(
        f"{path}: contains the {min(objects)}, which oversharp did not create and which changes query results; copy "
        f"only its tables to a new store: oversharp merge {path} --out DIR"
    )


# ---------------------------------------------------------------- checks of unchanged files

# A process checks a file again only if it has changed. The checks take most of the time of opening a small store:
# DuckDB lists its functions and creates its system views.

#: Suffixes that DuckDB adds to a file's name: the file, its log, and logs of an interrupted checkpoint.
_FILES = ("", ".wal", ".wal.checkpoint", ".wal.recovery")
#: Identity, size and times of each of ``_FILES``; None for a file that does not exist.
FileState: TypeAlias = tuple[tuple[int, ...] | None, ...]
NO_FILE: FileState = (None,) * len(_FILES)

#: Path → state in which this process last checked the store, or last closed it after writing.
_checked: dict[Path, FileState] = {}


def state_of(path: Path) -> FileState | None:
    """Return the state of the store at ``path``; None if it is unknown."""
    try:
        return tuple(_state_of_file(path.with_name(path.name + suffix)) for suffix in _FILES)
    except OSError:
        return None


def _state_of_file(path: Path) -> tuple[int, ...] | None:
    try:
        state = path.stat()  # opening and closing the file would release the lock of this process
    except FileNotFoundError:
        return None
    return state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns


def is_checked(path: Path, state: FileState | None) -> bool:
    """Return whether this process has checked the store at ``path`` in this state."""
    return state is not None and _checked.get(path.absolute()) == state


def set_checked(path: Path, state: FileState | None) -> None:
    """Record that the store at ``path`` needs no check while it is in this state."""
    if state is not None and state != NO_FILE:
        _checked[path.absolute()] = state


def require_builtin_functions(path: Path, rows: Callable[[str], list[tuple[Any, ...]]]) -> None:
    """Reject a file that has triggers, or macros with the name of a built-in function.

    Such a macro replaces the function, even ``max`` or ``current_setting``. So this runs before any function is called.
    ``rows`` runs a query on the file.
    """
    functions = rows("SELECT function_name, internal FROM system.main.duckdb_functions()")
    built_in = {str(name).lower() for name, internal in functions if internal}
    foreign = [f"macro {name!r}" for name, internal in functions if not internal and str(name).lower() in built_in]
    query = "SELECT trigger_name FROM system.main.duckdb_triggers()"  # exists in DuckDB 2
    foreign += [f"trigger {name!r}" for (name,) in rows(query)] if "duckdb_triggers" in built_in else []
    if foreign:
        raise foreign_objects_error(path, foreign)
