"""Write an audit's series, problems, settings, plan, grades and verdict to a store.

A verdict on a new set of checkpoints, samples or problems is recorded as a further look. ``load`` has the queries for
these rows.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, astuple, fields
from types import MappingProxyType
from typing import Any

import pandas as pd

from oversharp.diagnostics.records.errors import StoreError
from oversharp.diagnostics.records.types import (
    AuditKey,
    Confirmation,
    Grade,
    Problem,
    RecordedSettings,
    SamplingSettings,
    Series,
    TrainingResponse,
    VerdictTerms,
    content_hash,
    response_id,
    training_problem,
)
from oversharp.diagnostics.store.database import Database
from oversharp.diagnostics.store.plan.rounds import plan_rounds
from oversharp.diagnostics.verdict.record import Verdict
from oversharp.diagnostics.verifiers import RULES

#: Condition for ``Database.insert``: the response has no grade by that verifier yet.
UNGRADED = """
    NOT EXISTS (
        FROM grades AS g
        WHERE g.problem_id = incoming.problem_id
          AND g.response_id = incoming.response_id
          AND g.verifier = incoming.verifier
    )
"""
#: Number of samples per problem and of problems, of the base and each checkpoint in ``$steps``. A step that was trained
#: again has another checkpoint_id.
COMPARED = """
SELECT
    checkpoint_id,
    -- in rounds, n_planned depends on the grades
    CASE WHEN any_value(a.enough) IS NULL THEN min(n_planned)::VARCHAR
        ELSE concat_ws('/', any_value(a.first_round), any_value(n_cap), any_value(a.enough)) END AS n,
    count(*) AS n_problems
FROM planned_samples
JOIN audits AS a USING (audit_id)
WHERE planned_samples.series = $series AND (is_base OR list_contains($steps::INTEGER[], step))
GROUP BY checkpoint_id, is_base, step
ORDER BY is_base DESC, step
"""


def look_id(compared: Sequence[tuple[str, str, int]]) -> str:
    """Return the id of a look: a hash of the rows that the query ``COMPARED`` returns."""
    return content_hash(*(" ".join(map(str, row)) for row in compared))


class AuditWriter:
    """Base class of ``Store`` with the methods that write an audit."""

    _database: Database

    def add_series(self, series: Series) -> None:
        """Register the checkpoints and training metrics of a series.

        Updates a series that has grown or was moved.

        Raises:
            StoreError: the store has another series of that name.
        """
        self._refuse_namesake(series)
        base_id = series.base.checkpoint_id
        with self._database.transaction():
            run = self._database.rows
            run("INSERT OR REPLACE INTO series VALUES (?, ?, ?)", [series.name, str(series.path), series.layout])
            run("DELETE FROM series_checkpoints WHERE series = ?", [series.name])
            for checkpoint in series.checkpoints:
                identity, kind, step = checkpoint.checkpoint_id, checkpoint.kind, checkpoint.step
                run("INSERT OR REPLACE INTO checkpoints VALUES (?, ?)", [identity, kind])
                run(
                    "INSERT INTO series_checkpoints VALUES (?, ?, ?, ?, ?, ?)",
                    [series.name, identity, step, checkpoint.label, identity == base_id, str(checkpoint.path)],
                )
            run("DELETE FROM training_metrics WHERE series = ?", [series.name])
            if series.metrics:
                metrics = pd.DataFrame([asdict(metric) for metric in series.metrics]).assign(series=series.name)
                self._database.insert(
                    "INSERT OR REPLACE INTO training_metrics SELECT series, step, name, value", metrics
                )

    def _refuse_namesake(self, series: Series) -> None:
        """Raise ``StoreError`` if another run has the same name."""
        stored = self._database.frame(
            """
            SELECT s.path, c.checkpoint_id
            FROM series AS s
            JOIN series_checkpoints AS c USING (series)
            WHERE s.series = $name AND NOT c.is_base
            """,
            {"name": series.name},
        )
        path = stored["path"].iloc[0] if len(stored) else str(series.path)
        trained = {checkpoint.checkpoint_id for checkpoint in series.checkpoints[1:]}
        if path != str(series.path) and not trained & set(stored["checkpoint_id"]):
            raise StoreError(
                f"{self._database.path}: has another series called {series.name!r}, from {path}; "
                "use a separate --name or another --out"
            )

    def add_problems(self, problems: Sequence[Problem]) -> None:
        """Register problems and their enumerated modes. Existing rows are not changed."""
        rows = pd.DataFrame(
            [
                {
                    "problem_id": problem.problem_id,
                    "task": problem.task,
                    "prompt": problem.prompt,
                    "gold": problem.gold,
                    "verifier": problem.verifier,
                    "source_id": problem.source_id,
                    "difficulty": problem.difficulty,
                    "meta": json.dumps(dict(problem.meta), ensure_ascii=False, sort_keys=True),
                }
                for problem in problems
            ]
        )
        modes = pd.DataFrame(
            [
                {"problem_id": problem.problem_id, "mode": mode, "response_id": response_id(mode)}
                for problem in problems
                for mode in problem.modes
            ]
        )
        with self._database.transaction():
            self._database.insert(
                """INSERT OR IGNORE INTO problems
                   SELECT problem_id, task, prompt, gold, verifier, source_id::VARCHAR, difficulty::DOUBLE, meta""",
                rows,
            )
            if len(modes):
                self._database.insert("INSERT OR IGNORE INTO modes SELECT problem_id, mode, response_id", modes)

    def add_training_responses(self, series: str, responses: Sequence[TrainingResponse]) -> None:
        """Replace the responses from the training batches of a series."""
        rows = pd.DataFrame(
            [
                {
                    **asdict(response),
                    "series": series,
                    "problem_id": training_problem(response.prompt).problem_id,
                    "response_id": response_id(response.text),
                }
                for response in responses
            ]
        )
        with self._database.transaction():
            self._database.rows("DELETE FROM training_responses WHERE series = ?", [series])
            if len(rows):
                self._database.insert(
                    """INSERT OR IGNORE INTO training_responses
                       SELECT series, step, problem_id, prompt, response_id, text, truncated, correct, draws""",
                    rows,
                )

    def begin_audit(
        self,
        key: AuditKey,
        *,
        settings: SamplingSettings | RecordedSettings | None,
        panel_settings: SamplingSettings | None,
        problem_ids: Sequence[str],
        clusters: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """Register an audit and make it the current one of its series.

        ``settings`` and ``panel_settings`` are registered unless None. ``clusters`` maps problem ids to clusters; a
        problem without one is independent. If the audit is already the current one, only ``key.terms`` and ``clusters``
        are updated, so that the same store gives the same report.
        """
        positions = pd.DataFrame(
            {
                "audit_id": key.audit_id,
                "position": range(len(problem_ids)),
                "problem_id": list(problem_ids),
                "cluster": pd.array([clusters.get(problem_id) for problem_id in problem_ids], dtype="string"),
            }
        )
        terms = (key.terms.guess_rate, key.terms.looks, key.terms.runs, key.terms.selected_by)
        stored = "SELECT guess_rate, looks, runs, selected_by FROM audits WHERE audit_id = ?"
        with self._database.transaction():
            for used in (settings, panel_settings):
                if used is not None:
                    self._insert_settings(used)
            current = self._database.rows("SELECT audit_id FROM current_audits WHERE series = ?", [key.series])
            if current != [(key.audit_id,)]:
                self._database.rows(
                    """
                    INSERT OR REPLACE INTO audits (
                        audit_id, series, settings_id, n, n_base, first_round, enough, entropy_samples, panel,
                        panel_settings_id, kernel_problems, kernel_responses, ks, strategy_regex, verifier, guess_rate,
                        looks, runs, selected_by, updated_at, provenance
                    )
                    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, current_timestamp, '{}')
                    """,
                    [
                        *(key.audit_id, key.series, key.settings_id, key.n, key.n_base, key.first_round, key.enough),
                        *(key.entropy_samples, key.panel, key.panel_settings_id),
                        *(key.kernel_problems, key.kernel_responses),
                        *(list(key.ks), key.strategy_regex, key.verifier),
                        *terms,
                    ],
                )
            elif self._database.rows(stored, [key.audit_id]) != [terms]:
                changed = "UPDATE audits SET guess_rate = ?, looks = ?, runs = ?, selected_by = ? WHERE audit_id = ?"
                self._database.rows(changed, [*terms, key.audit_id])
            # the clusters of existing problems may have changed
            self._database.insert(
                "UPDATE audit_problems SET cluster = incoming.cluster",
                positions,
                where="""
                audit_problems.audit_id = incoming.audit_id
                AND audit_problems.problem_id = incoming.problem_id
                AND audit_problems.cluster IS DISTINCT FROM incoming.cluster
                """,
            )
            self._database.insert(
                "INSERT OR IGNORE INTO audit_problems SELECT audit_id, position, problem_id, cluster", positions
            )

    def add_settings(self, settings: SamplingSettings | RecordedSettings) -> None:
        """Register sampling settings in one transaction."""
        with self._database.transaction():
            self._insert_settings(settings)

    def _insert_settings(self, used: SamplingSettings | RecordedSettings) -> None:
        self._database.rows(
            "INSERT OR IGNORE INTO settings VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            [used.settings_id, *(getattr(used, field.name) for field in fields(RecordedSettings))],
        )
        if isinstance(used, SamplingSettings) and used.environment is not None:
            self._database.rows(
                "INSERT OR IGNORE INTO agent_settings VALUES (?, ?, ?)",
                [used.settings_id, used.environment, used.max_turns],
            )

    def end_audit(self, key: AuditKey, provenance: Mapping[str, Any]) -> None:
        """Record the provenance of an audit.

        Call this at its end, when all left-out checkpoints are known.
        """
        origin = json.dumps(dict(provenance), sort_keys=True)
        with self._database.transaction():
            stored = self._database.rows("SELECT provenance FROM audits WHERE audit_id = ?", [key.audit_id])
            if stored != [(origin,)]:
                self._database.rows("UPDATE audits SET provenance = ? WHERE audit_id = ?", [origin, key.audit_id])

    def plan_rounds(self, key: AuditKey, checkpoint_ids: Sequence[str] | None = None) -> pd.DataFrame:
        """Plan the samples of an audit with a stopping rule, from the grades alone.

        A problem of a checkpoint is planned up to the first round that leaves it with enough correct samples. Without
        such a round, it is planned up to the round after the last completely graded one, at most ``n`` (``n_base`` for
        the base). A response whose grading failed counts as wrong, as in all counts.

        Args:
            checkpoint_ids: plan only these checkpoints; None for all.

        Returns:
            A row per checkpoint and problem, without those of controls: ``checkpoint_id, problem_id, n`` (planned),
            ``n_drawn`` (samples among them), ``n_correct``. Empty for an audit without a rule.
        """
        if key.enough is None:
            return pd.DataFrame(columns=["checkpoint_id", "problem_id", "n", "n_drawn", "n_correct"])
        with self._database.transaction():
            return plan_rounds(self._database, key.audit_id, checkpoint_ids)

    def add_control(self, key: AuditKey, checkpoint_id: str, settings: SamplingSettings, n: int) -> None:
        """Plan ``n`` additional samples per problem of a checkpoint, under other settings."""
        with self._database.transaction():
            self._insert_settings(settings)
            query = "SELECT n FROM audit_controls WHERE audit_id = ? AND checkpoint_id = ? AND settings_id = ?"
            control = [key.audit_id, checkpoint_id, settings.settings_id]
            if self._database.rows(query, control) != [(n,)]:
                self._database.rows("INSERT OR REPLACE INTO audit_controls VALUES (?, ?, ?, ?)", [*control, n])

    def share_plan(self, first: AuditKey, key: AuditKey) -> None:
        """Copy controls, and numbers of samples of an import, of the audit ``first`` to ``key``.

        Both have the same checkpoints.
        """
        with self._database.transaction():
            self._database.rows(
                """
                INSERT OR IGNORE INTO audit_controls
                SELECT $audit_id, checkpoint_id, settings_id, n
                FROM audit_controls
                WHERE audit_id = $first_id
                """,
                {"audit_id": key.audit_id, "first_id": first.audit_id},
            )
            self._database.rows(
                """
                INSERT OR IGNORE INTO stops
                SELECT $audit_id, checkpoint_id, settings_id, problem_id, n
                FROM stops
                WHERE audit_id = $first_id
                  AND $enough IS NULL  -- the grades of ``key`` give other stops
                """,
                {"audit_id": key.audit_id, "first_id": first.audit_id, "enough": key.enough},
            )

    def add_grades(self, rows: Iterable[tuple[str, str, str, Grade]]) -> None:
        """Commit grades given as (problem_id, response_id, verifier, grade).

        They replace failed grades and grades by other rules.
        """
        with self._database.transaction():
            self._insert_grades(rows)

    def _insert_grades(self, rows: Iterable[tuple[str, str, str, Grade]]) -> None:
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
                    "n_boxed": grade.n_boxed,
                    "rules": RULES.get(verifier),
                    "answer_style": grade.style,
                    "lenient": grade.lenient,
                }
                for problem_id, response, verifier, grade in rows
            ]
        )
        if frame.empty:
            return
        self._database.delete(
            "grades AS g",
            frame,
            where="""
            g.problem_id = incoming.problem_id
            AND g.response_id = incoming.response_id
            AND g.verifier = incoming.verifier
            AND (g.state = 'error' OR (incoming.rules IS NOT NULL AND g.rules IS DISTINCT FROM incoming.rules))
            """,
        )
        self._database.insert(
            """INSERT INTO grades
               SELECT problem_id, response_id, verifier, answer, mode::VARCHAR, reward, correct, state, reason,
                      n_boxed::INTEGER, rules::INTEGER, answer_style::VARCHAR, lenient::BOOLEAN""",
            frame.drop_duplicates(["problem_id", "response_id", "verifier"]),
            where=UNGRADED,
        )

    def replace_verdict(self, key: AuditKey, verdict: Verdict) -> bool:
        """Replace the verdict of an audit in one transaction. Returns False if it is unchanged."""
        document = verdict.to_json()
        stored = self._database.rows("SELECT document::VARCHAR FROM audit_verdicts WHERE audit_id = ?", [key.audit_id])
        if stored == [(document,)]:
            return False
        with self._database.transaction():
            self._database.rows(
                "INSERT OR REPLACE INTO audit_verdicts VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                [
                    *(key.audit_id, verdict.label, verdict.sentence),
                    *(verdict.p_exact, verdict.p_population, verdict.p_minority, verdict.k_most, document),
                ],
            )
        return True

    def add_look(self, series: str, steps: Sequence[int], terms: VerdictTerms) -> int:
        """Record a look at the checkpoints of ``steps``. Returns its number."""
        look = look_id(self._database.rows(COMPARED, {"series": series, "steps": list(steps)}))
        looks = self._database.rows("SELECT look_id, number, runs FROM verdict_looks WHERE series = ?", [series])
        number, runs = next((row[1:] for row in looks if row[0] == look), (len(looks) + 1, 0))
        if terms.runs > runs:
            with self._database.transaction():
                self._database.rows(
                    "INSERT OR REPLACE INTO verdict_looks VALUES (?, ?, ?, ?, ?, ?)",
                    [series, look, number, list(steps), terms.looks, terms.runs],
                )
        return int(number)

    def add_confirmations(
        self, audit_id: str, checkpoint_id: str, settings_id: str, tested: Sequence[Confirmation]
    ) -> bool:
        """Replace the confirmations of one audit. Returns False if they are unchanged."""
        stored = self._database.rows(
            """
            SELECT
                audit_id, checkpoint_id, settings_id, problem_id, change, n_base, correct_base, n_late, correct_late,
                p, p_adjusted
            FROM confirmations
            WHERE audit_id = ?
            """,
            [audit_id],
        )
        rows = [(audit_id, checkpoint_id, settings_id, *astuple(item)) for item in tested]
        if Counter(stored) == Counter(rows):
            return False
        with self._database.transaction():
            self._database.rows("DELETE FROM confirmations WHERE audit_id = ?", [audit_id])
            for row in rows:
                self._database.rows(
                    """
                    INSERT INTO confirmations (
                        audit_id, checkpoint_id, settings_id, problem_id, change, n_base, correct_base, n_late,
                        correct_late, p, p_adjusted
                    )
                    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
                    """,
                    row,
                )
        return True
