"""A real in-memory store with the product's schema, filled from plain rows."""

from collections.abc import Callable, Sequence
from importlib.resources import files
from typing import get_args

import duckdb
import pandas as pd
import pytest

from diagnostics.database import MIGRATIONS
from diagnostics.measures.contract import Evidence, Measure, View

SAMPLE = {
    "checkpoint": "base",
    "problem": "q1",
    "sample_index": 0,
    "greedy": False,
    "text": "4",
    "n_tokens": 5,
    "finish_reason": "stop",
    "answer": "4",
    "mode": "2 + 2",
    "correct": True,
    "state": "ok",
    "task": "sums",
    "entropy_sum": None,
    "logp_sum": -1.0,  # by the sampler
    "own_logp_sum": None,
    "base_logp_sum": None,
    "token_logps": None,
    "token_entropies": None,
    "panel": False,  # drawn from the base for the panel
}
BASE = "base"


class World:
    """One audit of one series. Checkpoints are those named by the samples and scores, ``base`` first."""

    def __init__(
        self,
        samples: Sequence[dict],
        *,
        n: int,
        ks: tuple[int, ...] = (1,),
        strategy_regex: str = "```",
        mode_scores: Sequence[tuple[str, str, str, float]] = (),
        panel: int = 4,
        panel_scores: Sequence[tuple[str, str, str, Sequence[float], Sequence[float]]] = (),
        training: Sequence[tuple[str, str, str, bool, Sequence[float], Sequence[float]]] = (),
        second_scores: Sequence[tuple[str, str, str, float]] = (),
    ) -> None:
        """``panel_scores``: (checkpoint, problem, text of a panel sample, token log-probs, token entropies).

        ``training``: (checkpoint, problem, text, correct, token log-probs there, at the checkpoint before).
        ``second_scores``: (checkpoint, problem, text of a panel sample, log-prob sum).
        """
        self.n, self.ks, self.strategy_regex, self.panel = n, ks, strategy_regex, panel
        rows = pd.DataFrame([SAMPLE | sample for sample in samples], columns=list(SAMPLE))
        scores = pd.DataFrame(mode_scores, columns=["checkpoint", "problem", "mode", "logp_sum"])
        others = [row[0] for rows_of in (panel_scores, training) for row in rows_of]
        names = pd.concat([rows["checkpoint"], scores["checkpoint"], pd.Series(others, dtype=object)]).unique()
        self.checkpoints = sorted(names, key=lambda name: (name != BASE, name))
        self.db = duckdb.connect(":memory:")
        for script in MIGRATIONS:
            self.db.execute((files("diagnostics") / script).read_text(encoding="utf-8"))
        self.db.execute("""
            CREATE TABLE token_scores (
                checkpoint_id VARCHAR, problem_id VARCHAR, settings_id VARCHAR, response_id VARCHAR,
                token_logps FLOAT[], token_entropies FLOAT[])""")
        self.db.execute((files("diagnostics") / "token_views.sql").read_text(encoding="utf-8"))
        self._fill(rows, scores)
        for checkpoint, problem, text, logps, entropies in panel_scores:
            self._score(checkpoint, problem, f"panel {problem} {text}", logps, entropies)
        for checkpoint, problem, text, correct, now, before in training:
            previous, response = self.checkpoints[self.checkpoints.index(checkpoint) - 1], f"{checkpoint} {text}"
            step = 20 * self.checkpoints.index(checkpoint)
            row = [step, problem, "prompt", response, text, False, correct]
            self.db.execute("INSERT INTO training_responses VALUES ('run', ?, ?, ?, ?, ?, ?, ?)", row)
            for where, logps in ((checkpoint, now), (previous, before)):
                self._score(where, problem, response, logps, [0.0] * len(logps))
        for checkpoint, problem, text, logp_sum in second_scores:
            row = [checkpoint, problem, f"panel {problem} {text}", logp_sum]
            self.db.execute("INSERT INTO second_scores VALUES (?, ?, 'settings', ?, ?)", row)

    def _score(self, checkpoint: str, problem: str, response: str, logps, entropies) -> None:
        sums = [float(sum(logps)), float(sum(entropies)), len(logps)]
        self.db.execute(
            "INSERT INTO response_scores VALUES (?, ?, 'settings', ?, ?, ?, ?)", [checkpoint, problem, response, *sums]
        )
        self.db.execute(
            "INSERT INTO token_scores VALUES (?, ?, 'settings', ?, ?, ?)",
            [checkpoint, problem, response, list(logps), list(entropies)],
        )

    def _fill(self, rows: pd.DataFrame, scores: pd.DataFrame) -> None:
        db = self.db
        for step, name in enumerate(self.checkpoints):
            db.execute(
                "INSERT INTO series_checkpoints VALUES ('run', ?, ?, ?, ?, '')", [name, 20 * step, name, step == 0]
            )
        tasks = dict.fromkeys(scores["problem"], "sums") | dict(zip(rows["problem"], rows["task"], strict=True))
        for position, (problem, task) in enumerate(sorted(tasks.items())):
            db.execute("INSERT INTO problems VALUES (?, ?, '', '4', 'exact', NULL, NULL, '{}')", [problem, task])
            db.execute("INSERT INTO audit_problems VALUES ('audit', ?, ?)", [position, problem])
        db.execute(
            """
            INSERT INTO audits (audit_id, series, settings_id, n, n_base, entropy_samples, panel, panel_settings_id, ks,
                                strategy_regex, updated_at, provenance)
            VALUES ('audit', 'run', 'settings', ?, ?, ?, ?, 'panel', ?, ?, now(), '{}')""",
            [self.n, self.n, self.n, self.panel, list(self.ks), self.strategy_regex],
        )
        panel_ids = "panel " + rows["problem"] + " " + rows["text"]
        rows = rows.assign(response_id=panel_ids.where(rows["panel"].astype(bool), [f"r{i}" for i in range(len(rows))]))
        db.execute("""
            INSERT INTO samples
            SELECT checkpoint, problem, CASE WHEN panel THEN 'panel' ELSE 'settings' END, greedy, sample_index,
                   response_id, text, NULL, n_tokens, finish_reason, logp_sum, NULL
            FROM rows""")
        db.execute("""
            INSERT INTO grades
            SELECT problem, response_id, 'exact', answer, mode, correct::DOUBLE, correct, state, '' FROM rows""")
        # a response of one checkpoint alone; the base's own score is also its score under the base
        db.execute("""
            INSERT INTO response_scores
            SELECT checkpoint, problem, 'settings', response_id, coalesce(own_logp_sum, -1.0),
                   coalesce(entropy_sum, 0.0), n_tokens
            FROM rows
            WHERE NOT panel AND (entropy_sum IS NOT NULL OR own_logp_sum IS NOT NULL)""")
        db.execute(f"""
            INSERT INTO response_scores
            SELECT '{BASE}', problem, 'settings', response_id, base_logp_sum, 0.0, n_tokens
            FROM rows
            WHERE NOT panel AND base_logp_sum IS NOT NULL AND checkpoint <> '{BASE}'""")
        db.execute("""
            INSERT INTO token_scores
            SELECT checkpoint, problem, 'settings', response_id, token_logps::FLOAT[], token_entropies::FLOAT[]
            FROM rows
            WHERE token_logps IS NOT NULL""")
        db.execute("INSERT INTO modes SELECT DISTINCT problem, mode, problem || ' ' || mode FROM scores")
        db.execute("""
            INSERT INTO response_scores
            SELECT checkpoint, problem, 'settings', problem || ' ' || mode, logp_sum, 0.0, 6 FROM scores""")

    def evidence(self) -> Evidence:
        """Every view of the store, as the audit hands them to a computed measure."""
        views = get_args(View)
        return Evidence(
            checkpoints=self.db.sql(
                "SELECT checkpoint_id, checkpoint, step, is_base FROM series_checkpoints ORDER BY step"
            ).df(),
            frames={view: self.db.sql(f"SELECT * FROM {view}").df() for view in views},
            n=self.n,
            ks=self.ks,
        )

    def sql_rows(self, measure: Measure) -> list[dict]:
        """The rows of a SQL measure, bound as the audit binds them."""
        assert measure.sql is not None
        bound = {"series": "run", "strategy_regex": self.strategy_regex}
        used = {name: value for name, value in bound.items() if f"${name}" in measure.sql}
        result = self.db.execute(measure.sql, used)
        columns = [column[0] for column in result.description]
        assert columns == ["checkpoint_id", "scope", "k", "value", "low", "high", "n"]
        return [dict(zip(columns, row, strict=True)) for row in result.fetchall()]

    def values(self, measure: Measure) -> dict[tuple[str, str], float]:
        """(checkpoint, scope) → value of a SQL measure."""
        return {(row["checkpoint_id"], row["scope"]): row["value"] for row in self.sql_rows(measure)}


@pytest.fixture(scope="session")
def world() -> Callable[..., World]:
    return World
