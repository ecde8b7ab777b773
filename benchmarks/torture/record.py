"""Results of the trials as a table and as JSON."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.speed.results import circumstances, digits
from oversharp.reports.render import write_atomically

FAILED = "failed"


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """One trial.

    ``ended``: equal, in one line, or ``FAILED``. ``done``: its actions.
    """

    number: int
    fault: str
    stage: str
    ended: str
    done: str
    wall_s: float


def table(outcomes: Sequence[Outcome]) -> str:
    """Return the numbers of tried, passed and failed trials, by fault and stage."""
    tried = Counter((one.fault, one.stage, one.ended) for one in outcomes)
    rows = ["| fault | command | tried | equal | one line | failed |", "|---|---|---|---|---|---|"]
    for fault, stage in dict.fromkeys((one.fault, one.stage) for one in outcomes):
        n = [tried[fault, stage, ended] for ended in ("equal", "one line", FAILED)]
        rows.append(f"| {fault} | {stage} | {sum(n)} | {' | '.join(map(str, n))} |")
    return "\n".join(rows)


def summary(outcomes: Sequence[Outcome]) -> str:
    """Return the summary in one line."""
    n = Counter(one.ended for one in outcomes)
    return f"{len(outcomes)} tried: {n['equal']} equal, {n['one line']} one line, {n[FAILED]} failed"


def write_results(folder: Path, outcomes: Sequence[Outcome], *, left_out: Sequence[str]) -> None:
    """Write ``torture.json`` and ``torture.md``. Earlier trials that were not repeated are kept."""
    held = {one.number: one for one in (*_recorded(folder), *outcomes)}
    ordered = sorted(held.values(), key=lambda one: (one.fault, one.stage, one.number))
    wall_s = sum(one.wall_s for one in ordered)
    conditions = circumstances(["duckdb", "pyarrow", "torch", "hypothesis"])
    record = {
        "benchmark": "torture",
        "what": "commands that are disturbed end as if nothing had happened, or in one line that is true",
        "tried": len(ordered),
        "failed": sum(one.ended == FAILED for one in ordered),
        "wall_s_of_all_trials": digits(wall_s),
        "left_out": list(left_out),
        **conditions,
        "trials": [{**asdict(one), "wall_s": digits(one.wall_s)} for one in sorted(ordered, key=lambda x: x.number)],
    }
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / "torture.json", json.dumps(record, indent=1, ensure_ascii=False) + "\n")
    versions = ", ".join(f"{name} {version}" for name, version in conditions["versions"].items())
    failed = [f"- {one.number}: {one.fault}, {one.stage}: {one.done}" for one in ordered if one.ended == FAILED]
    parts = [
        "# What was tried to hurt it",
        summary(ordered) + ".",
        table(ordered),
        *(["Failed:\n\n" + "\n".join(failed)] if failed else []),
        *(f"Left out: {one}." for one in left_out),
        f"{conditions['machine']}; {versions}; {wall_s:.0f} s in all. `make torture` writes this file.",
    ]
    write_atomically(folder / "torture.md", "\n\n".join(parts) + "\n")


def _recorded(folder: Path) -> list[Outcome]:
    try:
        trials = json.loads((folder / "torture.json").read_text(encoding="utf-8"))["trials"]
    except FileNotFoundError:
        return []
    return [Outcome(**one) for one in trials]
