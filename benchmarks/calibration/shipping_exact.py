"""Measure the regret of ``oversharp ship`` on real runs with exact values, compared with common habits.

The runs are GRPO, IAC and GRPO at half the learning rate on Countdown-mini, as ``objectives.py`` trained them, with all
available seeds. Every correct response of all held-out problems is known, so the success rate of every checkpoint on
every problem is exact, and so is pass@k over these problems. For each run, audits are simulated as ``oversharp audit``
samples them, and ``recommend`` and the other rules are applied.

    python -m benchmarks.objectives.runs --only main     # trains the runs
    python -m benchmarks.calibration.shipping_exact           # all seeds under runs/objectives/
    python -m benchmarks.calibration.shipping_exact --beside  # these, next to the recorded ones of another base

The same training gives another base on another CPU, because it rounds differently. Every run is compared with the truth
of its own base.

*Regret*, in points, is as in ``shipping.py``: the distance to the highest exact pass@1 among the base and the
checkpoints with no exact pass@k more than 2 points below the base's. If the choice lost more, its regret is the excess.
The rules are also applied with a larger allowed loss (``--allow-loss``), and the truth is defined by that. Writes
``benchmarks/results/shipping_exact.json`` and ``.md``. Exit code 1 if the guarantee is true in less than 95 %, or if
another rule has a smaller worst case.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.calibration.demo_truth import checkpoints_of
from benchmarks.calibration.shipping import BOUND, COLDER, HOTTER, Cell, Truth
from benchmarks.frontier.exact_frontier import ExactTask, Rates, load, tokenizer_of
from benchmarks.objectives.settings import MAIN, OUT, Setting, folder_name
from benchmarks.speed.results import RESULTS, circumstances, write
from oversharp.diagnostics.series.weights import weight_files, weights_hash
from oversharp.diagnostics.statistics.keys import PairedCounts, inference_ks
from oversharp.diagnostics.tasks import countdown
from oversharp.diagnostics.verdict.counts import CheckpointCounts, ControlCounts, SeriesCounts
from oversharp.diagnostics.verdict.recommendation import Recommendation
from oversharp.diagnostics.verdict.rule import KEY_LEVEL, MARGIN, STEP_LEVEL
from oversharp.diagnostics.verdict.shipping.choice import recommend
from oversharp.diagnostics.verdict.shipping.options import JudgedSeries
from oversharp.diagnostics.verdict.steps import rule_steps

SEED = 20_261_123
NAMES = ("GRPO", "GRPO, half the learning rate", "IAC")
PROBLEMS = 100
#: Samples per problem: base, checkpoint, base at lower temperatures, last checkpoint at higher ones.
N_BASE, N, N_COLDER, N_HOTTER = 512, 256, 128, 64
#: Training steps over which reward and entropy at a checkpoint are averaged.
SMOOTHED = 20
#: Early stopping: the last checkpoint before the rollout entropy falls below this share of its first value.
ENTROPY_LEFT = 0.5
#: A larger allowed loss of pass@k.
ALLOWED = 0.05


@dataclass(frozen=True, kw_only=True)
class Run:
    """One run: exact success rates of the base, its checkpoints and controls (rows) on all held-out problems.

    ``reward_T`` and ``entropy_T`` are those of the training rollouts up to each checkpoint. The first is that of the
    start. ``base`` is the beginning of the hash of the base's weights.
    """

    name: str
    seed: int
    base: str
    rate_TP: np.ndarray
    reward_T: Sequence[float]
    entropy_T: Sequence[float]

    @property
    def cell(self) -> Cell:
        """Numbers of options by kind, and the row of each choice."""
        return Cell(course=self.name, n=N, checkpoints=len(self.reward_T) - 1, controls=True)

    def truth(self, *, controls: bool) -> Truth:
        """Return exact pass@k for k from 1 to half of the samples, with or without the controls."""
        rows = self.rate_TP if controls else self.rate_TP[: len(self.reward_T)]
        miss_TP, power_TP, found = 1 - rows, np.ones_like(rows), []
        for _ in range(N // 2):
            power_TP = power_TP * miss_TP
            found.append(1 - power_TP.mean(axis=1))
        return Truth(pass_at_TK=np.stack(found, axis=1))


def run_of(setting: Setting, path: Path, task: ExactTask, base: Mapping[float, Rates], base_hash: str) -> Run:
    """Load the exact rates of a run, and the metrics of its trainer."""
    checkpoints = checkpoints_of(path)
    steps = sorted(checkpoints)
    rows = [base[1.0]]
    for step in steps[1:]:
        model, last = load(checkpoints[step]), step == steps[-1]
        own, *hotter = task.rates(model, [1.0, *HOTTER] if last else [1.0])
        rows.append(own)
    rows += [*(base[temperature] for temperature in COLDER), *hotter]
    lines = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    return Run(
        name=setting.name,
        seed=int(path.name.removeprefix("seed-")),
        base=base_hash,
        rate_TP=np.stack(rows),
        reward_T=[_up_to(lines, "reward_mean", step) for step in steps],
        entropy_T=[_up_to(lines, "token_entropy_nats", step) for step in steps],
    )


def _up_to(lines: Sequence[Mapping[str, Any]], name: str, step: int) -> float:
    """Return the mean over the last steps up to this one. At the start use a quarter as many first steps."""
    first, last = (step - SMOOTHED, step) if step else (0, SMOOTHED // 4)
    return float(np.mean([line[name] for line in lines if first < line["step"] <= last]))


def draw(run: Run, chosen_P: np.ndarray, rng: np.random.Generator, *, controls: bool) -> JudgedSeries:
    """Simulate an audit of these problems, and the checkpoints that its verdict calls lost."""
    last = len(run.reward_T) - 1
    rate_TP = run.rate_TP[:, chosen_P]
    base, *trained = [
        CheckpointCounts(
            step=step, checkpoint=f"checkpoint-{step}", n=n, correct_P=rng.binomial(n, rate_TP[step]),
            minority_P=np.zeros(len(chosen_P), dtype=np.int64), rates=None,
        )
        for step, n in enumerate([N_BASE] + [N] * last)
    ]  # fmt: skip
    drawn = [*((t, 0, N_COLDER) for t in COLDER), *((t, last, N_HOTTER) for t in HOTTER)] if controls else []
    series = JudgedSeries(
        counts=SeriesCounts(
            series="run", base=base, trained=tuple(trained), shows_modes_P=np.zeros(len(chosen_P), dtype=bool),
            tasks=("countdown",), graders=("expression",), tokens_per_sample=None,
            controls=tuple(
                ControlCounts(
                    step=step, checkpoint=f"checkpoint-{step}", temperature=temperature, n=n,
                    correct_P=rng.binomial(n, rate_TP[last + 1 + place]),
                )
                for place, (temperature, step, n) in enumerate(drawn)
            ),
        )
    )  # fmt: skip
    pairs = [PairedCounts(base_P=base.correct_P, late_P=one.correct_P, n_base=base.n, n_late=one.n) for one in trained]
    ruled = rule_steps(
        pairs, ks=inference_ks(N), level=STEP_LEVEL, exact_level=KEY_LEVEL, margin=MARGIN, rng=rng
    )  # as in a verdict
    return replace(series, lost=[step + 1 for step, one in enumerate(ruled) if one.lost])


@dataclass(frozen=True, kw_only=True)
class Asked:
    """Inputs of a rule: the run's log, the recommendation, and the sampled pass@1."""

    run: Run
    said: Recommendation

    @property
    def pass_at_1(self) -> Mapping[int, float]:
        """Sampled pass@1 of the base and the checkpoints."""
        own = [one for one in self.said.steps if one.temperature is None]
        return {one.step: one.pass_at_1 for one in own if one.pass_at_1 is not None}


def _shipped(asked: Asked) -> int:
    assert asked.said.recommended is not None
    return asked.run.cell.row(asked.said.recommended)


def _best_by_reward(asked: Asked) -> int:
    return int(np.argmax(asked.run.reward_T[1:])) + 1


def stopped_by_entropy(entropy_T: Sequence[float]) -> int:
    """Return the last checkpoint before the entropy falls below the limit, or the last of all.

    >>> stopped_by_entropy([1.0, 0.8, 0.6, 0.4, 0.6]), stopped_by_entropy([1.0, 0.9])
    (2, 1)
    """
    fallen = [step for step, entropy in enumerate(entropy_T) if entropy < ENTROPY_LEFT * entropy_T[0]]
    return fallen[0] - 1 if fallen else len(entropy_T) - 1


#: The shipped rule first.
RULES: Mapping[str, Callable[[Asked], int]] = {
    "ship": _shipped,
    "the last": lambda asked: len(asked.run.reward_T) - 1,
    "the best pass@1": lambda asked: max(asked.pass_at_1, key=lambda step: asked.pass_at_1[step]),
    "the best training reward": _best_by_reward,
    "stopped early by entropy": lambda asked: stopped_by_entropy(asked.run.entropy_T),
    "the base": lambda _: 0,
}


def regret(truth: Truth, chosen: int, allowed: float) -> float:
    """Return the regret in points.

    ``allowed``: the largest allowed loss of pass@k, a probability.
    """
    excess_T = truth.fall - max(MARGIN, allowed)
    if excess_T[chosen] > 0:
        return 100 * float(excess_T[chosen])
    return 100 * float(truth.pass_at_TK[excess_T <= 0, 0].max() - truth.pass_at_TK[chosen, 0])


def asked_of(run: Run, audits: int, *, controls: bool, allowed: float) -> dict[str, Any]:
    """Return the regret of every rule in ``audits`` audits of one run, and how often a guarantee is true."""
    rng = np.random.default_rng([SEED, NAMES.index(run.name), run.seed, controls, round(1000 * allowed)])
    truth, n_held_out = run.truth(controls=controls), run.rate_TP.shape[1]
    regrets: dict[str, list[float]] = {name: [] for name in RULES}
    given = true = trained = 0
    for _ in range(audits):
        drawn = draw(run, rng.integers(0, n_held_out, PROBLEMS), rng, controls=controls)
        asked = Asked(run=run, said=recommend([drawn], allowed_loss=allowed))
        for name, rule in RULES.items():
            regrets[name].append(regret(truth, rule(asked), allowed))
        recommended = asked.said.recommended
        trained += recommended is not None and not recommended.is_base
        if asked.said.guarantee is not None:
            given += 1
            true += truth.holds(asked.said, _shipped(asked))
    return {
        "name": run.name,
        "seed": run.seed,
        "base": run.base,
        "audits": audits,
        "given": given,
        "true": true,
        "a_checkpoint": trained,
        "mean_regret": {name: round(float(np.mean(one)), 3) for name, one in regrets.items()},
        "largest_regret": {name: round(float(np.max(one)), 2) for name, one in regrets.items()},
    }


def summary(rows: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """Return the regret of every rule: mean over runs, mean of the worst run, and maximum over audits."""
    return {
        name: {
            "mean": round(float(np.mean([row["mean_regret"][name] for row in rows])), 2),
            "worst": round(max(row["mean_regret"][name] for row in rows), 2),
            "largest": round(max(row["largest_regret"][name] for row in rows), 1),
        }
        for name in RULES
    }


def guarantee(rows: Sequence[Mapping[str, Any]]) -> dict[str, float | int | None]:
    """Return how often a guarantee is given and true."""
    given, true = sum(row["given"] for row in rows), sum(row["true"] for row in rows)
    return {"given": given, "true": true, "share": round(true / given, 4) if given else None}


def regret_lines(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return one line per rule: overall, then the mean per objective."""
    by_name = {name: [row for row in rows if row["name"] == name] for name in NAMES}
    by_name = {name: summary(own) for name, own in by_name.items() if own}
    lines = [
        "| rule | mean | worst run | largest in any audit | " + " | ".join(f"mean, {name}" for name in by_name) + " |",
        "|---" * (4 + len(by_name)) + "|",
    ]
    for rule, one in summary(rows).items():
        own = " | ".join(f"{told[rule]['mean']:.2f}" for told in by_name.values())
        lines.append(f"| {rule} | {one['mean']:.2f} | {one['worst']:.2f} | {one['largest']:.1f} | {own} |")
    return lines


def text(tables: Mapping[str, Sequence[Mapping[str, Any]]], n_held_out: int) -> str:
    """Return the results as a page."""
    rows = tables["checkpoints"]
    seeds = ", ".join(f"{name}: {sum(row['name'] == name for row in rows)}" for name in NAMES)
    bases = {row["base"]: sum(one["base"] == row["base"] for one in rows) for row in rows}
    on = f" on {len(bases)} bases ({' and '.join(f'{n} runs' for n in bases.values())})" if len(bases) > 1 else ""
    each = sorted({row["audits"] for row in rows})
    lines = [
        "# Which checkpoint to ship, on runs whose truth is known",
        "",
        f"Runs of Countdown-mini by seed ({seeds}){on}, {' or '.join(map(str, each))} audits of each: {PROBLEMS} "
        "problems drawn from the "
        f"{n_held_out} held out, {N} samples of a checkpoint, {N_BASE} of the base. The truth is exact, over all "
        f"{n_held_out}. Regret in points: against the highest exact pass@1 of what lost at no k from 1 to {N // 2} "
        "more than 2 points; what lost more has the excess as its regret. *Stopped early by entropy* ships the last "
        f"checkpoint before the entropy of training's rollouts falls below {ENTROPY_LEFT:g} times its first value. "
        "Written by `python -m benchmarks.calibration.shipping_exact`.",
    ]
    titles = {
        "checkpoints": "The base and the checkpoints",
        "allowed": f"A loss of {100 * ALLOWED:g} points allowed (`--allow-loss {100 * ALLOWED:g}`), in the truth too",
        "controls": f"With controls: the base at T = {', '.join(map(str, COLDER))} and the last checkpoint at T = "
        f"{', '.join(map(str, HOTTER))} may be shipped too",
    }
    for name, own in tables.items():
        told, chosen = guarantee(own), sum(row["a_checkpoint"] for row in own)
        audits = sum(row["audits"] for row in own)
        lines += [
            "",
            f"## {titles[name]}",
            "",
            *regret_lines(own),
            "",
            f"`ship` names a checkpoint after the base in {chosen} of {audits} audits, and says in "
            f"{told['given']} what is sure of its choice; true in {told['true']}"
            + (f" ({told['share']:.1%})." if told["share"] is not None else "."),
        ]
    return "\n".join(lines) + "\n"


def runs_found(task: ExactTask, base: Path) -> list[Run]:
    """Return every finished run of the named objectives, by objective and seed."""
    rates = dict(zip([1.0, *COLDER], task.rates(load(base), [1.0, *COLDER]), strict=True))
    base_hash = weights_hash(weight_files(base))[:8]
    found = []
    for setting in (one for one in MAIN if one.name in NAMES):
        paths = (OUT / folder_name(setting)).glob("seed-*")
        finished = [path for path in paths if (path / "checkpoint-160" / "config.json").is_file()]
        found += [
            run_of(setting, path, task, rates, base_hash)
            for path in sorted(finished, key=lambda one: int(one.name[5:]))
        ]
    return found


def main() -> int:
    """Return 0 if the guarantee is true often enough and no other rule has a smaller worst case."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--audits", type=int, default=50, help="audits drawn of each run")
    parser.add_argument("--beside", action="store_true", help="keep the recorded runs of other bases")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    problems = countdown.problems("held_out")
    [base] = (OUT / "base").glob("checkpoint-1200")
    task = ExactTask(tokenizer_of(base), problems, [one.modes for one in problems])
    runs = runs_found(task, base)
    if not runs:
        sys.exit(f"{OUT}: no finished run here; train first: python -m benchmarks.objectives.runs --only main")
    held = json.loads((RESULTS / "shipping_exact.json").read_text())["rows"] if arguments.beside else {}
    found = {run.base for run in runs}
    tables = {
        name: [
            *(row for row in held.get(name, ()) if row["base"] not in found),
            *(asked_of(run, arguments.audits, controls=controls, allowed=allowed) for run in runs),
        ]
        for name, controls, allowed in (
            ("checkpoints", False, 0.0),
            ("allowed", False, ALLOWED),
            ("controls", True, 0.0),
        )
    }
    (RESULTS / "shipping_exact.md").write_text(text(tables, len(problems)), encoding="utf-8")
    told = {name: {"guarantee": guarantee(rows), "regret": summary(rows)} for name, rows in tables.items()}
    write(
        "shipping_exact",
        {
            "what": "regret in points of what `oversharp ship` recommends, on runs whose exact truth is known",
            "allowed_loss": ALLOWED,
            "problems": PROBLEMS,
            "held_out": len(problems),
            **told,
            "rows": tables,
            **circumstances(("oversharp", "torch", "transformers", "numpy", "scipy")),
        },
    )
    shares = [one["guarantee"]["share"] for one in told.values()]
    worst = [{name: value["worst"] for name, value in one["regret"].items()} for one in told.values()]
    held = all(share is None or share >= BOUND for share in shares)
    return 0 if held and all(one["ship"] == min(one.values()) for one in worst) else 1


if __name__ == "__main__":
    raise SystemExit(main())
