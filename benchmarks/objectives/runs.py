"""Compare the objectives of the reference trainer on the built-in worlds, with exact values.

On Countdown-mini and Programs-mini pass@k and the probability of every mode are exact (see ``demo_truth.py``). So rows
differ by objective and seed, not by sampling noise. All runs of a world start from one base. Every checkpoint is
scored. Runs are compared at the last step, and where their pass@1 crosses one level, because an objective that learns
slowly has lost little by the last step.

    python -m benchmarks.objectives.runs  # trains what is missing under runs/objectives/, 2 runs at a time
    python -m benchmarks.objectives.runs --only main     # one table: main, alpha, mu, group, coupling, programs

The tables main and programs have more seeds than the others, and the position of each objective relative to the base
at lower temperatures. Intervals are 95 % t-intervals over seeds. Writes ``benchmarks/results/objectives.json`` and
``objectives.md``, the sweeps of μ and of group sizes to ``objectives_sweeps``, and the code world to ``programs``.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, fields
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.calibration.demo_truth import ExactTruth, checkpoints_of, exact_truth, mode_logp
from benchmarks.calibration.small_bases import write_problems
from benchmarks.frontier.exact_frontier import ExactTask, tokenizer_of
from benchmarks.frontier.positions import (
    FrontierPosition,
    Ground,
    Summary,
    position_row,
    ranked,
    summary,
)
from benchmarks.objectives.pages import markdown
from benchmarks.objectives.settings import (
    BASE_STEPS,
    MAIN,
    MATCHED_PASS_AT_1,
    OUT,
    PAGES,
    TABLES,
    WITH_POSITIONS,
    K,
    Setting,
    folder,
    task_flag,
    task_of,
    used_algorithm,
)
from benchmarks.speed.results import RESULTS, circumstances, write
from oversharp.diagnostics.kernel import KernelRow, gradient_kernel
from oversharp.diagnostics.models.load import load_path
from oversharp.diagnostics.models.tokens import encode_prompt, response_ids
from oversharp.diagnostics.records.progress import ConsoleProgress
from oversharp.diagnostics.records.types import Problem, SamplingSettings
from oversharp.diagnostics.tasks import countdown
from oversharp.diagnostics.tasks.files import load_problem_file
from oversharp.diagnostics.tasks.worlds import WORLDS
from oversharp.trainers.config import SftConfig, TrainConfig
from oversharp.trainers.loop import train
from oversharp.trainers.sft import train_base


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """Exact values of one checkpoint.

    ``interference_nats``: mean over problems of the change in log π of a correct base answer, answers weighted by their
    base probability (Δ⁺ against the base, [C] Def 4.1).
    """

    pass_at_1: float
    pass_at_8: float
    pass_at_128: float
    mode_entropy_nats: float
    modes_fallen_10x: float
    problems_lost: float
    interference_nats: float


COLUMNS = tuple(field.name for field in fields(Outcome))


def base_config(task: str) -> SftConfig:
    """Return the settings of a world's base."""
    name = "base" if task == countdown.TASK else f"{task}-base"
    return SftConfig(task=task_flag(task), output_dir=OUT / name, max_steps=BASE_STEPS[task], resume=True)


def train_one(setting: Setting, seed: int, base: Path, max_steps: int) -> Path:
    """Train a setting, unless that is done."""
    torch.set_num_threads(1)
    return train(
        TrainConfig(
            model=str(base),
            algorithm=used_algorithm(setting),
            group_size=setting.group_size,
            learning_rate=setting.learning_rate,
            problems=None if setting.problems is None else OUT / f"{setting.problems}.jsonl",
            task=task_flag(setting.task),
            max_tokens=WORLDS[setting.task].RESPONSE_TOKENS,
            output_dir=folder(setting, seed),
            max_steps=max_steps,
            seed=seed,
            resume=True,
        )
    )


def write_problem_sets(seed: int = 0) -> None:
    """Write equally many training problems with and without the three numbers of an audited problem."""
    audited = {numbers_of(problem) for problem in countdown.problems()}
    sets: dict[str, list[Problem]] = {"related": [], "unrelated": []}
    for problem in countdown.problems("train"):
        sets["related" if numbers_of(problem) in audited else "unrelated"].append(problem)
    n_each = min(map(len, sets.values()))
    order = np.random.default_rng(seed)
    for name, problems in sets.items():
        chosen = [problems[place] for place in sorted(order.permutation(len(problems))[:n_each])]
        write_problems(OUT / f"{name}.jsonl", chosen)


def numbers_of(problem: Problem) -> str:
    """Return the three numbers of a prompt such as ``6 7 12 = 54 :``."""
    return problem.prompt.partition(" = ")[0]


def kernel_coupling(checkpoint: Path, *, limit: int = 48) -> dict[str, Summary]:
    """Return the gradient cosines of correct answers to one problem, to the same numbers, and to others.

    One answer of each of the first ``limit`` audited problems that have another correct answer and a training problem
    with the same numbers. The other problems are training problems from ``unrelated.jsonl``. Intervals are over audited
    problems.
    """
    by_numbers = {numbers_of(problem): problem for problem in load_problem_file(OUT / "related.jsonl")}
    audited = [
        problem for problem in countdown.problems() if len(problem.modes) > 1 and numbers_of(problem) in by_numbers
    ][:limit]
    others = load_problem_file(OUT / "unrelated.jsonl")[: len(audited)]
    sharing = [by_numbers[numbers_of(problem)] for problem in audited]
    loaded = load_path(checkpoint, device=torch.device("cpu"), dtype="float32")
    settings = SamplingSettings(sampler="none")

    def row(problem: Problem, mode: int) -> KernelRow:
        prompt_ids = tuple(encode_prompt(loaded.tokenizer, problem, settings))
        return KernelRow(prompt_ids=prompt_ids, token_ids=response_ids(loaded.tokenizer, problem.modes[mode]))

    rows = [row(problem, mode) for mode in (0, 1) for problem in audited]
    rows += [row(problem, 0) for problem in (*sharing, *others)]
    kernel_NN = gradient_kernel(loaded, rows, memory_bytes=1 << 30).kernel_NN
    cosine_NN = kernel_NN / np.sqrt(np.outer(np.diag(kernel_NN), np.diag(kernel_NN)))
    own_R = np.arange(len(audited))
    return {
        name: summary(cosine_NN[own_R, own_R + place * len(audited)].tolist())
        for place, name in enumerate(("the same problem", "the same numbers", "other numbers"), start=1)
    }


def outcomes(run: Path, problems: Sequence[Problem]) -> dict[int, Outcome]:
    """Return exact values of every checkpoint of a run."""
    n_modes = [len(problem.modes) for problem in problems]
    logp = {step: mode_logp(path, problems) for step, path in checkpoints_of(run).items()}
    return {step: outcome(logp_M, logp[0], n_modes) for step, logp_M in logp.items()}


def outcome(logp_M: NDArray[np.float64], base_logp_M: NDArray[np.float64], n_modes: Sequence[int]) -> Outcome:
    """Return the exact values of one checkpoint, and its interference with the base's correct answers."""
    truth: ExactTruth = exact_truth(logp_M, base_logp_M, n_modes)
    first_mode = np.concatenate([[0], np.cumsum(n_modes)[:-1]])
    base_M = np.exp(base_logp_M)
    share_M = base_M / np.repeat(np.add.reduceat(base_M, first_mode), n_modes)
    change_Q = np.add.reduceat(share_M * (logp_M - base_logp_M), first_mode)
    return Outcome(**asdict(truth), interference_nats=float(change_Q.mean()))


def at_level(course: Mapping[int, Outcome], level: float) -> Outcome | None:
    """Return the values where pass@1 first reaches ``level``; None if it never does.

    Values are interpolated linearly between the neighbouring checkpoints.

    >>> base, end = (Outcome(**dict.fromkeys(COLUMNS, value)) for value in (0.2, 0.6))
    >>> at_level({0: base, 20: end}, 0.4).pass_at_128, at_level({0: base, 20: end}, 0.7)
    (0.4, None)
    """
    steps = sorted(course)
    for before, after in pairwise(steps):
        one, other = course[before], course[after]
        if one.pass_at_1 < level <= other.pass_at_1:
            share = (level - one.pass_at_1) / (other.pass_at_1 - one.pass_at_1)
            return Outcome(
                **{name: (1 - share) * getattr(one, name) + share * getattr(other, name) for name in COLUMNS}
            )
    return None


def table_rows(setting: Setting, courses: Sequence[Mapping[int, Outcome]], level: float) -> dict[str, Any]:
    """Return one row: summaries over seeds at the last step, and where pass@1 first reaches ``level``."""
    last = [course[max(course)] for course in courses]
    matched = [found for course in courses if (found := at_level(course, level)) is not None]
    return {
        "setting": asdict(setting),
        "last_step": {name: asdict(summary([getattr(one, name) for one in last])) for name in COLUMNS},
        "change_pass_at_128": asdict(
            summary([course[max(course)].pass_at_128 - course[0].pass_at_128 for course in courses])
        ),
        "matched": {name: asdict(summary([getattr(one, name) for one in matched])) for name in COLUMNS}
        if matched
        else None,
        "seeds_that_reach_it": len(matched),
    }


def train_and_score(
    settings: Mapping[Path, tuple[Setting, int]],
    bases: Mapping[str, Path],
    max_steps: int,
    jobs: int,
    says: ConsoleProgress,
) -> dict[Path, dict[int, Outcome]]:
    """Train missing runs, each from the base of its world, and return the exact values of every run."""
    courses: dict[Path, dict[int, Outcome]] = {}
    with (
        ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool,
        says.stage("train and score", len(settings)) as advance,
    ):
        futures = {
            run: pool.submit(train_one, setting, seed, bases[setting.task], max_steps)
            for run, (setting, seed) in settings.items()
        }
        for run, future in futures.items():
            future.result()
            courses[run] = outcomes(run, WORLDS[settings[run][0].task].problems())
            advance(1)
    return courses


def positions(courses: Mapping[Path, Mapping[int, Outcome]], ground: Ground, level: float) -> list[FrontierPosition]:
    """Return the position of every run relative to the frontier of its base, also where pass@1 reaches ``level``."""
    found = []
    for run, course in courses.items():
        matched = at_level(course, level)
        place = None if matched is None else (matched.pass_at_1, matched.pass_at_128)
        found.append(ground.position(checkpoints_of(run)[max(course)], place))
    return found


def main() -> int:
    """Train, score, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=sorted(TABLES), default=list(TABLES))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--main-seeds", type=int, default=5, help="seeds of the tables main and programs")
    parser.add_argument("--max-steps", type=int, default=160)
    parser.add_argument("--jobs", type=int, default=2, help="runs at one time, a thread each")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    says = ConsoleProgress()

    write_problem_sets()
    tasks = sorted({task_of([name]) for name in arguments.only})
    bases = {task: train_base(base_config(task), says) for task in tasks}
    seeds = {name: arguments.main_seeds if name in WITH_POSITIONS else arguments.seeds for name in arguments.only}
    wanted = {
        folder(setting, seed): (setting, seed)
        for name in arguments.only
        for seed in range(seeds[name])
        for setting in TABLES[name]
    }
    courses = train_and_score(wanted, bases, arguments.max_steps, arguments.jobs, says)
    for page, names in PAGES.items():
        if own := [name for name in names if name in arguments.only]:
            write_page(page, {name: seeds[name] for name in own}, courses, bases[task_of(own)], arguments.max_steps)
    return 0


def write_page(
    page: str, seeds: Mapping[str, int], courses: Mapping[Path, Mapping[int, Outcome]], base: Path, max_steps: int
) -> None:
    """Write a result file and its page. ``seeds`` has the number of seeds of each of its tables."""
    task = task_of(seeds)
    problems, level = WORLDS[task].problems(), MATCHED_PASS_AT_1[task]
    ground = Ground.of(ExactTask(tokenizer_of(base), problems, [one.modes for one in problems]), base, K)
    tables: dict[str, list[dict[str, Any]]] = {}
    for name in seeds:
        tables[name] = []
        for setting in TABLES[name]:
            own = {run: courses[run] for run in (folder(setting, seed) for seed in range(seeds[name]))}
            row = table_rows(setting, list(own.values()), level)
            tables[name].append({**row, "frontier": position_row(positions(own, ground, level))})
    base_outcome = courses[folder(TABLES[next(iter(seeds))][0], 0)][0]
    coupling = kernel_couplings(base, max_steps) if "coupling" in seeds else {}
    text = markdown(tables, asdict(base_outcome), seeds, max_steps, coupling)
    (RESULTS / f"{page}.md").write_text(text, encoding="utf-8")
    write(
        page,
        {
            "base": asdict(base_outcome),
            "matched_pass_at_1": level,
            "k": K,
            "frontier": ground.frontier_values(),
            "seeds": dict(seeds),
            "max_steps": max_steps,
            "ranks": {title: ranked(rows, K) for title, rows in tables.items()},
            "tables": tables,
            "kernel_cosines": {
                place: {kind: asdict(value) for kind, value in by_kind.items()} for place, by_kind in coupling.items()
            },
            **circumstances(("oversharp", "torch", "transformers")),
        },
    )


def kernel_couplings(base: Path, max_steps: int) -> dict[str, dict[str, Summary]]:
    """Return the gradient cosines of Countdown's base and of the last step of its first GRPO run."""
    trained = checkpoints_of(folder(MAIN[0], 0))
    return {
        "base": kernel_coupling(base),
        f"GRPO, step {max_steps}, seed 0": kernel_coupling(trained[max(trained)]),
    }


if __name__ == "__main__":
    raise SystemExit(main())
