"""What importing another tool's dump costs: one JSON Lines file of verl's layout, larger than the memory it may take.

``python benchmarks/speed/importing.py`` (ten minutes, ``--gib 1`` for two) writes ``results/importing.json``.
Goals: 50,000 samples per second of CPU time on one core, from the file to graded samples in the store, and at most
2 GiB resident. Beside it pandas reads the same file with ``read_json(lines=True)`` in chunks and keeps nothing: no
store, no grades, no check of a field. Each runs in a process of its own on one core, in turns.
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

from results import circumstances, digits, write

GOAL_SAMPLES_PER_S = 50_000
GOAL_GIB = 2.0
PROBLEMS, STEPS = 500, 10
CHUNK = 100_000


def write_dump(path: Path, gib: float, seed: int = 0) -> int:
    """A dump of ``gib`` GiB, about 1 kB a line, texts of words; returns how many samples it holds."""
    rng = random.Random(seed)
    words = [f"word{number}" for number in range(2000)]
    texts = [" ".join(rng.choices(words, k=110)) for _ in range(500)]
    samples, size = 0, 0
    n_each = round(gib * 2**30 / (1060 * PROBLEMS * STEPS))
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
                samples, size = samples + n_each, size + len(text)
    return samples


def import_one(path: Path, store: Path) -> None:
    """From the file to the store, without the audit."""
    from diagnostics.import_config import ImportConfig
    from diagnostics.import_plan import plan_import
    from diagnostics.import_reading import SeriesReader
    from diagnostics.importing import MEMORY_GIB
    from diagnostics.store import Store
    from diagnostics.verifiers import Verifiers

    config = ImportConfig(store=store)
    (file,) = plan_import([path], config).files
    with Store.open(store) as opened, Verifiers() as verifiers:
        opened.bound_memory(MEMORY_GIB)
        SeriesReader(opened, file.series, config, verifier=None).read(file, verifiers)


def read_with_pandas(path: Path) -> None:
    """The same file, read and dropped."""
    import pandas as pd

    with pd.read_json(path, lines=True, chunksize=CHUNK) as chunks:
        for _ in chunks:
            pass


def child(what: str, path: Path, store: Path) -> dict[str, float]:
    """One turn in this process, on one core."""
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
    """One turn in a fresh process."""
    command = [sys.executable, __file__, "--turn", what, str(path), str(store)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{what} failed: {done.stderr.strip()[-2000:]}")
    told: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return told


def summary(turns: list[dict[str, float]], samples: int) -> dict[str, float]:
    """Medians."""
    cpu_s = median(one["cpu_s"] for one in turns)
    return {
        "samples_per_cpu_s": digits(samples / cpu_s),
        "cpu_s": digits(cpu_s),
        "wall_s": digits(median(one["wall_s"] for one in turns)),
        "peak_gib": digits(max(one["peak_gib"] for one in turns)),
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
    told: dict[str, list[dict[str, float]]] = {"oversharp": [], "pandas": []}
    with tempfile.TemporaryDirectory(prefix="oversharp-importing-") as scratch:
        path = Path(scratch) / "dump.jsonl"
        samples = write_dump(path, arguments.gib)
        size_gib = path.stat().st_size / 2**30
        for number in range(arguments.turns):
            for what, turns in told.items():
                turns.append(turn(what, path, Path(scratch) / f"{number}.duckdb"))
    ours, pandas = (summary(turns, samples) for turns in told.values())
    result: dict[str, Any] = {
        "benchmark": "importing",
        "what": "one verl dump from file to graded samples in the store; pandas reads it in chunks and keeps nothing",
        "size_gib": digits(size_gib),
        "samples": samples,
        "turns": arguments.turns,
        "oversharp": ours,
        "pandas": pandas,
        "cpu_ratio_to_pandas": digits(ours["cpu_s"] / pandas["cpu_s"]),
        "goal_samples_per_cpu_s": GOAL_SAMPLES_PER_S,
        "goal_peak_gib": GOAL_GIB,
        "met": ours["samples_per_cpu_s"] >= GOAL_SAMPLES_PER_S and ours["peak_gib"] <= GOAL_GIB,
        **circumstances(("oversharp", "orjson", "duckdb", "pandas", "pyarrow")),
    }
    write("importing", result)


if __name__ == "__main__":
    main()
