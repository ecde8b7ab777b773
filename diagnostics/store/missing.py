"""Queries for the samples, grades and scores that an audit still needs.

With them, a killed audit can continue.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pandas as pd

from oversharp.diagnostics.records.types import AuditKey
from oversharp.diagnostics.store.ways import text_blocks
from oversharp.diagnostics.verifiers import RULES

if TYPE_CHECKING:
    from oversharp.diagnostics.store import Store

#: Common table expression with the current rules version of each verifier.
_TODAY = "today AS (SELECT unnest($verifiers::VARCHAR[]) AS verifier, unnest($rules::INTEGER[]) AS rules)"


def _rules() -> dict[str, list[Any]]:
    """Return the query parameters of ``_TODAY``."""
    return {"verifiers": list(RULES), "rules": list(RULES.values())}


@dataclass(frozen=True, kw_only=True)
class StoredDraws:
    """Sampling settings of an earlier audit, used as defaults of later ones; None if unknown."""

    sampler: str
    chat: bool | None
    chat_args: str | None
    dtype: str | None


def stored_draws(store: Store, series: str) -> StoredDraws | None:
    """Return the sampling settings of the series' current audit; None if it has no samples."""
    rows = store.frame(
        """
        SELECT t.*
        FROM current_audits AS a
        JOIN settings AS t USING (settings_id)
        SEMI JOIN samples USING (settings_id)
        WHERE a.series = $series
        """,
        series=series,
    )
    if rows.empty:
        return None
    row = rows.iloc[0]
    return StoredDraws(
        sampler=str(row["sampler"]),
        chat=None if pd.isna(row["chat"]) else bool(row["chat"]),
        chat_args=None if pd.isna(row["chat_args"]) else str(row["chat_args"]),
        dtype=None if pd.isna(row["dtype"]) else str(row["dtype"]),
    )


def missing_samples(
    store: Store, settings_id: str, checkpoint_id: str, planned: Mapping[str, int], *, greedy: bool
) -> dict[str, tuple[tuple[int, ...], bool]]:
    """Return for each problem the missing sample indices, and whether the greedy is missing."""
    present = store.frame(
        """
        SELECT
            problem_id,
            coalesce(list(sample_index) FILTER (NOT greedy), []) AS indices,
            bool_or(greedy) AS has_greedy
        FROM samples
        WHERE checkpoint_id = $checkpoint_id AND settings_id = $settings_id
        GROUP BY problem_id
        ORDER BY problem_id
        """,
        checkpoint_id=checkpoint_id,
        settings_id=settings_id,
    ).set_index("problem_id")
    wanted: dict[str, tuple[tuple[int, ...], bool]] = {}
    for problem_id, n in planned.items():
        have: set[int] = set()
        lacks_greedy = greedy
        if problem_id in present.index:
            have = {int(index) for index in present.at[problem_id, "indices"]}
            lacks_greedy = greedy and not bool(present.at[problem_id, "has_greedy"])
        indices = tuple(index for index in range(n) if index not in have)
        if indices or lacks_greedy:
            wanted[problem_id] = (indices, lacks_greedy)
    return wanted


def stored_controls(store: Store, checkpoint_id: str, problem_ids: Sequence[str]) -> dict[str, tuple[float, int]]:
    """Return the controls of a checkpoint with samples of all problems in ``problem_ids``.

    The result maps a settings id to temperature and n.
    """
    rows = store.frame(
        """
        WITH drawn AS (
            SELECT settings_id, problem_id, count(*) AS n
            FROM samples
            SEMI JOIN audit_controls USING (checkpoint_id, settings_id)
            WHERE checkpoint_id = $checkpoint_id
              AND NOT greedy
              AND list_contains($problem_ids::VARCHAR[], problem_id)
            GROUP BY ALL
        )
        SELECT settings_id, any_value(t.temperature) AS temperature, min(n) AS n
        FROM drawn
        JOIN settings AS t USING (settings_id)
        GROUP BY settings_id
        HAVING count(*) = len($problem_ids::VARCHAR[])
        """,
        checkpoint_id=checkpoint_id,
        problem_ids=list(problem_ids),
    )
    return {str(row.settings_id): (float(row.temperature), int(row.n)) for row in rows.itertuples()}


@dataclass(frozen=True, kw_only=True)
class Ungraded:
    """Distinct responses without a grade by the current rules of their verifier.

    They are in the order of their samples. ``rows`` has row positions and verifiers, but no texts. ``outdated`` is true
    for a response with a grade by other rules.
    """

    store: Store
    rows: pd.DataFrame

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def n_outdated(self) -> int:
        """Number of responses with a grade by other rules."""
        return int(self.rows["outdated"].sum())

    def blocks(self, most: int) -> Iterator[pd.DataFrame]:
        """Yield ``problem_id, response_id, verifier, text, outdated``, at most ``most`` rows at once."""
        first = 0
        for block in text_blocks(self.store.frame, self.rows["place"].to_numpy(), most):
            rows = self.rows.iloc[first : first + len(block)]
            yield block.merge(rows, on="place", validate="one_to_one").drop(columns="place")
            first += len(block)


def find_ungraded(store: Store, key: AuditKey, *, with_errors: bool = False) -> Ungraded:
    """Return the ungraded responses of this audit.

    ``with_errors`` adds responses whose grading failed, because a module or service that the grader uses may work now.
    """
    rows = store.frame(
        f"""
        WITH {_TODAY},
        pending AS (
            SELECT
                s.problem_id, s.response_id, s.verifier,
                coalesce(bool_or(s.state <> 'error'), false) AS outdated
            FROM audit_samples AS s
            LEFT JOIN today AS t USING (verifier)
            WHERE s.audit_id = $audit_id
              AND (
                  s.correct IS NULL
                  OR (t.rules IS NOT NULL AND s.rules IS DISTINCT FROM t.rules)
                  OR (
                      $with_errors AND s.state = 'error'
                      -- an environment graded its trajectory when it ended
                      AND s.verifier NOT IN (SELECT environment FROM agent_settings)
                  )
              )
            GROUP BY ALL
        )
        SELECT min(s.rowid) AS place, r.verifier, r.outdated
        FROM pending AS r
        JOIN samples AS s USING (problem_id, response_id)
        GROUP BY r.problem_id, r.response_id, r.verifier, r.outdated
        ORDER BY place
        """,
        audit_id=key.audit_id,
        with_errors=with_errors,
        **_rules(),
    )
    return Ungraded(store=store, rows=rows.astype({"verifier": "category"}))


def find_ungraded_drawn(store: Store, settings_id: str, problem_ids: Sequence[str]) -> Ungraded:
    """Return the responses under ``settings_id`` that the problems' own verifiers must grade."""
    rows = store.frame(
        f"""
        WITH {_TODAY}
        SELECT min(s.rowid) AS place, p.verifier, g.correct IS NOT NULL AND g.state <> 'error' AS outdated
        FROM samples AS s
        JOIN problems AS p USING (problem_id)
        LEFT JOIN grades AS g
            ON g.problem_id = s.problem_id
            AND g.response_id = s.response_id
            AND g.verifier = p.verifier
        LEFT JOIN today AS t ON t.verifier = p.verifier
        WHERE s.settings_id = $settings_id
          AND list_contains($problem_ids::VARCHAR[], s.problem_id)
          AND (g.correct IS NULL OR (t.rules IS NOT NULL AND g.rules IS DISTINCT FROM t.rules) OR g.state = 'error')
        GROUP BY s.problem_id, s.response_id, p.verifier, outdated
        ORDER BY place
        """,
        settings_id=settings_id,
        problem_ids=list(problem_ids),
        **_rules(),
    )
    return Ungraded(store=store, rows=rows.astype({"verifier": "category"}))


def find_graded(store: Store, responses: Sequence[tuple[str, str, str]]) -> set[tuple[str, str, str]]:
    """Return the given (problem_id, response_id, verifier) with a grade by the current rules."""
    rows = store.frame(
        f"""
        WITH {_TODAY},
        wanted AS (
            SELECT
                unnest($problem_ids::VARCHAR[]) AS problem_id,
                unnest($response_ids::VARCHAR[]) AS response_id,
                unnest($wanted::VARCHAR[]) AS verifier
        )
        SELECT g.problem_id, g.response_id, g.verifier
        FROM grades AS g
        SEMI JOIN wanted USING (problem_id, response_id, verifier)
        LEFT JOIN today AS t USING (verifier)
        WHERE t.rules IS NULL OR g.rules IS NOT DISTINCT FROM t.rules
        """,
        problem_ids=[problem_id for problem_id, _, _ in responses],
        response_ids=[identity for _, identity, _ in responses],
        wanted=[verifier for _, _, verifier in responses],
        **_rules(),
    )
    return {(str(row.problem_id), str(row.response_id), str(row.verifier)) for row in rows.itertuples()}


def find_unforced(store: Store, key: AuditKey, checkpoint_id: str) -> pd.DataFrame:
    """Return the responses that the checkpoint must still score by teacher forcing.

    Columns: ``problem_id, response_id, prompt, text, ends, token_ids``. ``token_ids`` is NULL if only the text is
    known. ``ends`` is true if an end token follows the text.

    They are:

    - the enumerated modes and the panel,
    - the first own samples of the checkpoint: to check the sampler, and for the token entropy if the sampler reports
      none,
    - the training responses before and after the checkpoint,
    - for the base, also the first own samples of all other checkpoints.

    If a mode and a sample have the same text, the mode is used: a truncated sample lacks the end token.
    """
    return store.frame(
        """
        WITH here AS (
            SELECT
                step,
                is_base,
                lead(step) OVER (ORDER BY step) AS next_step,
                checkpoint_id
            FROM series_checkpoints
            WHERE series = $series
            QUALIFY checkpoint_id = $checkpoint_id
        ),
        chosen AS (
            SELECT s.problem_id, s.response_id, s.text, s.token_ids, 2 AS preference
            FROM audit_samples AS s
            CROSS JOIN here AS h
            WHERE s.audit_id = $audit_id AND s.role <> 'control' AND NOT s.greedy AND s.token_ids IS NOT NULL
              AND (
                  s.role = 'panel'
                  OR (s.sample_index < $panel AND (h.is_base OR s.checkpoint_id = $checkpoint_id))
                  OR (s.sample_index < $entropy_samples AND s.checkpoint_id = $checkpoint_id AND s.entropy_sum IS NULL)
              )
            UNION ALL
            SELECT problem_id, response_id, mode, NULL, 1
            FROM modes
            SEMI JOIN (FROM audit_problems WHERE audit_id = $audit_id) USING (problem_id)
        ),
        of_problems AS (
            SELECT c.problem_id, c.response_id, p.prompt, c.text, true AS ends, c.token_ids, c.preference
            FROM chosen AS c
            JOIN problems AS p USING (problem_id)
        ),
        of_training AS (
            SELECT r.problem_id, r.response_id, r.prompt, r.text, NOT r.truncated AS ends, NULL AS token_ids, 3
            FROM training_responses AS r
            CROSS JOIN here AS h
            WHERE r.series = $series AND r.step IN (h.step, h.next_step)
        ),
        wanted AS (
            FROM of_problems UNION ALL FROM of_training
        )
        SELECT problem_id, response_id, prompt, text, ends, token_ids
        FROM wanted AS w
        WHERE NOT EXISTS (
            FROM response_logps AS r
            -- token files may have been removed
            JOIN response_tokens AS t USING (checkpoint_id, problem_id, settings_id, response_id)
            WHERE r.checkpoint_id = $checkpoint_id
              AND r.problem_id = w.problem_id
              AND r.settings_id = $settings_id
              AND r.response_id = w.response_id
        )
        QUALIFY row_number() OVER (PARTITION BY problem_id, response_id ORDER BY preference, token_ids) = 1
        ORDER BY problem_id, response_id
        """,
        audit_id=key.audit_id,
        series=key.series,
        checkpoint_id=checkpoint_id,
        settings_id=key.settings_id,
        panel=key.panel,
        entropy_samples=key.entropy_samples,
    )


def find_unrepeated(store: Store, key: AuditKey, checkpoint_id: str, limit: int) -> pd.DataFrame:
    """Return the first ``limit`` panel responses that were not scored a second time.

    Columns as in ``find_unforced``.
    """
    return store.frame(
        """
        WITH chosen AS (
            SELECT s.problem_id, s.response_id, p.prompt, s.text, true AS ends, s.token_ids
            FROM audit_samples AS s
            JOIN problems AS p USING (problem_id)
            JOIN response_logps AS r
                ON r.checkpoint_id = $checkpoint_id
                AND r.problem_id = s.problem_id
                AND r.settings_id = $settings_id
                AND r.response_id = s.response_id
            WHERE s.audit_id = $audit_id AND s.role = 'panel' AND s.token_ids IS NOT NULL
            QUALIFY row_number() OVER (PARTITION BY s.problem_id, s.response_id ORDER BY s.sample_index) = 1
            ORDER BY s.problem_id, s.response_id
            LIMIT $limit
        )
        FROM chosen AS c
        WHERE NOT EXISTS (
            FROM second_logps AS q
            WHERE q.checkpoint_id = $checkpoint_id
              AND q.settings_id = $settings_id
              AND q.problem_id = c.problem_id
              AND q.response_id = c.response_id
        )
        ORDER BY problem_id, response_id
        """,
        audit_id=key.audit_id,
        checkpoint_id=checkpoint_id,
        settings_id=key.settings_id,
        limit=limit,
    )
