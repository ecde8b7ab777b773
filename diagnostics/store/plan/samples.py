"""Planned numbers of samples: of an audit and its controls, and by the rounds of a stopping rule."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import pandas as pd

from oversharp.diagnostics.records.types import AuditKey
from oversharp.diagnostics.store.schema import script

if TYPE_CHECKING:
    from oversharp.diagnostics.store.store import Store


#: Common table expression with the planned samples of an audit. If the audit has a stopping rule and was regraded, the
#: second grades may need more samples.
PLANNED = """
planned AS (
    SELECT w.checkpoint_id, w.settings_id, w.problem_id, max(w.n_planned) AS n_planned
    FROM planned_samples AS w
    JOIN audits AS a USING (audit_id)
    WHERE w.audit_id = $audit_id
       OR (
           a.series = $series || ' (' || a.verifier || ')'
           AND a.settings_id = $settings_id
           AND a.n = $n
           AND a.n_base = $n_base
           AND a.first_round = $first_round
           AND a.enough = $enough
           AND w.problem_id IN (SELECT problem_id FROM audit_problems WHERE audit_id = $audit_id)
       )
    GROUP BY ALL
)
"""


def plan_parameters(key: AuditKey) -> dict[str, Any]:
    """Return the query parameters of ``_PLANNED``."""
    names = ("audit_id", "series", "settings_id", "n", "n_base", "first_round", "enough")
    return {name: getattr(key, name) for name in names}


def planned_samples(store: Store, key: AuditKey, checkpoint_id: str) -> dict[str, int]:
    """Return the number of planned samples of each problem for one checkpoint."""
    rows = store.frame(
        f"""
        WITH {PLANNED}
        SELECT problem_id, n_planned
        FROM planned
        WHERE checkpoint_id = $checkpoint_id
        ORDER BY problem_id
        """,
        checkpoint_id=checkpoint_id,
        **plan_parameters(key),
    )
    return {str(row.problem_id): int(row.n_planned) for row in rows.itertuples()}


def planned_controls(store: Store, key: AuditKey, checkpoint_id: str, settings_id: str) -> dict[str, int]:
    """Return the number of planned samples of each problem for one control of a checkpoint."""
    rows = store.frame(
        """
        SELECT
            ap.problem_id,
            CASE WHEN a.first_round IS NULL THEN o.n ELSE coalesce(st.n, least(a.first_round, o.n)) END AS n
        FROM audits AS a
        JOIN audit_controls AS o USING (audit_id)
        JOIN audit_problems AS ap USING (audit_id)
        LEFT JOIN stops AS st
            ON st.audit_id = o.audit_id
            AND st.checkpoint_id = o.checkpoint_id
            AND st.settings_id = o.settings_id
            AND st.problem_id = ap.problem_id
        WHERE a.audit_id = $audit_id AND o.checkpoint_id = $checkpoint_id AND o.settings_id = $settings_id
        ORDER BY ap.problem_id
        """,
        audit_id=key.audit_id,
        checkpoint_id=checkpoint_id,
        settings_id=settings_id,
    )
    return {str(row.problem_id): int(row.n) for row in rows.itertuples()}


class OtherDraw(NamedTuple):
    """Plan of ``n`` additional samples per problem and checkpoint, under other settings."""

    checkpoint_id: str
    settings_id: str
    n: int


def samples_to_draw(store: Store, key: AuditKey, besides: Sequence[OtherDraw] = ()) -> dict[str, int]:
    """Return the number of missing samples of each incomplete checkpoint of this audit.

    This includes greedy responses, and the samples of the plans in ``besides`` (panel, controls).
    """
    rows = store.frame(
        f"""
        WITH {PLANNED},
        wanted AS (
            SELECT checkpoint_id, settings_id, problem_id, n_planned AS n, 1 AS n_greedy
            FROM planned
            UNION ALL
            SELECT d.checkpoint_id, d.settings_id, ap.problem_id, coalesce(st.n, d.n), 0
            FROM (
                SELECT unnest($checkpoints::VARCHAR[]) AS checkpoint_id, unnest($settings::VARCHAR[]) AS settings_id,
                    unnest($ns::BIGINT[]) AS n
            ) AS d
            CROSS JOIN audit_problems AS ap
            LEFT JOIN stops AS st  -- a control that a stopping rule has planned
                ON st.audit_id = ap.audit_id
                AND st.checkpoint_id = d.checkpoint_id
                AND st.settings_id = d.settings_id
                AND st.problem_id = ap.problem_id
            WHERE ap.audit_id = $audit_id
        ),
        present AS (
            SELECT
                checkpoint_id, settings_id, problem_id,
                count(*) FILTER (NOT greedy) AS n_present,
                count(*) FILTER (greedy) AS n_greedy_present
            FROM samples
            GROUP BY ALL
        )
        SELECT
            checkpoint_id,
            sum(greatest(0, n - coalesce(n_present, 0)) + greatest(0, n_greedy - coalesce(n_greedy_present, 0)))
                AS n_missing
        FROM wanted
        LEFT JOIN present USING (checkpoint_id, settings_id, problem_id)
        GROUP BY checkpoint_id
        ORDER BY checkpoint_id
        """,
        **plan_parameters(key),
        checkpoints=[draw.checkpoint_id for draw in besides],
        settings=[draw.settings_id for draw in besides],
        ns=[draw.n for draw in besides],
    )
    return {str(row.checkpoint_id): int(row.n_missing) for row in rows.itertuples() if row.n_missing}


def rounds_of(store: Store, key: AuditKey) -> pd.DataFrame:
    """Return the rounds of the audit ``key`` if its samples were drawn by the stopping rule of ``key``.

    The rule and the largest numbers of samples may differ from those in the store. Rows as in
    ``AuditWriter.plan_rounds``; nothing is written.
    """
    rule = {name: getattr(key, name) for name in ("n", "n_base", "first_round", "enough")}
    return store.frame(
        f"""
        SELECT * EXCLUDE (settings_id)
        FROM ({script("rounds.sql").rstrip()})
        WHERE settings_id = $settings_id
        ORDER BY checkpoint_id, problem_id
        """,
        audit_id=key.audit_id,
        settings_id=key.settings_id,
        checkpoint_ids=None,
        rule=rule,
    )
