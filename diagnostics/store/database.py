"""One DuckDB file: opening, tables and views, transactions, errors in one line. The only module that imports duckdb."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache, partial
from itertools import chain, count, takewhile
from pathlib import Path
from shutil import copyfile
from tempfile import gettempdir
from typing import Any, TypeVar
from uuid import uuid4

import duckdb
import pandas as pd
import pyarrow as pa
from pyarrow import parquet
from pyarrow.dataset import dataset

from oversharp.diagnostics.records.errors import StoreError
from oversharp.diagnostics.records.memory import half_of_free_gib, joined_within
from oversharp.diagnostics.records.names import require_store_file, require_store_place
from oversharp.diagnostics.records.provenance import version
from oversharp.diagnostics.records.types import content_hash
from oversharp.diagnostics.store.mends import in_one_line, of_a_stranger
from oversharp.diagnostics.store.schema import SCHEMA_VERSION, empty_store, require_schema, script
from oversharp.diagnostics.store.token_files import (
    CHECKED_PAGES,
    OWN_TOKEN_FILE,
    TOKEN_IDENTITY,
    TOKEN_SCHEMA,
    can_be_read,
    checksum_of,
    files_of,
    holds_tokens,
    listed,
    tokens_beside,
)

#: What DuckDB says where what it was handed as ``response_tokens`` cannot be read.
_TOKENS_FAILED = "registered as 'response_tokens' failed"
#: A result is taken out in parts of so many vectors, 2,048 rows each.
_VECTORS_PER_PART = 128
#: Statements of DuckDB that ask and change nothing, but for PIVOT's own type.
_QUESTIONS = frozenset({"SELECT", "EXPLAIN", "MULTI"})
#: With less DuckDB cannot even read a part.
_LEAST_GIB = 0.125

_Read = TypeVar("_Read")


class Database:
    """An open store file of the current schema. Several processes may read it, or one may write."""

    def __init__(
        self, path: Path, *, read_only: bool, user_gib: float | None = None, others: Sequence[Path] = ()
    ) -> None:
        """Open the file, or create it unless ``read_only``. Of a user's own queries results are bounded.

        The file may be a stranger's, its views too: queries reach no other file, but ``others``, stores to attach.

        Queries take at most half of the memory that is free; with ``user_gib`` that much, and their results half of it.

        Raises:
            StoreError: the file is missing (read-only), locked by another process, not a store, or of another
                schema.
        """
        self.path = path
        self._read_only = read_only
        self._tokens_seen = self._token_views_made = False
        self._most_result_bytes = None if user_gib is None else user_gib * 2**29
        self._damaged: set[str] = set()
        require_store_place(path)
        if read_only:
            require_store_file(path)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            why = error.strerror or str(error)
            raise StoreError(f"{path.parent}: cannot be made a directory ({why}); pass another --out") from error
        with self.explained():
            self._connection = duckdb.connect(str(path), read_only=read_only)
        try:
            self._require_duckdbs_own_functions()
            self._bound(others, user_gib or half_of_free_gib())
            self._require_schema(read_only=read_only)
            self.see_views()
            damaged = self._without_damaged(read_only=read_only)
            if not read_only:
                self._forget_uncommitted_tokens()
            #: What was amiss when the store was opened, a line each.
            self.notes = tuple(
                f"{path}: damaged, or not the file that was written there; left out, and an audit makes its scores anew"
                for path in damaged
            )
        except BaseException:
            self._connection.close()
            raise

    def _bound(self, others: Sequence[Path], gib: float) -> None:
        """Bound threads, memory, and the files that can be reached: the store's own, and those of ``others``."""
        with self.explained():
            # DuckDB counts all cores of the machine, also those that taskset or a batch system keep from this process
            cores = len(os.sched_getaffinity(0))
            self._connection.execute("SET threads = least(current_setting('threads'), $1)", [cores])
            self.bound_memory(gib)
            if not self._can_reach_files():
                return
            if self._read_only and not os.access(self.path.resolve().parent, os.W_OK):
                self._connection.execute("SET temp_directory = $1", [f"{gettempdir()}/oversharp-{uuid4().hex}"])
            self._connection.execute("SET allowed_paths = $1", [files_of(others)])
            self._connection.execute("SET allowed_directories = $1", [[str(tokens_beside(path)) for path in others]])
            # COPY, EXPORT, INSTALL and read_csv are off
            self._connection.execute("SET enable_external_access = false")

    def _require_duckdbs_own_functions(self) -> None:
        """Refuse a file that has functions or triggers of its own, before any function of DuckDB is called.

        A macro of the same name stands in for it: ``max``, also ``current_setting``. ``merge`` reads the tables alone.
        """
        found = self.rows("SELECT function_name, internal FROM system.main.duckdb_functions()")
        built_in = {str(name).lower() for name, internal in found if internal}
        held = [f"macro {name!r}" for name, internal in found if not internal and str(name).lower() in built_in]
        query = "SELECT trigger_name FROM system.main.duckdb_triggers()"  # DuckDB 2 has them
        held += [f"trigger {name!r}" for (name,) in self.rows(query)] if "duckdb_triggers" in built_in else []
        if held:
            raise of_a_stranger(self.path, held)

    def bound_memory(self, gib: float) -> None:
        """Let queries take at most ``gib`` GiB; what needs more goes to files beside the store."""
        self._connection.execute(f"SET memory_limit = '{min(max(gib, _LEAST_GIB), 2**20):.3f}GiB'")

    def _can_reach_files(self) -> bool:
        """Whether no other connection of this process to the same file has shut the others out already."""
        return self.rows("SELECT current_setting('enable_external_access')") != [(False,)]

    @property
    def tokens_path(self) -> Path:
        """The folder of the Parquet files that belong to the store: ``audit.tokens`` beside ``audit.duckdb``."""
        return tokens_beside(self.path)

    def close(self) -> None:
        """Write what is left in the log to the file, and unlock it."""
        self._connection.close()

    def frame(self, sql: str, parameters: dict[str, Any]) -> pd.DataFrame:
        """The result of one query with ``$name`` parameters; ``StoreError`` if it is wrong or larger than it may be."""
        if (most := self._most_result_bytes) is None:
            return self._answer(sql, parameters, lambda result: result.df())
        return self._answer(sql, parameters, lambda result: joined_within(_parts_of(result), most, self.path))

    def parts(self, sql: str, parameters: dict[str, Any]) -> Iterator[pd.DataFrame]:
        """The same, so many rows after the other; the first part may have none."""
        with self.explained():
            yield from self._answer(sql, parameters, _parts_of)

    def _answer(self, sql: str, parameters: dict[str, Any], read: Callable[[Any], _Read]) -> _Read:
        try:
            if not self._tokens_seen:
                self._see_tokens()
            return read(self._result(sql, parameters))
        except duckdb.Error as error:
            # what a damaged page of a token file raises names no file
            if _TOKENS_FAILED not in str(error) or not self._found_damaged_tokens():
                raise _explain(error, self.path) from error
        return self._answer(sql, parameters, read)

    def _result(self, sql: str, parameters: dict[str, Any]) -> Any:
        if self._most_result_bytes is not None or ";" in sql.rstrip("; \n"):
            kinds = [statement.type.name for statement in self._connection.extract_statements(sql)]
            if len(kinds) > 1:
                raise StoreError(f"{self.path}: several statements, of which only the last would answer; give one")
            # settings, views and logs of a user's statement would outlive it
            if self._most_result_bytes is not None and not _QUESTIONS.issuperset(kinds):
                raise StoreError(f"{self.path}: {kinds[0]} is no query; only SELECT, EXPLAIN and PIVOT are answered")
        result = self._connection.execute(sql, parameters or None)
        if result is None or not result.description:
            raise StoreError(f"{self.path}: the query is empty; give a SELECT")
        return result

    def rows(self, sql: str, parameters: Sequence[Any] | dict[str, Any] = ()) -> list[tuple[Any, ...]]:
        """The result of one statement with ``?`` or ``$name`` parameters as plain tuples."""
        bound = parameters if isinstance(parameters, dict) else list(parameters)
        with self.explained():
            return self._connection.execute(sql, bound).fetchall()

    def insert(self, head: str, rows: pd.DataFrame | pa.Table, *, where: str = "TRUE", **parameters: Any) -> int:
        """Run ``head FROM incoming WHERE where``, ``incoming`` being ``rows``; returns the number of rows written."""
        with self._incoming(rows):
            result = self._connection.execute(f"{head} FROM incoming WHERE {where}", parameters or None).fetchone()
        return int(result[0]) if result else 0

    def delete(self, table: str, rows: pd.DataFrame, *, where: str) -> None:
        """Delete the rows of ``table`` that ``where`` holds for, with any of ``incoming``, which are ``rows``."""
        with self._incoming(rows):
            self._connection.execute(f"DELETE FROM {table} USING incoming WHERE {where}")

    @contextmanager
    def _incoming(self, rows: pd.DataFrame | pa.Table) -> Iterator[None]:
        self._connection.register("incoming", rows)
        try:
            yield
        finally:
            with suppress(duckdb.Error):  # in a transaction that failed: why it did is what has to be told
                self._connection.unregister("incoming")

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All or nothing; database errors leave as ``StoreError``, what was committed before stays."""
        with self.explained():
            try:
                self._connection.execute("BEGIN")
                yield
                self._connection.execute("COMMIT")
            except BaseException:
                with suppress(duckdb.Error):  # a failed COMMIT has already rolled back
                    self._connection.execute("ROLLBACK")
                raise

    @contextmanager
    def attached(self, path: Path) -> Iterator[None]:
        """Read another store's tables as ``other.TABLE`` inside the block. Raises ``StoreError`` as opening it does."""
        require_store_place(path)
        require_store_file(path)
        text = str(path.resolve()).replace("'", "''")
        with self.explained(path):
            self._connection.execute(f"ATTACH '{text}' AS held (READ_ONLY)")
        try:
            if not self._has_tables("held", path):
                raise empty_store(path)
            self._connection.execute("ATTACH ':memory:' AS other")
            try:
                for name, columns in self._columns_of(self._own_name()).items():
                    query = f"SELECT {', '.join(columns)} FROM held.{name}"
                    self._connection.execute(f"CREATE VIEW other.{name} AS {query}")
                yield
            finally:
                self._connection.execute("DETACH other")
        finally:
            self._connection.execute("DETACH held")

    @contextmanager
    def explained(self, path: Path | None = None) -> Iterator[None]:
        """Database errors leave as ``StoreError``, of this store or of that at ``path``."""
        try:
            yield
        except (duckdb.Error, OSError) as error:
            raise _explain(error, path or self.path) from error

    def _own_name(self) -> str:
        return str(self.rows("SELECT current_database()")[0][0])

    def _columns_of(self, database: str) -> dict[str, dict[str, str]]:
        """Table → column → type of one of the attached databases."""
        rows = self.rows(
            """
            SELECT c.table_name, c.column_name, c.data_type
            FROM duckdb_columns() AS c SEMI JOIN duckdb_tables() AS t USING (database_name, schema_name, table_name)
            -- a stranger's view may have the name of a table that lies in another schema
            WHERE c.database_name = ? AND c.schema_name = 'main' ORDER BY c.table_name, c.column_index
            """,
            [database],
        )
        columns: dict[str, dict[str, str]] = {}
        for table, column, kind in rows:
            columns.setdefault(table, {})[column] = kind
        return columns

    def _require_schema(self, *, read_only: bool) -> None:
        """Make the tables of a new store; refuse one of another schema."""
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
        """Return whether an attached file is a store with tables; False for an empty file.

        Raises ``StoreError`` for another DuckDB file, and as ``require_schema`` does.
        """
        tables = self._tables_of(database)
        if not tables:
            return False
        if "schema_version" not in tables:
            raise StoreError(f"{path}: a DuckDB file, but not an oversharp store; pass another --out")
        ((found,),) = self.rows(f'SELECT max(version) FROM "{database}".schema_version')
        require_schema(path, found, tables)
        return True

    def see_views(self) -> None:
        """Have the views of this oversharp, whichever wrote the store; who may not write has them for itself."""
        kept, _ = _view_scripts()
        current = content_hash(kept)
        if self.rows("SELECT views_hash FROM schema_version") == [(current,)]:
            return
        if self._read_only:
            self._connection.execute(kept.replace("CREATE OR REPLACE ", "CREATE OR REPLACE TEMP "))
            return
        with self.transaction():
            self._connection.execute(kept)
            self._connection.execute("UPDATE schema_version SET views_hash = ?", [current])

    def write_tokens(self, rows: pd.DataFrame) -> None:
        """Add a Parquet file of token scores, inside a transaction: only a committed file is ever read.

        Columns: checkpoint_id, problem_id, settings_id, response_id, token_logps, token_entropies.
        """
        table = pa.Table.from_pandas(rows, schema=TOKEN_SCHEMA, preserve_index=False)
        write = partial(parquet.write_table, table, compression="zstd", write_page_checksum=True)
        self._add_token_file(f"{uuid4().hex}.parquet", write)

    def take_in_tokens(self, folder: Path, names: Sequence[str]) -> None:
        """Add token scores of another store, inside a transaction: its Parquet files, less what is here already.

        A file that is missing or damaged there is passed over: an audit computes its scores anew.
        """
        known = {path.name for path in self._token_files()}
        new = [folder / name for name in names if name not in known and holds_tokens(folder / name)]
        if not new:
            return
        self._see_tokens()
        keys = ", ".join(TOKEN_IDENTITY)
        doubled = self.rows(
            f"SELECT DISTINCT filename FROM read_parquet({listed(new)}, filename = true) "
            f"SEMI JOIN response_tokens USING ({keys})"
        )
        overlapping = {Path(row[0]).name for row in doubled}
        for path in new:
            if path.name not in overlapping:
                self._add_token_file(path.name, partial(copyfile, path))
                continue
            rows = self._connection.execute(
                f"FROM read_parquet({listed([path])}) ANTI JOIN response_tokens USING ({keys})"
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
        self._tokens_seen = False

    def _forget_uncommitted_tokens(self) -> None:
        """Remove the files whose transaction never ended; what others put there is theirs."""
        known = {row[0] for row in self.rows("SELECT file FROM token_files")}
        for path in self.tokens_path.iterdir() if self.tokens_path.is_dir() else ():
            if OWN_TOKEN_FILE.fullmatch(path.name) and path.name not in known:
                path.unlink()

    def _without_damaged(self, *, read_only: bool) -> tuple[Path, ...]:
        """Files of token scores that are there and not what was committed: damaged, or written over by another.

        They are left out; who may write puts them aside, so that an audit makes their scores anew.
        """
        damaged = tuple(
            path for path, checksum in self._recorded_tokens() if path.exists() and not self._is_own(path, checksum)
        )
        for path in () if read_only else damaged:
            path.replace(path.with_suffix(".damaged"))
            self._connection.execute("DELETE FROM token_files WHERE file = ?", [path.name])
        return damaged

    def _token_files(self) -> list[Path]:
        """The files that are there and what was committed."""
        return [path for path, checksum in self._recorded_tokens() if self._is_own(path, checksum)]

    def _recorded_tokens(self) -> list[tuple[Path, str]]:
        rows = self.rows("SELECT file, checksum FROM token_files ORDER BY file")
        # of a stranger's store a name may lead anywhere, and damaged files are renamed
        return [(self.tokens_path / file, checksum) for file, checksum in rows if OWN_TOKEN_FILE.fullmatch(file)]

    def _is_own(self, path: Path, checksum: str) -> bool:
        return path.name not in self._damaged and checksum_of(path) == checksum

    def _found_damaged_tokens(self) -> bool:
        """Read all token files page by page; whether one of those that were in use is damaged."""
        damaged = {path.name for path in self._token_files() if not can_be_read(path)}
        self._damaged |= damaged
        self._tokens_seen = not damaged
        return bool(damaged)

    def _see_tokens(self) -> None:
        """Make ``response_tokens`` and the views on it. Scores whose file is gone or damaged are missing from them.

        They are handed to the connection, which itself may reach no file; pages are checked as they are read.
        """
        tokens = dataset(self._token_files(), schema=TOKEN_SCHEMA, format=CHECKED_PAGES)
        self._connection.register("response_tokens", tokens)
        if not self._token_views_made:  # they name response_tokens, and so see whichever stands under that name
            _, of_tokens = _view_scripts()
            self._connection.execute(of_tokens)
        self._tokens_seen = self._token_views_made = True


def _parts_of(result: Any) -> Iterator[pd.DataFrame]:
    """The first part, which may be empty, is read at once: that shows what is wrong with a query."""
    first = result.fetch_df_chunk(_VECTORS_PER_PART)
    return chain([first], takewhile(len, (result.fetch_df_chunk(_VECTORS_PER_PART) for _ in count())))


@cache
def _view_scripts() -> tuple[str, str]:
    """``views.sql``: the views that a store keeps, and those on token files, which a connection makes for itself."""
    queries = [statement.query for statement in duckdb.extract_statements(script("views.sql"))]
    of_tokens = [query for query in queries if "CREATE OR REPLACE TEMP VIEW" in query]
    return ";".join(query for query in queries if query not in of_tokens), ";".join(of_tokens)


def _explain(error: Exception, path: Path) -> StoreError:
    if isinstance(error, duckdb.InterruptException):  # how DuckDB passes Ctrl-C on while a query runs
        raise KeyboardInterrupt from error
    return in_one_line(error, path)
