"""Remove series from a store.

A new store is built without them and replaces the old one, which is kept as a copy. Rows that a remaining series uses
are kept: checkpoints, samples, grades, scores and kernels. The new file is complete before it replaces the old one. So
a killed process leaves one of the two files intact.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from oversharp.diagnostics.records.cells import short_repr
from oversharp.diagnostics.records.errors import ConfigError, StoreError
from oversharp.diagnostics.records.names import nearest_names, require_store_file, require_store_place
from oversharp.diagnostics.store.database import Database
from oversharp.diagnostics.store.token_files import OWN_TOKEN_FILE, sql_list, tokens_beside

#: Temporary tables of the rows to remove → query. A query may use the tables before it.
_GONE = {
    "gone_audits": "SELECT audit_id FROM other.audits SEMI JOIN gone_series USING (series)",
    "gone_checkpoints": """
        SELECT DISTINCT checkpoint_id FROM other.series_checkpoints SEMI JOIN gone_series USING (series)
        EXCEPT SELECT checkpoint_id FROM other.series_checkpoints ANTI JOIN gone_series USING (series)""",
    "audit_settings": """
        SELECT audit_id, settings_id FROM other.audits
        UNION SELECT audit_id, panel_settings_id FROM other.audits WHERE panel_settings_id IS NOT NULL
        UNION SELECT audit_id, settings_id FROM other.audit_controls
        UNION SELECT audit_id, settings_id FROM other.confirmations""",
    # no audit refers to the settings of an imported series that was not audited
    "gone_settings": """
        SELECT settings_id FROM audit_settings SEMI JOIN gone_audits USING (audit_id)
        EXCEPT SELECT settings_id FROM audit_settings ANTI JOIN gone_audits USING (audit_id)
        EXCEPT SELECT settings_id FROM other.samples
        SEMI JOIN (
            FROM other.series_checkpoints ANTI JOIN gone_series USING (series) ANTI JOIN other.audits USING (series)
        ) USING (checkpoint_id)""",
    "gone_responses": """
        SELECT problem_id, response_id FROM other.samples WHERE {drawn}
        EXCEPT SELECT problem_id, response_id FROM other.samples WHERE NOT ({drawn})
        EXCEPT SELECT problem_id, response_id FROM other.modes""",
    "gone_verifiers": """
        SELECT verifier FROM other.audits SEMI JOIN gone_audits USING (audit_id) WHERE verifier IS NOT NULL
        EXCEPT SELECT verifier FROM other.audits ANTI JOIN gone_audits USING (audit_id)
        EXCEPT SELECT verifier FROM other.problems""",
    "gone_kernels": """
        SELECT kernel_id FROM other.audit_kernels SEMI JOIN gone_audits USING (audit_id)
        EXCEPT SELECT kernel_id FROM other.audit_kernels ANTI JOIN gone_audits USING (audit_id)""",
    "gone_problems": """
        SELECT problem_id FROM other.audit_problems SEMI JOIN gone_audits USING (audit_id)
        UNION SELECT problem_id FROM other.samples WHERE {drawn}
        EXCEPT SELECT problem_id FROM other.audit_problems ANTI JOIN gone_audits USING (audit_id)
        EXCEPT SELECT problem_id FROM other.samples WHERE NOT ({drawn})""",
}
_DRAWN = "checkpoint_id IN (FROM gone_checkpoints) OR settings_id IN (FROM gone_settings)"
_RESPONSE = "(problem_id, response_id) IN (FROM gone_responses)"
#: Condition of the rows to remove → tables that contain such rows.
_TABLES = {
    "checkpoint_id IN (FROM gone_checkpoints)": ("checkpoints",),
    "series IN (FROM gone_series)": (
        "series", "series_checkpoints", "training_metrics", "training_responses", "verdict_looks", "imports",
        "import_faults",
    ),
    "problem_id IN (FROM gone_problems)": ("problems", "modes"),
    "settings_id IN (FROM gone_settings)": ("settings", "agent_settings"),
    _DRAWN: ("samples",),
    f"{_RESPONSE} OR verifier IN (FROM gone_verifiers)": ("grades",),
    _RESPONSE: ("response_ways",),
    "response_id NOT IN (SELECT response_id FROM other.samples WHERE NOT (" + _DRAWN + "))": ("trajectories",),
    f"{_DRAWN} OR {_RESPONSE}": ("response_logps", "second_logps"),
    "audit_id IN (FROM gone_audits)": (
        "audits", "audit_problems", "stops", "audit_controls", "audit_findings", "audit_verdicts",
        "confirmations", "events", "audit_kernels",
    ),
    "kernel_id IN (FROM gone_kernels)": ("kernels", "kernel_rows", "kernel_roles", "kernel_values"),
}  # fmt: skip
_CONDITIONS = {table: condition for condition, tables in _TABLES.items() for table in tables}


@dataclass(frozen=True, kw_only=True)
class DropResult:
    """Number of rows that a drop removes or has removed. Path of the copy of the old store.

    ``copy_path`` is None if nothing was removed. ``checkpoints`` and ``samples`` count only those that no remaining
    series uses.
    """

    store_path: Path
    copy_path: Path | None
    series: tuple[str, ...]
    series_left: tuple[str, ...]
    checkpoints: int
    samples: int
    samples_left: int

    __repr__ = short_repr


def drop_preview(path: Path, series: Sequence[str]) -> DropResult:
    """Count the rows that ``without_series`` would remove. Raises the same errors."""
    left = _series_left(path, series, read_only=True)
    with closing(Database(Path(":memory:"), read_only=False, others=[path])) as database, database.attach(path):
        _mark_gone(database, series)
        return _count_dropped(database, path, series, left, copy=None)


@contextmanager
def without_series(path: Path, series: Sequence[str], *, replace: bool = False) -> Iterator[tuple[Path, DropResult]]:
    """Build a store without ``series`` and yield its path.

    It replaces the store at ``path`` if the block ends without an error. The old store is kept as
    audit.before-drop.duckdb.

    Raises:
        ConfigError: ``series`` are all of its series, or a copy of an earlier drop exists and ``replace`` is not set.
        StoreError: the store or a series does not exist, or another process uses the store.
    """
    copy = path.with_name(f"{path.stem}.before-drop{path.suffix}")
    left = _series_left(path, series, read_only=False)
    if copy.exists() and not replace:
        raise ConfigError(f"{copy}: a copy of an earlier drop exists; remove it if it is not needed, or pass --replace")
    made = path.with_name(f"{path.stem}.dropping{path.suffix}")
    _remove(made)
    try:
        with closing(Database(made, read_only=False, others=[path])) as database, database.attach(path):
            _mark_gone(database, series)
            with database.transaction():
                for table, condition in _CONDITIONS.items():
                    rows = f"SELECT * FROM other.{table} WHERE NOT coalesce({condition}, false)"
                    database.rows(f"INSERT INTO {table} BY NAME {rows}")
                _take_tokens(database, tokens_beside(path))
            result = _count_dropped(database, path, series, left, copy)
        yield made, result
        _replace(path, made, copy)
        # opening the store to write removes token files that are not in the table
        Database(path, read_only=False).close()
    finally:
        _remove(made)


def _series_left(path: Path, series: Sequence[str], *, read_only: bool) -> tuple[str, ...]:
    """Return the series of the store that are not in ``series``.

    This opens the store to write, which also replays the log of a killed process.
    """
    require_store_place(path)
    require_store_file(path)
    with closing(Database(path, read_only=read_only)) as database:
        stored = [str(row[0]) for row in database.rows("SELECT series FROM series ORDER BY series")]
    if not series:
        raise ConfigError(f"name the series to remove; series in {path}: {', '.join(stored) or 'none'}")
    unknown = next((name for name in series if name not in stored), None)
    if unknown is not None:
        raise StoreError(f"{path} has no series {unknown!r}; {nearest_names(unknown, stored)}")
    left = tuple(name for name in stored if name not in series)
    if not left:
        raise ConfigError(f"{path} has no other series than {', '.join(stored)}; remove the file itself")
    return left


def _mark_gone(database: Database, series: Sequence[str]) -> None:
    database.rows("CREATE TEMP TABLE gone_series (series VARCHAR)")
    for name in series:
        database.rows("INSERT INTO gone_series VALUES (?)", [name])
    for table, query in _GONE.items():
        database.rows(f"CREATE TEMP TABLE {table} AS {query.format(drawn=_DRAWN)}")


def _count_dropped(
    database: Database, path: Path, series: Sequence[str], left: tuple[str, ...], copy: Path | None
) -> DropResult:
    ((checkpoints,),) = database.rows("SELECT count(*) FROM gone_checkpoints")
    ((gone, kept),) = database.rows(
        f"SELECT count(*) FILTER ({_DRAWN}), count(*) FILTER (NOT ({_DRAWN})) FROM other.samples"
    )
    return DropResult(
        store_path=path,
        copy_path=copy,
        series=tuple(series),
        series_left=left,
        checkpoints=int(checkpoints),
        samples=int(gone),
        samples_left=int(kept),
    )


def _take_tokens(database: Database, folder: Path) -> None:
    """Copy the token scores of the remaining series.

    Token files that also contain removed series are filtered by row.
    """
    is_gone = f"coalesce({_DRAWN} OR {_RESPONSE}, false)"
    for name, checksum in database.rows("SELECT file, checksum FROM other.token_files ORDER BY file"):
        if not OWN_TOKEN_FILE.fullmatch(name) or not (folder / name).exists():
            continue
        rows = f"read_parquet({sql_list([folder / name])})"
        ((gone, kept),) = database.rows(
            f"SELECT count(*) FILTER ({is_gone}), count(*) FILTER (NOT {is_gone}) FROM {rows}"
        )
        if gone and kept:
            database.write_tokens(database.frame(f"FROM {rows} WHERE NOT {is_gone}", {}))
        elif kept:
            database.rows("INSERT INTO token_files VALUES (?, ?)", [name, checksum])


def _replace(path: Path, made: Path, copy: Path) -> None:
    """Copy the store to ``copy``, then move the one at ``made`` to its place (atomic rename)."""
    if path.with_name(f"{path.name}.wal").exists():
        raise StoreError(f"{path}: another process writes to it; end that process, and run the same command again")
    _remove(copy)
    _link(path, copy)
    own, kept = tokens_beside(path), tokens_beside(copy)
    for file in own.iterdir() if own.is_dir() else ():
        kept.mkdir(exist_ok=True)
        _link(file, kept / file.name)
    new = tokens_beside(made)
    for file in new.iterdir() if new.is_dir() else ():
        own.mkdir(exist_ok=True)
        file.replace(own / file.name)
    made.replace(path)


def _link(file: Path, place: Path) -> None:
    """Hard-link a file that is never changed in place.

    Copy it if the file system has no hard links.
    """
    try:
        os.link(file, place)
    except OSError:
        shutil.copy2(file, place)


def _remove(store: Path) -> None:
    """Remove an unfinished store or an old copy, with its log and token files."""
    for file in (store, store.with_name(f"{store.name}.wal")):
        file.unlink(missing_ok=True)
    shutil.rmtree(tokens_beside(store), ignore_errors=True)
