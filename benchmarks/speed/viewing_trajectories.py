"""Measure response times of ``oversharp view`` on 100,000 trajectories, and on one of 10,000 turns.

``python -m benchmarks.speed.viewing_trajectories`` (several minutes, most of them for the import; ``--store PATH`` uses
an existing store) writes ``results/viewing_trajectories.json``. Goal: 300 ms for any request. The dump is in TRL's
layout: 6 turns per sample, each but the last with a call and an observation of about 500 characters. Another problem
has one sample of 10,000 turns at each step. Its answer is that number.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from benchmarks.speed.large_import import took
from benchmarks.speed.results import circumstances, write
from benchmarks.speed.viewing import GOAL_GIB, GOAL_MS, Asker, measure, search

PROBLEMS, STEPS, N, TURNS, LONG_TURNS = 500, (10, 20), 100, 6, 10_000
LONG_PROMPT = "Walk the maze."
#: Texts in calls, in observations, and nowhere. Each search covers both checkpoints.
TEXTS = ("file_77", "line 77 of the file", "nobody says this")
_ARGUMENTS = pa.struct([("path", pa.string()), ("code", pa.string())])
_FUNCTION = pa.struct([("name", pa.string()), ("arguments", _ARGUMENTS)])
_CALLS = pa.list_(pa.struct([("type", pa.string()), ("function", _FUNCTION)]))
_MESSAGE = pa.struct([("role", pa.string()), ("content", pa.string()), ("name", pa.string()), ("tool_calls", _CALLS)])
_SCHEMA = pa.schema(
    [
        ("step", pa.int64()),
        ("prompt", pa.string()),
        ("completion", pa.list_(_MESSAGE)),
        ("reward", pa.float64()),
        ("advantage", pa.float64()),
    ]
)
IMPORT = ("import", "agent", "--reward", "reward", "--store", "audit.duckdb")


def completion(rng: np.random.Generator, n_turns: int, answer: int) -> list[dict[str, Any]]:
    """Return the messages of one sample."""
    messages: list[dict[str, Any]] = []
    for number, line in zip(rng.integers(1000, size=n_turns - 1), rng.integers(100, size=n_turns - 1), strict=True):
        arguments = {"path": f"src/file_{number}.py", "code": None}
        call = {"type": "function", "function": {"name": "read_file", "arguments": arguments}}
        messages.append({"role": "assistant", "content": f"I read file {number}.", "tool_calls": [call]})
        text = "\n".join(f"line {line + i} of the file: value_{number + i} = {number * i}" for i in range(12))
        messages.append({"role": "tool", "name": "read_file", "content": text})
    return [*messages, {"role": "assistant", "content": f"So it is \\boxed{{{answer}}}"}]


def write_dump(folder: Path, n_problems: int, n: int, seed: int = 0) -> None:
    """Write a file for each step."""
    rng = np.random.default_rng(seed)
    chance_P = rng.beta(0.5, 0.8, size=n_problems)
    folder.mkdir(parents=True)
    for step in STEPS:
        with parquet.ParquetWriter(folder / f"completions_{step:05d}.parquet", _SCHEMA) as writer:
            for problem, chance in enumerate(chance_P):
                is_right = rng.random(n) < chance
                wrong = rng.integers(1, 9, size=n)
                rows = [
                    _row(step, f"What is value {problem}?", completion(rng, TURNS, 0 if right else int(other)), right)
                    for right, other in zip(is_right, wrong, strict=True)
                ]
                writer.write_table(pa.Table.from_pylist(rows, _SCHEMA))
            long_rows = [
                _row(step, LONG_PROMPT, completion(rng, TURNS if i else LONG_TURNS, 0 if i else LONG_TURNS), i == 0)
                for i in range(n)
            ]
            writer.write_table(pa.Table.from_pylist(long_rows, _SCHEMA))


def _row(step: int, prompt: str, messages: list[dict[str, Any]], is_right: bool) -> dict[str, Any]:
    return {"step": step, "prompt": prompt, "completion": messages, "reward": float(is_right), "advantage": 0.0}


def ask_all(asker: Asker, n: int = 20) -> dict[str, float]:
    """Send all requests of a reader. Returns the seconds of the complete searches by text."""
    rng = np.random.default_rng(0)
    chosen = asker.ask("start", "start", {})["selection"]
    pair = {"series": chosen["series"], "a": chosen["before"], "b": chosen["after"]}
    listed = asker.ask("list", "problems", pair)["problems"]
    for place in rng.choice(len(listed), size=min(n, len(listed)), replace=False):
        _ask_problem(asker, "", pair, listed[place]["problem_id"])
    (long,) = [problem["problem_id"] for problem in listed if problem["title"] == LONG_PROMPT]
    _ask_problem(asker, "long: ", pair, long)
    return {text: search(asker, pair, text) for text in TEXTS}


def _ask_problem(asker: Asker, kind: str, pair: dict[str, str], problem_id: str) -> None:
    for text in ("", *TEXTS[:2]):
        name = kind + ("problem, after a search" if text else "problem")
        query = {**pair, "problem": problem_id, "q": text}
        for side in asker.ask(name, "problem", query)["sides"]:
            answers = sorted(side["answers"], key=lambda group: group["answer"] != str(LONG_TURNS))
            first = {**query, "at": side["key"], "response": answers[0]["responses"][0]["response_id"]}
            shown = asker.ask(f"{kind}response{', after a search' if text else ''}", "response", first)["trajectory"]
            middle = str(max(shown["n_turns"] // 2, 1))
            asker.ask(f"{kind}further turns", "turns", {**first, "start": middle})


def main() -> None:
    """Measure, write the result file and print it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--store", type=Path)
    parser.add_argument("--problems", type=int, default=PROBLEMS)
    parser.add_argument("--n", type=int, default=N)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="oversharp-viewing-") as scratch:
        store, stage = given.store or Path(scratch) / "audit.duckdb", None
        if given.store is None:
            write_dump(Path(scratch) / "agent" / "completions", given.problems, given.n)
            stage = took(Path(scratch), *IMPORT)
        store_mb = round(store.stat().st_size / 1e6)
        result = measure(store, ask_all)
    write(
        "viewing_trajectories",
        {
            "benchmark": "viewing_trajectories",
            "what": "answers of oversharp view over HTTP on a store of trajectories, and its memory",
            "trajectories": given.problems * len(STEPS) * given.n,
            "turns": TURNS,
            "turns_of_the_longest": LONG_TURNS,
            "store_mb": store_mb,
            "import": stage,
            "goal_ms": GOAL_MS,
            "goal_peak_gib": GOAL_GIB,
            **result,
            **circumstances(("oversharp", "duckdb", "pandas", "pyarrow", "starlette", "uvicorn")),
        },
    )


if __name__ == "__main__":
    main()
