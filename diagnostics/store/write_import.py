"""Write a part of an imported file to the store: samples, the tool's grades, and progress."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pyarrow as pa

from oversharp.diagnostics.records.types import AuditKey
from oversharp.diagnostics.store.database import Database
from oversharp.diagnostics.store.write_audit import UNGRADED
from oversharp.diagnostics.trajectories.record import Turns, turn_row

PROBLEMS = pa.schema(
    [(name, pa.string()) for name in ("problem_id", "task", "prompt", "gold", "verifier", "source_id", "cluster")]
)
SAMPLES = pa.schema(
    [
        ("checkpoint_id", pa.string()),
        ("problem_id", pa.string()),
        ("greedy", pa.bool_()),
        ("sample_index", pa.int32()),
        ("response_id", pa.string()),
        ("text", pa.string()),
        ("n_tokens", pa.int32()),
        ("finish_reason", pa.string()),
        ("logp_sum", pa.float64()),
        ("entropy_sum", pa.float64()),
    ]
)
TURNS = pa.list_(
    pa.struct(
        [
            *((name, pa.string()) for name in ("role", "text", "reasoning")),
            (
                "calls",
                pa.list_(
                    pa.struct(
                        [
                            *((name, pa.string()) for name in ("name", "arguments", "id")),
                            ("is_valid", pa.bool_()),
                            ("result", pa.int32()),
                        ]
                    )
                ),
            ),
            *((name, pa.string()) for name in ("name", "call_id")),
            ("is_error", pa.bool_()),
            ("n_tokens", pa.int32()),
            ("logp_sum", pa.float64()),
            ("is_trained", pa.bool_()),
            ("extra", pa.string()),
        ]
    )
)
TRAJECTORIES = pa.schema([("response_id", pa.string()), ("turns", TURNS)])
GRADES = pa.schema(
    [
        ("problem_id", pa.string()),
        ("response_id", pa.string()),
        ("verifier", pa.string()),
        ("answer", pa.string()),
        ("reward", pa.float64()),
        ("correct", pa.bool_()),
    ]
)

#: Statement and condition that insert rows of ``TRAJECTORIES``.
INSERT_TRAJECTORIES = "INSERT INTO trajectories SELECT response_id, turns"
NEW_TRAJECTORY = "response_id NOT IN (SELECT response_id FROM trajectories)"

_INSERT_GRADES = """
    INSERT INTO grades
    SELECT problem_id, response_id, verifier, answer, NULL, reward, correct, 'ok', '', NULL, NULL, NULL, NULL
"""


@dataclass(frozen=True, kw_only=True)
class FaultCount:
    """Number of records of one file that have the same fault, and the line of the first."""

    n: int
    first_line: int


@dataclass(frozen=True, kw_only=True)
class Recording:
    """A part of an imported file.

    The tables have the columns of ``PROBLEMS``, ``SAMPLES``, ``TRAJECTORIES`` and ``GRADES``. The store has none of
    ``new_grades`` yet, but may have some of ``other_grades``. ``lines_done``, ``n_samples`` and ``faults`` count from
    the beginning of the file.
    """

    series: str
    settings_id: str
    file_hash: str
    path: str
    format: str
    verifier: str
    n_bytes: int
    lines_done: int
    n_samples: int
    complete: bool
    problems: pa.Table
    samples: pa.Table
    trajectories: pa.Table
    new_grades: pa.Table
    other_grades: pa.Table
    faults: Mapping[str, FaultCount]


@dataclass(frozen=True, kw_only=True)
class ImportedFile:
    """Progress of an earlier import of a file."""

    file_hash: str
    n_bytes: int
    lines_done: int
    n_samples: int
    complete: bool
    faults: Mapping[str, FaultCount]


_CLOSE_GAPS = """
    WITH gapped AS (
        SELECT checkpoint_id, problem_id, greedy
        FROM samples
        WHERE settings_id = $settings_id
          AND checkpoint_id IN (SELECT checkpoint_id FROM series_checkpoints WHERE series = $series)
        GROUP BY ALL
        HAVING max(sample_index) >= count(*)
    ),
    ranked AS (
        SELECT
            checkpoint_id, problem_id, greedy, sample_index,
            row_number() OVER (PARTITION BY checkpoint_id, problem_id, greedy ORDER BY sample_index) - 1 AS place
        FROM samples
        SEMI JOIN gapped USING (checkpoint_id, problem_id, greedy)
        WHERE settings_id = $settings_id
    )
    UPDATE samples
    SET sample_index = place
    FROM ranked AS r
    WHERE samples.settings_id = $settings_id
      AND samples.checkpoint_id = r.checkpoint_id
      AND samples.problem_id = r.problem_id
      AND samples.greedy = r.greedy
      AND samples.sample_index = r.sample_index
      AND r.sample_index <> r.place
"""


def trajectory_table(turns: Mapping[str, Turns]) -> pa.Table:
    """Return rows of ``TRAJECTORIES`` for turns by ``response_id``."""
    rows = [[turn_row(turn) for turn in each] for each in turns.values()]
    return pa.table([pa.array(list(turns), pa.string()), pa.array(rows, TURNS)], schema=TRAJECTORIES)


class ImportWriter:
    """Base class of ``Store`` with the methods that write imports."""

    _database: Database

    def add_recorded(self, part: Recording) -> None:
        """Commit a part of an imported file, with the number of lines read, in one transaction."""
        with self._database.transaction():
            self._database.insert(
                """INSERT OR IGNORE INTO problems
                   SELECT problem_id, task, prompt, gold, verifier, source_id, NULL,
                          CASE WHEN cluster IS NULL THEN '{}' ELSE json_object('cluster', cluster) END""",
                part.problems,
            )
            self._database.insert(
                """INSERT INTO samples
                   SELECT checkpoint_id, problem_id, $settings_id, greedy, sample_index, response_id, text, NULL,
                          n_tokens, finish_reason, logp_sum, entropy_sum""",
                part.samples,
                settings_id=part.settings_id,
            )
            if len(part.trajectories):
                self._database.insert(INSERT_TRAJECTORIES, part.trajectories, where=NEW_TRAJECTORY)
            self._database.insert(_INSERT_GRADES, part.new_grades)
            if len(part.other_grades):
                self._database.insert(_INSERT_GRADES, part.other_grades, where=UNGRADED)
            # a file that has grown replaces its earlier row
            replaced = [part.series, part.path, part.file_hash]
            self._database.rows(
                """
                DELETE FROM import_faults WHERE series = $1 AND file_hash IN (
                    SELECT file_hash FROM imports WHERE series = $1 AND path = $2 AND file_hash <> $3
                )
                """,
                replaced,
            )
            self._database.rows("DELETE FROM imports WHERE series = $1 AND path = $2 AND file_hash <> $3", replaced)
            self._database.rows(
                "INSERT OR REPLACE INTO imports VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                [
                    *(part.series, part.file_hash, part.path, part.format, part.verifier),
                    *(part.n_bytes, part.lines_done, part.n_samples, part.complete),
                ],
            )
            for why, count in part.faults.items():
                self._database.rows(
                    "INSERT OR REPLACE INTO import_faults VALUES (?, ?, ?, ?, ?)",
                    [part.series, part.file_hash, why, count.n, count.first_line],
                )

    def find_import(self, series: str, file_hash: str) -> ImportedFile | None:
        """Return the progress of the import of a file with this content into ``series``, or None."""
        return self._load_import("file_hash", series, file_hash)

    def find_import_from(self, series: str, path: Path) -> ImportedFile | None:
        """Return the progress of the import from ``path`` into ``series``, or None.

        The content of the file may have changed since.
        """
        return self._load_import("path", series, str(path.resolve()))

    def _load_import(self, column: str, series: str, value: str) -> ImportedFile | None:
        rows = self._database.rows(
            "SELECT file_hash, n_bytes, lines_done, n_samples, complete FROM imports "
            f"WHERE series = ? AND {column} = ?",
            [series, value],
        )
        if not rows:
            return None
        file_hash, n_bytes, lines_done, n_samples, complete = rows[0]
        faults = self._database.rows(
            "SELECT why, n, first_line FROM import_faults WHERE series = ? AND file_hash = ?", [series, file_hash]
        )
        return ImportedFile(
            file_hash=file_hash,
            n_bytes=n_bytes,
            lines_done=lines_done,
            n_samples=n_samples,
            complete=complete,
            faults={why: FaultCount(n=n, first_line=first) for why, n, first in faults},
        )

    def plan_recorded(self, key: AuditKey, more: pd.DataFrame) -> None:
        """Renumber imported samples without gaps, and add the rows of ``more`` to the plan.

        ``more`` has the columns ``checkpoint_id``, ``problem_id`` and ``n``.
        """
        with self._database.transaction():
            self._database.rows(_CLOSE_GAPS, {"series": key.series, "settings_id": key.settings_id})
            self._database.insert(
                "INSERT OR IGNORE INTO stops SELECT $audit_id, checkpoint_id, $settings_id, problem_id, n",
                more,
                audit_id=key.audit_id,
                settings_id=key.settings_id,
            )
