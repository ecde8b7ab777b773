"""Measure the cost of statistics, from samples to counts and from counts to the verdict.

``python -m benchmarks.speed.count_statistics`` (three minutes) writes ``benchmarks/results/statistics_speed.json``:

- counts → statistics: 500 problems × 40 checkpoints × n = 1024, every computed measure of correct or answer counts, and
  the verdict. Goal: 8 CPU seconds and 2 GiB. The same with other numbers of checkpoints, and with n = 256.
- samples → counts: 10 million rows of a store, by the queries of the audit, with 2 GiB for DuckDB. Goal: 10 s. The peer
  reads the same rows from Parquet with pandas, merges the grades, and groups. The counts must be the same.

Each runs in a separate process. Its peak memory is the largest resident size.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import duckdb
import numpy as np
import pandas as pd

from benchmarks.speed.results import circumstances, digits, write
from benchmarks.speed.synthetic_responses import FATES, N_MODES, Plan, ResponseLaw
from benchmarks.speed.synthetic_store import STEPS_BETWEEN, audit_key, build_store
from oversharp.diagnostics.audit.counts.series import read_counts
from oversharp.diagnostics.measures import all_measures
from oversharp.diagnostics.measures.contract import Evidence
from oversharp.diagnostics.store import Store
from oversharp.diagnostics.store.database import Database
from oversharp.diagnostics.verdict.counts import CheckpointCounts, SeriesCounts
from oversharp.diagnostics.verdict.decide import verdict_of
from oversharp.diagnostics.verdict.results import Rates

SERIES = "losing"
COUNTED = Plan(n_problems=500, n_checkpoints=40, n=1024)
#: 500 problems × (39 × 488 + 976) samples: 10 million.
SAMPLED = Plan(n_problems=500, n_checkpoints=40, n=488, panel=0, lists_modes=False)
CHECKPOINTS = (5, 20, 40, 80)
DUCKDB_MEMORY = "2GiB"
TURNS = 3
#: Ks that the audit uses (``diagnostics/audit/measure.py``) and the peer counts too.
COUNTS = "SELECT * FROM sampled_counts WHERE series = $series ORDER BY ALL"
COMMON_COUNTS = "SELECT * FROM problem_counts WHERE series = $series ORDER BY ALL"
RESULT = ["checkpoint_id", "problem_id", "n", "n_correct"]


def counted_evidence(plan: Plan) -> tuple[Evidence, SeriesCounts]:
    """Return the counts of a simulated series, for the measures and for the verdict."""
    rng = np.random.default_rng(plan.seed)
    law = ResponseLaw.planted(plan.n_problems, rng)
    problem_ids = [f"problem-{position:05d}" for position in range(plan.n_problems)]
    labels = [f"checkpoint-{index * STEPS_BETWEEN}" for index in range(plan.n_checkpoints)]
    common, sampled, answers, checkpoints = [], [], [], []
    for index, label in enumerate(labels):
        law_PR = law.at(FATES[SERIES] if index else "no_change", index / (plan.n_checkpoints - 1))
        drawn_PR = rng.multinomial(plan.n, law_PR)
        more_PR = np.zeros_like(drawn_PR) if index else rng.multinomial(plan.n, law_PR)
        if index == 0:
            other_PR = np.arange(law_PR.shape[1]) < N_MODES
            other_PR = other_PR & (np.arange(law_PR.shape[1]) != drawn_PR[:, :N_MODES].argmax(axis=1)[:, None])
            shows_modes_P = drawn_PR[:, :N_MODES].sum(axis=1) > 0
        same = {"checkpoint_id": label, "task": "sums", "problem_id": problem_ids}
        for frames, counts_PR in ((common, drawn_PR), (sampled, drawn_PR + more_PR)):
            n = int(counts_PR[0].sum())
            correct_P = counts_PR[:, :N_MODES].sum(axis=1)
            frames.append(pd.DataFrame({**same, "n": n, "n_correct": correct_P, "n_planned": n}))
        position_A, response_A = drawn_PR.nonzero()
        answer_A = response_A.astype(str)
        answers.append(
            pd.DataFrame(
                {
                    "checkpoint_id": label,
                    "problem_id": np.asarray(problem_ids)[position_A],
                    "answer": answer_A,
                    "mode": answer_A,
                    "correct": response_A < N_MODES,
                    "n": drawn_PR[position_A, response_A],
                    "n_planned": plan.n,
                }
            )
        )
        n, step = plan.n if index else 2 * plan.n, index * STEPS_BETWEEN
        checkpoints.append(
            CheckpointCounts(
                step=step,
                checkpoint=label,
                n=n,
                correct_P=(drawn_PR + more_PR)[:, :N_MODES].sum(axis=1),
                minority_P=((drawn_PR if index else more_PR) * other_PR).sum(axis=1),
                rates=Rates(step=step, checkpoint=label, truncated=0.0, not_parsed=0.0, timed_out=0.0, ambiguous=0.0),
            )
        )
    evidence = Evidence(
        checkpoints=pd.DataFrame(
            {
                "checkpoint_id": labels,
                "checkpoint": labels,
                "step": [one.step for one in checkpoints],
                "is_base": [index == 0 for index in range(len(labels))],
            }
        ),
        frames={
            "problem_counts": pd.concat(common, ignore_index=True),
            "sampled_counts": pd.concat(sampled, ignore_index=True),
            "answer_counts": pd.concat(answers, ignore_index=True),
        },
        n=plan.n,
        ks=plan.ks,
    )
    counts = SeriesCounts(
        series=SERIES,
        base=checkpoints[0],
        trained=tuple(checkpoints[1:]),
        shows_modes_P=shows_modes_P,
        tasks=("sums",),
        graders=("modes",),
        tokens_per_sample=6.0,
    )
    return evidence, counts


def measure_statistics(plan: Plan) -> dict[str, Any]:
    """Return the CPU seconds of each measure of counts, and of the verdict."""
    return measure_counts(*counted_evidence(plan))


def measure_counts(evidence: Evidence, counts: SeriesCounts) -> dict[str, Any]:
    """Compute everything on these counts, and return the CPU seconds."""
    took = {}
    n_findings = 0
    for one in all_measures().values():
        if one.compute is not None and set(one.needs) <= set(evidence.frames):
            start = time.process_time()
            n_findings += len(one(evidence))
            took[one.name] = time.process_time() - start
    start = time.process_time()
    verdict = verdict_of(counts)
    took["verdict"] = time.process_time() - start
    return {
        "cpu_s": sum(took.values()),
        "findings": n_findings,
        "label": verdict.label,
        "parts_cpu_s": {name: digits(cpu_s) for name, cpu_s in sorted(took.items(), key=lambda part: -part[1])},
    }


def count_by_store(path: Path) -> dict[str, Any]:
    """Return the seconds of three queries into DataFrames: pass@k, equal n, and the verdict's counts."""
    database = Database(path, read_only=False)
    with Store(database) as store:
        database.rows(f"SET memory_limit = '{DUCKDB_MEMORY}'")
        start = time.perf_counter()
        counts = store.frame(COUNTS, series=SERIES)
        wall_s = time.perf_counter() - start
        start = time.perf_counter()
        store.frame(COMMON_COUNTS, series=SERIES)
        common_wall_s = time.perf_counter() - start
        start = time.perf_counter()
        read_counts(store, audit_key(SERIES, SAMPLED), {}, {})
        verdict_wall_s = time.perf_counter() - start
    counts[RESULT].to_parquet(path.with_name("store.parquet"))
    return {
        "wall_s": wall_s,
        "rows": int(counts["n"].sum()),
        "problem_counts_wall_s": common_wall_s,
        "verdict_counts_wall_s": verdict_wall_s,
    }


def count_by_pandas(path: Path) -> dict[str, Any]:
    """Compute the same counts with pandas, from the necessary columns."""
    start = time.perf_counter()
    samples = pd.read_parquet(
        path.with_name("samples.parquet"), columns=["checkpoint_id", "problem_id", "response_id", "greedy"]
    )
    grades = pd.read_parquet(path.with_name("grades.parquet"), columns=["problem_id", "response_id", "correct"])
    graded = samples[~samples["greedy"]].merge(grades, on=["problem_id", "response_id"])
    counts = graded.groupby(["checkpoint_id", "problem_id"])["correct"].agg(n="size", n_correct="sum").reset_index()
    wall_s = time.perf_counter() - start
    counts[RESULT].to_parquet(path.with_name("pandas.parquet"))
    return {"wall_s": wall_s}


def measure_growth() -> dict[str, Any]:
    """Return the CPU seconds by number of checkpoints, with and without the verdict; and of all at a smaller n."""
    growth = {}
    for n_checkpoints in CHECKPOINTS:
        made = measure_statistics(replace(COUNTED, n_checkpoints=n_checkpoints))
        growth[n_checkpoints] = {
            "cpu_s": digits(made["cpu_s"]),
            "without_verdict_cpu_s": digits(made["cpu_s"] - made["parts_cpu_s"]["verdict"]),
        }
    return {"by_checkpoints": growth, "at_n_256_cpu_s": digits(measure_statistics(replace(COUNTED, n=256))["cpu_s"])}


CHILDREN: Mapping[str, Callable[[Path], dict[str, Any]]] = {
    "growth": lambda _: measure_growth(),
    "statistics": lambda _: measure_statistics(COUNTED),
    "store": count_by_store,
    "pandas": count_by_pandas,
}


def child(name: str, path: Path) -> dict[str, Any]:
    """Run one part in a separate process. Return its result with its peak memory."""
    command = [sys.executable, "-m", __spec__.name, "--child", name, str(path)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout)


def write_sampled(path: Path) -> None:
    """Write the store of 10 million samples, and its tables as Parquet files for the peer."""
    build_store(path, SAMPLED, measured=False)
    with duckdb.connect(path, read_only=True) as store:  # opening a store writes no file but the store
        for table in ("samples", "grades"):
            store.execute(f"COPY {table} TO '{path.with_name(table)}.parquet' (FORMAT parquet)")


def same_counts(path: Path) -> bool:
    """Return whether both ways gave equal counts."""
    store, by_hand = (
        pd.read_parquet(path.with_name(f"{name}.parquet")).sort_values(RESULT, ignore_index=True).astype(str)
        for name in ("store", "pandas")
    )
    return store.equals(by_hand)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, write the result file and print it. Return 1 if the two counts differ, else 0."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--child", nargs=2, metavar=("PART", "STORE"), help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.child:
        name, store = given.child
        result = CHILDREN[name](Path(store))
        peak_gib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20  # Linux counts in KiB
        print(json.dumps({**result, "peak_gib": digits(peak_gib)}))
        return 0
    with tempfile.TemporaryDirectory(prefix="oversharp-counts-") as directory:
        path = Path(directory) / "audit.duckdb"
        statistics, growth = child("statistics", path), child("growth", path)
        write_sampled(path)
        store_bytes = path.stat().st_size
        turns = [(child("store", path), child("pandas", path)) for _ in range(TURNS)]
        same = same_counts(path)
    ours, peer = ([turn[way] for turn in turns] for way in (0, 1))

    def typical(runs: Sequence[Mapping[str, Any]], name: str) -> float:
        return digits(median(run[name] for run in runs))

    write(
        "statistics_speed",
        {
            "statistics": {
                "what": "500 problems x 40 checkpoints (with the base) x n=1024, 2048 of the base, one process",
                **statistics,
                "cpu_s": digits(statistics["cpu_s"]),
                "goal": "8 s, 2 GiB",
                **growth,
            },
            "counting": {
                "what": f"samples to counts per problem and checkpoint; median of {TURNS} runs in turns",
                "rows": ours[0]["rows"],
                "store_mib": round(store_bytes / 2**20),
                "duckdb_memory_limit": DUCKDB_MEMORY,
                "store_wall_s": typical(ours, "wall_s"),
                "store_peak_gib": typical(ours, "peak_gib"),
                "pandas_wall_s": typical(peer, "wall_s"),
                "pandas_peak_gib": typical(peer, "peak_gib"),
                "pandas_over_store": digits(typical(peer, "wall_s") / typical(ours, "wall_s"), 2),
                "same_counts": same,
                "problem_counts_wall_s": typical(ours, "problem_counts_wall_s"),
                "verdict_counts_wall_s": typical(ours, "verdict_counts_wall_s"),
                "goal": "10 s",
            },
            **circumstances(("oversharp", "duckdb", "pandas", "numpy", "scipy")),
        },
    )
    return 0 if same else 1


if __name__ == "__main__":
    raise SystemExit(main())
