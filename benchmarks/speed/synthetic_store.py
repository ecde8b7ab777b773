"""Write the store of an audit of any size, without a model.

It has samples of a simulated series, measured by the real stage. ``python -m benchmarks.speed.synthetic_store
--problems 500 --checkpoints 11 --n 64 OUT_DIR`` writes ``OUT_DIR/audit.duckdb``. The responses are short sums. Four of
them are correct and listed as the problem's modes. Log-probabilities and entropies follow from the simulated
distribution.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
from jaxtyping import Float, Int

from benchmarks.speed.synthetic_responses import FATES, Plan, ResponseLaw, Responses, draw
from oversharp.diagnostics.audit.measure import conclude, measure
from oversharp.diagnostics.records.progress import SilentProgress
from oversharp.diagnostics.records.types import (
    AuditKey,
    Checkpoint,
    SamplingSettings,
    Series,
    TrainingMetric,
    content_hash,
)
from oversharp.diagnostics.store import Store
from oversharp.diagnostics.store.database import Database
from oversharp.diagnostics.verifiers import RULES

SETTINGS = SamplingSettings(sampler="synthetic", max_tokens=16)
PANEL_SETTINGS = replace(SETTINGS, temperature=0.9, seed=1)
STEPS_BETWEEN = 20
#: Problems whose panel responses are scored twice, and the size of the rounding errors (nats).
REPEATED_PROBLEMS, ROUNDING_NATS = 16, 1e-6


class _Builder:
    """Draw and write everything with one generator, so that a plan determines the store."""

    def __init__(self, plan: Plan, database: Database) -> None:
        self.plan, self.database = plan, database
        self.rng = np.random.default_rng(plan.seed)
        self.law = ResponseLaw.planted(plan.n_problems, self.rng)

    def stage_responses(self, responses: Responses) -> None:
        """Create the responses and their grades as tables to join with."""
        run, insert = self.database.rows, self.database.insert
        columns = """position INTEGER, response TINYINT, problem_id VARCHAR, response_id VARCHAR, text VARCHAR,
                     token_ids INTEGER[], n_tokens INTEGER, finish_reason VARCHAR, correct BOOLEAN"""
        run(f"CREATE TEMP TABLE responses ({columns})")
        run("CREATE TEMP TABLE draws (position INTEGER, sample_index INTEGER, response TINYINT)")
        run("CREATE TEMP TABLE law (position INTEGER, response TINYINT, logp DOUBLE, entropy DOUBLE)")
        insert(
            """INSERT INTO responses
               SELECT position, response, problem_id, response_id, text, range(1, n_tokens + 1)::INTEGER[], n_tokens,
                      finish_reason, correct""",
            responses.rows,
        )
        insert(
            """INSERT INTO grades
               SELECT problem_id, response_id, $verifier, answer, mode, correct::DOUBLE, correct, state, reason,
                      NULL, $rules, NULL, NULL""",
            responses.rows,
            verifier=self.plan.verifier,
            rules=RULES.get(self.plan.verifier),
        )

    def add_checkpoint(self, checkpoint_id: str, law_PR: Float[np.ndarray, "problem response"], n: int) -> None:
        """Add samples, the greedy response, and the score of every response, in one transaction."""
        self.database.rows("DELETE FROM law")
        logp_PR = np.log(law_PR)
        entropy_P = -(law_PR * logp_PR).sum(axis=1)
        position_N, response_N = (index.ravel() for index in np.indices(law_PR.shape, dtype=np.int32))
        law = {"position": position_N, "response": response_N, "logp": logp_PR.ravel()}
        with self.database.transaction():
            self.database.insert(
                "INSERT INTO law SELECT position, response, logp, entropy",
                pd.DataFrame({**law, "entropy": np.repeat(entropy_P, law_PR.shape[1])}),
            )
            self._add_samples(checkpoint_id, SETTINGS, draw(law_PR, n, self.rng), greedy=False)
            self._add_samples(checkpoint_id, SETTINGS, law_PR.argmax(axis=1)[:, None], greedy=True)
            self._add_scores(checkpoint_id)

    def _add_samples(
        self, checkpoint_id: str, settings: SamplingSettings, drawn_PD: Int[np.ndarray, "problem draw"], *, greedy: bool
    ) -> None:
        position_N, index_N = (index.ravel() for index in np.indices(drawn_PD.shape, dtype=np.int32))
        draws = pd.DataFrame({"position": position_N, "sample_index": index_N, "response": drawn_PD.ravel()})
        self.database.rows("DELETE FROM draws")
        self.database.insert("INSERT INTO draws SELECT position, sample_index, response", draws)
        self.database.rows(
            """
            INSERT INTO samples
            SELECT $checkpoint_id, r.problem_id, $settings_id, $greedy, d.sample_index, r.response_id, r.text,
                   r.token_ids, r.n_tokens, r.finish_reason, l.logp, l.entropy
            FROM draws AS d
            JOIN responses AS r USING (position, response)
            JOIN law AS l USING (position, response)
            ORDER BY d.position, d.sample_index
            """,
            {"checkpoint_id": checkpoint_id, "settings_id": settings.settings_id, "greedy": greedy},
        )

    def add_panel(self, checkpoint_id: str, law_PR: Float[np.ndarray, "problem response"]) -> None:
        """Add the panel: base responses that every checkpoint scores."""
        with self.database.transaction():
            self._add_samples(checkpoint_id, PANEL_SETTINGS, draw(law_PR, self.plan.panel, self.rng), greedy=False)

    def _add_scores(self, checkpoint_id: str) -> None:
        """Add the modes' scores and, with a panel, the scores of all responses.

        All tokens of a response have equal probability.
        """
        scored = "r.correct" if not self.plan.panel else "TRUE"
        bound = {"checkpoint_id": checkpoint_id, "settings_id": SETTINGS.settings_id}
        self.database.rows(
            f"""
            INSERT INTO response_logps
            SELECT $checkpoint_id, r.problem_id, $settings_id, r.response_id, l.logp, l.entropy, r.n_tokens
            FROM responses AS r
            JOIN law AS l USING (position, response)
            WHERE {scored}
            ORDER BY r.position, r.response
            """,
            bound,
        )
        if not self.plan.panel:
            return
        self.database.rows(
            """
            INSERT INTO second_logps
            SELECT $checkpoint_id, r.problem_id, $settings_id, r.response_id,
                   l.logp + $rounding * (r.response % 2 - 0.5)
            FROM responses AS r
            JOIN law AS l USING (position, response)
            WHERE r.position < $repeated
            ORDER BY r.position, r.response
            """,
            {**bound, "rounding": ROUNDING_NATS, "repeated": REPEATED_PROBLEMS},
        )
        tokens = self.database.frame(
            """
            SELECT $checkpoint_id AS checkpoint_id, r.problem_id, $settings_id AS settings_id, r.response_id,
                   list_transform(r.token_ids, lambda token: l.logp / r.n_tokens) AS token_logps,
                   list_transform(r.token_ids, lambda token: l.entropy / r.n_tokens) AS token_entropies
            FROM responses AS r
            JOIN law AS l USING (position, response)
            ORDER BY r.position, r.response
            """,
            bound,
        )
        self.database.write_tokens(tokens)


def build_store(path: Path, plan: Plan, *, measured: bool = True) -> Path:
    """Write the store to ``path``, which must not exist.

    Without measuring it has samples and grades and no findings.
    """
    database = Database(path, read_only=False)
    with Store(database) as store:
        builder = _Builder(plan, database)
        responses = Responses.made(plan)
        store.add_problems(responses.problems)
        builder.stage_responses(responses)
        base_id = content_hash("synthetic", plan.seed, "base")
        base_PR = builder.law.at("no_change", 0.0)
        builder.add_checkpoint(base_id, base_PR, 2 * plan.n)
        if plan.panel:
            builder.add_panel(base_id, base_PR)
        for name in plan.series:
            series = _series(name, plan, base_id)
            store.add_series(series)
            for index, checkpoint in enumerate(series.checkpoints[1:], start=1):
                law_PR = builder.law.at(FATES[name], index / (plan.n_checkpoints - 1))
                builder.add_checkpoint(checkpoint.checkpoint_id, law_PR, plan.n)
            key = audit_key(name, plan)
            problem_ids = [problem.problem_id for problem in responses.problems]
            store.begin_audit(key, settings=SETTINGS, panel_settings=PANEL_SETTINGS, problem_ids=problem_ids)
            if measured:
                measure(store, key, {}, SilentProgress())
                conclude(store, key, {}, {}, SilentProgress())
                store.end_audit(key, {"command": "synthetic_store.py", "versions": {}, "left_out": {}})
    return path


def _series(name: str, plan: Plan, base_id: str) -> Series:
    def checkpoint(index: int) -> Checkpoint:
        step = index * STEPS_BETWEEN
        identity = content_hash("synthetic", plan.seed, name, step) if index else base_id
        label = f"checkpoint-{step}"
        return Checkpoint(
            step=step, label=label, path=Path("synthetic", name, label), kind="full", weights_hash=identity
        )

    last = (plan.n_checkpoints - 1) * STEPS_BETWEEN
    rewards = [TrainingMetric(step=s, name="reward", value=round(0.2 + 0.4 * s / last, 6)) for s in range(1, last + 1)]
    return Series(
        name=name,
        path=Path("synthetic", name),
        layout="trl",
        checkpoints=tuple(checkpoint(index) for index in range(plan.n_checkpoints)),
        metrics=tuple(rewards),
    )


def audit_key(name: str, plan: Plan) -> AuditKey:
    """Return the audit key of series ``name``."""
    return AuditKey(
        audit_id=content_hash("synthetic", plan.seed, name, plan.n),
        series=name,
        settings_id=SETTINGS.settings_id,
        n=plan.n,
        n_base=2 * plan.n,
        entropy_samples=min(16, plan.n),
        panel=min(plan.panel, plan.n),
        panel_settings_id=PANEL_SETTINGS.settings_id,
        kernel_problems=0,
        kernel_responses=0,
        ks=plan.ks,
        strategy_regex="```",
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Write one store and print its path. Always returns 0."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", type=int, default=500)
    parser.add_argument("--checkpoints", type=int, default=11, help="with the base")
    parser.add_argument("--n", type=int, default=64)
    parser.add_argument("--series", nargs="+", choices=FATES, default=["losing"])
    parser.add_argument("--tasks", type=int, default=1)
    parser.add_argument("--panel", type=int, default=4)
    parser.add_argument("--without-modes", action="store_true", help="problems do not list their correct responses")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("out", type=Path)
    given = parser.parse_args(arguments)
    plan = Plan(
        n_problems=given.problems,
        n_checkpoints=given.checkpoints,
        n=given.n,
        series=tuple(given.series),
        n_tasks=given.tasks,
        panel=given.panel,
        lists_modes=not given.without_modes,
        seed=given.seed,
    )
    print(build_store(given.out / "audit.duckdb", plan))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
