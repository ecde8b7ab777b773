"""Train on a task that is no mathematics: palindromes of reasoning-gym, with partial credit.

A prompt gives 3 to 10 letters. Every palindrome that uses each of them once is right, up to 120 of them, so right
answers can be listed. The verifier is reasoning-gym's: 1 for a right answer, .05 for a palindrome of other letters, .02
for anything else. So groups rarely have equal rewards. The base is trained to write palindromes in a preferred order.

    python -m benchmarks.objectives.palindromes                # base, 5 seeds of each objective under runs/palindromes/

Writes ``benchmarks/results/palindromes.json`` and ``palindromes.md``; columns as in ``objectives.py``.
"""

from __future__ import annotations

import argparse
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from itertools import permutations
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from benchmarks.calibration.demo_truth import checkpoints_of
from benchmarks.calibration.small_bases import response_logp, train_by_examples
from benchmarks.frontier.exact_frontier import ExactTask, tokenizer_of
from benchmarks.frontier.positions import FrontierPosition, Ground, position_markdown, position_row, ranked
from benchmarks.objectives.pages import table_markdown
from benchmarks.objectives.runs import COLUMNS, Outcome, at_level, outcome, table_rows
from benchmarks.objectives.settings import Setting, folder_name
from benchmarks.speed.results import RESULTS, circumstances, write
from oversharp.diagnostics.models.load import quiet_transformers
from oversharp.diagnostics.records.progress import ConsoleProgress
from oversharp.diagnostics.records.types import Problem
from oversharp.diagnostics.tasks.reasoning_gym import generated_problems
from oversharp.trainers.checking import training_problems
from oversharp.trainers.config import TrainConfig
from oversharp.trainers.loop import train

OUT = Path("runs/palindromes")
TASK = "palindrome_generation"
MAX_TOKENS = 11
N_SCORED = 100
#: Seeds of the problems for the base's examples and for scoring. Training has other seeds.
BASE_SEED, SCORED_SEED = 10_000_000, 20_000_000
MATCHED_PASS_AT_1 = 0.75
#: k of the frontier. At k = 128 nothing is lost on this task.
K = 8
SETTINGS = (
    Setting(name="GRPO", algorithm="grpo"),
    Setting(name="GRPO, half the learning rate", algorithm="grpo", learning_rate=1e-4),
    Setting(name="IAC", algorithm="iac"),
    Setting(name="IAC, scale-matched", algorithm="iac:scale_matched=true"),
    Setting(name="GRPO-N", algorithm="grpo_n"),
    Setting(name="SELF, β .02", algorithm="self:beta=0.02"),
    Setting(name="DLC, μ .5", algorithm="dlc:mu=0.5"),
    Setting(name="IAC + DLC", algorithm="iac+dlc:mu=0.5"),
)


def letters_of(prompt: str) -> list[str]:
    """Return the letters of a prompt.

    >>> letters_of("…using the following letters: k, g, k\\n")
    ['k', 'g', 'k']
    """
    return prompt.strip().rpartition(": ")[2].split(", ")


def modes_of(letters: Sequence[str]) -> list[str]:
    """Return all palindromes of these letters, sorted.

    >>> modes_of(["k", "g", "k", "g", "x"])
    ['gkxkg', 'kgxgk']
    """
    counts = Counter(letters)
    half = sorted(letter for letter, count in counts.items() for _ in range(count // 2))
    middle = "".join(letter for letter, count in counts.items() if count % 2)
    return sorted({"".join(order) + middle + "".join(order[::-1]) for order in permutations(half)})


def build_tokenizer(preamble: str) -> PreTrainedTokenizerFast:
    """Build a tokenizer with one token per letter, and one for the text before and after the letters."""
    from tokenizers import Tokenizer, decoders, models

    pieces = ["<pad>", "<eos>", "<unk>", preamble, ", ", "\n", *"abcdefghijklmnopqrstuvwxyz"]
    tokenizer = Tokenizer(models.Unigram([(piece, -1.0) for piece in pieces], unk_id=2))
    tokenizer.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>", padding_side="left"
    )


def example(problem: Problem, rng: random.Random) -> str:
    """Draw a training response of the base: 40 % are right, in an order that prefers early letters outside."""
    letters = letters_of(problem.prompt)
    if rng.random() < 0.6:
        slip = rng.choice(modes_of(letters))
        place = rng.randrange(len(slip))
        return slip[:place] + rng.choice(letters) + slip[place + 1 :]
    counts = Counter(letters)
    half = [letter for letter, count in counts.items() for _ in range(count // 2)]
    # an exponential race: earlier letters of the alphabet tend to come first
    half.sort(key=lambda letter: rng.expovariate(1.0) * 1.15 ** (ord(letter) - ord("a")))
    middle = "".join(letter for letter, count in counts.items() if count % 2)
    return "".join(half) + middle + "".join(half[::-1])


def train_base(steps: int = 1200, batch: int = 128, learning_rate: float = 3e-3) -> Path:
    """Train the base from random weights, once, and return the checkpoint's folder."""
    path = OUT / "base"
    if (path / "config.json").is_file():
        return path
    torch.manual_seed(0)
    rng = random.Random(0)
    problems = tuple(generated_problems(TASK, size=20_000, seed=BASE_SEED))
    tokenizer = build_tokenizer(problems[0].prompt.rpartition(": ")[0] + ": ")
    model = Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=len(tokenizer),
            hidden_size=96,
            intermediate_size=288,
            num_hidden_layers=3,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=24,
            max_position_embeddings=64,
            tie_word_embeddings=True,
            bos_token_id=None,
            eos_token_id=1,
            pad_token_id=0,
        )
    )

    def batch_rows() -> list[tuple[str, str]]:
        chosen = [problems[rng.randrange(len(problems))] for _ in range(batch)]
        return [(one.prompt, example(one, rng)) for one in chosen]

    return train_by_examples(path, model, tokenizer, batch_rows, steps=steps, learning_rate=learning_rate)


def mode_logp(checkpoint: Path, problems: Sequence[Problem]) -> NDArray[np.float64]:
    """Return log π of every palindrome of every problem, end token included."""
    with quiet_transformers():
        model = AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32).eval()
    tokenizer = AutoTokenizer.from_pretrained(checkpoint)
    rows = [
        (tokenizer(problem.prompt)["input_ids"], [*tokenizer(mode)["input_ids"], 1])
        for problem in problems
        for mode in modes_of(letters_of(problem.prompt))
    ]
    with torch.inference_mode():
        parts = [response_logp(model, rows[at : at + 1024])[0].double().sum(dim=1) for at in range(0, len(rows), 1024)]
    return torch.cat(parts).numpy()


def train_one(setting: Setting, seed: int, base: Path, max_steps: int) -> Path:
    """Train a setting, unless that is done."""
    torch.set_num_threads(1)
    return train(training_config(setting, seed, base, max_steps))


def training_config(setting: Setting, seed: int, base: Path, max_steps: int) -> TrainConfig:
    """Return the training settings of a run."""
    return TrainConfig(
        model=str(base),
        task=f"reasoning_gym:{TASK}",
        limit=2000,
        algorithm=setting.algorithm,
        learning_rate=setting.learning_rate,
        max_tokens=MAX_TOKENS,
        output_dir=OUT / folder_name(setting) / f"seed-{seed}",
        max_steps=max_steps,
        seed=seed,
        resume=True,
    )


def course_of(run: Path, problems: Sequence[Problem]) -> dict[int, Outcome]:
    """Return exact values of every checkpoint."""
    n_modes = [len(modes_of(letters_of(problem.prompt))) for problem in problems]
    logp = {step: mode_logp(path, problems) for step, path in checkpoints_of(run).items()}
    return {step: outcome(logp_M, logp[0], n_modes) for step, logp_M in logp.items()}


def ground_of(base: Path, problems: Sequence[Problem]) -> Ground:
    """Return the frontier of the base, the reference of every run."""
    modes = [modes_of(letters_of(problem.prompt)) for problem in problems]
    return Ground.of(ExactTask(tokenizer_of(base), problems, modes), base, K)


def position_of(run: Path, course: Mapping[int, Outcome], ground: Ground) -> FrontierPosition:
    """Return the position of a run's last checkpoint relative to the frontier of its base."""
    matched = at_level(course, MATCHED_PASS_AT_1)
    place = None if matched is None else (matched.pass_at_1, matched.pass_at_8)
    return ground.position(checkpoints_of(run)[max(course)], place)


def letters_trained_on(seeds: Sequence[int]) -> set[str]:
    """Return the sorted letters of all training problems of these seeds."""
    configs = [training_config(SETTINGS[0], seed, Path("base"), 1) for seed in seeds]
    return {_sorted_letters(problem) for config in configs for problem in training_problems(config)}


def _sorted_letters(problem: Problem) -> str:
    return "".join(sorted(letters_of(problem.prompt)))


def main() -> int:
    """Train, score, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--max-steps", type=int, default=160)
    parser.add_argument("--jobs", type=int, default=2, help="runs at one time, a thread each")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    says = ConsoleProgress()
    base = train_base()
    problems = tuple(generated_problems(TASK, size=N_SCORED, seed=SCORED_SEED))
    wanted = [(setting, seed) for setting in SETTINGS for seed in range(arguments.seeds)]
    ground = ground_of(base, problems)
    courses: dict[tuple[str, int], dict[int, Outcome]] = {}
    positions: dict[tuple[str, int], FrontierPosition] = {}
    with (
        ProcessPoolExecutor(arguments.jobs, mp_context=get_context("spawn")) as pool,
        says.stage("train and score", len(wanted)) as advance,
    ):
        futures = [pool.submit(train_one, setting, seed, base, arguments.max_steps) for setting, seed in wanted]
        for (setting, seed), future in zip(wanted, futures, strict=True):
            run = future.result()
            courses[setting.name, seed] = course_of(run, problems)
            positions[setting.name, seed] = position_of(run, courses[setting.name, seed], ground)
            advance(1)

    rows = []
    for setting in SETTINGS:
        own = [courses[setting.name, seed] for seed in range(arguments.seeds)]
        position = position_row([positions[setting.name, seed] for seed in range(arguments.seeds)])
        rows.append({**table_rows(setting, own, MATCHED_PASS_AT_1), "frontier": position})
    start = courses[SETTINGS[0].name, 0][0]
    trained_on = letters_trained_on(range(arguments.seeds))
    shared = sum(_sorted_letters(problem) in trained_on for problem in problems)
    page = [
        "# Objectives on palindromes (reasoning-gym)",
        "",
        f"Exact values over {N_SCORED} problems of a stream of their own ({shared} of them have the letters of a "
        f"training problem of some seed) after {arguments.max_steps} steps; mean of "
        f"{arguments.seeds} seeds, ± half of the 95 % t-interval over seeds. The base: pass@1 {start.pass_at_1:.3f}, "
        f"pass@8 {start.pass_at_8:.3f}, pass@128 {start.pass_at_128:.3f}, mode entropy {start.mode_entropy_nats:.2f} "
        f"nats. *Matched*: where pass@1 first reaches {MATCHED_PASS_AT_1}. "
        "Written by `python -m benchmarks.objectives.palindromes`.",
        "",
        *table_markdown(rows, arguments.seeds),
        "",
        "## Better, or only sharper?",
        "",
        f"The last step against the exact temperature frontier of the base, {arguments.seeds} seeds, in points. "
        f"*Gain*: pass@1 beyond that of the base at the temperature with the same pass@{K}. Unknown: beyond the "
        "frontier's ends.",
        "",
        *position_markdown(rows, arguments.seeds, K, MATCHED_PASS_AT_1),
    ]
    (RESULTS / "palindromes.md").write_text("\n".join(page) + "\n", encoding="utf-8")
    write(
        "palindromes",
        {
            "base": asdict(start),
            "columns": COLUMNS,
            "matched_pass_at_1": MATCHED_PASS_AT_1,
            "max_steps": arguments.max_steps,
            "k": K,
            "frontier": ground.frontier_values(),
            "ranks": ranked(rows, K),
            "rows": rows,
            **circumstances(("oversharp", "torch", "transformers", "reasoning-gym")),
        },
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
