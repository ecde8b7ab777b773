"""What DuckDB says went wrong with a store, in one line with what to do."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from oversharp.diagnostics.records.errors import StoreError

#: Errors of DuckDB that are about the statement, which is the user's: all that they say is told.
_TOLD_WHOLE = frozenset({"ParserException", "BinderException", "CatalogException"})


def in_one_line(error: Exception, path: Path) -> StoreError:
    """One line: what went wrong with the store, and what to do."""
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
            f"{path}: the query needs more memory than it may take ({text[:120]}); ask for fewer columns, or one step "
            "at a time, end other programs, free space on the disk where the rest would go, or, for import, sql and "
            "open_store, give a larger --memory-gib (memory_gib=…)"
        )
    if "not a valid duckdb" in lowered:
        return StoreError(
            f"{path}: not a DuckDB file, and no store; name the audit.duckdb that an audit or import wrote"
        )
    if "different configuration" in lowered or "unique file handle conflict" in lowered:
        return StoreError(f"{path}: open in this very process; close that store first")
    if "checksum" in lowered or "could not read" in lowered or "corrupt" in lowered:
        return StoreError(
            f"{path}: damaged ({text[:120]}); put a copy in its place, or remove it and run the audit again"
        )
    if type(error).__name__ in _TOLD_WHOLE:
        return StoreError(f"{path}: {text}")
    return StoreError(f"{path}: {text[:300]}")


def of_a_stranger(path: Path, held: Sequence[str]) -> StoreError:
    """What refuses a store for what it holds, as ``macro 'max'``."""
    return StoreError(
        f"{path}: holds the {min(held)}, which changes what queries answer or writes, and is not oversharp's; make a "
        f"store of its tables alone: oversharp merge {path} --out DIR"
    )
