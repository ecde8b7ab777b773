"""Compare the demo with exact values of an independent implementation.

On Countdown-mini every correct response is known. So pass@k, the mean over problems of 1 - (1 - p)^k with p the summed
probability of the problem's modes, has no sampling noise. This script scores all modes under every checkpoint of a
series with transformers, without the audit's code. It compares the result with the values of an independent prototype
(``demo_reference.json``, one value per seed).

    python -m benchmarks.calibration.demo_truth                              # runs/demo/grpo and runs/demo/iac
    python -m benchmarks.calibration.demo_truth --seeds 3                    # trains 3 seeds of each under runs/truth/
    python -m benchmarks.calibration.demo_truth --grpo A B --iac C           # any run directories

A value agrees if it is in the 99 % prediction interval of the reference seeds. The sampled pass@k of the demo's audit
is compared with the exact value too. Exit code 1 if a value disagrees.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import stats
from scipy.special import xlogy
from transformers import AutoModelForCausalLM, AutoTokenizer

from benchmarks.speed.sampling_check import Agreement, agree, agreements, print_agreements
from oversharp.diagnostics.models.load import quiet_transformers
from oversharp.diagnostics.records.progress import ConsoleProgress
from oversharp.diagnostics.records.types import Problem
from oversharp.diagnostics.tasks import countdown
from oversharp.trainers.config import SftConfig, TrainConfig
from oversharp.trainers.loop import train
from oversharp.trainers.sft import train_base

REFERENCE = Path(__file__).with_name("demo_reference.json")
ALGORITHMS = ("grpo", "iac")
SCORED_AT_ONCE = 1024
#: Lost: the base solves more than 2 % of the samples, and the checkpoint fewer than 0.2 %.
SOLVED_BY_BASE, LOST_BELOW = 0.02, 0.002


@dataclass(frozen=True, kw_only=True)
class ExactTruth:
    """Exact values of one checkpoint over the audited problems.

    Entropies are those of the mode given a correct response, in nats.
    """

    pass_at_1: float
    pass_at_8: float
    pass_at_128: float
    mode_entropy_nats: float
    modes_fallen_10x: float
    problems_lost: float


MEASURES = tuple(field.name for field in fields(ExactTruth))


def mode_logp(checkpoint: Path, problems: Sequence[Problem]) -> NDArray[np.float64]:
    """log pi(mode | query) of every mode of every problem in order, end token included, teacher-forced in float32."""
    with quiet_transformers():
        model = AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32).eval()
    tokenizer = AutoTokenizer.from_pretrained(checkpoint)
    prompts = [tokenizer(problem.prompt)["input_ids"] for problem in problems for _ in problem.modes]
    responses = [
        [*tokenizer(mode)["input_ids"], tokenizer.eos_token_id] for problem in problems for mode in problem.modes
    ]
    prompt_length = len(prompts[0])  # equal for all problems of a world
    response_length = max(map(len, responses))
    ids_MT = torch.tensor(
        [
            [*prompt, *response] + [tokenizer.pad_token_id] * (response_length - len(response))
            for prompt, response in zip(prompts, responses, strict=True)
        ]
    )
    logp = []
    with torch.inference_mode():
        for ids_BT in ids_MT.split(SCORED_AT_ONCE):
            logits_BTV = model(ids_BT[:, :-1], logits_to_keep=response_length).logits
            target_BT = ids_BT[:, prompt_length:]
            logp_BT = logits_BTV.log_softmax(-1).gather(-1, target_BT[..., None])[..., 0]
            logp.append((logp_BT.double() * (target_BT != tokenizer.pad_token_id)).sum(dim=1))
    return torch.cat(logp).numpy()


def exact_truth(logp_M: NDArray[np.float64], base_logp_M: NDArray[np.float64], n_modes: Sequence[int]) -> ExactTruth:
    """Return all exact values of one checkpoint.

    ``n_modes`` has the number of consecutive modes of each problem.
    """
    first_mode = np.concatenate([[0], np.cumsum(n_modes)[:-1]])
    probability_M = np.exp(logp_M)
    correct_Q = np.minimum(np.add.reduceat(probability_M, first_mode), 1.0)
    base_correct_Q = np.minimum(np.add.reduceat(np.exp(base_logp_M), first_mode), 1.0)
    share_M = probability_M / np.repeat(correct_Q, n_modes)
    entropy_Q = np.add.reduceat(-xlogy(share_M, share_M), first_mode)

    def pass_at(k: int) -> float:
        return float(np.mean(-np.expm1(k * np.log1p(-np.minimum(correct_Q, 1 - 1e-12)))))

    return ExactTruth(
        pass_at_1=pass_at(1),
        pass_at_8=pass_at(8),
        pass_at_128=pass_at(128),
        mode_entropy_nats=float(entropy_Q.mean()),
        modes_fallen_10x=float(np.mean(logp_M < base_logp_M - np.log(10))),
        problems_lost=float(np.mean((base_correct_Q > SOLVED_BY_BASE) & (correct_Q < LOST_BELOW))),
    )


def checkpoints_of(run: Path) -> dict[int, Path]:
    """Return the checkpoints of a run directory by step, ascending."""
    found = {int(path.name.split("-")[1]): path for path in run.glob("checkpoint-*") if re.search(r"-\d+$", path.name)}
    if 0 not in found:
        sys.exit(f"{run}: no checkpoint-0 here; train first (make demo) or pass --seeds 3")
    return dict(sorted(found.items()))


def truth_over_steps(run: Path, problems: Sequence[Problem]) -> dict[int, ExactTruth]:
    """Return the exact values of every checkpoint of a run, compared with its step 0."""
    n_modes = [len(problem.modes) for problem in problems]
    logp = {step: mode_logp(path, problems) for step, path in checkpoints_of(run).items()}
    return {step: exact_truth(logp_M, logp[0], n_modes) for step, logp_M in logp.items()}


def train_seeds(n_seeds: int, out: Path) -> dict[str, list[Path]]:
    """Train one base and ``n_seeds`` runs of each algorithm, or continue an earlier call."""
    progress = ConsoleProgress()
    base = train_base(SftConfig(output_dir=out / "base", resume=True), progress)
    return {
        algorithm: [
            train(
                TrainConfig(
                    model=str(base),
                    algorithm=algorithm,
                    output_dir=out / f"{algorithm}-seed-{seed}",
                    seed=seed,
                    resume=True,
                ),
                progress,
            )
            for seed in range(n_seeds)
        ]
        for algorithm in ALGORITHMS
    }


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """One measured value (mean of ``n`` runs) and the 99 % prediction interval of the reference seeds."""

    subject: str
    measure: str
    value: float
    n: int
    reference: float
    low: float
    high: float

    @property
    def agrees(self) -> bool:
        """Return whether the value is in the interval."""
        return self.low <= self.value <= self.high


def compare(subject: str, truths: Sequence[ExactTruth], reference: Mapping[str, Sequence[float]]) -> list[Comparison]:
    """Compare each measure's mean over ``truths`` with the reference seeds."""
    comparisons = []
    for measure in MEASURES:
        seeds = np.asarray(reference[measure])
        ceiling = np.inf if measure == "mode_entropy_nats" else 1.0  # the others are probabilities
        value = float(np.mean([getattr(truth, measure) for truth in truths]))
        # values of 100 problems come in steps of .01, so a smaller spread is not known
        spread = max(float(seeds.std(ddof=1)), 0.005)
        width = stats.t.ppf(0.995, len(seeds) - 1) * spread * np.sqrt(1 / len(truths) + 1 / len(seeds))
        comparisons.append(
            Comparison(
                subject=subject,
                measure=measure,
                value=value,
                n=len(truths),
                reference=float(seeds.mean()),
                low=max(0.0, float(seeds.mean() - width)),
                high=min(ceiling, float(seeds.mean() + width)),
            )
        )
    return comparisons


def print_series(run: Path, truths: Mapping[int, ExactTruth]) -> None:
    """Print one line per checkpoint."""
    print(f"\n{run}\n{'step':>6}  " + "  ".join(f"{measure:>17}" for measure in MEASURES))
    for step, truth in truths.items():
        print(f"{step:6d}  " + "  ".join(f"{getattr(truth, measure):17.3f}" for measure in MEASURES))


def print_comparisons(comparisons: Sequence[Comparison]) -> None:
    """Print one line per comparison: value, reference, interval, verdict."""
    print(f"\n{'':6}{'measure':>18}{'here':>8}{'runs':>6}{'reference':>11}   99 % prediction interval")
    for line in comparisons:
        verdict = "agrees" if line.agrees else "DIFFERS"
        print(
            f"{line.subject:6}{line.measure:>18}{line.value:8.3f}{line.n:6d}{line.reference:11.3f}"
            f"   {line.low:.3f} … {line.high:.3f}  {verdict}"
        )


def main() -> int:
    """Return 0 if all values agree with the reference and all sampled pass@k with the exact ones, else 1."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--grpo", nargs="+", type=Path, default=[Path("runs/demo/grpo")])
    parser.add_argument("--iac", nargs="+", type=Path, default=[Path("runs/demo/iac")])
    parser.add_argument("--seeds", type=int, help="train this many seeds under runs/truth/ and use those")
    parser.add_argument("--store", type=Path, default=Path("runs/demo/audit.duckdb"))
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/demo_truth.json"))
    arguments = parser.parse_args()
    torch.set_num_threads(1)

    runs = {"grpo": arguments.grpo, "iac": arguments.iac}
    if arguments.seeds:
        runs = train_seeds(arguments.seeds, Path("runs/truth"))
    problems = countdown.problems()
    truths = {algorithm: [truth_over_steps(run, problems) for run in runs[algorithm]] for algorithm in ALGORITHMS}
    for algorithm in ALGORITHMS:
        for run, truth in zip(runs[algorithm], truths[algorithm], strict=True):
            print_series(run, truth)

    reference = json.loads(REFERENCE.read_text())
    comparisons = compare("base", [truths["grpo"][0][0]], reference["base"])
    for algorithm in ALGORITHMS:
        last = [truth[max(truth)] for truth in truths[algorithm]]
        comparisons += compare(algorithm, last, reference[algorithm])
    print_comparisons(comparisons)

    sampled: list[Agreement] = []
    if arguments.store.is_file() and not arguments.seeds:
        sampled = agreements(arguments.store)
        print_agreements(sampled)

    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    exact = {
        algorithm: {
            str(run): {step: asdict(truth) for step, truth in series.items()}
            for run, series in zip(runs[algorithm], truths[algorithm], strict=True)
        }
        for algorithm in ALGORITHMS
    }
    lines = [{**asdict(line), "agrees": line.agrees} for line in comparisons]
    result = {
        "exact": exact,
        "comparisons": lines,
        "sampled_against_exact": [{**asdict(row), "inside": row.inside} for row in sampled],
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "versions": {name: version(name) for name in ("oversharp", "torch", "transformers")},
    }
    arguments.out.write_text(json.dumps(result, indent=1) + "\n")
    return 0 if all(line.agrees for line in comparisons) and (not sampled or agree(sampled)) else 1


if __name__ == "__main__":
    raise SystemExit(main())
