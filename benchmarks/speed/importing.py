"""Measure the cost of importing a JSON Lines dump of verl that is larger than the allowed memory.

``python -m benchmarks.speed.importing`` (ten minutes, ``--gib 1`` for three) writes ``results/importing.json``. Goals:
50,000 samples per second of CPU time on one core, from the file to graded samples in the store, and at most 2 GiB
resident. For comparison pandas reads the same file with ``read_json(lines=True)`` in chunks and drops them: no store,
no grades, no checks. Each runs alternately in a separate process on one core. Most of the cost of a sample grows with
its text, so there are a dump of long responses and a dump of short ones, a fifth as large.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.speed.results import circumstances, digits, write

GOAL_SAMPLES_PER_S = 50_000
GOAL_GIB = 2.0
PROBLEMS, STEPS = 500, 10
CHUNK = 100_000
#: Name → (words per response, share of ``--gib`` for its dump).
CASES = {"long responses": (110, 1.0), "short responses": (28, 0.2)}


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


def import_one(path: Path, store: Path) -> None:
    """Import the file into the store, without verdict and report."""
    from oversharp.diagnostics.ingest.config import ImportConfig
    from oversharp.diagnostics.ingest.plan import plan_import
    from oversharp.diagnostics.ingest.read import SeriesReader
    from oversharp.diagnostics.store import Store
    from oversharp.diagnostics.verifiers import Verifiers

    config = ImportConfig(store=store)
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


def child(what: str, path: Path, store: Path) -> dict[str, float]:
    """Run one turn in this process, on one core."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    start, cpu_start = time.perf_counter(), time.process_time()
    if what == "oversharp":
        import_one(path, store)
    else:
        read_with_pandas(path)
    return {
        "wall_s": time.perf_counter() - start,
        "cpu_s": time.process_time() - cpu_start,
        "peak_gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
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


def main() -> None:
    """Measure, write the result file and print it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--gib", type=float, default=5.0, help="size of the dump")
    parser.add_argument("--turns", type=int, default=1, help="turns of each side")
    parser.add_argument("--turn", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.turn:
        what, path, store = arguments.turn
        print(json.dumps(child(what, Path(path), Path(store))))
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
            **circumstances(("oversharp", "msgspec", "duckdb", "pandas", "pyarrow")),
        },
    )


if __name__ == "__main__":
    main()
