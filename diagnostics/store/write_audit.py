"""Writes what an audit is about (series, problems, settings, how many samples it plans), and what it concludes.

A look is counted with every verdict: how often that of a series was read while it grew. ``load.py`` reads them back.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, astuple
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
from oversharp.diagnostics.verdict.record import Verdict
from oversharp.diagnostics.verifiers import RULES

#: Of grades to insert those whose response has none by that verifier; for ``Database.insert``.
UNGRADED = """
    NOT EXISTS (
        FROM grades AS g
        WHERE g.problem_id = incoming.problem_id
          AND g.response_id = incoming.response_id
          AND g.verifier = incoming.verifier
    )
"""
#: The base and the checkpoints of ``$steps``, with their samples per problem and problems. A step that was trained anew
#: is another checkpoint.
COMPARED = """
SELECT checkpoint_id, min(n_planned) AS n, count(*) AS n_problems
FROM planned_samples
WHERE series = $series AND (is_base OR list_contains($steps::INTEGER[], step))
GROUP BY checkpoint_id, is_base, step
ORDER BY is_base DESC, step
"""


def register_series(database: Database, series: Series) -> None:
    """Register the checkpoints and training metrics of a series.

    A longer or moved series is updated.

    Raises:
        StoreError: the store holds another series of that name.
    """
    _refuse_namesake(database, series)
    base_id = series.base.checkpoint_id
    with database.transaction():
        run = database.rows
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
            database.insert("INSERT OR REPLACE INTO training_metrics SELECT series, step, name, value", metrics)


def register_training(database: Database, series: str, responses: Sequence[TrainingResponse]) -> None:
    """Replace the responses of the training batches of a series."""
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
    with database.transaction():
        database.rows("DELETE FROM training_responses WHERE series = ?", [series])
        if len(rows):
            database.insert(
                """INSERT OR IGNORE INTO training_responses
                   SELECT series, step, problem_id, prompt, response_id, text, truncated, correct, draws""",
                rows,
            )


def register_problems(database: Database, problems: Sequence[Problem]) -> None:
    """Register problems and their enumerated modes; existing ones (by content) are not changed."""
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
    with database.transaction():
        database.insert(
            """INSERT OR IGNORE INTO problems
               SELECT problem_id, task, prompt, gold, verifier, source_id::VARCHAR, difficulty::DOUBLE, meta""",
            rows,
        )
        if len(modes):
            database.insert("INSERT OR IGNORE INTO modes SELECT problem_id, mode, response_id", modes)


def register_audit(
    database: Database,
    key: AuditKey,
    *,
    settings: SamplingSettings | RecordedSettings | None,
    panel_settings: SamplingSettings | None,
    problem_ids: Sequence[str],
    clusters: Mapping[str, str],
) -> None:
    """Make the audit the current one of its series.

    Registering the current audit again changes nothing: the same store gives the same report. The verdict's settings,
    ``key.terms`` and ``clusters`` (problem id → name), may differ each time.
    """
    positions = pd.DataFrame(
        {
            "audit_id": key.audit_id,
            "position": range(len(problem_ids)),
            "problem_id": list(problem_ids),
            "cluster": pd.array([clusters.get(id_) for id_ in problem_ids], dtype="string"),
        }
    )
    terms = (key.terms.guess_rate, key.terms.looks, key.terms.runs, key.terms.selected_by)
    stored = "SELECT guess_rate, looks, runs, selected_by FROM audits WHERE audit_id = ?"
    with database.transaction():
        for used in (settings, panel_settings):
            if used is not None:
                _register_settings(database, used)
        current = database.rows("SELECT audit_id FROM current_audits WHERE series = ?", [key.series])
        if current != [(key.audit_id,)]:
            database.rows(
                """
                INSERT OR REPLACE INTO audits (
                    audit_id, series, settings_id, n, n_base, entropy_samples, panel, panel_settings_id,
                    kernel_problems, kernel_responses, ks, strategy_regex, verifier, guess_rate, looks, runs,
                    selected_by, updated_at, provenance
                )
                VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, current_timestamp, '{}')
                """,
                [
                    *(key.audit_id, key.series, key.settings_id, key.n, key.n_base, key.entropy_samples),
                    *(key.panel, key.panel_settings_id, key.kernel_problems, key.kernel_responses),
                    *(list(key.ks), key.strategy_regex, key.verifier),
                    *terms,
                ],
            )
        elif database.rows(stored, [key.audit_id]) != [terms]:
            changed = "UPDATE audits SET guess_rate = ?, looks = ?, runs = ?, selected_by = ? WHERE audit_id = ?"
            database.rows(changed, [*terms, key.audit_id])
        # existing problems of the audit may have other clusters now
        database.insert(
            "UPDATE audit_problems SET cluster = incoming.cluster",
            positions,
            where="""
            audit_problems.audit_id = incoming.audit_id
            AND audit_problems.problem_id = incoming.problem_id
            AND audit_problems.cluster IS DISTINCT FROM incoming.cluster
            """,
        )
        database.insert(
            "INSERT OR IGNORE INTO audit_problems SELECT audit_id, position, problem_id, cluster", positions
        )


def register_settings(database: Database, settings: SamplingSettings | RecordedSettings) -> None:
    """Register sampling settings that no audit has, in one transaction."""
    with database.transaction():
        _register_settings(database, settings)


def record_confirmations(
    database: Database, audit_id: str, checkpoint_id: str, settings_id: str, tested: Sequence[Confirmation]
) -> bool:
    """Replace the fresh samples' results of one audit; False if they are unchanged."""
    held = database.rows(
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
    if Counter(held) == Counter(rows):
        return False
    with database.transaction():
        database.rows("DELETE FROM confirmations WHERE audit_id = ?", [audit_id])
        for row in rows:
            database.rows(
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


def record_grades(database: Database, rows: Iterable[tuple[str, str, str, Grade]]) -> None:
    """Commit grades given as (problem_id, response_id, verifier, grade).

    They replace those by other rules.

    A response whose grading failed also takes the new grade.
    """
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
    with database.transaction():
        database.delete(
            "grades AS g",
            frame,
            where="""
            g.problem_id = incoming.problem_id
            AND g.response_id = incoming.response_id
            AND g.verifier = incoming.verifier
            AND (g.state = 'error' OR (incoming.rules IS NOT NULL AND g.rules IS DISTINCT FROM incoming.rules))
            """,
        )
        database.insert(
            """INSERT INTO grades
               SELECT problem_id, response_id, verifier, answer, mode::VARCHAR, reward, correct, state, reason,
                      n_boxed::INTEGER, rules::INTEGER, answer_style::VARCHAR, lenient::BOOLEAN""",
            frame.drop_duplicates(["problem_id", "response_id", "verifier"]),
            where=UNGRADED,
        )


def _register_settings(database: Database, used: SamplingSettings | RecordedSettings) -> None:
    database.rows(
        "INSERT OR IGNORE INTO settings VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        [used.settings_id, *asdict(used).values()],
    )


def record_provenance(database: Database, key: AuditKey, provenance: Mapping[str, Any]) -> None:
    """Record the provenance of the audit's numbers, at its end, when everything left out is known."""
    origin = json.dumps(dict(provenance), sort_keys=True)
    with database.transaction():
        held = database.rows("SELECT provenance FROM audits WHERE audit_id = ?", [key.audit_id])
        if held != [(origin,)]:
            database.rows("UPDATE audits SET provenance = ? WHERE audit_id = ?", [origin, key.audit_id])


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


def register_control(database: Database, key: AuditKey, checkpoint_id: str, settings: SamplingSettings, n: int) -> None:
    """Make ``n`` samples per problem under ``settings`` a control of the audit.

    The last ``n`` given counts.
    """
    with database.transaction():
        _register_settings(database, settings)
        held = "FROM audit_controls WHERE audit_id = ? AND checkpoint_id = ? AND settings_id = ?"
        place = [key.audit_id, checkpoint_id, settings.settings_id]
        if database.rows(f"SELECT n {held}", place) != [(n,)]:
            database.rows("INSERT OR REPLACE INTO audit_controls VALUES (?, ?, ?, ?)", [*place, n])


def share_plan(database: Database, first: AuditKey, key: AuditKey) -> None:
    """See ``Store.share_plan``."""
    with database.transaction():
        database.rows(
            """
            INSERT OR IGNORE INTO audit_controls
            SELECT $audit_id, checkpoint_id, settings_id, n
            FROM audit_controls
            WHERE audit_id = $first_id
            """,
            {"audit_id": key.audit_id, "first_id": first.audit_id},
        )
        database.rows(
            """
            INSERT OR IGNORE INTO allocations
            SELECT $audit_id, checkpoint_id, problem_id, n
            FROM allocations
            WHERE audit_id = $first_id
            """,
            {"audit_id": key.audit_id, "first_id": first.audit_id},
        )


def _refuse_namesake(database: Database, series: Series) -> None:
    """Raise ``StoreError`` for another run of the same name: directories often share names."""
    held = database.frame(
        """
        SELECT s.path, c.checkpoint_id
        FROM series AS s
        JOIN series_checkpoints AS c USING (series)
        WHERE s.series = $name AND NOT c.is_base
        """,
        {"name": series.name},
    )
    path = held["path"].iloc[0] if len(held) else str(series.path)
    trained = {checkpoint.checkpoint_id for checkpoint in series.checkpoints[1:]}
    if path != str(series.path) and not trained & set(held["checkpoint_id"]):
        raise StoreError(
            f"{database.path}: has another series called {series.name!r}, from {path}; "
            "use a separate --name or another --out"
        )


def look_ids(compared: Sequence[tuple[str, int, int]]) -> tuple[str, str]:
    """Return the identity of a look.

    Base and compared checkpoints, samples and problems, as in ``COMPARED``.

    The second id is that of older stores, without samples and problems.
    """
    return content_hash(*(" ".join(map(str, item)) for item in compared)), content_hash(
        *(entry[0] for entry in compared)
    )


def record_verdict(database: Database, audit_id: str, verdict: Verdict) -> bool:
    """See ``Store.replace_verdict``."""
    document = verdict.to_json()
    held = database.rows("SELECT document::VARCHAR FROM audit_verdicts WHERE audit_id = ?", [audit_id])
    if held == [(document,)]:
        return False
    with database.transaction():
        database.rows(
            "INSERT OR REPLACE INTO audit_verdicts VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            [
                *(audit_id, verdict.label, verdict.sentence),
                *(verdict.p_exact, verdict.p_population, verdict.p_minority, verdict.k_most, document),
            ],
        )
    return True


def record_look(database: Database, series: str, steps: Sequence[int], terms: VerdictTerms) -> int:
    """See ``Store.add_look``."""
    ids = look_ids(database.rows(COMPARED, {"series": series, "steps": list(steps)}))
    held = database.rows("SELECT look_id, number, runs FROM verdict_looks WHERE series = ?", [series])
    look, number, runs = next((row for row in held if row[0] in ids), (ids[0], len(held) + 1, 0))
    if terms.runs > runs:
        with database.transaction():
            database.rows(
                "INSERT OR REPLACE INTO verdict_looks VALUES (?, ?, ?, ?, ?, ?)",
                [series, look, number, list(steps), terms.looks, terms.runs],
            )
    return int(number)
