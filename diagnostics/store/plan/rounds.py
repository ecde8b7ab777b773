"""Numbers of samples that a stopping rule plans, from the grades alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pandas as pd

from oversharp.diagnostics.store.schema import script

if TYPE_CHECKING:
    from oversharp.diagnostics.store.database import Database


def plan_rounds(database: Database, audit_id: str, checkpoint_ids: Sequence[str] | None = None) -> pd.DataFrame:
    """Plan the rounds of an audit. See ``AuditWriter.plan_rounds``. Must be called in a transaction."""
    chosen = {
        "audit_id": audit_id,
        "checkpoint_ids": None if checkpoint_ids is None else list(checkpoint_ids),
        "rule": None,
    }
    database.rows(f"CREATE OR REPLACE TEMP TABLE planned_rounds AS {script('rounds.sql')}", chosen)
    database.rows(
        """
        INSERT OR REPLACE INTO stops
        SELECT $audit_id, checkpoint_id, settings_id, problem_id, n
        FROM planned_rounds AS w
        WHERE NOT EXISTS (
            FROM stops AS st
            WHERE st.audit_id = $audit_id
              AND st.checkpoint_id = w.checkpoint_id
              AND st.settings_id = w.settings_id
              AND st.problem_id = w.problem_id
              AND st.n = w.n
        )
        """,
        {"audit_id": audit_id},
    )
    own = "(SELECT settings_id FROM audits WHERE audit_id = $audit_id)"
    planned = database.frame(
        f"""
        SELECT * EXCLUDE (settings_id)
        FROM planned_rounds
        WHERE settings_id = {own}
        ORDER BY checkpoint_id, problem_id
        """,
        {"audit_id": audit_id},
    )
    database.rows("DROP TABLE planned_rounds")
    return planned
