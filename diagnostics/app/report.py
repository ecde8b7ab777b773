"""Write the report of a store unless it is up to date.

A report depends on all rows of the store, on the path of the store, and on the source code. See
``oversharp.diagnostics.store.derivations``.
"""

from __future__ import annotations

import os
from hashlib import sha256
from pathlib import Path

from oversharp.diagnostics.store import Store
from oversharp.diagnostics.store.derivations import (
    Derivation,
    code_hash,
    digest,
    record_derivation,
    recorded_derivations,
    relation_states,
)
from oversharp.reports import build_report, require_place

_NAME = "report"
#: Hash of the source code at import time. The findings use the same kind of hash.
_CODE = code_hash("oversharp.diagnostics", "oversharp.reports")


def write_report(store_path: Path, report_path: Path) -> None:
    """Write the report of all series of the store unless it is up to date.

    Raises ``StoreError``.
    """
    made_from = None if _CODE is None else _made_from(_CODE, store_path, report_path)
    recorded = recorded_derivations(store_path).get(_NAME)
    if recorded is not None and made_from is not None and recorded == _derivation(report_path, made_from):
        return
    build_report(store_path, report_path)
    if made_from is not None and (made := _derivation(report_path, made_from)) is not None:
        record_derivation(store_path, _NAME, made)


def require_report_place(store_path: Path) -> None:
    """Raise ``ConfigError`` if the report would overwrite a file that is no report."""
    require_place(store_path, store_path.parent / "report.html")


def _made_from(code: str, store_path: Path, report_path: Path) -> str:
    with Store.open(store_path, read_only=True) as store:
        store.bound_memory()
        tables = store.frame("SELECT table_name FROM duckdb_tables() WHERE NOT internal ORDER BY table_name")
        states = relation_states(store, [f'FROM "{name}" AS r' for name in tables["table_name"]])
    return digest(code, states, os.path.relpath(store_path.resolve(), report_path.resolve().parent))


def _derivation(report_path: Path, made_from: str) -> Derivation | None:
    try:
        return Derivation(made_from=made_from, made=sha256(report_path.read_bytes()).hexdigest())
    except OSError:
        return None
