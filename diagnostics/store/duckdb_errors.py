"""Explain DuckDB errors of a store in one line, with what to do."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from oversharp.diagnostics.records.errors import StoreError

#: DuckDB errors about the user's statement, which are reported completely.
_TOLD_WHOLE = frozenset({"ParserException", "BinderException", "CatalogException"})


def explain_error(error: Exception, path: Path) -> StoreError:
    """Return the error in one line, with what to do."""
    text = " ".join(str(error).split())
    lowered = text.lower()
    if "lock" in lowered and ("conflicting" in lowered or "could not set" in lowered):
        return StoreError(f"{path}: locked by another process; wait for it to end or close it, then run this again")
    if "no space" in lowered or "disk full" in lowered or "could not write" in lowered or "file too large" in lowered:
        return StoreError(
            f"{path}: the disk is full ({text[:120]}); free some space and run the same command again: "
            "what was committed is kept"
        )
    if type(error).__name__ == "OutOfMemoryException":
        return StoreError(
            f"{path}: the query exceeds its memory limit ({text[:120]}); select fewer columns, or one step at a time, "
            "stop other programs, free disk space for temporary files, or, for import, sql and open_store, raise "
            "--memory-gib (memory_gib=…)"
        )
    if "not a valid duckdb" in lowered:
        return StoreError(f"{path}: not a DuckDB file; name the audit.duckdb that an audit or import wrote")
    if "different configuration" in lowered or "unique file handle conflict" in lowered:
        return StoreError(f"{path}: already open in this process; close that store first")
    if "checksum" in lowered or "could not read" in lowered or "corrupt" in lowered:
        return StoreError(
            f"{path}: damaged ({text[:120]}); replace it with a copy, or remove it and run the audit again"
        )
    if type(error).__name__ in _TOLD_WHOLE:
        return StoreError(f"{path}: {text}")
    return StoreError(f"{path}: {text[:300]}")


def foreign_objects_error(path: Path, held: Sequence[str]) -> StoreError:
    """Return the error on a store with foreign objects, such as ``macro 'max'``."""
    return StoreError(
        f"{path}: contains the {min(held)}, which is not oversharp's and changes the results of queries; copy only its "
        f"tables to a new store: oversharp merge {path} --out DIR"
    )
