"""The one DuckDB file that everything passes through: what the audit writes, asks for, and reads.

Writers commit in small transactions, so a process may be killed at any moment: what was committed stays,
what was not is simply missing and is asked for again by the ``missing_*`` methods.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, astuple
from pathlib import Path
from types import TracebackType
from typing import Any

import pandas as pd

from diagnostics.database import Database
from diagnostics.errors import ConfigError, StoreError
from diagnostics.registry import record_provenance, register_audit, register_problems, register_series
from diagnostics.types import (
    AuditKey,
    Finding,
    Grade,
    Problem,
    ResponseScore,
    Sample,
    SamplingSettings,
    Series,
    response_id,
)


class Store:
    """A store on disk. Use as a context manager: ``with Store.open(path) as store: …``."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @classmethod
    def open(cls, path: Path, *, read_only: bool = False) -> Store:
        """Open (or, unless ``read_only``, create and migrate) the store at ``path``. Raises ``StoreError``."""
        return cls(Database(Path(path), read_only=read_only))

    @property
    def path(self) -> Path:
        """Where the DuckDB file lies."""
        return self._database.path

    def close(self) -> None:
        """Close the file and let go of its lock."""
        self._database.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # ------------------------------------------------------------------ reading

    def frame(self, sql: str, **parameters: Any) -> pd.DataFrame:
        """The result of one query with ``$name`` parameters as a DataFrame.

        Raises:
            StoreError: the statement is wrong or the file cannot be read.
        """
        return self._database.frame(sql, parameters)

    def columns(self) -> pd.DataFrame:
        """Every public table and view with its columns and types."""
        return self.frame(
            """
            SELECT table_name AS name, column_name AS column, data_type AS type
            FROM duckdb_columns()
            WHERE NOT internal
            ORDER BY table_name, column_index
            """
        )

    def require_regex(self, flag: str, pattern: str) -> None:
        """Raise ``ConfigError`` if the database cannot search with ``pattern`` (RE2: no look-around, no references)."""
        try:
            self.frame("SELECT regexp_matches('', $pattern)", pattern=pattern)
        except StoreError as error:
            detail = str(error).removeprefix(f"{self.path}: ")
            raise ConfigError(f"{flag} {pattern!r}: {detail}; use RE2 syntax, without look-around") from error

    # ------------------------------------------------------------------ registering

    def add_series(self, series: Series) -> None:
        """Register or update a series. Raises ``StoreError`` if another one has its name."""
        register_series(self._database, series)

    def add_problems(self, problems: Sequence[Problem]) -> None:
        """Register problems and their enumerated modes; known ones are left as they are."""
        register_problems(self._database, problems)

    def begin_audit(
        self,
        key: AuditKey,
        *,
        settings: SamplingSettings,
        problem_ids: Sequence[str],
    ) -> None:
        """Register what is about to be compared and make it the current audit of its series."""
        register_audit(self._database, key, settings=settings, problem_ids=problem_ids)

    def end_audit(self, key: AuditKey, provenance: Mapping[str, Any]) -> None:
        """Record the command, the versions and what had to be left out."""
        record_provenance(self._database, key, provenance)

    # ------------------------------------------------------------------ samples

    def missing_samples(
        self, key: AuditKey, checkpoint_id: str, problem_ids: Sequence[str]
    ) -> dict[str, tuple[tuple[int, ...], bool]]:
        """Per problem that lacks any: the sample indices below ``key.n`` still to draw, and whether greedy is."""
        present = self.frame(
            """
            SELECT
                problem_id,
                list(sample_index) FILTER (NOT greedy) AS indices,
                bool_or(greedy) AS has_greedy
            FROM samples
            WHERE checkpoint_id = $checkpoint_id AND settings_id = $settings_id AND sample_index < $n
            GROUP BY problem_id
            ORDER BY problem_id
            """,
            checkpoint_id=checkpoint_id,
            settings_id=key.settings_id,
            n=key.n,
        ).set_index("problem_id")
        wanted: dict[str, tuple[tuple[int, ...], bool]] = {}
        for problem_id in problem_ids:
            if problem_id in present.index:
                held = present.at[problem_id, "indices"]
                have = set() if held is None else {int(index) for index in held}
                greedy = not bool(present.at[problem_id, "has_greedy"])
            else:
                have, greedy = set(), True
            indices = tuple(index for index in range(key.n) if index not in have)
            if indices or greedy:
                wanted[problem_id] = (indices, greedy)
        return wanted

    def add_samples(self, key: AuditKey, checkpoint_id: str, samples: Sequence[Sample]) -> int:
        """Commit one batch; rows that are already there are skipped. Returns the number of new rows."""
        rows = pd.DataFrame(
            {
                "problem_id": [sample.problem_id for sample in samples],
                "greedy": [sample.greedy for sample in samples],
                "sample_index": [sample.sample_index for sample in samples],
                "response_id": [response_id(sample.text) for sample in samples],
                "text": [sample.text for sample in samples],
                "token_ids": [list(sample.token_ids) for sample in samples],
                "n_tokens": [sample.n_tokens for sample in samples],
                "finish_reason": [sample.finish_reason for sample in samples],
                "logp_sum_raw": [sample.logp_sum_raw for sample in samples],
            }
        )
        with self._database.transaction():
            return self._database.insert(
                """
                INSERT INTO samples
                SELECT
                    $checkpoint_id, problem_id, $settings_id, greedy, sample_index, response_id, text,
                    token_ids::INTEGER[], n_tokens, finish_reason, logp_sum_raw
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
                settings_id=key.settings_id,
            )

    # ------------------------------------------------------------------ grades

    def ungraded(self, key: AuditKey) -> pd.DataFrame:
        """Distinct responses of this audit without a grade by their problem's verifier, in a fixed order."""
        return self.frame(
            """
            WITH responses AS (
                SELECT DISTINCT s.problem_id, s.response_id, p.verifier
                FROM samples AS s
                JOIN audit_problems AS ap ON ap.problem_id = s.problem_id AND ap.audit_id = $audit_id
                JOIN series_checkpoints AS c ON c.checkpoint_id = s.checkpoint_id AND c.series = $series
                JOIN problems AS p ON p.problem_id = s.problem_id
                WHERE s.settings_id = $settings_id AND s.sample_index < $n
            ),
            pending AS (
                FROM responses ANTI JOIN grades USING (problem_id, response_id, verifier)
            )
            SELECT r.problem_id, r.response_id, r.verifier, any_value(s.text) AS text
            FROM pending AS r
            JOIN samples AS s USING (problem_id, response_id)
            GROUP BY r.problem_id, r.response_id, r.verifier
            ORDER BY r.problem_id, r.response_id
            """,
            audit_id=key.audit_id,
            series=key.series,
            settings_id=key.settings_id,
            n=key.n,
        )

    def add_grades(self, rows: Iterable[tuple[str, str, str, Grade]]) -> None:
        """Commit grades given as (problem_id, response_id, verifier, grade)."""
        frame = pd.DataFrame(
            [
                {
                    "problem_id": problem_id,
                    "response_id": response,
                    "verifier": verifier,
                    "answer": grade.answer,
                    "mode": grade.mode,
                    "reward": grade.reward,
                    "correct": grade.correct,
                    "state": grade.state,
                    "reason": grade.reason,
                }
                for problem_id, response, verifier, grade in rows
            ]
        )
        if frame.empty:
            return
        with self._database.transaction():
            self._database.insert(
                """INSERT OR IGNORE INTO grades
                   SELECT problem_id, response_id, verifier, answer, mode::VARCHAR, reward, correct, state, reason""",
                frame,
            )

    # ------------------------------------------------------------------ teacher-forced scores

    def unscored_samples(self, key: AuditKey, checkpoint_id: str) -> pd.DataFrame:
        """Own samples still to be teacher-forced: ``problem_id, response_id, token_ids``."""
        return self.frame(
            """
            SELECT s.problem_id, s.response_id, any_value(s.token_ids) AS token_ids
            FROM samples AS s
            JOIN audit_problems AS ap ON ap.problem_id = s.problem_id AND ap.audit_id = $audit_id
            WHERE s.checkpoint_id = $checkpoint_id
              AND s.settings_id = $settings_id
              AND NOT s.greedy
              AND s.sample_index < $entropy_samples
              AND s.token_ids IS NOT NULL
              AND NOT EXISTS (
                  FROM response_scores AS r
                  WHERE r.checkpoint_id = s.checkpoint_id
                    AND r.problem_id = s.problem_id
                    AND r.settings_id = s.settings_id
                    AND r.response_id = s.response_id
              )
            GROUP BY s.problem_id, s.response_id
            ORDER BY s.problem_id, s.response_id
            """,
            audit_id=key.audit_id,
            checkpoint_id=checkpoint_id,
            settings_id=key.settings_id,
            entropy_samples=key.entropy_samples,
        )

    def unscored_modes(self, key: AuditKey, checkpoint_id: str) -> pd.DataFrame:
        """Enumerated modes still to be teacher-forced: ``problem_id, response_id, mode``."""
        return self.frame(
            """
            SELECT m.problem_id, m.response_id, m.mode
            FROM modes AS m
            JOIN audit_problems AS ap ON ap.problem_id = m.problem_id AND ap.audit_id = $audit_id
            WHERE NOT EXISTS (
                FROM response_scores AS r
                WHERE r.checkpoint_id = $checkpoint_id
                  AND r.problem_id = m.problem_id
                  AND r.settings_id = $settings_id
                  AND r.response_id = m.response_id
            )
            ORDER BY m.problem_id, m.response_id
            """,
            audit_id=key.audit_id,
            checkpoint_id=checkpoint_id,
            settings_id=key.settings_id,
        )

    def add_scores(self, key: AuditKey, checkpoint_id: str, scores: Sequence[ResponseScore]) -> None:
        """Add teacher-forced scores in one transaction; a response that is scored already keeps its score."""
        if not scores:
            return
        with self._database.transaction():
            self._database.insert(
                """INSERT OR IGNORE INTO response_scores
                   SELECT $checkpoint_id, problem_id, $settings_id, response_id, logp_sum, entropy_sum, n_tokens""",
                pd.DataFrame([asdict(score) for score in scores]),
                checkpoint_id=checkpoint_id,
                settings_id=key.settings_id,
            )

    # ------------------------------------------------------------------ findings and events

    def replace_findings(self, key: AuditKey, findings: Sequence[Finding]) -> bool:
        """Put the findings of one audit in place of its earlier ones, in one transaction; False if none changed."""
        held = self._database.rows(
            """
            SELECT checkpoint_id, measure, unit, scope, k, value, low, high, n, why
            FROM audit_findings
            WHERE audit_id = ?
            """,
            [key.audit_id],
        )
        if Counter(held) == Counter(astuple(finding) for finding in findings):
            return False
        rows = pd.DataFrame([asdict(finding) for finding in findings])
        with self._database.transaction():
            self._database.rows("DELETE FROM audit_findings WHERE audit_id = ?", [key.audit_id])
            if len(rows):
                rows = rows.astype(
                    {"k": "Int64", "n": "Int64", "value": "Float64", "low": "Float64", "high": "Float64"}
                )
                self._database.insert(
                    """INSERT INTO audit_findings
                       SELECT $audit_id, checkpoint_id, measure, scope, k, value, low, high, n, unit, why::VARCHAR""",
                    rows,
                    audit_id=key.audit_id,
                )
        return True

    def log_event(
        self, key: AuditKey, stage: str, *, wall_s: float, rows: int, checkpoint_id: str | None = None, note: str = ""
    ) -> None:
        """Log that a stage of an audit has ended: wall seconds taken, rows written, in one transaction."""
        with self._database.transaction():
            self._database.rows(
                """INSERT INTO events (audit_id, stage, checkpoint_id, wall_s, rows_written, note)
                   VALUES (?, ?, ?, ?, ?, ?)""",
                [key.audit_id, stage, checkpoint_id, wall_s, rows, note],
            )
