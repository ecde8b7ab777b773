"""The memory that grading takes: a store of long responses, graded in blocks, and the peer, which reads them all first.

``python benchmarks/speed/grading_memory.py`` (minutes; ``--samples`` for fewer) writes ``results/grading_memory.json``.
Every response is another one and ends in a box; each way of grading runs in a process of its own. The peer needs
several times the texts: it is left out where less memory than that is free.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from results import circumstances, digits, write

from diagnostics.engine.grading import grade_responses
from diagnostics.records.memory import free_bytes
from diagnostics.records.progress import SilentProgress
from diagnostics.records.types import AuditKey, Checkpoint, Problem, SamplingSettings, Series
from diagnostics.store import Store
from diagnostics.store.database import Database
from diagnostics.store.load import stored_problems
from diagnostics.store.missing import ungraded
from diagnostics.verifiers import Verifiers

SETTINGS = SamplingSettings(sampler="synthetic", max_tokens=2048)
#: The peer took less than so many times the characters of all texts.
PEER_TIMES = 6
PER_PROBLEM = 1000


def build(path: Path, n: int, characters: int) -> None:
    """A store of ``n`` samples of the base, ``PER_PROBLEM`` of each problem, none of them graded."""
    problems = [
        Problem(task="synthetic", prompt=f"Which number is {place}?", gold=str(place), verifier="math")
        for place in range(n // PER_PROBLEM)
    ]
    database = Database(path, read_only=False)
    with Store(database) as store:
        base = Checkpoint(step=0, label="base", path=Path("synthetic"), kind="full", weights_hash="base")
        store.add_series(Series(name="run", path=Path("synthetic"), layout="trl", checkpoints=(base,)))
        store.add_problems(problems)
        ids = [problem.problem_id for problem in problems]
        store.begin_audit(KEY, settings=SETTINGS, panel_settings=SETTINGS, problem_ids=ids)
        for place, problem in enumerate(problems):
            database.rows(
                r"""
                INSERT INTO samples
                SELECT 'base', $problem_id, $settings_id, false, i, md5($problem_id || i),
                       left(repeat(md5(i::VARCHAR) || ' and so on, ', 1 + $characters // 44), $characters)
                           || $place || '-' || i || '. Therefore \boxed{' || ($place + i % 3) || '}',
                       [1, 2], 2048, 'stop', -1.0, NULL
                FROM range($n) AS r (i)
                """,
                {
                    "problem_id": problem.problem_id,
                    "settings_id": SETTINGS.settings_id,
                    "characters": characters,
                    "place": place,
                    "n": PER_PROBLEM,
                },
            )


KEY = AuditKey(
    audit_id="run",
    series="run",
    settings_id=SETTINGS.settings_id,
    n=PER_PROBLEM,
    n_base=PER_PROBLEM,
    entropy_samples=0,
    panel=0,
    panel_settings_id=SETTINGS.settings_id,
    kernel_problems=0,
    kernel_responses=0,
    ks=(1,),
    strategy_regex="```",
)


def grade(path: Path) -> None:
    """Grade the store as an audit, an import or a regrading does."""
    with Store.open(path) as store:
        store.bound_memory()
        ids = store.frame("SELECT problem_id FROM problems ORDER BY problem_id")["problem_id"].tolist()
        pending = ungraded(store, KEY)
        grade_responses(store, stored_problems(store, ids), pending, key=KEY, progress=SilentProgress())


def grade_at_once(path: Path) -> None:
    """The peer: all texts in one frame, then their grades."""
    with Store.open(path) as store, Verifiers() as verifiers:
        store.bound_memory()
        ids = store.frame("SELECT problem_id FROM problems ORDER BY problem_id")["problem_id"].tolist()
        by_id = {problem.problem_id: problem for problem in stored_problems(store, ids)}
        rows = store.frame(
            "SELECT problem_id, response_id, any_value(text) AS text FROM samples GROUP BY ALL ORDER BY ALL"
        )
        for first in range(0, len(rows), 4096):
            block = rows.iloc[first : first + 4096]
            grades = verifiers.grade([(by_id[row.problem_id], row.text) for row in block.itertuples()])
            store.add_grades(
                (row.problem_id, row.response_id, "math", one)
                for row, one in zip(block.itertuples(), grades, strict=True)
            )


def took(way: str, path: Path) -> dict[str, float]:
    """One way of grading in a process of its own: seconds and its largest memory, without its workers'."""
    start = time.perf_counter()
    process = subprocess.Popen([sys.executable, __file__, "--way", way, str(path)])
    _, status, used = os.wait4(process.pid, 0)
    if status:
        sys.exit(f"{way} failed with {os.waitstatus_to_exitcode(status)}")
    with Store.open(path) as store:
        found = store.frame("SELECT count(*) AS n, count(*) FILTER (correct) AS n_correct FROM grades").iloc[0]
        sizes = {"graded": int(found["n"]), "correct": int(found["n_correct"])}
        Database.rows(store._database, "DELETE FROM grades")
    return {
        "peak_gib": digits(used.ru_maxrss / 2**20),
        "wall_s": digits(time.perf_counter() - start),
        **sizes,
    }


def measure(n: int, characters: int) -> dict[str, Any]:
    """Both ways, where there is room for the peer."""
    with tempfile.TemporaryDirectory(prefix="oversharp-grading-") as scratch:
        path = Path(scratch) / "audit.duckdb"
        build(path, n, characters)
        ours = took("blocks", path)
        has_room = free_bytes() > PEER_TIMES * n * characters
        return {
            "samples": n,
            "characters_of_each": characters,
            "texts_gib": digits(n * characters / 2**30),
            "in_blocks": ours,
            "peer_all_at_once": took("at once", path) if has_room else None,
        }


def main() -> None:
    """Measure, write the result file and print it; with --way do one of the things that are measured."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--samples", type=int, default=300_000)
    parser.add_argument("--characters", type=int, default=8000)
    parser.add_argument("--way", choices=("blocks", "at once"))
    parser.add_argument("path", type=Path, nargs="?")
    given = parser.parse_args()
    if given.way is not None:
        (grade if given.way == "blocks" else grade_at_once)(given.path)
        return
    write(
        "grading_memory",
        {
            "benchmark": "grading_memory",
            "what": "grading a store of long responses that all differ: largest memory of the process",
            **measure(given.samples, given.characters),
            **circumstances(("oversharp", "duckdb", "pandas", "pyarrow", "math-verify")),
        },
    )


if __name__ == "__main__":
    main()
