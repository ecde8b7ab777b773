"""Compare the objectives of the reference trainer on a task with exact values.

On Countdown-mini pass@k and the probability of every mode are exact (see ``demo_truth.py``). So rows differ by
objective and seed, not by sampling noise. All runs start from one base. Every checkpoint is scored. Runs are compared
at the last step, and where their pass@1 crosses one level, because an objective that learns slowly has lost little by
the last step.

    python -m benchmarks.objectives.runs  # trains what is missing under runs/objectives/, 2 runs at a time
    python -m benchmarks.objectives.runs --only main     # one table: main, alpha, mu, group, coupling

The main table has more seeds than the others, and the position of each objective relative to the base at lower
temperatures. Intervals are 95 % t-intervals over seeds. Writes ``benchmarks/results/objectives.json`` and
``objectives.md``, and the sweeps of μ and of group sizes to ``objectives_sweeps``.
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
    position_markdown,
    position_row,
    ranked,
    summary,
)
from benchmarks.speed.results import RESULTS, circumstances, write
from oversharp.diagnostics.kernel import KernelRow, gradient_kernel
from oversharp.diagnostics.models.load import load_path
from oversharp.diagnostics.models.tokens import encode_prompt, response_ids
from oversharp.diagnostics.records.progress import ConsoleProgress
from oversharp.diagnostics.records.types import Problem, SamplingSettings
from oversharp.diagnostics.tasks import countdown
from oversharp.diagnostics.tasks.files import load_problem_file
from oversharp.trainers.config import SftConfig, TrainConfig
from oversharp.trainers.loop import train
from oversharp.trainers.sft import train_base

OUT = Path("runs/objectives")
#: Level at which runs are compared at equal pass@1. Every objective of the main table that learns at all reaches it.
MATCHED_PASS_AT_1 = 0.40
#: k of the frontier.
K = 128


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One row: the settings of a training run.

    ``problems`` names a separate training set. None uses the whole split.
    """

    name: str
    algorithm: str
    group_size: int = 8
    learning_rate: float = 2e-4
    problems: str | None = None


MAIN = (
    Setting(name="GRPO", algorithm="grpo"),
    Setting(name="GRPO, half the learning rate", algorithm="grpo", learning_rate=1e-4),
    Setting(name="IAC", algorithm="iac"),
    Setting(name="IAC, scale-matched", algorithm="iac:scale_matched=true"),
    Setting(name="GRPO-N", algorithm="grpo_n"),
    Setting(name="SELF, β .02", algorithm="self:beta=0.02"),
    Setting(name="DLC, μ .5", algorithm="dlc:mu=0.5"),
    Setting(name="IAC + DLC", algorithm="iac+dlc:mu=0.5"),
)
TABLES: Mapping[str, tuple[Setting, ...]] = {
    "main": MAIN,
    "alpha": (
        *(Setting(name=f"IAC, α {alpha}", algorithm=f"iac:alpha={alpha}") for alpha in (0, 0.5, 1, 1.5, 2)),
        Setting(name="easiest quarter left out", algorithm="easy_filter"),
    ),
    "mu": tuple(Setting(name=f"DLC, μ {mu}", algorithm=f"dlc:mu={mu}") for mu in (0.25, 0.5, 0.75, 1)),
    "group": tuple(Setting(name=f"GRPO, G {size}", algorithm="grpo", group_size=size) for size in (4, 8, 16, 32)),
    "coupling": (
        Setting(name="trained on the audited triples", algorithm="grpo", problems="related"),
        Setting(name="trained on other triples", algorithm="grpo", problems="unrelated"),
    ),
}
#: Tables with a separate page.
SWEEPS, SWEEPS_FILE = frozenset({"mu", "group"}), "objectives_sweeps"
TITLES = {
    "main": "Objectives",
    "alpha": "IAC's exponent, and a filter ([A], Table 5)",
    "mu": "DLC's μ",
    "group": "Group size",
    "coupling": "Which problems are trained on: coupling isolated",
}


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


#: Settings that are equal to others: α = 0 changes nothing, α = 1 is the default.
_SAME = {"iac:alpha=0": "grpo", "iac:alpha=1": "iac"}


def folder(setting: Setting, seed: int) -> Path:
    """Return the folder of a run."""
    return OUT / folder_name(setting) / f"seed-{seed}"


def folder_name(setting: Setting) -> str:
    """Return the name of a setting's folder. Equal settings of two tables share one."""
    expression = _SAME.get(setting.algorithm, setting.algorithm)
    expression = expression.replace(":", "_").replace("=", "").replace("+", "_").replace(",", "_")
    parts = [expression, f"g{setting.group_size}", f"lr{setting.learning_rate:g}"]
    return "-".join(parts + ([setting.problems] if setting.problems else []))


def train_one(setting: Setting, seed: int, base: Path, max_steps: int) -> Path:
    """Train a setting, unless that is done."""
    torch.set_num_threads(1)
    return train(
        TrainConfig(
            model=str(base),
            algorithm=_SAME.get(setting.algorithm, setting.algorithm),
            group_size=setting.group_size,
            learning_rate=setting.learning_rate,
            problems=None if setting.problems is None else OUT / f"{setting.problems}.jsonl",
            max_tokens=countdown.RESPONSE_TOKENS,
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
    settings: Mapping[Path, tuple[Setting, int]], base: Path, max_steps: int, jobs: int, says: ConsoleProgress
) -> dict[Path, dict[int, Outcome]]:
    """Train missing runs, and return the exact values of every run."""
    problems = countdown.problems()
    courses: dict[Path, dict[int, Outcome]] = {}
    with (
        ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool,
        says.stage("train and score", len(settings)) as advance,
    ):
        futures = {
            run: pool.submit(train_one, setting, seed, base, max_steps) for run, (setting, seed) in settings.items()
        }
        for run, future in futures.items():
            future.result()
            courses[run] = outcomes(run, problems)
            advance(1)
    return courses


def positions(courses: Mapping[Path, Mapping[int, Outcome]], ground: Ground) -> list[FrontierPosition]:
    """Return the position of every run relative to the frontier of its base."""
    found = []
    for run, course in courses.items():
        matched = at_level(course, MATCHED_PASS_AT_1)
        place = None if matched is None else (matched.pass_at_1, matched.pass_at_128)
        found.append(ground.position(checkpoints_of(run)[max(course)], place))
    return found


def table_markdown(rows: Sequence[dict[str, Any]], seeds: int) -> list[str]:
    """Return the lines of one table."""
    lines = [
        "| | pass@1 | pass@8 | pass@128 | Δ pass@128 | mode entropy, nats | modes that fell > 10× | problems lost "
        "| interference, nats | matched pass@8 | matched pass@128 | matched modes that fell |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        last, matched = row["last_step"], row["matched"]
        cells = [
            _cell(last["pass_at_1"]),
            _cell(last["pass_at_8"]),
            _cell(last["pass_at_128"]),
            _cell(row["change_pass_at_128"]),
            _cell(last["mode_entropy_nats"], 2),
            _cell(last["modes_fallen_10x"], 2),
            _cell(last["problems_lost"]),
            _cell(last["interference_nats"], 2),
        ]
        reached = row["seeds_that_reach_it"]
        keys = ("pass_at_8", "pass_at_128", "modes_fallen_10x")
        cells += [_cell(matched[key]) for key in keys] if matched else ["never reached"] * len(keys)
        if matched and reached < seeds:
            cells[-1] += f" ({reached} of {seeds} seeds)"
        lines.append(f"| {row['setting']['name']} | " + " | ".join(cells) + " |")
    return lines


def coupling_markdown(coupling: Mapping[str, Mapping[str, Summary]]) -> list[str]:
    """Return the table of kernel cosines: one line per checkpoint."""
    kinds = list(next(iter(coupling.values())))
    lines = [
        "Cosine of the gradients of log π of two correct answers, over all parameters (the audit's gradient kernel); "
        "mean over audited problems of one model, ± half of the 95 % t-interval over them:",
        "",
        "| | answers to " + " | answers to ".join(kinds) + " |",
        "|---" * (len(kinds) + 1) + "|",
    ]
    for name, by_kind in coupling.items():
        lines.append(f"| {name} | " + " | ".join(_cell(asdict(by_kind[kind])) for kind in kinds) + " |")
    return lines


def markdown(
    tables: Mapping[str, Sequence[dict[str, Any]]],
    base: Outcome,
    seeds: Mapping[str, int],
    max_steps: int,
    coupling: Mapping[str, Mapping[str, Summary]],
) -> str:
    """Return all tables as a page. ``coupling`` is by checkpoint and kind of pair."""
    lines = [
        "# Objectives on Countdown-mini",
        "",
        f"Exact values over the {len(countdown.problems())} audited problems after {max_steps} steps; mean over "
        "seeds, ± half of the 95 % t-interval over seeds. One base for all: pass@1 "
        f"{base.pass_at_1:.3f}, pass@8 {base.pass_at_8:.3f}, pass@128 {base.pass_at_128:.3f}, mode entropy "
        f"{base.mode_entropy_nats:.2f} nats. *Matched*: where pass@1 first reaches {MATCHED_PASS_AT_1}. "
        "Written by `python -m benchmarks.objectives.runs`.",
    ]
    for name, rows in tables.items():
        lines += ["", f"## {TITLES[name]}", "", f"{seeds[name]} seeds.", "", *table_markdown(rows, seeds[name])]
        if name == "main":
            lines += ["", *better_or_sharper(rows, seeds[name])]
        if name == "coupling":
            lines += ["", *coupling_markdown(coupling)]
    return "\n".join(lines) + "\n"


def better_or_sharper(rows: Sequence[dict[str, Any]], seeds: int) -> list[str]:
    """Return the positions of the main table's objectives relative to the frontier."""
    return [
        "### Better, or only sharper?",
        "",
        f"The last step against the exact temperature frontier of the base, {seeds} seeds, in points. *Gain*: pass@1 "
        f"beyond that of the base at the temperature with the same pass@{K}. At one pass@1 the frontier is one number, "
        f"so what lies above it there has the order of the matched pass@{K}. Unknown: beyond the frontier's ends.",
        "",
        *position_markdown(rows, seeds, K, MATCHED_PASS_AT_1),
    ]


def _cell(value: Mapping[str, float | None], decimals: int = 3) -> str:
    mean, high = value["mean"], value["high"]
    assert mean is not None
    return f"{mean:.{decimals}f}" + ("" if high is None else f" ± {high - mean:.{decimals}f}")


def main() -> int:
    """Train, score, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=sorted(TABLES), default=list(TABLES))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--main-seeds", type=int, default=5, help="seeds of the main table")
    parser.add_argument("--max-steps", type=int, default=160)
    parser.add_argument("--jobs", type=int, default=2, help="runs at one time, a thread each")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    says = ConsoleProgress()

    write_problem_sets()
    base = train_base(SftConfig(output_dir=OUT / "base", resume=True), says)
    seeds = {name: arguments.main_seeds if name == "main" else arguments.seeds for name in arguments.only}
    wanted = {
        folder(setting, seed): (setting, seed)
        for name in arguments.only
        for setting in TABLES[name]
        for seed in range(seeds[name])
    }
    courses = train_and_score(wanted, base, arguments.max_steps, arguments.jobs, says)
    problems = countdown.problems()
    ground = Ground.of(ExactTask(tokenizer_of(base), problems, [one.modes for one in problems]), base, K)
    tables: dict[str, list[dict[str, Any]]] = {}
    for name in arguments.only:
        tables[name] = []
        for setting in TABLES[name]:
            runs = [folder(setting, seed) for seed in range(seeds[name])]
            own = {run: courses[run] for run in runs}
            row = table_rows(setting, list(own.values()), MATCHED_PASS_AT_1)
            tables[name].append({**row, "frontier": position_row(positions(own, ground))})
    base_outcome = next(iter(courses.values()))[0]
    trained = checkpoints_of(folder(MAIN[0], 0))
    coupling = {
        "base": kernel_coupling(base),
        f"GRPO, step {arguments.max_steps}, seed 0": kernel_coupling(trained[max(trained)]),
    }
    for name, are_sweeps in (("objectives", False), (SWEEPS_FILE, True)):
        own = {title: rows for title, rows in tables.items() if (title in SWEEPS) == are_sweeps}
        if not own:
            continue
        text = markdown(own, base_outcome, seeds, arguments.max_steps, coupling)
        (RESULTS / f"{name}.md").write_text(text, encoding="utf-8")
        write(
            name,
            {
                "base": asdict(base_outcome),
                "matched_pass_at_1": MATCHED_PASS_AT_1,
                "k": K,
                "frontier": ground.frontier_values(),
                "seeds": {title: seeds[title] for title in own},
                "max_steps": arguments.max_steps,
                "ranks": {title: ranked(rows, K) for title, rows in own.items()},
                "tables": own,
                "kernel_cosines": {
                    place: {kind: asdict(value) for kind, value in by_kind.items()}
                    for place, by_kind in coupling.items()
                },
                **circumstances(("oversharp", "torch", "transformers")),
            },
        )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
