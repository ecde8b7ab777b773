"""Measure a large import and commands on its store: 1,000 problems × 40 steps × 256 short responses.

``python -m benchmarks.speed.large_import`` (several minutes; ``--steps 10`` for a quarter) writes
``results/large_import.json``. Goals: an import of 120 CPU seconds and 2 GiB, up to verdict and report, with temporary
files of at most three times the dump, and a report of 20 CPU seconds. Every command runs in a separate process. An
import of a quarter of the steps gives the slopes of the estimate for 100 million samples. ``GROWTH`` has further
imports, with other numbers of samples, problems and checkpoints, which ``results/growth.png`` shows.
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

import matplotlib.pyplot as plt
import numpy as np
import pyarrow as pa
import seaborn as sns
from pyarrow import parquet

from benchmarks.speed.results import circumstances, digits, write

GOAL_CPU_S, GOAL_GIB, GOAL_TIMES_THE_DUMP, GOAL_REPORT_CPU_S = 120.0, 2.0, 3.0, 20.0
RUN = "from oversharp.diagnostics.app.cli import main; main()"
FIELDS = "prompt=prompt,response=response,reward=correct,step=step,problem=question_id,index=sample"
COUNTS = "SELECT step, sum(n) AS n, sum(n_correct) AS n_correct FROM problem_counts GROUP BY step ORDER BY step"
IMPORT = ("import", "dump.parquet", "--map", FIELDS, "--store", "audit.duckdb")
#: Name of a number that grows → sizes (problems, checkpoints, samples per problem and checkpoint). The largest import
#: is the last point of the first.
GROWTH: dict[str, tuple[tuple[int, int, int], ...]] = {
    "samples": ((100, 40, 25), (1000, 40, 25)),
    "problems": ((100, 40, 250), (1000, 40, 25), (5000, 40, 5)),
    "checkpoints": ((1000, 5, 200), (1000, 20, 50), (1000, 80, 12)),
}
_CPU_TICKS = (10, 20, 50, 100, 200)
PICTURE = Path(__file__).parents[1] / "results" / "growth.png"
#: Seconds between two measurements of the temporary files.
POLL_S = 0.2


def write_dump(path: Path, n_problems: int, n_steps: int, n: int, seed: int = 0) -> int:
    """Write a Parquet dump in which each problem's success rate grows from step to step.

    Returns the bytes of its rows in Arrow's memory.
    """
    rng = np.random.default_rng(seed)
    chance_P = rng.beta(0.5, 0.8, size=n_problems)
    ids = np.repeat(np.arange(n_problems), n).tolist()
    writer, n_bytes = None, 0
    for step in range(n_steps):
        now_P = chance_P ** (1 - 0.5 * step / max(1, n_steps - 1))
        right_PN = rng.random((n_problems, n)) < now_P[:, None]
        off_PN = np.where(right_PN, 0, rng.zipf(1.5, size=(n_problems, n)) % 900 + 1)
        answers = (np.arange(n_problems)[:, None] + 10_000 + off_PN).ravel().tolist()
        taken = rng.integers(1000, size=n_problems * n).tolist()
        texts = [f"After {steps} steps it is \\boxed{{{one}}}" for steps, one in zip(taken, answers, strict=True)]
        columns = {
            "question_id": pa.array([f"q{one}" for one in ids]),
            "prompt": pa.array([f"Which number is {one}? Put it in a box." for one in ids]),
            "step": pa.array(np.full(n_problems * n, 10 * step, dtype=np.int32)),
            "sample": pa.array(np.tile(np.arange(n, dtype=np.int32), n_problems)),
            "response": pa.array(texts),
            "correct": pa.array(right_PN.ravel()),
        }
        table = pa.table(columns)
        writer = writer or parquet.ParquetWriter(path, table.schema)
        writer.write_table(table)
        n_bytes += table.nbytes
    if writer is not None:
        writer.close()
    return n_bytes


def took(folder: Path, *arguments: str) -> dict[str, float]:
    """Run one command. Return seconds, peak memory, and the largest temporary files next to the store."""
    start = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-c", RUN, *arguments], cwd=folder, stdout=subprocess.DEVNULL)
    most_bytes = 0
    while True:
        pid, status, used = os.wait4(process.pid, os.WNOHANG)
        if pid:
            break
        most_bytes = max(most_bytes, _bytes_beside(folder))
        time.sleep(POLL_S)
    if status:
        sys.exit(f"{' '.join(arguments)} failed with {os.waitstatus_to_exitcode(status)}")
    print(f"{arguments[0]}: {used.ru_utime + used.ru_stime:.1f} CPU s", file=sys.stderr)
    return {
        "cpu_s": digits(used.ru_utime + used.ru_stime),
        "wall_s": digits(time.perf_counter() - start),
        "peak_gib": digits(used.ru_maxrss / 2**20),
        "temporary_mb": digits(most_bytes / 1e6),
    }


def _bytes_beside(folder: Path) -> int:
    n_bytes = 0
    for path in folder.glob("*.tmp/*"):
        try:
            n_bytes += path.stat().st_size
        except OSError:  # gone meanwhile
            continue
    return n_bytes


def measure(n_problems: int, n_steps: int, n: int) -> dict[str, Any]:
    """Measure the import, the same import again, and commands on the store."""
    with tempfile.TemporaryDirectory(prefix="oversharp-large-import-") as scratch:
        folder = Path(scratch)
        rows_bytes = write_dump(folder / "dump.parquet", n_problems, n_steps, n)
        dump_bytes = (folder / "dump.parquet").stat().st_size
        stages = {
            "import": took(folder, *IMPORT),
            "import again": took(folder, *IMPORT),
            "report": took(folder, "report", "audit.duckdb", "--out", "again.html"),
            "ship": took(folder, "ship", "audit.duckdb"),
            "sql, findings": took(folder, "sql", "audit.duckdb", "FROM findings"),
            "sql, counts by step": took(folder, "sql", "audit.duckdb", COUNTS),
        }
        store_bytes = (folder / "audit.duckdb").stat().st_size
    first, report = stages["import"], stages["report"]
    return {
        "samples": n_problems * n_steps * n,
        "dump_mb": digits(dump_bytes / 1e6),
        "rows_mb": digits(rows_bytes / 1e6),
        "store_mb": digits(store_bytes / 1e6),
        "stages": stages,
        "temporary_over_dump": digits(first["temporary_mb"] * 1e6 / dump_bytes),
        "temporary_over_rows": digits(first["temporary_mb"] * 1e6 / rows_bytes),
        "met": first["cpu_s"] <= GOAL_CPU_S
        and first["peak_gib"] <= GOAL_GIB
        and first["temporary_mb"] * 1e6 <= GOAL_TIMES_THE_DUMP * dump_bytes
        and report["cpu_s"] <= GOAL_REPORT_CPU_S,
    }


def measure_import(n_problems: int, n_steps: int, n: int) -> dict[str, float]:
    """Measure one import, up to verdict and report."""
    with tempfile.TemporaryDirectory(prefix="oversharp-large-import-") as scratch:
        folder = Path(scratch)
        write_dump(folder / "dump.parquet", n_problems, n_steps, n)
        stage = took(folder, *IMPORT)
        store_mb = digits((folder / "audit.duckdb").stat().st_size / 1e6)
    size = {"problems": n_problems, "checkpoints": n_steps, "samples": n_problems * n_steps * n}
    return {**size, "store_mb": store_mb, **stage}


def draw(growth: dict[str, list[dict[str, float]]]) -> None:
    """Draw CPU seconds and memory of the imports, one panel per number that grows."""
    sns.set_theme(style="whitegrid", context="notebook")
    canvas, axes = plt.subplots(2, len(growth), figsize=(11, 5.5), sharey="row", layout="constrained")
    for column, (name, points) in enumerate(growth.items()):
        for row, (value, label) in enumerate((("cpu_s", "CPU seconds"), ("peak_gib", "memory, GiB"))):
            axis = axes[row, column]
            sns.lineplot(x=[one[name] for one in points], y=[one[value] for one in points], marker="o", ax=axis)
            axis.set(xscale="log", ylabel=label, xlabel=name if row else "")
            sizes = [int(one[name]) for one in points]
            axis.set_xticks(sizes, labels=[f"{size:,}" for size in sizes])
            if value == "cpu_s":
                axis.set_yscale("log")
                axis.set_yticks(_CPU_TICKS, labels=map(str, _CPU_TICKS))
            axis.minorticks_off()
    canvas.savefig(PICTURE, dpi=110)


def estimated(quarter: dict[str, float], whole: dict[str, Any], samples: int = 100_000_000) -> dict[str, float]:
    """Extrapolate the cost of an import linearly from the two measured ones."""
    held = {**whole["stages"]["import"], "store_mb": whole["store_mb"]}
    share = (samples - whole["samples"]) / (whole["samples"] - quarter["samples"])
    return {
        "samples": samples,
        **{
            name: digits(held[name] + share * (held[name] - quarter[name]))
            for name in ("cpu_s", "peak_gib", "temporary_mb", "store_mb")
        },
    }


def main() -> None:
    """Measure, write the result file and print it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--problems", type=int, default=1000)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--n", type=int, default=256)
    given = parser.parse_args()
    quarter = measure_import(given.problems, given.steps // 4, given.n)
    whole = measure(given.problems, given.steps, given.n)
    growth = {name: [measure_import(*size) for size in sizes] for name, sizes in GROWTH.items()}
    size = {"problems": given.problems, "checkpoints": given.steps, "samples": whole["samples"]}
    growth["samples"].append({**size, "store_mb": whole["store_mb"], **whole["stages"]["import"]})
    draw(growth)
    write(
        "large_import",
        {
            "benchmark": "large_import",
            "what": "a Parquet dump of short responses to verdict and report, and what is asked of its store then",
            "goal_cpu_s": GOAL_CPU_S,
            "goal_peak_gib": GOAL_GIB,
            "goal_temporary_over_dump": GOAL_TIMES_THE_DUMP,
            "goal_report_cpu_s": GOAL_REPORT_CPU_S,
            "steps": given.steps,
            **whole,
            "a_quarter": quarter,
            "growth": growth,
            "estimate_of_100_million": estimated(quarter, whole),
            **circumstances(("oversharp", "duckdb", "pandas", "pyarrow", "numpy")),
        },
    )


if __name__ == "__main__":
    main()
