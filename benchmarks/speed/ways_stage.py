"""Measure the cost of parsing the ways of an audit, and of their counts, in a separate process.

``python -m benchmarks.speed.ways_stage`` (some minutes; ``--problems 50`` for a tenth) writes a store of 500 problems
at 11 checkpoints with 256 responses of 1.5 kB each, half of them correct, and writes ``results/ways_stage.json``.
Goals: 2,000 texts per second, 60 CPU seconds for the whole stage, 1 GiB.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd

from benchmarks.reading.ways_generated import APPROACHES, drawn_problem, render
from benchmarks.speed.results import circumstances, digits, own_peak_gib, write
from oversharp.diagnostics.engine.ways import read_ways
from oversharp.diagnostics.records.progress import SilentProgress
from oversharp.diagnostics.records.types import response_id
from oversharp.diagnostics.store import Store
from oversharp.diagnostics.store.database import Database

CHARACTERS = 1_500
FILLER = "This part says nothing that could be counted, and is there because responses have so many words. "
GOAL_CPU_S, GOAL_TEXTS_PER_S, GOAL_GIB = 60.0, 2_000.0, 1.0


def build(path: Path, n_problems: int, n_checkpoints: int, n: int, different: int) -> None:
    """Write samples, grades and one audit.

    Each problem has ``different`` correct texts, and one wrong one.
    """
    rng = np.random.default_rng(0)
    database = Database(path, read_only=False)
    names = [f"step_{20 * step}" for step in range(n_checkpoints)]
    for step, name in enumerate(names):
        row = [name, 20 * step, name, step == 0]
        database.rows("INSERT INTO series_checkpoints VALUES ('run', ?, ?, ?, ?, '')", row)
    for place in range(n_problems):
        problem = drawn_problem(rng)
        texts = [_text(render(problem, i % APPROACHES, 1, rng), rng) for i in range(different)]
        ids = [response_id(text) for text in texts]
        drawn = rng.integers(0, different, (n_checkpoints, n))
        wrong = rng.random((n_checkpoints, n)) < 0.5
        rows = pd.DataFrame({
            "checkpoint_id": np.repeat(names, n), "problem_id": f"q{place:04}",
            "sample_index": np.tile(np.arange(n), n_checkpoints),
            "response_id": ["wrong" if w else ids[d] for d, w in zip(drawn.ravel(), wrong.ravel(), strict=True)],
            "text": ["wrong" if w else texts[d] for d, w in zip(drawn.ravel(), wrong.ravel(), strict=True)],
        })  # fmt: skip
        database.insert(
            """INSERT INTO samples
               SELECT checkpoint_id, problem_id, 's', false, sample_index, response_id, text, NULL, 3, NULL, NULL,
                      NULL""",
            rows,
        )
        database.insert(
            """INSERT INTO grades
               SELECT DISTINCT problem_id, response_id, 'exact', '', NULL, (text <> 'wrong')::INT, text <> 'wrong',
                      'ok', '', NULL, 1, NULL, NULL""",
            rows,
        )
        one = [f"q{place:04}"]
        database.rows("INSERT INTO problems VALUES (?, 't', '', '1', 'exact', NULL, NULL, '{}')", one)
        database.rows("INSERT INTO audit_problems VALUES ('audit', 0, ?, NULL)", one)
    database.rows(
        """
        INSERT INTO audits BY NAME
        SELECT 'audit' AS audit_id, 'run' AS series, 's' AS settings_id, $n AS n, $n AS n_base, 0 AS entropy_samples,
               [1] AS ks, '' AS strategy_regex, now()::TIMESTAMP AS updated_at, '{}' AS provenance, 0 AS panel,
               0 AS kernel_problems, 0 AS kernel_responses, 1 AS runs""",
        {"n": n},
    )
    database.close()


def _text(solution: str, rng: np.random.Generator) -> str:
    lacking = max(0, CHARACTERS - len(solution))
    before = int(rng.integers(0, lacking + 1))
    filler = FILLER * (lacking // len(FILLER) + 1)
    return f"{filler[:before]}\n{solution}\n{filler[: lacking - before]}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", type=int, default=500)
    parser.add_argument("--checkpoints", type=int, default=11)
    parser.add_argument("--n", type=int, default=256)
    parser.add_argument("--different", type=int, default=600, help="correct texts that a problem has")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "audit.duckdb"
        build(path, given.problems, given.checkpoints, given.n, given.different)
        with Store.open(path) as store:
            store.bound_memory()
            start = time.process_time()
            read_ways(store, SimpleNamespace(series="run", audit_id="audit"), SilentProgress())
            read_s = time.process_time() - start
            counts = store.frame(
                "SELECT checkpoint_id, problem_id, level, way, first_half, n FROM way_counts ORDER BY ALL"
            )
            counted_s = time.process_time() - start - read_s
            texts = int(store.frame("SELECT count(*) AS n FROM response_ways")["n"].item())
    write("ways_stage", {
        "command": "python -m benchmarks.speed.ways_stage", "problems": given.problems,
        "checkpoints": given.checkpoints, "samples_each": given.n, "characters": CHARACTERS,
        "different_correct_texts": texts, "correct_samples": int(counts.loc[counts["level"] == "way", "n"].sum()),
        "read_and_joined_cpu_s": digits(read_s), "texts_per_s": digits(texts / read_s),
        "counted_cpu_s": digits(counted_s),
        "peak_gib": digits(own_peak_gib()),
        "goals": {"cpu_s": GOAL_CPU_S, "texts_per_s": GOAL_TEXTS_PER_S, "gib": GOAL_GIB},
        **circumstances(("duckdb", "scikit-learn")),
    })  # fmt: skip


if __name__ == "__main__":
    main()
