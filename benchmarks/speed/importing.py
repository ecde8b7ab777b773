"""Measure the cost of importing a JSON Lines dump of verl that is larger than the allowed memory.

``python -m benchmarks.speed.importing`` (ten minutes, ``--gib 1`` for three) writes ``results/importing.json``. Goals:
50,000 samples per second of CPU time on one core, from the file to graded samples in the store, and at most 2 GiB
resident. For comparison pandas reads the same file with ``read_json(lines=True)`` in chunks and drops them: no store,
no grades, no checks. Each runs alternately in a separate process on one core. Most of the cost of a sample grows with
its text, so there are a dump of long responses and a dump of short ones, a fifth as large.

Also measured is one million samples by --map, from Parquet and JSON Lines, with short repeated and long distinct
responses. The goals are 3.5 and 6 seconds of CPU time. For comparison DuckDB alone reads the same file, hashes the
responses, stores all columns and counts the samples of each response.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.speed.results import circumstances, digits, own_peak_gib, write

GOAL_SAMPLES_PER_S = 50_000
GOAL_GIB = 2.0
PROBLEMS, STEPS = 500, 10
CHUNK = 100_000
#: Name → (words per response, share of ``--gib`` for its dump).
CASES = {"long responses": (110, 1.0), "short responses": (28, 0.2)}
#: Suffix → seconds of CPU time allowed for one million samples.
GOAL_MILLION_S = {".parquet": 3.5, ".jsonl": 6.0}
FIELDS = ("prompt", "response", "gold", "reward", "step", "problem", "index")


def write_dump(path: Path, gib: float, n_words: int, seed: int = 0) -> int:
    """Write a dump of about ``gib`` GiB with responses of ``n_words`` words.

    Returns the number of samples.
    """
    rng = random.Random(seed)
    words = [f"word{number}" for number in range(2000)]
    texts = [" ".join(rng.choices(words, k=n_words)) for _ in range(500)]
    samples = 0
    n_each = round(gib * 2**30 / ((190 + 7.9 * n_words) * PROBLEMS * STEPS))
    with path.open("w", encoding="utf-8") as file:
        for step in range(0, 10 * STEPS, 10):
            for problem in range(PROBLEMS):
                lines = []
                for _ in range(n_each):
                    right = rng.random() < 0.4
                    answer = problem if right else rng.randrange(1000)
                    fields = {
                        "input": f"user\nWhich number is {problem}? Put it in a box.\nassistant\n",
                        "output": f"{rng.choice(texts)} {rng.randrange(10**6)} \\boxed{{{answer}}}",
                        "gts": str(problem),
                        "score": float(right),
                        "step": step,
                    }
                    lines.append(json.dumps(fields))
                text = "\n".join(lines) + "\n"
                file.write(text)
                samples += n_each
    return samples


def write_million(folder: Path, *, distinct: bool, n: int = 250, seed: int = 0) -> None:
    """Write 1,000 problems × 4 steps × ``n`` samples to ``dump.parquet`` and ``dump.jsonl``.

    The responses are short, 10 per problem and step, or long and ``distinct``.
    """
    import pyarrow as pa
    from pyarrow import parquet

    rng = random.Random(seed)
    longer = [" ".join(f"word{rng.randrange(2000)}" for _ in range(34)) for _ in range(500)]
    rows = []
    for step, problem in product(range(0, 40, 10), range(1000)):
        gold = str(problem + 10_000)
        answers = [gold if rng.random() < 0.4 else str(problem + 10_000 + rng.randrange(1, 900)) for _ in range(n)]
        if distinct:
            texts = [rf"{rng.choice(longer)} {rng.randrange(10**9)} \boxed{{{answer}}}" for answer in answers]
        else:
            ten = [rf"After {rng.randrange(1000)} steps it is \boxed{{{answer}}}" for answer in answers[:10]]
            texts = rng.choices(ten, k=n)
        prompt = f"Which number is {problem}? Put it in a box."
        rows += [
            (prompt, text, gold, float(text.endswith(f"{{{gold}}}")), step, f"q{problem}", index)
            for index, text in enumerate(texts)
        ]
    columns = zip(*rows, strict=True)
    parquet.write_table(pa.table(dict(zip(FIELDS, map(list, columns), strict=True))), folder / "dump.parquet")
    with (folder / "dump.jsonl").open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(dict(zip(FIELDS, row, strict=True))) + "\n" for row in rows)


def import_one(path: Path, store: Path, fields: Sequence[str] = ()) -> None:
    """Import the file into the store, without verdict and report."""
    from oversharp.diagnostics.ingest.config import ImportConfig
    from oversharp.diagnostics.ingest.plan import plan_import
    from oversharp.diagnostics.ingest.read import SeriesReader
    from oversharp.diagnostics.store import Store
    from oversharp.diagnostics.verifiers import Verifiers

    config = ImportConfig(store=store, map={field: field for field in fields})
    (file,) = plan_import([path], config).files
    with Store.open(store) as opened, Verifiers() as verifiers:
        opened.bound_memory()
        SeriesReader(opened, file.series, config, verifier=None).read(file, verifiers)


def read_with_pandas(path: Path) -> None:
    """Read the same file and drop it."""
    import pandas as pd

    with pd.read_json(path, lines=True, chunksize=CHUNK) as chunks:
        for _ in chunks:
            pass


def store_with_duckdb(path: Path, store: Path) -> None:
    """Store the samples with a hash of the response, and count the samples of each response."""
    import duckdb

    read = "read_parquet" if path.suffix == ".parquet" else "read_json"
    with duckdb.connect(store) as connection:
        connection.execute("SET threads = 1")
        connection.execute(f"CREATE TABLE samples AS SELECT *, hash(response) AS response_id FROM {read}('{path}')")
        connection.execute(
            """
            CREATE TABLE grades AS SELECT problem, response_id, any_value(reward) AS reward, count(*) AS n
            FROM samples GROUP BY ALL
            """
        )


def child(what: str, path: Path, store: Path) -> dict[str, float]:
    """Run one turn in this process, on one core."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    start, cpu_start = time.perf_counter(), time.process_time()
    if what.startswith("oversharp"):
        import_one(path, store, FIELDS if what == "oversharp --map" else ())
    elif what == "duckdb":
        store_with_duckdb(path, store)
    else:
        read_with_pandas(path)
    return {
        "wall_s": time.perf_counter() - start,
        "cpu_s": time.process_time() - cpu_start,
        "peak_gib": own_peak_gib(),
    }


def turn(what: str, path: Path, store: Path) -> dict[str, float]:
    """Run one turn in a fresh process."""
    command = [sys.executable, "-m", __spec__.name, "--turn", what, str(path), str(store)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{what} failed: {done.stderr.strip()[-2000:]}")
    told: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return told


def summary(turns: list[dict[str, float]], samples: int) -> dict[str, float]:
    """Return medians."""
    cpu_s = median(one["cpu_s"] for one in turns)
    return {
        "samples_per_cpu_s": digits(samples / cpu_s),
        "cpu_s": digits(cpu_s),
        "wall_s": digits(median(one["wall_s"] for one in turns)),
        "peak_gib": digits(max(one["peak_gib"] for one in turns)),
    }


def measure(gib: float, n_words: int, n_turns: int) -> dict[str, Any]:
    """Measure both on one dump, alternately."""
    told: dict[str, list[dict[str, float]]] = {"oversharp": [], "pandas": []}
    with tempfile.TemporaryDirectory(prefix="oversharp-importing-") as scratch:
        path = Path(scratch) / "dump.jsonl"
        samples = write_dump(path, gib, n_words)
        n_bytes = path.stat().st_size
        for number in range(n_turns):
            for what, turns in told.items():
                turns.append(turn(what, path, Path(scratch) / f"{number}.duckdb"))
    ours, pandas = (summary(turns, samples) for turns in told.values())
    return {
        "size_gib": digits(n_bytes / 2**30),
        "samples": samples,
        "bytes_per_sample": digits(n_bytes / samples),
        "oversharp": ours,
        "pandas": pandas,
        "cpu_ratio_to_pandas": digits(ours["cpu_s"] / pandas["cpu_s"]),
        "met": ours["samples_per_cpu_s"] >= GOAL_SAMPLES_PER_S and ours["peak_gib"] <= GOAL_GIB,
    }


def measure_million(n_turns: int) -> dict[str, Any]:
    """Measure both on one million samples, alternately. The ratio is the median over the turns."""
    cases: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="oversharp-importing-") as scratch:
        for distinct in (False, True):
            write_million(Path(scratch), distinct=distinct)
            for suffix, goal_s in GOAL_MILLION_S.items():
                ours, reference = [], []
                for number in range(n_turns):
                    for what, turns in (("oversharp --map", ours), ("duckdb", reference)):
                        store = Path(scratch) / f"{what[:6]}-{distinct}{suffix}-{number}.duckdb"
                        turns.append(turn(what, Path(scratch) / f"dump{suffix}", store)["cpu_s"])
                cases[f"{'long distinct' if distinct else 'short repeated'} responses, {suffix[1:]}"] = {
                    "cpu_s": digits(median(ours)),
                    "duckdb_cpu_s": digits(median(reference)),
                    "cpu_ratio_to_duckdb": digits(median(a / b for a, b in zip(ours, reference, strict=True))),
                    "goal_cpu_s": goal_s,
                    "met": median(ours) <= goal_s,
                }
    return cases


def main() -> None:
    """Measure, write the result file and print it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--gib", type=float, default=5.0, help="size of the dump")
    parser.add_argument("--turns", type=int, default=1, help="turns of each side")
    parser.add_argument("--million", action="store_true", help="print only the costs of one million samples")
    parser.add_argument("--turn", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.turn:
        what, path, store = arguments.turn
        print(json.dumps(child(what, Path(path), Path(store))))
        return
    million = measure_million(max(3, arguments.turns))
    if arguments.million:
        print(json.dumps(million, indent=2))
        return
    cases = {name: measure(arguments.gib * share, n_words, arguments.turns) for name, (n_words, share) in CASES.items()}
    write(
        "importing",
        {
            "benchmark": "importing",
            "what": "a verl dump from file to graded samples in the store; pandas reads it in chunks and keeps nothing",
            "goal_samples_per_cpu_s": GOAL_SAMPLES_PER_S,
            "goal_peak_gib": GOAL_GIB,
            "turns": arguments.turns,
            "cases": cases,
            "one_million_samples": million,
            **circumstances(("oversharp", "msgspec", "duckdb", "pandas", "pyarrow")),
        },
    )


if __name__ == "__main__":
    main()
