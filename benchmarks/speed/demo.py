"""Measure the cost of ``make demo`` in a fresh clone, with installation, and again with nothing to do.

``python -m benchmarks.speed.demo`` clones the committed state into a temporary directory with an empty home, runs
``make demo`` twice there, and writes ``benchmarks/results/demo_cost.json``. Peak memory is the largest resident size of
a single process. Takes several minutes.
"""

from __future__ import annotations

import os
import resource
import subprocess
import tempfile
import time
from pathlib import Path

from benchmarks.speed.results import circumstances, write

ROOT = Path(__file__).parents[2]


def timed(command: list[str], folder: Path, home: Path) -> float:
    """Run a command that must succeed, and return its wall seconds."""
    start = time.perf_counter()
    subprocess.run(command, cwd=folder, check=True, env={**os.environ, "HOME": str(home)}, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def main() -> int:
    """Measure and write the result."""
    with tempfile.TemporaryDirectory(prefix="oversharp-demo-") as scratch:
        clone, home = Path(scratch) / "clone", Path(scratch) / "home"
        home.mkdir()
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
        install_wall_s = timed(["make", "venv"], clone, home)
        first_wall_s = timed(["make", "demo"], clone, home)
        again_wall_s = timed(["make", "demo"], clone, home)
        store_mb = (clone / "runs" / "demo" / "audit.duckdb").stat().st_size / 1e6
        report_mb = (clone / "runs" / "demo" / "report.html").stat().st_size / 1e6
    result = {
        "what": "make demo from a clean clone with an empty home directory",
        "install_wall_s": round(install_wall_s, 1),
        "train_and_audit_wall_s": round(first_wall_s, 1),
        "total_wall_s": round(install_wall_s + first_wall_s, 1),
        "goal_total_wall_s": 720,
        "nothing_to_do_wall_s": round(again_wall_s, 1),
        "goal_nothing_to_do_wall_s": 15,
        "peak_resident_gib_of_a_process": round(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20, 2),
        "goal_peak_gib": 6,
        "store_mb": round(store_mb, 1),
        "report_mb": round(report_mb, 2),
        "goal_report_mb": 1.0,
        **circumstances(("oversharp", "torch", "transformers", "duckdb")),
    }
    write("demo_cost", result)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
