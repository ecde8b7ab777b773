"""A real in-memory store with the product's schema, filled from plain rows."""

from collections.abc import Callable, Sequence
from importlib.resources import files

import duckdb
import pandas as pd
import pytest

from diagnostics.measures.contract import Evidence, Measure

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
    ) -> None:
        self.n, self.ks, self.strategy_regex = n, ks, strategy_regex
        rows = pd.DataFrame([SAMPLE | sample for sample in samples], columns=list(SAMPLE))
        scores = pd.DataFrame(mode_scores, columns=["checkpoint", "problem", "mode", "logp_sum"])
        names = pd.concat([rows["checkpoint"], scores["checkpoint"]]).unique()
        self.checkpoints = sorted(names, key=lambda name: (name != BASE, name))
        self.db = duckdb.connect(":memory:")
        self.db.execute((files("diagnostics") / "schema.sql").read_text(encoding="utf-8"))
        self._fill(rows, scores)

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
            "INSERT INTO audits VALUES ('audit', 'run', 'settings', ?, ?, ?, ?, now(), '{}')",
            [self.n, self.n, list(self.ks), self.strategy_regex],
        )
        rows = rows.assign(response_id=[f"r{i}" for i in range(len(rows))])
        db.execute("""
            INSERT INTO samples
            SELECT checkpoint, problem, 'settings', greedy, sample_index, response_id, text, NULL, n_tokens,
                   finish_reason, -1.0
            FROM rows""")
        db.execute("""
            INSERT INTO grades
            SELECT problem, response_id, 'exact', answer, mode, correct::DOUBLE, correct, state, '' FROM rows""")
        db.execute("""
            INSERT INTO response_scores
            SELECT checkpoint, problem, 'settings', response_id, -1.0, entropy_sum, n_tokens
            FROM rows
            WHERE entropy_sum IS NOT NULL""")
        db.execute("INSERT INTO modes SELECT DISTINCT problem, mode, problem || ' ' || mode FROM scores")
        db.execute("""
            INSERT INTO response_scores
            SELECT checkpoint, problem, 'settings', problem || ' ' || mode, logp_sum, 0.0, 6 FROM scores""")

    def evidence(self) -> Evidence:
        """Every view of the store, as the audit hands them to a computed measure."""
        views = ("problem_counts", "answer_counts", "mode_scores", "sample_entropies", "graded_samples")
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
