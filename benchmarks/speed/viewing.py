"""Measure response times and memory of ``oversharp view`` on ten million samples.

``python -m benchmarks.speed.viewing`` (several minutes, most of them for the import of ``large_import.py``; ``--store
PATH`` uses an existing store) writes ``results/viewing.json``. Goals: 300 ms of the server's CPU time for any request,
1 GiB. Requests are sent over HTTP like those of the page. Every problem, response and pair of steps is new unless the
name says "again".
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from urllib.request import urlopen

import numpy as np

from benchmarks.speed.large_import import IMPORT, took, write_dump
from benchmarks.speed.results import circumstances, digits, write

GOAL_MS, GOAL_GIB = 300.0, 1.0
#: A rare text, a frequent one, and one that does not occur. Each search covers both checkpoints.
TEXTS = ("after 77 steps it is \\boxed{10500", "it is \\boxed{10", "nobody says this")


class Asker:
    """Send requests to a running view, and record wall and CPU time in ms by kind of request."""

    def __init__(self, address: str, pid: int) -> None:
        self._address = address
        self._pid = pid
        self.took_ms: dict[str, list[tuple[float, float]]] = {}

    def ask(self, kind: str, path: str, query: Mapping[str, str]) -> Any:
        start, cpu_ms = time.perf_counter(), self._cpu_ms()
        with urlopen(f"{self._address}api/{path}?{urlencode(query)}") as answer:
            body = answer.read()
        wall_ms = 1000 * (time.perf_counter() - start)
        self.took_ms.setdefault(kind, []).append((wall_ms, self._cpu_ms() - cpu_ms))
        return json.loads(body)

    def _cpu_ms(self) -> float:
        """Return the CPU time of the server with all its threads."""
        fields = Path(f"/proc/{self._pid}/stat").read_text().rpartition(")")[2].split()
        return 1000 * (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def summary(self) -> dict[str, dict[str, float]]:
        """Return, by kind, the number of requests, and the median and maximum of both times."""
        told = {}
        for kind, both_ms in self.took_ms.items():
            told[kind] = {"n": len(both_ms)}
            for name, all_ms in zip(("wall", "cpu"), zip(*both_ms, strict=True), strict=True):
                told[kind] |= {
                    f"median_{name}_ms": digits(statistics.median(all_ms)),
                    f"slowest_{name}_ms": digits(max(all_ms)),
                }
        return told


def ask_all(asker: Asker, n: int = 40) -> dict[str, float]:
    """Send all requests of a reader: lists, problems, responses, searches.

    Returns the seconds of the complete searches by text.
    """
    rng = np.random.default_rng(0)
    start = asker.ask("start", "start", {})
    chosen = start["selection"]
    pair = {"series": chosen["series"], "a": chosen["before"], "b": chosen["after"]}
    listed = asker.ask("first list", "problems", pair)["problems"]
    keys = [one["key"] for one in start["series"][0]["checkpoints"]]
    for key in rng.choice(keys[1:-1], size=min(10, len(keys) - 2), replace=False):
        asker.ask("list of another step", "problems", {**pair, "b": str(key)})
    asker.ask("list again", "problems", pair)
    for place in rng.choice(len(listed), size=min(n, len(listed)), replace=False):
        problem = {"problem": listed[place]["problem_id"]}
        side = asker.ask("problem", "problem", {**pair, **problem})["sides"][int(place) % 2]
        first = side["answers"][0]["responses"][0]["response_id"]
        asker.ask("response", "response", {**pair, **problem, "at": side["key"], "response": first})
    return {text: search(asker, pair, text) for text in TEXTS}


def search(asker: Asker, pair: Mapping[str, str], text: str) -> float:
    began, following = time.perf_counter(), 0
    while following is not None:
        part = asker.ask("part of a search", "search", {**pair, "q": text, "start": str(following)})
        following = part["next"]
    return digits(time.perf_counter() - began)


def measure(store: Path, ask: Callable[[Asker], dict[str, float]]) -> dict[str, Any]:
    """Start the command, send the requests, and stop it as with Ctrl-C.

    ``ask`` returns the seconds of the complete searches by text.
    """
    began = time.perf_counter()
    # not -c: DuckDB would take that for a notebook and print its progress on stdout
    command = [sys.executable, "-m", "oversharp", "view", str(store), "--no-open"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert process.stdout is not None
    address = process.stdout.readline().strip()
    start_s = time.perf_counter() - began
    asker = Asker(address, process.pid)
    searches_s = ask(asker)
    process.send_signal(signal.SIGINT)
    _, status, used = os.wait4(process.pid, 0)
    questions = asker.summary()
    slowest = {
        f"slowest_{name}_ms": max(one[f"slowest_{name}_ms"] for one in questions.values()) for name in ("wall", "cpu")
    }
    peak_gib = digits(used.ru_maxrss / 2**20)
    return {
        "start_s": digits(start_s),
        "questions": questions,
        **slowest,
        "whole_searches_s": searches_s,
        "peak_gib": peak_gib,
        "exit_code": os.waitstatus_to_exitcode(status),
        "cpu_s": digits(used.ru_utime + used.ru_stime),
        "met": slowest["slowest_cpu_ms"] <= GOAL_MS and peak_gib <= GOAL_GIB,
    }


def main() -> None:
    """Measure, write the result file and print it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--store", type=Path)
    parser.add_argument("--problems", type=int, default=1000)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--n", type=int, default=256)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="oversharp-viewing-") as scratch:
        store = given.store or Path(scratch) / "audit.duckdb"
        if given.store is None:
            write_dump(Path(scratch) / "dump.parquet", given.problems, given.steps, given.n)
            took(Path(scratch), *IMPORT)
        result = measure(store, ask_all)
    write(
        "viewing",
        {
            "benchmark": "viewing",
            "what": "answers of oversharp view over HTTP, and its memory",
            "samples": given.problems * given.steps * given.n,
            "goal_ms": GOAL_MS,
            "goal_peak_gib": GOAL_GIB,
            **result,
            **circumstances(("oversharp", "duckdb", "pandas", "pyarrow", "starlette", "uvicorn")),
        },
    )


if __name__ == "__main__":
    main()
