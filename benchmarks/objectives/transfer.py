"""Train on additions only, and audit three other tasks.

One small model learns four tasks from examples (``transfer_tasks.py``), then RL rewards only additions. Every correct
response is known, so the values of all four tasks are exact at every checkpoint. They are compared with the gradient
kernel at the base: the cosine of the gradients of correct answers of an addition and of another task.

    python -m benchmarks.objectives.transfer           # GRPO and IAC, 5 seeds: runs/transfer/

Intervals are 95 % t-intervals over seeds. Writes ``benchmarks/results/transfer.json`` and ``transfer.md``.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.calibration.demo_truth import checkpoints_of, mode_logp
from benchmarks.calibration.small_bases import write_problems
from benchmarks.frontier.positions import Summary, summary
from benchmarks.objectives.runs import COLUMNS, Outcome, outcome
from benchmarks.objectives.transfer_tasks import N_AUDITED, RESPONSE_TOKENS, TASKS, all_problems, audited, train_base
from benchmarks.speed.results import RESULTS, circumstances, write
from oversharp.diagnostics.kernel import KernelRow, gradient_kernel
from oversharp.diagnostics.models.load import load_path
from oversharp.diagnostics.models.tokens import encode_prompt, response_ids
from oversharp.diagnostics.records.progress import ConsoleProgress
from oversharp.diagnostics.records.types import SamplingSettings
from oversharp.trainers.config import TrainConfig
from oversharp.trainers.loop import train

OUT = Path("runs/transfer")
TRAINED = "addition"
ALGORITHMS = {"grpo": "GRPO", "iac": "IAC"}
#: Number of problems of each task whose gradients are compared.
N_KERNEL = 24

Course = Mapping[str, Mapping[int, Outcome]]
"""Exact values by task and step."""


def problems_path() -> Path:
    """Return the file of training problems: all additions except the audited ones."""
    path = OUT / f"{TRAINED}.jsonl"
    return path if path.is_file() else write_problems(path, all_problems(TRAINED)[N_AUDITED:])


def train_one(algorithm: str, seed: int, base: Path, max_steps: int) -> Path:
    """Train a run, unless that is done."""
    torch.set_num_threads(1)
    return train(
        TrainConfig(
            model=str(base),
            problems=problems_path(),
            algorithm=algorithm,
            max_tokens=RESPONSE_TOKENS,
            output_dir=OUT / algorithm / f"seed-{seed}",
            max_steps=max_steps,
            save_every=max_steps // 4,
            seed=seed,
            resume=True,
        )
    )


def course_of(run: Path) -> Course:
    """Return exact values of every checkpoint, by task."""
    course: dict[str, dict[int, Outcome]] = {}
    for task in TASKS:
        problems = audited(task)
        n_modes = [len(problem.modes) for problem in problems]
        logp = {step: mode_logp(path, problems) for step, path in checkpoints_of(run).items()}
        course[task] = {step: outcome(logp_M, logp[0], n_modes) for step, logp_M in logp.items()}
    return course


def kernel_cosines(checkpoint: Path) -> dict[str, Summary]:
    """Return the mean gradient cosine of an addition's first correct answer and one of each task.

    Gradients are those of log π. Pairs of additions are different problems. Intervals are over the additions, whose
    pairs are averaged.
    """
    loaded = load_path(checkpoint, device=torch.device("cpu"), dtype="float32")
    settings = SamplingSettings(sampler="none")
    rows = [
        KernelRow(
            prompt_ids=tuple(encode_prompt(loaded.tokenizer, problem, settings)),
            token_ids=response_ids(loaded.tokenizer, problem.modes[0]),
        )
        for task in TASKS
        for problem in audited(task)[:N_KERNEL]
    ]
    kernel_NN = gradient_kernel(loaded, rows, memory_bytes=1 << 30).kernel_NN
    cosine_NN = kernel_NN / np.sqrt(np.outer(np.diag(kernel_NN), np.diag(kernel_NN)))
    trained = slice(TASKS.index(TRAINED) * N_KERNEL, (TASKS.index(TRAINED) + 1) * N_KERNEL)
    found = {}
    for place, task in enumerate(TASKS):
        block_KK = cosine_NN[trained, place * N_KERNEL : (place + 1) * N_KERNEL].copy()
        if task == TRAINED:
            np.fill_diagonal(block_KK, np.nan)
        found[task] = summary(np.nanmean(block_KK, axis=1).tolist())
    return found


def rows_of(courses: Mapping[tuple[str, int], Course], seeds: int) -> list[dict[str, Any]]:
    """Return one row per objective and task: values at the last step and changes since the base."""
    rows = []
    for algorithm in ALGORITHMS:
        for task in TASKS:
            own = [courses[algorithm, seed][task] for seed in range(seeds)]
            last = [course[max(course)] for course in own]
            changes = {
                f"change_{name}": asdict(
                    summary(
                        [getattr(end, name) - getattr(course[0], name) for end, course in zip(last, own, strict=True)]
                    )
                )
                for name in ("pass_at_1", "pass_at_8", "pass_at_128", "mode_entropy_nats")
            }
            rows.append(
                {
                    "algorithm": algorithm,
                    "task": task,
                    "last_step": {name: asdict(summary([getattr(one, name) for one in last])) for name in COLUMNS},
                    **changes,
                }
            )
    return rows


def markdown(
    rows: Sequence[Mapping[str, Any]],
    base: Mapping[str, Outcome],
    cosines: Mapping[str, Summary],
    *,
    seeds: int,
    max_steps: int,
) -> str:
    """Return the page."""
    lines = [
        "# Trained on additions: what becomes of the other tasks",
        "",
        f"One base that learned four tasks by examples; {max_steps} steps of RL on additions alone; {seeds} seeds. "
        f"Exact values over {N_AUDITED} problems of each task, of the additions none that was trained on. Mean over "
        "seeds, ± half of the 95 % t-interval. *Kernel cosine*: of the gradients of log π of an addition's correct "
        f"answer and one of the task, under the base, mean over pairs of {N_KERNEL} problems each, ± half of the 95 % "
        "t-interval over the additions. Written by `python -m benchmarks.objectives.transfer`.",
        "",
        "| base | pass@1 | pass@8 | pass@128 | mode entropy, nats | kernel cosine with additions |",
        "|---" * 6 + "|",
    ]
    for task in TASKS:
        one, cosine = base[task], asdict(cosines[task])
        shares = " | ".join(f"{value:.3f}" for value in (one.pass_at_1, one.pass_at_8, one.pass_at_128))
        lines.append(f"| {task} | {shares} | {one.mode_entropy_nats:.2f} | {_cell(cosine, 3)} |")
    lines += [
        "",
        "| after RL on additions | pass@1 | change | pass@8, change | pass@128, change | mode entropy, change, nats "
        "| modes that fell > 10× | problems lost | interference, nats |",
        "|---" * 9 + "|",
    ]
    for row in rows:
        last = row["last_step"]
        cells = [
            _cell(last["pass_at_1"], 3),
            *(_cell(row[f"change_{name}"], 3) for name in ("pass_at_1", "pass_at_8", "pass_at_128")),
            _cell(row["change_mode_entropy_nats"], 2),
            _cell(last["modes_fallen_10x"], 2),
            _cell(last["problems_lost"], 3),
            _cell(last["interference_nats"], 2),
        ]
        lines.append(f"| {ALGORITHMS[row['algorithm']]}: {row['task']} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _cell(value: Mapping[str, Any], decimals: int) -> str:
    half = "" if value["high"] is None else f" ± {value['high'] - value['mean']:.{decimals}f}"
    return f"{value['mean']:.{decimals}f}".replace("-", "−") + half


def main() -> int:
    """Train, score, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--max-steps", type=int, default=160)
    parser.add_argument("--jobs", type=int, default=2, help="runs at one time, a thread each")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    says = ConsoleProgress()
    base = train_base(OUT / "base")
    problems_path()
    wanted = [(algorithm, seed) for seed in range(arguments.seeds) for algorithm in ALGORITHMS]
    courses: dict[tuple[str, int], Course] = {}
    with (
        ProcessPoolExecutor(arguments.jobs, mp_context=get_context("spawn")) as pool,
        says.stage("train and score", len(wanted)) as advance,
    ):
        futures = [pool.submit(train_one, algorithm, seed, base, arguments.max_steps) for algorithm, seed in wanted]
        for (algorithm, seed), future in zip(wanted, futures, strict=True):
            courses[algorithm, seed] = course_of(future.result())
            advance(1)
    rows = rows_of(courses, arguments.seeds)
    start = {task: course[0] for task, course in next(iter(courses.values())).items()}
    cosines = kernel_cosines(base)
    page = markdown(rows, start, cosines, seeds=arguments.seeds, max_steps=arguments.max_steps)
    (RESULTS / "transfer.md").write_text(page, encoding="utf-8")
    write(
        "transfer",
        {
            "base": {task: asdict(one) for task, one in start.items()},
            "kernel_cosines": {task: asdict(one) for task, one in cosines.items()},
            "seeds": arguments.seeds,
            "max_steps": arguments.max_steps,
            "rows": rows,
            **circumstances(("oversharp", "torch", "transformers")),
        },
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
