"""Measure time and size of reports from stores of simulated series (``synthetic_store.py``).

``python -m benchmarks.speed.report`` (a few minutes, most of them for the stores) writes
``benchmarks/results/report_speed.json``. Goals: 500 problems × 11 checkpoints in 20 s and 600 kB, 5,000 × 40 in 3 MB,
and two reports of one store are equal to the byte. Every report is written by the command line in a separate process.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from benchmarks.speed.results import circumstances, digits, timed, write
from benchmarks.speed.synthetic_responses import Plan
from benchmarks.speed.synthetic_store import build_store

REPORT = "from oversharp.diagnostics.app.cli import main; main()"


@dataclass(frozen=True, kw_only=True)
class Case:
    """A store and the goals of its report.

    ``most_wall_s`` is None without a goal.
    """

    plan: Plan
    most_mb: float
    most_wall_s: float | None


CASES: Mapping[str, Case] = MappingProxyType(
    {
        "500 problems x 11 checkpoints x n=64": Case(
            plan=Plan(n_problems=500, n_checkpoints=11, n=64), most_mb=0.6, most_wall_s=20.0
        ),
        "two series of 500 problems x 11 checkpoints x n=64": Case(
            plan=Plan(n_problems=500, n_checkpoints=11, n=64, series=("losing", "holding")),
            most_mb=2.0,
            most_wall_s=None,
        ),
        # problems without listed modes, as in most sets
        "5,000 problems x 40 checkpoints x n=8": Case(
            plan=Plan(n_problems=5000, n_checkpoints=40, n=8, lists_modes=False, panel=0),
            most_mb=3.0,
            most_wall_s=None,
        ),
    }
)


def measured(case: Case, directory: Path) -> dict[str, Any]:
    """Write the store, then its report twice."""
    store = build_store(directory / "audit.duckdb", case.plan)
    reports = [directory / f"report-{turn}.html" for turn in range(2)]
    took = [timed([sys.executable, "-c", REPORT, "report", str(store), "--out", str(report)]) for report in reports]
    wall_s = min(turn.wall_s for turn in took)
    megabytes = reports[0].stat().st_size / 1e6
    return {
        "wall_s": digits(wall_s),
        "cpu_s": digits(min(turn.cpu_s for turn in took)),
        "goal_wall_s": case.most_wall_s,
        "mb": digits(megabytes),
        "goal_mb": case.most_mb,
        "same_bytes": reports[0].read_bytes() == reports[1].read_bytes(),
        "met": megabytes <= case.most_mb and (case.most_wall_s is None or wall_s <= case.most_wall_s),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, write the result file and print it. Return 1 if two reports of one store differ, else 0."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    given = parser.parse_args(arguments)
    results = {}
    for name in given.cases:
        directory = Path(tempfile.mkdtemp(prefix="oversharp-report-"))
        results[name] = measured(CASES[name], directory)
        shutil.rmtree(directory)
    write("report_speed", {"cases": results, **circumstances(("oversharp", "duckdb", "pandas", "seaborn", "jinja2"))})
    return 0 if all(result["same_bytes"] for result in results.values()) else 1


if __name__ == "__main__":
    raise SystemExit(main())
