"""How many samples an adaptive audit plans for each problem."""

from __future__ import annotations

from diagnostics.records.types import AuditKey
from diagnostics.store.database import Database


def allocate(database: Database, key: AuditKey, checkpoint_id: str, least: int) -> int:
    """See ``Store.allocate``."""
    with database.transaction():
        database.rows(
            """
            INSERT INTO allocations
            WITH here AS (
                SELECT step FROM series_checkpoints WHERE series = $series AND checkpoint_id = $checkpoint_id
            ),
            earlier AS (
                SELECT c.problem_id, c.n, c.n_correct
                FROM sampled_counts AS c
                WHERE c.series = $series AND c.step < (SELECT step FROM here) AND c.n = c.n_planned
            ),
            decided AS (
                SELECT problem_id
                FROM earlier
                GROUP BY problem_id
                HAVING bool_and(n_correct = 0) OR bool_and(n_correct = n)
            )
            SELECT
                $audit_id,
                $checkpoint_id,
                p.problem_id,
                CASE WHEN d.problem_id IS NULL THEN $n ELSE least($n, $least) END
            FROM audit_problems AS p
            LEFT JOIN decided AS d USING (problem_id)
            WHERE p.audit_id = $audit_id
              AND NOT EXISTS (
                  FROM allocations WHERE audit_id = $audit_id AND checkpoint_id = $checkpoint_id
              )
            """,
            {
                "series": key.series,
                "audit_id": key.audit_id,
                "checkpoint_id": checkpoint_id,
                "n": key.n,
                "least": least,
            },
        )
        rows = database.rows(
            "SELECT count(*) FROM allocations WHERE audit_id = ? AND checkpoint_id = ? AND n < ?",
            [key.audit_id, checkpoint_id, key.n],
        )
    return int(rows[0][0])


def share_allocations(database: Database, first: AuditKey, key: AuditKey) -> None:
    """See ``Store.share_allocations``."""
    with database.transaction():
        database.rows(
            """
            INSERT OR IGNORE INTO allocations
            SELECT $audit_id, checkpoint_id, problem_id, n
            FROM allocations
            WHERE audit_id = $first_id
            """,
            {"audit_id": key.audit_id, "first_id": first.audit_id},
        )
