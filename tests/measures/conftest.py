"""A real in-memory store with the product's schema, filled from plain rows."""

import functools
import itertools
import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import pytest

from oversharp.diagnostics.measures import all_measures
from oversharp.diagnostics.measures.contract import Evidence, Measure
from oversharp.diagnostics.store.schema import script
from oversharp.diagnostics.trajectories.record import Call, Turn, link_results, turn_row

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
    "temperature": None,  # of a control; None: one of the audit's own, at 1
    "panel": False,  # drawn from the base for the panel
    "answer_style": None,  # how the answer is stated, where the verifier reads it
    "lenient": None,  # whether a second, lenient reader accepts it
    "n_boxed": None,  # different boxes in the response, where the verifier looks at them
    "own_correct": None,  # by the problem's own verifier, where the audit grades by another
    "calls": None,  # names of the tools that a trajectory calls, in order; None: a plain response
    "reward": None,  # that a tool recorded: of its own verifier where there is one, else instead of grading
}
BASE = "base"


@dataclass(frozen=True, kw_only=True)
class WorldKernel:
    """The kernel of one checkpoint: ``rows`` are (problem, response, logp_sum, n_tokens, roles).

    Roles are (role, sample_index, correct); a row may have several.
    """

    rows: Sequence[tuple[str, str, float, int, Sequence[tuple[str, int, bool]]]]
    kernel: np.ndarray
    certificate: float = 1e-9


class Views(Mapping[str, pd.DataFrame]):
    """The views of a store, each read when it is first asked for."""

    def __init__(self, db: duckdb.DuckDBPyConnection) -> None:
        self._db = db
        self._read: dict[str, pd.DataFrame] = {}

    def __getitem__(self, view: str) -> pd.DataFrame:
        if view not in self._read:
            self._read[view] = self._db.sql(f"SELECT * FROM {view}").df()
        return self._read[view]

    def __iter__(self) -> Iterator[str]:
        return iter(sorted({view for one in all_measures().values() for view in (*one.needs, *one.also)}))

    def __len__(self) -> int:
        return len(list(iter(self)))


class World:
    """One audit of one series. Checkpoints are those named by the samples and scores, ``base`` first."""

    def __init__(
        self,
        samples: Sequence[dict],
        *,
        place: Path,
        n: int,
        ks: tuple[int, ...] = (1,),
        strategy_regex: str = "```",
        mode_logps: Sequence[tuple[str, str, str, float]] = (),
        panel: int = 4,
        panel_logps: Sequence[tuple[str, str, str, Sequence[float], Sequence[float]]] = (),
        training: Sequence[tuple[str, str, str, bool, Sequence[float], Sequence[float]]] = (),
        second_logps: Sequence[tuple[str, str, str, float]] = (),
        kernels: Mapping[str, WorldKernel | str] | None = None,
        groups: Mapping[str, str] | None = None,
        n_base: int | None = None,
        first_round: int | None = None,
        enough: int | None = None,
    ) -> None:
        """``place``: a store without rows, this world's own.

        ``panel_logps``: (checkpoint, problem, text of a panel sample, token log-probs, token entropies).

        ``training``: (checkpoint, problem, text, correct, token log-probs there, at the checkpoint before).
        ``second_logps``: (checkpoint, problem, text of a panel sample, log-prob sum).
        ``kernels``: by checkpoint, or the reason why it has none. ``groups``: which problems are related.
        """
        self.groups = groups or {}
        self.n, self.ks, self.strategy_regex, self.panel = n, ks, strategy_regex, panel
        self.n_base, self.first_round, self.enough = n if n_base is None else n_base, first_round, enough
        rows = pd.DataFrame([SAMPLE | sample for sample in samples], columns=list(SAMPLE))
        scores = pd.DataFrame(mode_logps, columns=["checkpoint", "problem", "mode", "logp_sum"])
        others = [row[0] for rows_of in (panel_logps, training) for row in rows_of] + list(kernels or {})
        names = pd.concat([rows["checkpoint"], scores["checkpoint"], pd.Series(others, dtype=object)]).unique()
        self.checkpoints = sorted(names, key=lambda name: (name != BASE, name))
        self.db = duckdb.connect(str(place))
        self.db.execute("BEGIN")
        self._fill(rows, scores)
        for checkpoint, problem, text, logps, entropies in panel_logps:
            self._score(checkpoint, problem, f"panel {problem} {text}", logps, entropies)
        for checkpoint, problem, text, correct, now, before in training:
            previous, response = self.checkpoints[self.checkpoints.index(checkpoint) - 1], f"{checkpoint} {text}"
            step = 20 * self.checkpoints.index(checkpoint)
            row = [step, problem, "prompt", response, text, False, correct]
            self.db.execute("INSERT INTO training_responses VALUES ('run', ?, ?, ?, ?, ?, ?, ?, 1)", row)
            for where, logps in ((checkpoint, now), (previous, before)):
                self._score(where, problem, response, logps, [0.0] * len(logps))
        for checkpoint, problem, text, logp_sum in second_logps:
            row = [checkpoint, problem, f"panel {problem} {text}", logp_sum]
            self.db.execute("INSERT INTO second_logps VALUES (?, ?, 'settings', ?, ?)", row)
        for checkpoint, kernel in (kernels or {}).items():
            self._couple(checkpoint, kernel)
        if first_round is not None:
            columns = "'audit', checkpoint_id, settings_id, problem_id, n"
            plan = f"INSERT INTO stops SELECT {columns} FROM ({script('rounds.sql')})"
            self.db.execute(plan, {"audit_id": "audit", "checkpoint_ids": None, "rule": None})
        self.db.execute("COMMIT")

    def _couple(self, checkpoint: str, kernel: WorldKernel | str) -> None:
        if isinstance(kernel, str):
            self.db.execute("INSERT INTO audit_kernels VALUES ('audit', ?, NULL, ?)", [checkpoint, kernel])
            return
        kernel_id = f"kernel {checkpoint}"
        self.db.execute("INSERT INTO audit_kernels VALUES ('audit', ?, ?, NULL)", [checkpoint, kernel_id])
        self.db.execute("INSERT INTO kernels VALUES (?, ?)", [kernel_id, kernel.certificate])
        kernel_rows = [(kernel_id, i, *row[:4]) for i, row in enumerate(kernel.rows)]
        roles = [(kernel_id, i, *role) for i, row in enumerate(kernel.rows) for role in row[4]]
        size = len(kernel.rows)
        values = [(kernel_id, i, j, float(kernel.kernel[i, j])) for i in range(size) for j in range(i, size)]
        for table, inserted in (("kernel_rows", kernel_rows), ("kernel_roles", roles), ("kernel_values", values)):
            frame = pd.DataFrame(inserted)
            self.db.register("inserted", frame)
            self.db.execute(f"INSERT INTO {table} SELECT * FROM inserted")
            self.db.unregister("inserted")

    def _score(self, checkpoint: str, problem: str, response: str, logps, entropies) -> None:
        sums = [float(sum(logps)), float(sum(entropies)), len(logps)]
        self.db.execute(
            "INSERT INTO response_logps VALUES (?, ?, 'settings', ?, ?, ?, ?)", [checkpoint, problem, response, *sums]
        )
        self.db.execute(
            "INSERT INTO response_tokens VALUES (?, ?, 'settings', ?, ?, ?)",
            [checkpoint, problem, response, list(logps), list(entropies)],
        )

    def _fill(self, rows: pd.DataFrame, scores: pd.DataFrame) -> None:
        db = self.db
        for step, name in enumerate(self.checkpoints):
            db.execute(
                "INSERT INTO series_checkpoints VALUES ('run', ?, ?, ?, ?, '')", [name, 20 * step, name, step == 0]
            )
        tasks = dict.fromkeys([*scores["problem"], *self.groups], "sums")
        tasks |= dict(zip(rows["problem"], rows["task"], strict=True))
        for position, (problem, task) in enumerate(sorted(tasks.items())):
            meta = json.dumps({"group": self.groups[problem]} if problem in self.groups else {})
            db.execute("INSERT INTO problems VALUES (?, ?, '', '4', 'exact', NULL, NULL, ?)", [problem, task, meta])
            db.execute("INSERT INTO audit_problems VALUES ('audit', ?, ?, NULL)", [position, problem])
        db.execute(
            """
            INSERT INTO audits (audit_id, series, settings_id, n, n_base, entropy_samples, panel, panel_settings_id,
                                kernel_problems, kernel_responses, ks, strategy_regex, updated_at, provenance, runs,
                                first_round, enough)
            VALUES ('audit', 'run', 'settings', ?, ?, ?, ?, 'panel', 0, 0, ?, ?, now(), '{}', 1, ?, ?)""",
            [
                *(self.n, self.n_base, self.n, self.panel, list(self.ks), self.strategy_regex),
                *(self.first_round, self.enough),
            ],
        )
        panel_ids = "panel " + rows["problem"] + " " + rows["text"]
        rows = rows.assign(response_id=panel_ids.where(rows["panel"].astype(bool), [f"r{i}" for i in range(len(rows))]))
        drawn = rows["temperature"].dropna()
        for name, temperature in [("settings", 1.0), *((f"T={one:g}", one) for one in drawn.unique())]:
            db.execute(
                "INSERT INTO settings (settings_id, sampler, temperature, top_p, top_k) VALUES (?, 'test', ?, 1, 0)",
                [name, temperature],
            )
        db.execute("""
            INSERT INTO audit_controls
            SELECT 'audit', checkpoint, 'T=' || temperature, max(sample_index) + 1
            FROM rows
            WHERE temperature IS NOT NULL
            GROUP BY checkpoint, temperature""")
        db.execute("""
            INSERT INTO samples
            SELECT checkpoint, problem,
                   CASE WHEN panel THEN 'panel' WHEN temperature IS NULL THEN 'settings' ELSE 'T=' || temperature END,
                   greedy, sample_index, response_id, text, NULL, n_tokens, finish_reason, logp_sum, NULL
            FROM rows""")
        if rows["own_correct"].notna().any():
            db.execute("UPDATE problems SET verifier = 'recorded:tool'")
            db.execute("UPDATE audits SET verifier = 'exact'")
            db.execute("""
                INSERT INTO grades
                SELECT problem, response_id, 'recorded:tool', answer, NULL, coalesce(reward, own_correct::DOUBLE),
                       own_correct, 'ok', '', NULL, NULL, NULL, NULL
                FROM rows
                WHERE own_correct IS NOT NULL""")
        elif rows["reward"].notna().any():
            db.execute("UPDATE problems SET verifier = 'recorded:tool'")
            db.execute("""
                INSERT INTO grades
                SELECT problem, response_id, 'recorded:tool', answer, NULL, reward, reward >= 1, 'ok', '', NULL, NULL,
                       NULL, NULL
                FROM rows""")
        db.execute("""
            INSERT INTO grades
            SELECT problem, response_id, 'exact', answer, mode, correct::DOUBLE, correct, state, '', n_boxed, 1,
                   answer_style, lenient
            FROM rows""")
        db.execute("""
            INSERT INTO response_ways
            SELECT DISTINCT problem, response_id, 'test 1', 'arithmetic', '+1', mode, 'arithmetic: ' || mode, mode,
                   [mode], []::VARCHAR[], NULL
            FROM rows
            WHERE correct AND mode IS NOT NULL""")
        for row in rows[rows["calls"].notna()].itertuples():
            own = [(Turn(role="assistant", calls=(Call(name),)), Turn(role="tool", text="3")) for name in row.calls]
            turns = link_results([turn for pair in own for turn in pair] + [Turn(role="assistant", text=row.text)])
            db.execute("INSERT INTO trajectories VALUES (?, ?)", [row.response_id, [turn_row(turn) for turn in turns]])
        # a response of one checkpoint alone; the base's own score is also its score under the base
        db.execute("""
            INSERT INTO response_logps
            SELECT checkpoint, problem, 'settings', response_id, coalesce(own_logp_sum, -1.0),
                   coalesce(entropy_sum, 0.0), n_tokens
            FROM rows
            WHERE NOT panel AND (entropy_sum IS NOT NULL OR own_logp_sum IS NOT NULL)""")
        db.execute(f"""
            INSERT INTO response_logps
            SELECT '{BASE}', problem, 'settings', response_id, base_logp_sum, 0.0, n_tokens
            FROM rows
            WHERE NOT panel AND base_logp_sum IS NOT NULL AND checkpoint <> '{BASE}'""")
        db.execute("""
            INSERT INTO response_tokens
            SELECT checkpoint, problem, 'settings', response_id, token_logps::FLOAT[], token_entropies::FLOAT[]
            FROM rows
            WHERE token_logps IS NOT NULL""")
        db.execute("INSERT INTO modes SELECT DISTINCT problem, mode, problem || ' ' || mode FROM scores")
        db.execute("""
            INSERT INTO response_logps
            SELECT checkpoint, problem, 'settings', problem || ' ' || mode, logp_sum, 0.0, 6 FROM scores""")

    def evidence(self) -> Evidence:
        """Every view of the store, as the audit hands them to a computed measure."""
        return Evidence(
            checkpoints=self.db.sql(
                "SELECT checkpoint_id, checkpoint, step, is_base FROM series_checkpoints ORDER BY step"
            ).df(),
            frames=Views(self.db),
            n=self.n,
            ks=self.ks,
            first_round=self.first_round,
            enough=self.enough,
        )

    def sql_rows(self, measure: Measure) -> list[dict]:
        """The rows of a SQL measure, bound as the audit binds them."""
        assert measure.sql is not None
        bound = {"series": "run", "strategy_regex": self.strategy_regex, "ks": list(self.ks)}
        used = {name: value for name, value in bound.items() if f"${name}" in measure.sql}
        result = self.db.execute(measure.sql, used)
        columns = [column[0] for column in result.description]
        assert columns == ["checkpoint_id", "scope", "k", "value", "low", "high", "n"]
        return [dict(zip(columns, row, strict=True)) for row in result.fetchall()]

    def values(self, measure: Measure) -> dict[tuple[str, str], float]:
        """(checkpoint, scope) → value of a SQL measure."""
        return {(row["checkpoint_id"], row["scope"]): row["value"] for row in self.sql_rows(measure)}


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., World]:
    """Makes a ``World``. Tables and views are made once and copied: to make them takes longer than most tests."""
    folder, number = tmp_path_factory.mktemp("worlds"), itertools.count()
    with duckdb.connect(str(folder / "empty.duckdb")) as empty:
        empty.execute(script("tables.sql"))
        empty.execute("""
            CREATE TABLE response_tokens (
                checkpoint_id VARCHAR, problem_id VARCHAR, settings_id VARCHAR, response_id VARCHAR,
                token_logps FLOAT[], token_entropies FLOAT[])""")
        empty.execute(script("views.sql").replace("TEMP VIEW", "VIEW"))  # temporary ones are not kept

    @functools.wraps(World)
    def make(*arguments: object, **named: object) -> World:
        return World(*arguments, **named, place=shutil.copy(folder / "empty.duckdb", folder / f"{next(number)}.duckdb"))

    return make


@pytest.fixture(scope="session")
def found() -> Callable[..., dict]:
    """(checkpoint, scope) → finding."""

    def make(findings) -> dict:
        return {(finding.checkpoint_id, finding.scope): finding for finding in findings}

    return make


@pytest.fixture(scope="session")
def kernel_type() -> type[WorldKernel]:
    return WorldKernel
