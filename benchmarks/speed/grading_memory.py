"""Measure the memory of grading a store of long responses in blocks, and of a peer that loads all texts first.

``python -m benchmarks.speed.grading_memory`` (minutes; ``--samples`` for fewer) writes ``results/grading_memory.json``.
All responses differ and end in a box. Each variant runs in a separate process. The peer needs several times the memory
of the texts, so it gets a quarter of the samples. ``--folder`` keeps stores and measurements, and a stopped run
continues with them.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.speed.results import circumstances, digits, own_peak_gib, write
from oversharp.diagnostics.engine.grading import grade_responses
from oversharp.diagnostics.records.progress import SilentProgress
from oversharp.diagnostics.records.types import AuditKey, Checkpoint, Problem, SamplingSettings, Series
from oversharp.diagnostics.store import Store
from oversharp.diagnostics.store.database import Database
from oversharp.diagnostics.store.load import stored_problems
from oversharp.diagnostics.store.missing import find_ungraded
from oversharp.diagnostics.verifiers import Verifiers

SETTINGS = SamplingSettings(sampler="synthetic", max_tokens=2048)
PER_PROBLEM = 1000


def build(path: Path, n: int, characters: int) -> None:
    """Write a store of ``n`` ungraded samples of the base, ``PER_PROBLEM`` of each problem."""
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
    """Grade the store in the same way as an audit, an import or a regrading."""
    with Store.open(path) as store:
        ids = store.frame("SELECT problem_id FROM problems ORDER BY problem_id")["problem_id"].tolist()
        pending = find_ungraded(store, KEY)
        grade_responses(store, stored_problems(store, ids), pending, key=KEY, progress=SilentProgress())


def grade_at_once(path: Path) -> None:
    """Grade all texts from one DataFrame: the peer."""
    with Store.open(path) as store, Verifiers() as verifiers:
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
    """Run one variant in a separate process. Return seconds and its peak memory, without its workers."""
    with Store.open(path) as store:  # remove the grades of a stopped run
        Database.rows(store._database, "DELETE FROM grades")
    start = time.perf_counter()
    command = [sys.executable, "-m", __spec__.name, "--way", way, str(path)]
    peak_gib = float(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
    with Store.open(path) as store:
        found = store.frame("SELECT count(*) AS n, count(*) FILTER (correct) AS n_correct FROM grades").iloc[0]
        sizes = {"graded": int(found["n"]), "correct": int(found["n_correct"])}
    return {
        "peak_gib": digits(peak_gib),
        "wall_s": digits(time.perf_counter() - start),
        **sizes,
    }


def kept(way: str, path: Path) -> dict[str, float]:
    """Return the measurement that is stored next to the store, or a new one."""
    file = path.with_suffix(f".{way.replace(' ', '_')}.json")
    if not file.exists():
        file.write_text(json.dumps(took(way, path)))
    found: dict[str, float] = json.loads(file.read_text())
    return found


def measure(n: int, characters: int, folder: Path) -> dict[str, Any]:
    """Measure ours on all samples, and both variants on the peer's samples."""
    found: dict[str, Any] = {"characters_of_each": characters}
    for name, size, ways in (("all", n, ("blocks",)), ("a quarter", n // 4, ("blocks", "at once"))):
        path = folder / f"{size}x{characters}.duckdb"
        if not path.exists():
            build(path, size, characters)
        found[name] = {"samples": size, "texts_gib": digits(size * characters / 2**30)}
        found[name] |= {way: kept(way, path) for way in ways}
    return found


def main() -> None:
    """Measure, write the result file and print it. With --way run one variant."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--samples", type=int, default=300_000)
    parser.add_argument("--characters", type=int, default=8000)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--way", choices=("blocks", "at once"))
    parser.add_argument("path", type=Path, nargs="?")
    given = parser.parse_args()
    if given.way is not None:
        (grade if given.way == "blocks" else grade_at_once)(given.path)
        print(own_peak_gib())
        return
    with tempfile.TemporaryDirectory(prefix="oversharp-grading-") as scratch:
        found = measure(given.samples, given.characters, given.folder or Path(scratch))
    write(
        "grading_memory",
        {
            "benchmark": "grading_memory",
            "what": "grading a store of long responses that all differ: largest memory of the process",
            **found,
            **circumstances(("oversharp", "duckdb", "pandas", "pyarrow", "math-verify")),
        },
    )


if __name__ == "__main__":
    main()
