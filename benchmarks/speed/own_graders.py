"""Measure the speed of users' graders: calls that wait overlap, and calls that compute use the cores.

``python -m benchmarks.speed.own_graders`` prints the numbers and writes ``benchmarks/results/own_graders.json``. The
peer is ``multiprocessing.Pool`` with as many processes, without time limits and checks, in turns in the same run.
"""

from __future__ import annotations

import multiprocessing
import os
import tempfile
import time
from pathlib import Path

from benchmarks.speed.results import circumstances, digits, write
from oversharp.diagnostics.records.types import Problem
from oversharp.diagnostics.verifiers import Verifiers, named_verifier
from oversharp.diagnostics.verifiers.own_workers.limits import GraderLimits

N_WAITING, WAIT_S, WORKERS = 160, 0.2, 32
N_COMPUTING, CPU_S, TURNS = 10_000, 0.001, 4
CODE = f"""
import asyncio, time
def wait(response, answer):
    time.sleep({WAIT_S})
    return 1.0
async def wait_async(response, answer):
    await asyncio.sleep({WAIT_S})
    return 1.0
def compute(response, answer):
    end = time.thread_time() + {CPU_S}
    while time.thread_time() < end:
        pass
    return 1.0
"""


def compute(_: str) -> float:
    """Use the CPU for a call's time, as the function of the same name in ``CODE``."""
    end = time.thread_time() + CPU_S
    while time.thread_time() < end:
        pass
    return 1.0


def grade_s(file: Path, function: str, *, n: int, workers: int, warm: int) -> float:
    """Return the seconds of ``n`` calls, after ``warm`` calls that start the workers."""
    verifier = named_verifier(f"{file}:{function}", GraderLimits(workers=workers))
    problem = Problem(task="speed", prompt="?", gold="a", verifier=verifier)
    with Verifiers() as verifiers:
        verifiers.grade([(problem, str(number)) for number in range(warm)])
        start = time.perf_counter()
        grades = verifiers.grade([(problem, str(number)) for number in range(n)])
        wall_s = time.perf_counter() - start
    assert all(grade.correct for grade in grades)
    return wall_s


def pool_s(n: int, processes: int) -> float:
    """Return the seconds of ``n`` calls with ``multiprocessing.Pool``, after its start."""
    with multiprocessing.get_context("forkserver").Pool(processes) as pool:
        pool.map(compute, map(str, range(100)))
        start = time.perf_counter()
        pool.map(compute, map(str, range(n)))
        return time.perf_counter() - start


def main() -> None:
    """Measure, write the result file and print it."""
    cores = len(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "graders.py"
        file.write_text(CODE, encoding="utf-8")
        waiting = {
            name: min(grade_s(file, name, n=N_WAITING, workers=WORKERS, warm=64) for _ in range(3))
            for name in ("wait", "wait_async")
        }
        one_s = grade_s(file, "wait", n=N_WAITING, workers=1, warm=1)
        n = N_COMPUTING // TURNS
        ours_s, peer_s, threads_s = 0.0, 0.0, 0.0
        for _ in range(TURNS):
            ours_s += grade_s(file, "compute", n=n, workers=cores, warm=200)
            peer_s += pool_s(n, cores)
            threads_s += grade_s(file, "compute", n=n, workers=WORKERS, warm=200)
    result = {
        "benchmark": "own_graders",
        "calls": N_WAITING,
        "wait_s_per_call": WAIT_S,
        "workers": WORKERS,
        "function_s": digits(waiting["wait"]),
        "async_function_s": digits(waiting["wait_async"]),
        "goal_s": 1.5,
        "one_worker_s": digits(one_s),
        "computing": {
            "calls": N_COMPUTING,
            "cpu_s_per_call": CPU_S,
            "processes": cores,
            "calls_per_s": round(N_COMPUTING / ours_s),
            "calls_per_s_of_32_workers": round(N_COMPUTING / threads_s),
            "peer_calls_per_s": round(N_COMPUTING / peer_s),
            "ratio_to_peer": digits(peer_s / ours_s),
            "goal_ratio": 0.8,
        },
        **circumstances(("oversharp",)),
    }
    write("own_graders", result)


if __name__ == "__main__":
    main()
