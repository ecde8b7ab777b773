"""The store of an audit: writes and queries its DuckDB file.

Writers commit in small transactions, so a process may be killed at any moment. Committed rows remain, and the queries
in ``missing`` return the remaining work.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import fields
from pathlib import Path
from types import TracebackType
from typing import Any

import pandas as pd

from oversharp.diagnostics.records.errors import ConfigError, StoreError
from oversharp.diagnostics.records.memory import half_of_free_gib
from oversharp.diagnostics.records.settings import require_memory
from oversharp.diagnostics.records.types import (
    AuditKey,
    Finding,
    ForcedResponse,
    Sample,
)
from oversharp.diagnostics.store.database import Database
from oversharp.diagnostics.store.kept import KeptSamples
from oversharp.diagnostics.store.schema import COMPATIBLE
from oversharp.diagnostics.store.ways import WaysTable
from oversharp.diagnostics.store.write_audit import AuditWriter
from oversharp.diagnostics.store.write_import import (
    INSERT_TRAJECTORIES,
    NEW_TRAJECTORY,
    ImportWriter,
    trajectory_table,
)
from oversharp.diagnostics.trajectories.sample import AgentSample
from oversharp.diagnostics.verdict.recommendation import Recommendation
from oversharp.diagnostics.verdict.record import Verdict

#: Memory limit in GiB of queries over all samples. They process samples in parts, so more memory is not faster.
MEMORY_GIB = 1.0


class Store(AuditWriter, ImportWriter):
    """A store on disk. Use it as a context manager: ``with Store.open(path) as store: …``."""

    def __init__(self, database: Database, *, for_user: bool = False) -> None:
        self._database = database
        #: Cached results that many queries use.
        self.kept = KeptSamples(database, for_user=for_user)
        self.ways = WaysTable(database)

    @classmethod
    def open(cls, path: Path, *, read_only: bool = False) -> Store:
        """Open (or, unless ``read_only``, create) the store at ``path``. Raises ``StoreError``."""
        return cls(Database(Path(path), read_only=read_only))

    @classmethod
    def open_for_user(cls, path: Path, memory_gib: float | None = None) -> Store:
        """Open a store for a user's queries, with at most ``memory_gib`` GiB."""
        require_memory(memory_gib)
        return cls(Database(Path(path), read_only=True, user_gib=memory_gib or half_of_free_gib()), for_user=True)

    @property
    def path(self) -> Path:
        """Path of the DuckDB file."""
        return self._database.path

    @property
    def notes(self) -> tuple[str, ...]:
        """Problems found when the store was opened, one line each."""
        return self._database.notes

    def close(self) -> None:
        """Close the file and release its lock."""
        self._database.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # ------------------------------------------------------------------ reading

    def frame(self, sql: str, **parameters: Any) -> pd.DataFrame:
        """Return the result of a query with ``$name`` parameters. Raises ``StoreError``."""
        self.kept.count_for(sql)
        return self._database.frame(sql, parameters)

    def parts(self, sql: str, **parameters: Any) -> Iterator[pd.DataFrame]:
        """Yield the result of a query in parts. The whole result may be larger than memory."""
        self.kept.count_for(sql)
        return self._database.parts(sql, parameters)

    def columns(self) -> pd.DataFrame:
        """Return the columns of all tables and views, with their types."""
        return self.frame(
            """
            SELECT table_name AS name, column_name AS column, data_type AS type
            FROM duckdb_columns()
            WHERE NOT internal
            -- a temporary view of this connection hides one with the same name in the file
            QUALIFY rank() OVER (PARTITION BY table_name ORDER BY database_name = 'temp' DESC) = 1
            ORDER BY table_name, column_index
            """
        )

    def verdict(self, series: str) -> Verdict | None:
        """Return the verdict on a series, or None.

        Raises ``StoreError`` for a series that was not audited.
        """
        rows = self.frame("SELECT document::VARCHAR AS document FROM verdicts WHERE series = $series", series=series)
        if len(rows):
            return Verdict.from_json(str(rows["document"].iloc[0]))
        audited = self.frame("SELECT series FROM current_audits ORDER BY series")["series"].tolist()
        if series not in audited:
            raise StoreError(
                f"{self.path}: no audit of series {series!r}; audited series: {', '.join(audited) or 'none'}"
            )
        return None

    def ship(self, series: str) -> Recommendation | None:
        """Return the result of ``oversharp.ship`` for a series; None without a verdict."""
        verdict = self.verdict(series)
        return None if verdict is None else verdict.shipping

    def require_regex(self, flag: str, pattern: str) -> None:
        """Raise ``ConfigError`` if the database cannot search with ``pattern`` (RE2 syntax)."""
        try:
            self.frame("SELECT regexp_matches('', $pattern)", pattern=pattern)
        except StoreError as error:
            detail = str(error).removeprefix(f"{self.path}: ")
            raise ConfigError(f"{flag} {pattern!r}: {detail}; use RE2 syntax, without look-around") from error

    # ------------------------------------------------------------------ registering

    def has_grades(self, verifier: str) -> bool:
        """Return whether there is any grade by ``verifier``."""
        return bool(len(self.frame("SELECT 1 FROM grades WHERE verifier = $verifier LIMIT 1", verifier=verifier)))

    def has_tokens(self) -> bool:
        """Return whether the store has token scores; without them, the views of tokens are empty."""
        return bool(self._database.rows("SELECT 1 FROM token_files LIMIT 1"))

    def bound_memory(self, gib: float | None = None) -> None:
        """Limit the memory of queries to ``gib`` GiB.

        The default is ``MEMORY_GIB``, but at most half of the free memory.
        """
        require_memory(gib)
        self._database.bound_memory(min(MEMORY_GIB, half_of_free_gib()) if gib is None else gib)

    # ------------------------------------------------------------------ samples

    def add_samples(self, settings_id: str, checkpoint_id: str, samples: Sequence[Sample]) -> int:
        """Commit the samples of a batch that the store lacks. Returns their number.

        Trajectories are committed with their turns, and with the rewards of their environment.
        Raises ``StoreError`` for a sample whose log-probability is NaN. An unknown one is None.
        """
        rows = pd.DataFrame(
            {
                "problem_id": [sample.problem_id for sample in samples],
                "greedy": [sample.greedy for sample in samples],
                "sample_index": [sample.sample_index for sample in samples],
                "response_id": [sample.response_id for sample in samples],
                "text": [sample.text for sample in samples],
                "token_ids": [None if sample.token_ids is None else list(sample.token_ids) for sample in samples],
                "n_tokens": pd.array([sample.n_tokens for sample in samples], dtype="Int64"),
                "finish_reason": [sample.finish_reason for sample in samples],
                "logp_sum_raw": pd.array([sample.logp_sum_raw for sample in samples], dtype="Float64"),
                "entropy_sum": pd.array([sample.entropy_sum for sample in samples], dtype="Float64"),
            }
        )
        if any(sample.logp_sum_raw is not None and math.isnan(sample.logp_sum_raw) for sample in samples):
            raise StoreError(
                f"{self.path}: a sample of {checkpoint_id} has the log-probability NaN; its engine is broken"
            )
        agents = [sample for sample in samples if isinstance(sample, AgentSample)]
        with self._database.transaction():
            if agents:
                turns = trajectory_table({sample.response_id: sample.turns for sample in agents})
                self._database.insert(INSERT_TRAJECTORIES, turns, where=NEW_TRAJECTORY)
                self._insert_grades(
                    (sample.problem_id, sample.response_id, *sample.reward) for sample in agents if sample.reward
                )
            return self._database.insert(
                """
                INSERT INTO samples
                SELECT
                    $checkpoint_id, problem_id, $settings_id, greedy, sample_index, response_id, text,
                    token_ids::INTEGER[], n_tokens, finish_reason, logp_sum_raw, entropy_sum
                """,
                rows,
                where="""
                NOT EXISTS (
                    FROM samples AS s
                    WHERE s.checkpoint_id = $checkpoint_id
                      AND s.settings_id = $settings_id
                      AND s.problem_id = incoming.problem_id
                      AND s.greedy = incoming.greedy
                      AND s.sample_index = incoming.sample_index
                )
                """,
                checkpoint_id=checkpoint_id,
                settings_id=settings_id,
            )

    # ------------------------------------------------------------------ grades

    # ------------------------------------------------------------------ teacher-forced responses

    def add_forced(self, key: AuditKey, checkpoint_id: str, responses: Sequence[ForcedResponse]) -> None:
        """Add teacher-forced scores with their tokens in one transaction.

        Do not add a response that already has token scores: they would be duplicated. Raises ``StoreError`` for unknown
        entropies in a store of schema 13, which cannot contain them.
        """
        if not responses:
            return
        if any(response.entropy_sum is None for response in responses):
            self._require_optional_entropies()
        rows = pd.DataFrame(
            {
                "checkpoint_id": checkpoint_id,
                "problem_id": [response.problem_id for response in responses],
                "settings_id": key.settings_id,
                "response_id": [response.response_id for response in responses],
                "logp_sum": [response.logp_sum for response in responses],
                "entropy_sum": pd.array([response.entropy_sum for response in responses], dtype="Float64"),
                "n_tokens": [response.n_tokens for response in responses],
            }
        )
        tokens = rows[["checkpoint_id", "problem_id", "settings_id", "response_id"]].assign(
            token_logps=[response.token_logps for response in responses],
            token_entropies=[response.token_entropies for response in responses],
        )
        with self._database.transaction():
            self._database.insert(
                """INSERT OR REPLACE INTO response_logps
                   SELECT checkpoint_id, problem_id, settings_id, response_id, logp_sum, entropy_sum, n_tokens""",
                rows,
            )
            self._database.write_tokens(tokens)

    def _require_optional_entropies(self) -> None:
        ((version,),) = self._database.rows("SELECT max(version) FROM schema_version")
        if version in COMPATIBLE:
            raise StoreError(
                f"{self.path}: written by older oversharp (schema {version}), which has no scores without entropies; "
                "pass another --out, or --entropy-samples 16 to score responses on this machine"
            )

    def add_forced_again(self, key: AuditKey, checkpoint_id: str, responses: Sequence[ForcedResponse]) -> None:
        """Add the log-probabilities of responses that were scored a second time, in one transaction."""
        rows = pd.DataFrame(
            {
                "problem_id": [response.problem_id for response in responses],
                "response_id": [response.response_id for response in responses],
                "logp_sum": [response.logp_sum for response in responses],
            }
        )
        with self._database.transaction():
            self._database.insert(
                """INSERT OR IGNORE INTO second_logps
                   SELECT $checkpoint_id, problem_id, $settings_id, response_id, logp_sum""",
                rows,
                checkpoint_id=checkpoint_id,
                settings_id=key.settings_id,
            )

    # ------------------------------------------------------------------ gradient kernels

    def link_kernel(self, key: AuditKey, checkpoint_id: str, kernel_id: str) -> bool:
        """Link an existing kernel to the audit. Returns False if the store lacks it."""
        with self._database.transaction():
            if not self._database.rows("SELECT 1 FROM kernels WHERE kernel_id = ?", [kernel_id]):
                return False
            linked = "SELECT 1 FROM audit_kernels WHERE audit_id = ? AND checkpoint_id = ? AND kernel_id = ?"
            if not self._database.rows(linked, [key.audit_id, checkpoint_id, kernel_id]):
                self._database.rows(
                    "INSERT OR REPLACE INTO audit_kernels VALUES (?, ?, ?, NULL)",
                    [key.audit_id, checkpoint_id, kernel_id],
                )
        return True

    def add_kernel(
        self,
        key: AuditKey,
        checkpoint_id: str,
        kernel_id: str,
        *,
        certificate: float,
        rows: pd.DataFrame,
        roles: pd.DataFrame,
        values: pd.DataFrame,
    ) -> None:
        """Add a kernel in one transaction.

        The frames have the columns of its tables, without ``kernel_id``.
        """
        with self._database.transaction():
            self._database.rows("INSERT INTO kernels VALUES (?, ?)", [kernel_id, certificate])
            for table, columns, frame in (
                ("kernel_rows", "position, problem_id, response_id, logp_sum, n_tokens", rows),
                ("kernel_roles", "position, role, sample_index, correct", roles),
                ("kernel_values", "row_position, column_position, value", values),
            ):
                self._database.insert(f"INSERT INTO {table} SELECT $kernel_id, {columns}", frame, kernel_id=kernel_id)
            self._database.rows(
                "INSERT OR REPLACE INTO audit_kernels VALUES (?, ?, ?, NULL)", [key.audit_id, checkpoint_id, kernel_id]
            )

    def add_missing_kernel(self, key: AuditKey, checkpoint_id: str, why: str) -> None:
        """Record why a checkpoint has no kernel. The next run of the audit tries again."""
        stored = self._database.rows(
            "SELECT why FROM audit_kernels WHERE audit_id = ? AND checkpoint_id = ?", [key.audit_id, checkpoint_id]
        )
        if stored == [(why,)]:
            return
        with self._database.transaction():
            self._database.rows(
                "INSERT OR REPLACE INTO audit_kernels VALUES (?, ?, NULL, ?)", [key.audit_id, checkpoint_id, why]
            )

    # ------------------------------------------------------------------ findings, verdict and events

    def replace_findings(self, key: AuditKey, findings: Sequence[Finding]) -> bool:
        """Replace the findings of an audit in one transaction. Returns False if none changed."""
        stored = self._database.rows(
            """
            SELECT
                checkpoint_id, measure, unit, scope, k, value, low, high, n, why, interval_over, why_no_interval
            FROM audit_findings
            WHERE audit_id = ?
            """,
            [key.audit_id],
        )
        names = [field.name for field in fields(Finding)]
        # astuple would copy every value
        new = [tuple(getattr(finding, name) for name in names) for finding in findings]
        if Counter(stored) == Counter(new):
            return False
        rows = pd.DataFrame(new, columns=names)
        with self._database.transaction():
            self._database.rows("DELETE FROM audit_findings WHERE audit_id = ?", [key.audit_id])
            if len(rows):
                floats = dict.fromkeys(("value", "low", "high"), "Float64")
                rows = rows.astype({"k": "Int64", "n": "Int64", **floats})
                self._database.insert(
                    """INSERT INTO audit_findings
                       SELECT $audit_id, checkpoint_id, measure, scope, k, value, low, high, n, unit,
                              why::VARCHAR, interval_over::VARCHAR, why_no_interval::VARCHAR""",
                    rows,
                    audit_id=key.audit_id,
                )
        return True

    def log_event(
        self, key: AuditKey, stage: str, *, wall_s: float, rows: int, checkpoint_id: str | None = None, note: str = ""
    ) -> None:
        """Log the end of a stage: wall time in seconds, and rows written."""
        with self._database.transaction():
            self._database.rows(
                """INSERT INTO events (audit_id, stage, checkpoint_id, wall_s, rows_written, note)
                   VALUES (?, ?, ?, ?, ?, ?)""",
                [key.audit_id, stage, checkpoint_id, wall_s, rows, note],
            )
