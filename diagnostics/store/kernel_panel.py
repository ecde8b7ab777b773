"""Select the responses of a checkpoint's gradient kernel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from jaxtyping import Float

from oversharp.diagnostics.records.types import AuditKey, Checkpoint, SamplingSettings, content_hash

if TYPE_CHECKING:
    from oversharp.diagnostics.store import Store

#: Roles, highest priority first. A response with several roles takes its tokens from the first.
ROLES = ("panel", "own", "mode", "batch")
_ROW = ["problem_id", "response_id"]


@dataclass(frozen=True, kw_only=True)
class KernelPlan:
    """Responses of one kernel.

    ``rows`` has one row per distinct response, ordered by position in the kernel: ``problem_id, response_id, prompt,
    text, ends, token_ids``. ``roles`` has one row per role and sample: ``position, role, sample_index, correct``.
    """

    kernel_id: str
    rows: pd.DataFrame
    roles: pd.DataFrame


def plan_kernel(store: Store, key: AuditKey, checkpoint: Checkpoint, settings: SamplingSettings) -> KernelPlan | None:
    """Select the responses of a checkpoint's kernel; None without a panel.

    Problems with both correct and incorrect panel responses come first. The order of the rest does not depend on
    results. Each problem contributes:

    - its distinct panel responses,
    - enumerated correct modes that the panel lacks,
    - the first own samples of the checkpoint, if they were sampled at temperature 1 without truncation of the
      distribution.

    The kernel also has the complete groups of the same number of training prompts, from the batches between this
    checkpoint and the next.
    """
    members = _members(store, key, checkpoint, settings)
    if members.empty:
        return None
    members["rank"] = members["role"].map(ROLES.index)
    members = members.sort_values([*_ROW, "rank", "sample_index"], kind="stable")
    rows = members.drop_duplicates(_ROW).reset_index(drop=True)
    positions = {(row.problem_id, row.response_id): position for position, row in enumerate(rows.itertuples())}
    roles = pd.DataFrame(
        {
            "position": [positions[row.problem_id, row.response_id] for row in members.itertuples()],
            "role": members["role"].tolist(),
            "sample_index": members["sample_index"].tolist(),
            "correct": members["correct"].tolist(),
        }
    )
    identity = (
        checkpoint.trained.checkpoint_id,
        key.settings_id,
        rows[_ROW].to_numpy().tolist(),
        roles.to_numpy().tolist(),
    )
    kept = rows[[*_ROW, "prompt", "text", "ends", "token_ids"]]
    return KernelPlan(kernel_id=content_hash(*identity), rows=kept, roles=roles)


def upper_triangle(kernel_NN: Float[np.ndarray, "row row"]) -> pd.DataFrame:
    """Return ``row_position, column_position, value`` of every pair ``row <= column``.

    >>> upper_triangle(np.array([[1.0, 2.0], [2.0, 3.0]])).values.tolist()
    [[0.0, 0.0, 1.0], [0.0, 1.0, 2.0], [1.0, 1.0, 3.0]]
    """
    row_L, column_L = np.triu_indices(len(kernel_NN))
    return pd.DataFrame({"row_position": row_L, "column_position": column_L, "value": kernel_NN[row_L, column_L]})


def _members(store: Store, key: AuditKey, checkpoint: Checkpoint, settings: SamplingSettings) -> pd.DataFrame:
    own_law = settings.temperature == 1.0 and settings.top_p == 1.0 and settings.top_k == 0
    return store.frame(
        """
        WITH drawn AS (
            SELECT s.problem_id, s.response_id, s.sample_index, s.text, s.token_ids, s.correct
            FROM audit_samples AS s
            WHERE s.audit_id = $audit_id AND s.role = 'panel' AND s.token_ids IS NOT NULL
              AND s.correct IS NOT NULL
        ),
        chosen AS (
            SELECT problem_id
            FROM drawn
            GROUP BY problem_id
            ORDER BY count(DISTINCT correct) DESC, count(DISTINCT response_id) > 1 DESC, md5(problem_id)
            LIMIT $problems
        ),
        listed AS (
            SELECT
                m.problem_id,
                m.response_id,
                row_number() OVER (PARTITION BY m.problem_id ORDER BY md5(m.mode)) - 1 AS sample_index,
                m.mode AS text
            FROM modes AS m
            SEMI JOIN chosen USING (problem_id)
        ),
        candidates AS (
            SELECT d.problem_id, d.response_id, min(d.sample_index) AS place, 0 AS kind
            FROM drawn AS d
            SEMI JOIN chosen USING (problem_id)
            GROUP BY ALL
            UNION ALL
            SELECT l.problem_id, l.response_id, l.sample_index, 1
            FROM listed AS l
            ANTI JOIN drawn USING (problem_id, response_id)
        ),
        numbered AS (
            SELECT *, row_number() OVER (PARTITION BY problem_id, kind ORDER BY place, response_id) AS number
            FROM candidates
        ),
        fixed AS (
            SELECT problem_id, response_id
            FROM numbered
            -- two thirds from the panel, then the modes it lacks, then the rest of the panel
            QUALIFY row_number() OVER (
                PARTITION BY problem_id
                ORDER BY CASE WHEN kind = 1 THEN 1 WHEN 3 * number <= 2 * $responses THEN 0 ELSE 2 END, number
            ) <= $responses
        ),
        own AS (
            SELECT s.problem_id, s.response_id, s.sample_index, s.text, s.token_ids, s.correct
            FROM own_samples AS s
            SEMI JOIN chosen USING (problem_id)
            WHERE $own_law AND s.audit_id = $audit_id AND s.step = $step AND NOT s.greedy
              AND s.sample_index < least($responses, $n) AND s.token_ids IS NOT NULL
              AND s.correct IS NOT NULL
        ),
        next AS (
            SELECT min(step) AS step FROM series_checkpoints WHERE series = $series AND step > $step
        ),
        trained AS (
            SELECT r.problem_id, r.prompt, r.response_id, r.text, r.truncated, r.correct, r.draws
            FROM training_responses AS r
            JOIN next USING (step)
            -- only scored responses: the others cannot be encoded in the checkpoint's tokens
            SEMI JOIN response_logps AS c
                ON c.checkpoint_id = $checkpoint_id
                AND c.settings_id = $settings_id
                AND c.problem_id = r.problem_id
                AND c.response_id = r.response_id
            WHERE r.series = $series
        ),
        groups AS (
            SELECT problem_id, count(DISTINCT correct) AS kinds, count(*) AS n_rows
            FROM trained
            GROUP BY problem_id
        ),
        prompts AS (
            SELECT problem_id
            FROM groups
            -- complete groups, which advantages need, but at most as many rows as the rest of the kernel
            QUALIFY sum(n_rows) OVER (ORDER BY kinds DESC, n_rows > 1 DESC, md5(problem_id))
                <= 2 * $problems * $responses
            ORDER BY kinds DESC, n_rows > 1 DESC, md5(problem_id)
            LIMIT $problems
        ),
        draws AS (
            SELECT * REPLACE (unnest(range(draws)) AS draws) FROM trained SEMI JOIN prompts USING (problem_id)
        ),
        batch AS (
            SELECT *, row_number() OVER (PARTITION BY problem_id ORDER BY response_id, draws) - 1 AS sample_index
            FROM draws
        ),
        members AS (
            SELECT problem_id, response_id, 'panel' AS role, sample_index, text, true AS ends, token_ids, correct
            FROM drawn SEMI JOIN fixed USING (problem_id, response_id)
            UNION ALL
            SELECT problem_id, response_id, 'mode', sample_index, text, true, NULL, true
            FROM listed SEMI JOIN fixed USING (problem_id, response_id)
            UNION ALL
            SELECT problem_id, response_id, 'own', sample_index, text, true, token_ids, correct FROM own
        )
        SELECT m.problem_id, m.response_id, p.prompt, m.role, m.sample_index, m.text, m.ends, m.token_ids, m.correct
        FROM members AS m
        JOIN problems AS p USING (problem_id)
        UNION ALL
        SELECT problem_id, response_id, prompt, 'batch', sample_index, text, NOT truncated, NULL, correct FROM batch
        ORDER BY problem_id, response_id, role, sample_index
        """,
        series=key.series,
        audit_id=key.audit_id,
        settings_id=key.settings_id,
        problems=key.kernel_problems,
        responses=key.kernel_responses,
        n=key.n,
        checkpoint_id=checkpoint.checkpoint_id,
        step=checkpoint.step,
        own_law=own_law,
    )
