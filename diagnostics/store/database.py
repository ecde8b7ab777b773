"""One DuckDB file: opening, migrating, transactions, and errors in one line. The only module that imports duckdb."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from shutil import copyfile
from typing import Any
from uuid import uuid4

import duckdb
import pandas as pd
import pyarrow as pa
from pyarrow import parquet

from diagnostics.records.errors import StoreError
from diagnostics.records.version import version

MIGRATIONS = (
    "schema.sql",
    "schema_2.sql",
    "schema_3.sql",
    "schema_4.sql",
    "schema_5.sql",
)  # in order; a new schema version appends a file, none is ever edited
SCHEMA_VERSION = len(MIGRATIONS)

_OWN_TOKEN_FILE = re.compile(r"[0-9a-f]{32}\.parquet(\.partial)?")
_IDENTITY = ("checkpoint_id", "problem_id", "settings_id", "response_id")
_TOKEN_LISTS = ("token_logps", "token_entropies")
_TOKEN_COLUMNS = (*((name, "VARCHAR") for name in _IDENTITY), *((name, "FLOAT[]") for name in _TOKEN_LISTS))
_TOKEN_SCHEMA = pa.schema(
    [*((name, pa.string()) for name in _IDENTITY), *((name, pa.list_(pa.float32())) for name in _TOKEN_LISTS)]
)


class Database:
    """An open store file of the current schema. Several processes may read it, or one may write."""

    def __init__(self, path: Path, *, read_only: bool) -> None:
        """Open or create the file and bring it to the current schema, also to read it.

        Raises:
            StoreError: the file is missing (read-only), locked by another process, not a store,
                or written by a newer oversharp.
        """
        self.path = path
        self._tokens_seen = False
        if any(character in str(path.resolve()) for character in "*?["):
            raise StoreError(f"{path.resolve()}: DuckDB takes *, ? and [ in a path for a pattern; pass another --out")
        if path.is_dir():
            raise StoreError(f"{path}: is a directory; pass the audit.duckdb in it")
        if path.suffix.lower() in (".json", ".jsonl", ".csv", ".parquet"):  # DuckDB would take it for a table
            raise StoreError(f"{path}: by its name no store; name it audit.duckdb")
        if read_only and not path.is_file():
            raise StoreError(f"{path}: no such store; run `oversharp audit … --out {path.parent}` first")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            why = error.strerror or str(error)
            raise StoreError(f"{path.parent}: cannot be made a directory ({why}); pass another --out") from error
        if read_only and _is_of_older_schema(path):
            Database(path, read_only=False).close()
        try:
            self._connection = duckdb.connect(str(path), read_only=read_only)
            # DuckDB counts all cores of the machine, also those that taskset or a batch system keep from this process
            self._connection.execute(
                "SET threads = least(current_setting('threads'), $1)", [len(os.sched_getaffinity(0))]
            )
            if read_only and self._can_reach_files():
                # a reader can neither write nor read other files: COPY, EXPORT, INSTALL and read_csv are off
                tokens = str(self.tokens_path).replace("'", "''")
                self._connection.execute(f"SET allowed_directories = ['{tokens}']")
                self._connection.execute("SET enable_external_access = false")
        except (duckdb.Error, OSError) as error:
            raise _explain(error, path) from error
        try:
            self._migrate(read_only=read_only)
            if not read_only:
                self._forget_uncommitted_tokens()
        except BaseException:
            self._connection.close()
            raise

    def _can_reach_files(self) -> bool:
        """Whether no other connection of this process to the same file has shut the others out already."""
        row = self._connection.execute("SELECT current_setting('enable_external_access')").fetchone()
        return row is None or bool(row[0])

    @property
    def tokens_path(self) -> Path:
        """The folder of the Parquet files that belong to the store: ``audit.tokens`` beside ``audit.duckdb``."""
        return self.path.resolve().with_suffix(".tokens")

    def close(self) -> None:
        """Write what is left in the log to the file, and unlock it."""
        self._connection.close()

    def frame(self, sql: str, parameters: dict[str, Any]) -> pd.DataFrame:
        """The result of one query with ``$name`` parameters. Raises ``StoreError``."""
        try:
            if not self._tokens_seen:
                self._see_tokens()
            result = self._connection.execute(sql, parameters or None)
        except duckdb.Error as error:
            raise _explain(error, self.path) from error
        if result is None or not result.description:
            raise StoreError(f"{self.path}: the query is empty; give a SELECT")
        return result.df()

    def rows(self, sql: str, parameters: Sequence[Any] | dict[str, Any] = ()) -> list[tuple[Any, ...]]:
        """The result of one statement with ``?`` or ``$name`` parameters as plain tuples."""
        bound = parameters if isinstance(parameters, dict) else list(parameters)
        return self._connection.execute(sql, bound).fetchall()

    def insert(self, head: str, rows: pd.DataFrame | pa.Table, *, where: str = "TRUE", **parameters: Any) -> int:
        """Run ``head FROM incoming WHERE where``, ``incoming`` being ``rows``; returns the number of rows written."""
        self._connection.register("incoming", rows)
        try:
            result = self._connection.execute(f"{head} FROM incoming WHERE {where}", parameters or None).fetchone()
        finally:
            self._connection.unregister("incoming")
        return int(result[0]) if result else 0

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All or nothing; database errors leave as ``StoreError``, what was committed before stays."""
        try:
            self._connection.execute("BEGIN")
            yield
            self._connection.execute("COMMIT")
        except BaseException as error:
            self._rollback()
            if isinstance(error, (duckdb.Error, OSError)):
                raise _explain(error, self.path) from error
            raise

    @contextmanager
    def attached(self, path: Path) -> Iterator[None]:
        """Read another store's tables as ``other.TABLE`` inside the block. Raises ``StoreError`` as opening it."""
        text = str(path.resolve()).replace("'", "''")
        try:
            self._connection.execute(f"ATTACH '{text}' AS other (READ_ONLY)")
        except (duckdb.Error, OSError) as error:
            raise _explain(error, path) from error
        try:
            yield
        finally:
            self._connection.execute("DETACH other")

    def _rollback(self) -> None:
        try:
            self._connection.execute("ROLLBACK")
        except duckdb.Error:  # a failed COMMIT has already rolled back
            return

    def _migrate(self, *, read_only: bool) -> None:
        tables = set(self._connection.execute("SELECT table_name FROM duckdb_tables() ORDER BY ALL").df()["table_name"])
        if tables and "schema_version" not in tables:
            raise StoreError(f"{self.path}: a DuckDB file, but not an oversharp store; pass another --out")
        found = 0
        if tables:
            row = self._connection.execute("SELECT max(version) FROM schema_version").fetchone()
            found = int(row[0]) if row and row[0] is not None else 0
        if found > SCHEMA_VERSION:
            raise StoreError(
                f"{self.path}: written by a newer oversharp (schema {found}, this one knows {SCHEMA_VERSION}); "
                "upgrade oversharp or pass another --out"
            )
        if not found and read_only:
            raise StoreError(f"{self.path}: empty, the audit that made it was killed at once; run that audit again")
        for number in range(found + 1, SCHEMA_VERSION + 1):
            script = (Path(__file__).parent / MIGRATIONS[number - 1]).read_text(encoding="utf-8")
            with self.transaction():
                self._connection.execute(script)
                self._connection.execute(
                    "INSERT INTO schema_version (version, oversharp_version) VALUES (?, ?)", [number, version()]
                )

    def write_tokens(self, rows: pd.DataFrame) -> None:
        """Add a Parquet file of token scores, inside a transaction: only a committed file is ever read.

        Columns: checkpoint_id, problem_id, settings_id, response_id, token_logps, token_entropies.
        """
        table = pa.Table.from_pandas(rows, schema=_TOKEN_SCHEMA, preserve_index=False)
        self._add_token_file(
            f"{uuid4().hex}.parquet", lambda path: parquet.write_table(table, path, compression="zstd")
        )

    def take_in_tokens(self, folder: Path, names: Sequence[str]) -> None:
        """Add token scores of another store, inside a transaction: its Parquet files, less what is here already.

        A file that is missing or damaged there is passed over: an audit computes its scores anew.
        """
        known = {row[0] for row in self.rows("SELECT file FROM token_files") if _is_whole(self.tokens_path / row[0])}
        new = [folder / name for name in names if name not in known and _is_whole(folder / name)]
        if not new:
            return
        self._see_tokens()
        keys = ", ".join(_IDENTITY)
        doubled = self.rows(
            f"SELECT DISTINCT filename FROM read_parquet({_listed(new)}, filename = true) "
            f"SEMI JOIN response_tokens USING ({keys})"
        )
        overlapping = {Path(row[0]).name for row in doubled}
        for path in new:
            if path.name not in overlapping:
                self._add_token_file(path.name, partial(copyfile, path))
                continue
            rows = self._connection.execute(
                f"FROM read_parquet({_listed([path])}) ANTI JOIN response_tokens USING ({keys})"
            ).df()
            if len(rows):
                self.write_tokens(rows)

    def _add_token_file(self, name: str, write: Callable[[Path], object]) -> None:
        self.tokens_path.mkdir(exist_ok=True)
        unfinished = self.tokens_path / f"{name}.partial"
        write(unfinished)
        with unfinished.open("rb") as file:
            os.fsync(file.fileno())
        unfinished.replace(self.tokens_path / name)
        self._connection.execute("INSERT OR IGNORE INTO token_files VALUES (?)", [name])
        self._tokens_seen = False

    def _forget_uncommitted_tokens(self) -> None:
        """Remove the files whose transaction never ended; what others put there is theirs."""
        known = {row[0] for row in self.rows("SELECT file FROM token_files")}
        for path in self.tokens_path.iterdir() if self.tokens_path.is_dir() else ():
            if _OWN_TOKEN_FILE.fullmatch(path.name) and path.name not in known:
                path.unlink()

    def _see_tokens(self) -> None:
        """Make ``response_tokens`` and the views on it. Scores whose file is gone or damaged are missing from them."""
        known = [self.tokens_path / row[0] for row in self.rows("SELECT file FROM token_files ORDER BY file")]
        there = [path for path in known if _is_whole(path)]
        if there:
            source = f"FROM read_parquet({_listed(there)})"
        else:
            source = f"SELECT {', '.join(f'NULL::{kind} AS {name}' for name, kind in _TOKEN_COLUMNS)} WHERE false"
        self._connection.execute(f"CREATE OR REPLACE TEMP VIEW response_tokens AS {source}")
        self._connection.execute((Path(__file__).parent / "token_views.sql").read_text(encoding="utf-8"))
        self._tokens_seen = True


def _listed(paths: Sequence[Path]) -> str:
    """The paths as a list in SQL: where a view is made, parameters cannot be bound."""
    return "[" + ", ".join("'" + str(path).replace("'", "''") + "'" for path in paths) + "]"


def _is_whole(path: Path) -> bool:
    try:
        parquet.read_metadata(path)
    except (OSError, pa.ArrowInvalid):
        return False
    return True


def _is_of_older_schema(path: Path) -> bool:
    """Whether the file is a store that has to be migrated before it can be read; False where that cannot be told."""
    try:
        with duckdb.connect(str(path), read_only=True) as connection:
            row = connection.execute("SELECT max(version) FROM schema_version").fetchone()
    except (duckdb.Error, OSError):  # whatever is wrong is told when it is opened in earnest
        return False
    return row is not None and row[0] is not None and int(row[0]) < SCHEMA_VERSION


def _explain(error: Exception, path: Path) -> StoreError:
    """One line: what went wrong with the store, and what to do."""
    if isinstance(error, duckdb.InterruptException):  # how DuckDB passes Ctrl-C on while a query runs
        raise KeyboardInterrupt from error
    text = " ".join(str(error).split())
    lowered = text.lower()
    if "lock" in lowered and ("conflicting" in lowered or "could not set" in lowered):
        return StoreError(f"{path}: locked by another process; wait for it to end or close it, then run this again")
    if "no space" in lowered or "disk full" in lowered or "could not write" in lowered or "file too large" in lowered:
        return StoreError(
            f"{path}: the disk is full ({text[:120]}); free some space and run the same command again: "
            "what was committed is kept"
        )
    if "not a valid duckdb" in lowered:
        return StoreError(f"{path}: not a DuckDB file; pass another --out or remove it")
    if "different configuration" in lowered:
        return StoreError(f"{path}: open for reading in this very process; close that store first")
    if "checksum" in lowered or "could not read" in lowered or "corrupt" in lowered:
        return StoreError(
            f"{path}: damaged ({text[:120]}); put a copy in its place, or remove it and run the audit again"
        )
    if isinstance(error, (duckdb.ParserException, duckdb.BinderException, duckdb.CatalogException)):
        return StoreError(f"{path}: {text}")
    return StoreError(f"{path}: {text[:300]}")
