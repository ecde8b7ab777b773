"""Open a DuckDB file: tables, views, transactions, one-line errors.

The only module that imports duckdb.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import chain, count, takewhile
from pathlib import Path
from shutil import copyfile
from tempfile import gettempdir
from typing import Any, TypeVar
from uuid import uuid4

import duckdb
import pandas as pd
import pyarrow as pa

from oversharp.diagnostics.records.errors import StoreError
from oversharp.diagnostics.records.memory import concat_within, half_of_free_gib
from oversharp.diagnostics.records.names import require_store_file, require_store_place
from oversharp.diagnostics.records.provenance import version
from oversharp.diagnostics.records.types import content_hash
from oversharp.diagnostics.store.schema import (
    NO_FILE,
    SCHEMA_VERSION,
    added_tables,
    empty_store,
    explain_error,
    is_checked,
    require_builtin_functions,
    require_schema,
    script,
    set_checked,
    state_of,
    view_scripts,
)
from oversharp.diagnostics.store.token_files import (
    OWN_TOKEN_FILE,
    TOKEN_IDENTITY,
    TOKEN_SCHEMA,
    can_be_read,
    checksum_of,
    files_of,
    holds_tokens,
    sql_list,
    tokens_beside,
    tokens_of,
)

#: Text of DuckDB's error if a token file cannot be read: the files are registered as ``response_tokens``.
_TOKENS_FAILED = "registered as 'response_tokens' failed"
#: Names of the token views, and of DuckDB's lists of all views.
_USES_TOKENS = re.compile(
    r"\b(?:(?:response|panel|own|training)_tokens|duckdb_\w+|information_schema)\b", re.IGNORECASE
)
#: Number of DuckDB vectors (2,048 rows each) in one part of a result.
_VECTORS_PER_PART = 128
#: DuckDB statement types that a user may run. PIVOT has the type MULTI.
_QUERY_TYPES = frozenset({"SELECT", "EXPLAIN", "MULTI"})
#: Smallest memory limit in GiB. DuckDB cannot process a part with less.
_LEAST_GIB = 0.125

_Result = TypeVar("_Result")


class Database:
    """An open store file of the current schema. One process may write it, or several may read it."""

    def __init__(
        self, path: Path, *, read_only: bool, user_gib: float | None = None, others: Sequence[Path] = ()
    ) -> None:
        """Open the file, or create it unless ``read_only``.

        The file and its views may be untrusted: queries cannot access other files, except the stores in ``others``. The
        memory limit of queries is ``user_gib`` GiB, or half of the free memory. With ``user_gib``, a result may use at
        most half of the limit.

        Raises:
            StoreError: the file is missing (read-only), locked by another process, not a store, or of another
                schema.
        """
        self.path = path
        self._read_only = read_only
        self._tokens_registered = self._has_token_views = False
        self._most_result_bytes = None if user_gib is None else user_gib * 2**29
        self._damaged: set[str] = set()
        require_store_place(path)
        if read_only:
            require_store_file(path)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            why = error.strerror or str(error)
            raise StoreError(f"{path.parent}: cannot create this directory ({why}); pass another --out") from error
        is_new = state_of(path) == NO_FILE
        with self.explain_errors():
            self._connection = duckdb.connect(str(path), read_only=read_only)
        try:
            state = state_of(path)  # from here on, DuckDB's lock prevents changes by other processes
            has_changed = not is_checked(path, state)
            if has_changed and not is_new:
                require_builtin_functions(path, self.rows)
            self._limit_access(others, user_gib or half_of_free_gib())
            if has_changed:
                self._require_schema(read_only=read_only)
            self.refresh_views()
            damaged = self._exclude_damaged(read_only=read_only)
            if not read_only:
                self._remove_uncommitted_tokens()
            #: Problems found when the store was opened, one line each.
            self.notes = tuple(
                f"{path}: damaged or replaced; the file is ignored, and the next audit recomputes its scores"
                for path in damaged
            )
        except BaseException:
            self._connection.close()
            raise
        if read_only:
            set_checked(path, state)

    def _limit_access(self, others: Sequence[Path], gib: float) -> None:
        """Limit threads, memory, and file access to the store's files and those of ``others``."""
        with self.explain_errors():
            # DuckDB's default also counts cores that taskset or a batch system excludes
            cores = len(os.sched_getaffinity(0))
            self._connection.execute("SET threads = least(current_setting('threads'), $1)", [cores])
            self.bound_memory(gib)
            if not self._can_reach_files():
                return
            if self._read_only and not os.access(self.path.resolve().parent, os.W_OK):
                self._connection.execute("SET temp_directory = $1", [f"{gettempdir()}/oversharp-{uuid4().hex}"])
            self._connection.execute("SET allowed_paths = $1", [files_of(others)])
            self._connection.execute("SET allowed_directories = $1", [[str(tokens_beside(path)) for path in others]])
            # this setting also disables COPY, EXPORT, INSTALL and read_csv
            self._connection.execute("SET enable_external_access = false")

    def bound_memory(self, gib: float) -> None:
        """Limit the memory of queries to ``gib`` GiB. Larger intermediate results go to temporary files."""
        self._connection.execute(f"SET memory_limit = '{min(max(gib, _LEAST_GIB), 2**20):.3f}GiB'")

    def _can_reach_files(self) -> bool:
        """Return whether queries can open files. Another connection of this process may have disabled it."""
        return self.rows("SELECT current_setting('enable_external_access')") != [(False,)]

    @property
    def tokens_path(self) -> Path:
        """Folder of the store's Parquet files: ``audit.tokens`` next to ``audit.duckdb``."""
        return tokens_beside(self.path)

    def close(self) -> None:
        """Write the log to the file and unlock it."""
        self._connection.close()
        if not self._read_only:
            set_checked(self.path, state_of(self.path))

    def frame(self, sql: str, parameters: dict[str, Any]) -> pd.DataFrame:
        """Run a query with ``$name`` parameters.

        Raises ``StoreError`` if it is invalid or its result is too large.
        """
        if (most := self._most_result_bytes) is None:
            return self._query(sql, parameters, lambda result: result.df())
        return self._query(sql, parameters, lambda result: concat_within(_parts_of(result), most, self.path))

    def parts(self, sql: str, parameters: dict[str, Any]) -> Iterator[pd.DataFrame]:
        """Run a query and yield its result in parts of rows; the first part may be empty."""
        with self.explain_errors():
            yield from self._query(sql, parameters, _parts_of)

    def _query(self, sql: str, parameters: dict[str, Any], convert: Callable[[Any], _Result]) -> _Result:
        try:
            # a user's view may query them; opening the files takes longer than most queries
            if not self._tokens_registered and (self._most_result_bytes is not None or _USES_TOKENS.search(sql)):
                self._refresh_token_views()
            return convert(self._execute_query(sql, parameters))
        except duckdb.Error as error:
            # DuckDB's error for a damaged page contains no file name
            if _TOKENS_FAILED not in str(error) or not self._find_damaged_tokens():
                raise _explain(error, self.path) from error
        return self._query(sql, parameters, convert)

    def _execute_query(self, sql: str, parameters: dict[str, Any]) -> Any:
        if self._most_result_bytes is not None or ";" in sql.rstrip("; \n"):
            kinds = [statement.type.name for statement in self._connection.extract_statements(sql)]
            if len(kinds) > 1:
                raise StoreError(f"{self.path}: several statements; give one query")
            # other statements could change settings or views for later queries
            if self._most_result_bytes is not None and not _QUERY_TYPES.issuperset(kinds):
                raise StoreError(f"{self.path}: {kinds[0]} is not a query; use SELECT, EXPLAIN or PIVOT")
        result = self._connection.execute(sql, parameters or None)
        if result is None or not result.description:
            raise StoreError(f"{self.path}: the query is empty; give a SELECT")
        return result

    def rows(self, sql: str, parameters: Sequence[Any] | dict[str, Any] = ()) -> list[tuple[Any, ...]]:
        """Run one statement with ``?`` or ``$name`` parameters and return plain tuples."""
        bound = parameters if isinstance(parameters, dict) else list(parameters)
        with self.explain_errors():
            return self._connection.execute(sql, bound).fetchall()

    def insert(self, head: str, rows: pd.DataFrame | pa.Table, *, where: str = "TRUE", **parameters: Any) -> int:
        """Run ``head FROM incoming WHERE where`` on ``rows``. Returns the number of rows written."""
        with self._incoming(rows):
            result = self._connection.execute(f"{head} FROM incoming WHERE {where}", parameters or None).fetchone()
        return int(result[0]) if result else 0

    def delete(self, table: str, rows: pd.DataFrame, *, where: str) -> None:
        """Delete the rows of ``table`` that match any row of ``rows``.

        The condition ``where`` calls ``rows`` ``incoming``.
        """
        with self._incoming(rows):
            self._connection.execute(f"DELETE FROM {table} USING incoming WHERE {where}")

    @contextmanager
    def _incoming(self, rows: pd.DataFrame | pa.Table) -> Iterator[None]:
        self._connection.register("incoming", rows)
        try:
            yield
        finally:
            with suppress(duckdb.Error):  # keep the error of a failed transaction
                self._connection.unregister("incoming")

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Run the block in a transaction; database errors become ``StoreError``."""
        with self.explain_errors():
            try:
                self._connection.execute("BEGIN")
                yield
                self._connection.execute("COMMIT")
            except BaseException:
                with suppress(duckdb.Error):  # a failed COMMIT has already rolled back
                    self._connection.execute("ROLLBACK")
                raise

    @contextmanager
    def attach(self, path: Path) -> Iterator[None]:
        """Attach another store's tables as ``other.TABLE`` inside the block. Raises ``StoreError``."""
        require_store_place(path)
        require_store_file(path)
        text = str(path.resolve()).replace("'", "''")
        with self.explain_errors(path):
            self._connection.execute(f"ATTACH '{text}' AS attached (READ_ONLY)")
        try:
            if not self._has_tables("attached", path):
                raise empty_store(path)
            self._connection.execute("ATTACH ':memory:' AS other")
            try:
                own, attached = self._own_name(), self._tables_of("attached")
                for name, columns in self._columns_of(own).items():
                    # a store of an earlier version may lack a table
                    source = f"attached.{name}" if name in attached else f'(FROM "{own}".main.{name} LIMIT 0)'
                    self._connection.execute(f"CREATE VIEW other.{name} AS SELECT {', '.join(columns)} FROM {source}")
                yield
            finally:
                self._connection.execute("DETACH other")
        finally:
            self._connection.execute("DETACH attached")

    @contextmanager
    def explain_errors(self, path: Path | None = None) -> Iterator[None]:
        """Convert database errors to ``StoreError`` about this store, or the one at ``path``."""
        try:
            yield
        except (duckdb.Error, OSError) as error:
            raise _explain(error, path or self.path) from error

    def _own_name(self) -> str:
        return str(self.rows("SELECT current_database()")[0][0])

    def _columns_of(self, database: str) -> dict[str, dict[str, str]]:
        """Return the column types of a database: table → column → type."""
        rows = self.rows(
            """
            SELECT c.table_name, c.column_name, c.data_type
            FROM duckdb_columns() AS c SEMI JOIN duckdb_tables() AS t USING (database_name, schema_name, table_name)
            -- a foreign view may have the name of a table in another schema
            WHERE c.database_name = ? AND c.schema_name = 'main' ORDER BY c.table_name, c.column_index
            """,
            [database],
        )
        columns: dict[str, dict[str, str]] = {}
        for table, column, kind in rows:
            columns.setdefault(table, {})[column] = kind
        return columns

    def _require_schema(self, *, read_only: bool) -> None:
        """Create the tables of a new store. Raises ``StoreError`` for another schema."""
        if self._has_tables(self._own_name(), self.path):
            return
        if read_only:
            raise empty_store(self.path)
        with self.transaction():
            self._connection.execute(script("tables.sql"))
            self._connection.execute(
                "INSERT INTO schema_version (version, oversharp_version, views_hash) VALUES (?, ?, '')",
                [SCHEMA_VERSION, version()],
            )

    def _tables_of(self, database: str) -> set[str]:
        in_main = "SELECT table_name FROM duckdb_tables() WHERE database_name = ? AND schema_name = 'main'"
        return {row[0] for row in self.rows(in_main, [database])}

    def _has_tables(self, database: str, path: Path) -> bool:
        """Return whether a database has the tables of a store; False for an empty file.

        Raises ``StoreError`` for another DuckDB file or schema.
        """
        tables = self._tables_of(database)
        if not tables:
            return False
        if "schema_version" not in tables:
            raise StoreError(f"{path}: a DuckDB file, but not an oversharp store; pass another --out")
        ((schema,),) = self.rows(f'SELECT max(version) FROM "{database}".schema_version')
        require_schema(path, schema, tables)
        return True

    def refresh_views(self) -> None:
        """Update the views to this version of oversharp. A read-only connection creates temporary views."""
        stored_views, _ = view_scripts()
        current = content_hash(stored_views, added_tables())
        if self.rows("SELECT views_hash FROM schema_version") == [(current,)]:
            return
        if self._read_only:
            tables = added_tables(self._tables_of(self._own_name())).replace("CREATE TABLE ", "CREATE TEMP TABLE ")
            self._connection.execute(tables + stored_views.replace("CREATE OR REPLACE ", "CREATE OR REPLACE TEMP "))
            return
        with self.transaction():
            self._connection.execute(added_tables() + stored_views)
            self._connection.execute("UPDATE schema_version SET views_hash = ?", [current])

    def write_tokens(self, rows: pd.DataFrame) -> None:
        """Add a Parquet file of token scores, inside a transaction. ``rows`` has the columns of ``TOKEN_SCHEMA``."""
        from pyarrow import parquet

        table = pa.Table.from_pandas(rows, schema=TOKEN_SCHEMA, preserve_index=False)
        write = partial(parquet.write_table, table, compression="zstd", write_page_checksum=True)
        self._add_token_file(f"{uuid4().hex}.parquet", write)

    def import_tokens(self, folder: Path, names: Sequence[str]) -> None:
        """Add the token scores of another store that this one lacks, inside a transaction.

        Missing and damaged files are skipped. The next audit recomputes their scores.
        """
        known = {path.name for path in self._token_files()}
        new = [folder / name for name in names if name not in known and holds_tokens(folder / name)]
        if not new:
            return
        self._refresh_token_views()
        keys = ", ".join(TOKEN_IDENTITY)
        duplicated = self.rows(
            f"SELECT DISTINCT filename FROM read_parquet({sql_list(new)}, filename = true) "
            f"SEMI JOIN response_tokens USING ({keys})"
        )
        overlapping = {Path(row[0]).name for row in duplicated}
        for path in new:
            if path.name not in overlapping:
                self._add_token_file(path.name, partial(copyfile, path))
                continue
            rows = self._connection.execute(
                f"FROM read_parquet({sql_list([path])}) ANTI JOIN response_tokens USING ({keys})"
            ).df()
            if len(rows):
                self.write_tokens(rows)

    def _add_token_file(self, name: str, write: Callable[[Path], object]) -> None:
        self.tokens_path.mkdir(exist_ok=True)
        unfinished = self.tokens_path / f"{name}.partial"
        write(unfinished)
        with unfinished.open("rb") as file:
            os.fsync(file.fileno())
        checksum = checksum_of(unfinished)
        unfinished.replace(self.tokens_path / name)
        self._connection.execute("INSERT OR REPLACE INTO token_files VALUES (?, ?)", [name, checksum])
        self._damaged.discard(name)
        self._tokens_registered = False

    def _remove_uncommitted_tokens(self) -> None:
        """Remove token files of transactions that were not committed."""
        known = {row[0] for row in self.rows("SELECT file FROM token_files")}
        for path in self.tokens_path.iterdir() if self.tokens_path.is_dir() else ():
            if OWN_TOKEN_FILE.fullmatch(path.name) and path.name not in known:
                path.unlink()

    def _exclude_damaged(self, *, read_only: bool) -> tuple[Path, ...]:
        """Return the token files that were damaged or replaced after they were committed.

        They are ignored. A connection that may write renames them, so that an audit recomputes their scores.
        """
        damaged = tuple(
            path for path, checksum in self._recorded_tokens() if path.exists() and not self._is_own(path, checksum)
        )
        for path in () if read_only else damaged:
            path.replace(path.with_suffix(".damaged"))
            self._connection.execute("DELETE FROM token_files WHERE file = ?", [path.name])
        return damaged

    def _token_files(self) -> list[Path]:
        """Return the token files that exist and match their committed checksums."""
        return [path for path, checksum in self._recorded_tokens() if self._is_own(path, checksum)]

    def _recorded_tokens(self) -> list[tuple[Path, str]]:
        rows = self.rows("SELECT file, checksum FROM token_files ORDER BY file")
        # an untrusted store may list any path
        return [(self.tokens_path / file, checksum) for file, checksum in rows if OWN_TOKEN_FILE.fullmatch(file)]

    def _is_own(self, path: Path, checksum: str) -> bool:
        return path.name not in self._damaged and checksum_of(path) == checksum

    def _find_damaged_tokens(self) -> bool:
        """Read all token files page by page; return whether any is damaged."""
        damaged = {path.name for path in self._token_files() if not can_be_read(path)}
        self._damaged |= damaged
        self._tokens_registered = not damaged
        return bool(damaged)

    def _refresh_token_views(self) -> None:
        """Create ``response_tokens`` and its views from the undamaged token files.

        The files are registered because the connection cannot open files. Page checksums are verified during the query.
        """
        self._connection.register("response_tokens", tokens_of(self._token_files()))
        if not self._has_token_views:  # the views refer to response_tokens by name
            _, token_views = view_scripts()
            self._connection.execute(token_views)
        self._tokens_registered = self._has_token_views = True


def _parts_of(result: Any) -> Iterator[pd.DataFrame]:
    """Return an iterator over the parts of a result.

    The first part is fetched at once, to raise query errors here.
    """
    first = result.fetch_df_chunk(_VECTORS_PER_PART)
    return chain([first], takewhile(len, (result.fetch_df_chunk(_VECTORS_PER_PART) for _ in count())))


def _explain(error: Exception, path: Path) -> StoreError:
    if isinstance(error, duckdb.InterruptException):  # DuckDB raises this for Ctrl-C during a query
        raise KeyboardInterrupt from error
    return explain_error(error, path)
