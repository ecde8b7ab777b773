"""Compare batches of related questions with batches of unrelated ones.

Two runs train on the same 512 problems of Countdown-mini, eight on each of 64 triples of numbers, equally often. In one
run every batch of sixteen contains two whole triples. In the other no two problems of a batch share their numbers. The
order is the file's (``--order given``). The base, the sampling seed and the number of updates are the same. Every
correct response is known, so values are exact, over all held-out problems and separately for those with trained
numbers.

    python -m benchmarks.objectives.batches            # GRPO and IAC, groups of 4, 8, 16, 5 seeds: runs/batches/

Differences are paired by seed, with 95 % t-intervals over seeds. Writes ``benchmarks/results/batches.json`` and
``batches.md``.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.calibration.demo_truth import checkpoints_of, mode_logp
from benchmarks.calibration.small_bases import write_problems
from benchmarks.frontier.positions import points_cell, summary
from benchmarks.objectives.runs import Outcome, at_level, numbers_of, outcome
from benchmarks.speed.results import RESULTS, circumstances, write
from oversharp.diagnostics.records.progress import ConsoleProgress
from oversharp.diagnostics.records.types import Problem
from oversharp.diagnostics.tasks import countdown
from oversharp.trainers.config import SftConfig, TrainConfig
from oversharp.trainers.loop import train
from oversharp.trainers.sft import train_base

Arrangement = Literal["together", "spread"]

OUT = Path("runs/batches")
N_TRIPLES, PER_TRIPLE, BATCH_PROMPTS = 64, 8, 16
#: Level at which the runs of a pair are compared at equal pass@1.
MATCHED_PASS_AT_1 = 0.35
#: Compared values, and whether they are probabilities, which are printed in points.
MEASURES = {
    "pass_at_1": True,
    "pass_at_128": True,
    "mode_entropy_nats": False,
    "modes_fallen_10x": True,
    "interference_nats": False,
}


@dataclass(frozen=True, kw_only=True)
class Setting:
    """An objective, its group size, and the arrangement of related questions in batches."""

    algorithm: str
    group_size: int
    arrangement: Arrangement

    def folder(self, seed: int) -> Path:
        """Return the run's folder for a seed."""
        return OUT / f"{self.algorithm}-g{self.group_size}-{self.arrangement}" / f"seed-{seed}"


def arranged(triples: Sequence[Sequence[Problem]], arrangement: Arrangement) -> list[Problem]:
    """Return the problems triple by triple, or the first of each triple, then the second of each, ….

    >>> [[one, two], [three, four]] = triples = [countdown.problems("train")[:2], countdown.problems("train")[2:4]]
    >>> arranged(triples, "spread") == [one, three, two, four]
    True
    """
    if arrangement == "together":
        return [problem for triple in triples for problem in triple]
    return [problem for rank in zip(*triples, strict=True) for problem in rank]


def chosen_triples(seed: int) -> list[list[Problem]]:
    """Draw triples with at least eight training problems, and eight problems of each."""
    by_numbers: dict[str, list[Problem]] = {}
    for problem in countdown.problems("train"):
        by_numbers.setdefault(numbers_of(problem), []).append(problem)
    order = random.Random(seed)
    rich = [own for _, own in sorted(by_numbers.items()) if len(own) >= PER_TRIPLE]
    return [order.sample(own, PER_TRIPLE) for own in order.sample(rich, N_TRIPLES)]


def problems_path(seed: int, arrangement: Arrangement) -> Path:
    """Return the problem file of one arrangement, and write it if it is missing."""
    path = OUT / f"{arrangement}-{seed}.jsonl"
    return path if path.is_file() else write_problems(path, arranged(chosen_triples(seed), arrangement))


def train_one(setting: Setting, seed: int, base: Path, max_steps: int) -> Path:
    """Train a setting, unless that is done."""
    torch.set_num_threads(1)
    return train(
        TrainConfig(
            model=str(base),
            problems=problems_path(seed, setting.arrangement),
            order="given",
            algorithm=setting.algorithm,
            batch_prompts=BATCH_PROMPTS,
            group_size=setting.group_size,
            max_tokens=countdown.RESPONSE_TOKENS,
            output_dir=setting.folder(seed),
            max_steps=max_steps,
            save_every=max_steps // 4,
            seed=seed,
            resume=True,
        )
    )


@dataclass(frozen=True, kw_only=True)
class Course:
    """Exact values of a run's checkpoints: over all held-out problems, those with trained numbers, and the others."""

    all: Mapping[int, Outcome]
    same_numbers: Mapping[int, Outcome]
    other_numbers: Mapping[int, Outcome]


def course_of(run: Path, problems: Sequence[Problem], trained: frozenset[str]) -> Course:
    """Score a run. ``trained``: the triples of numbers that it was trained on."""
    n_modes = np.array([len(problem.modes) for problem in problems])
    logp = {step: mode_logp(path, problems) for step, path in checkpoints_of(run).items()}
    is_same_P = np.array([numbers_of(problem) in trained for problem in problems])

    def over(chosen_P: NDArray[np.bool_]) -> dict[int, Outcome]:
        chosen_M = np.repeat(chosen_P, n_modes)
        return {
            step: outcome(logp_M[chosen_M], logp[0][chosen_M], n_modes[chosen_P].tolist())
            for step, logp_M in logp.items()
        }

    return Course(all=over(np.ones_like(is_same_P)), same_numbers=over(is_same_P), other_numbers=over(~is_same_P))


def last(course: Mapping[int, Outcome]) -> Outcome:
    """Values at the last checkpoint."""
    return course[max(course)]


def pair_rows(courses: Mapping[tuple[Setting, int], Course], seeds: int) -> list[dict[str, Any]]:
    """Return one row per objective and group size: values of both arrangements, and paired differences."""
    rows = []
    for algorithm, group_size in dict.fromkeys((one.algorithm, one.group_size) for one, _ in courses):
        together, spread = (
            [
                courses[Setting(algorithm=algorithm, group_size=group_size, arrangement=arrangement), seed]
                for seed in range(seeds)
            ]
            for arrangement in ("together", "spread")
        )
        row: dict[str, Any] = {"algorithm": algorithm, "group_size": group_size}
        for name, own in (("together", together), ("spread", spread)):
            row[name] = {key: asdict(summary([getattr(last(one.all), key) for one in own])) for key in MEASURES}
        for scope in ("all", "same_numbers", "other_numbers"):
            row[f"difference_{scope}"] = {
                key: asdict(
                    summary(
                        [
                            getattr(last(getattr(a, scope)), key) - getattr(last(getattr(b, scope)), key)
                            for a, b in zip(together, spread, strict=True)
                        ]
                    )
                )
                for key in MEASURES
            }
        row["matched_difference_pass_at_128"] = matched_difference(together, spread)
        rows.append(row)
    return rows


def matched_difference(together: Sequence[Course], spread: Sequence[Course]) -> dict[str, Any] | None:
    """Return pass@128 of together minus spread, at equal pass@1.

    Only seeds of which both runs reach the level.
    """
    found = [
        (at_level(a.all, MATCHED_PASS_AT_1), at_level(b.all, MATCHED_PASS_AT_1))
        for a, b in zip(together, spread, strict=True)
    ]
    known = [a.pass_at_128 - b.pass_at_128 for a, b in found if a is not None and b is not None]
    return asdict(summary(known)) if known else None


def markdown(rows: Sequence[Mapping[str, Any]], base: Outcome, seeds: int, max_steps: int, n: Mapping[str, int]) -> str:
    """Return the page."""
    lines = [
        "# Related questions in one batch, or spread over batches",
        "",
        f"Countdown-mini, {N_TRIPLES * PER_TRIPLE} training problems ({PER_TRIPLE} on each of {N_TRIPLES} triples of "
        f"numbers), {max_steps} steps of {BATCH_PROMPTS} prompts, {seeds} seeds. *Together*: every batch holds two "
        "whole triples; *spread*: no two problems of a batch share their numbers; both see the same problems equally "
        f"often. Exact values over {n['all']} held-out problems; of {n['same_numbers']} of them, in the mean, the "
        f"numbers were trained on. The base: pass@1 {base.pass_at_1:.3f}, pass@128 {base.pass_at_128:.3f}. Mean over "
        "seeds, ± half of the 95 % t-interval; differences are of pairs of one seed. "
        "Written by `python -m benchmarks.objectives.batches`.",
        "",
        "## Together less spread, all held-out problems",
        "",
        "| | G | pass@1, together | spread | pass@128, together | spread | difference: pass@1, points "
        "| pass@128, points "
        f"| pass@128 where pass@1 reaches {MATCHED_PASS_AT_1}, points | mode entropy, nats "
        "| modes that fell > 10×, points | interference, nats |",
        "|---" * 12 + "|",
    ]
    for row in rows:
        difference = row["difference_all"]
        lines.append(
            f"| {row['algorithm'].upper()} | {row['group_size']} | "
            + " | ".join(
                [
                    f"{row[name][key]['mean']:.3f}"
                    for key in ("pass_at_1", "pass_at_128")
                    for name in ("together", "spread")
                ]
                + [points_cell(difference[key], seeds) for key in ("pass_at_1", "pass_at_128")]
                + [points_cell(row["matched_difference_pass_at_128"], seeds)]
                + [nats_cell(difference["mode_entropy_nats"])]
                + [points_cell(difference["modes_fallen_10x"], seeds), nats_cell(difference["interference_nats"])]
            )
            + " |"
        )
    lines += [
        "",
        "## The same, by whether the numbers were trained on",
        "",
        "| | G | numbers trained on: pass@1, points | pass@128, points | interference, nats "
        "| other numbers: pass@1, points | pass@128, points | interference, nats |",
        "|---" * 8 + "|",
    ]
    for row in rows:
        cells = [
            cell
            for scope in ("same_numbers", "other_numbers")
            for cell in (
                points_cell(row[f"difference_{scope}"]["pass_at_1"], seeds),
                points_cell(row[f"difference_{scope}"]["pass_at_128"], seeds),
                nats_cell(row[f"difference_{scope}"]["interference_nats"]),
            )
        ]
        lines.append(f"| {row['algorithm'].upper()} | {row['group_size']} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def nats_cell(value: Mapping[str, Any]) -> str:
    """Return mean ± half of the interval.

    >>> nats_cell({"mean": -0.5, "high": -0.25})
    '−0.50 ± 0.25'
    """
    half = "" if value["high"] is None else f" ± {value['high'] - value['mean']:.2f}"
    return f"{value['mean']:+.2f}".replace("-", "−") + half


def main() -> int:
    """Train, score, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--max-steps", type=int, default=160)
    parser.add_argument("--groups", type=int, nargs="+", default=[4, 8, 16])
    parser.add_argument("--jobs", type=int, default=2, help="runs at one time, a thread each")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    says = ConsoleProgress()
    base = train_base(SftConfig(output_dir=OUT / "base", resume=True), says)
    problems = countdown.problems("held_out")
    arrangements: tuple[Arrangement, ...] = ("together", "spread")
    wanted = [
        (Setting(algorithm=algorithm, group_size=size, arrangement=arrangement), seed)
        for seed, algorithm, size, arrangement in product(
            range(arguments.seeds), ("grpo", "iac"), arguments.groups, arrangements
        )
    ]
    for seed, arrangement in product(range(arguments.seeds), arrangements):
        problems_path(seed, arrangement)
    trained = {
        seed: frozenset(numbers_of(triple[0]) for triple in chosen_triples(seed)) for seed in range(arguments.seeds)
    }
    courses: dict[tuple[Setting, int], Course] = {}
    with (
        ProcessPoolExecutor(arguments.jobs, mp_context=get_context("spawn")) as pool,
        says.stage("train and score", len(wanted)) as advance,
    ):
        futures = [pool.submit(train_one, setting, seed, base, arguments.max_steps) for setting, seed in wanted]
        for (setting, seed), future in zip(wanted, futures, strict=True):
            courses[setting, seed] = course_of(future.result(), problems, trained[seed])
            advance(1)
    rows = pair_rows(courses, arguments.seeds)
    start = next(iter(courses.values())).all[0]
    same = round(np.mean([sum(numbers_of(one) in own for one in problems) for own in trained.values()]))
    counts = {"all": len(problems), "same_numbers": same}
    (RESULTS / "batches.md").write_text(
        markdown(rows, start, arguments.seeds, arguments.max_steps, counts), encoding="utf-8"
    )
    write(
        "batches",
        {
            "base": asdict(start),
            "seeds": arguments.seeds,
            "max_steps": arguments.max_steps,
            "problems": counts,
            "matched_pass_at_1": MATCHED_PASS_AT_1,
            "rows": rows,
            **circumstances(("oversharp", "torch", "transformers")),
        },
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
