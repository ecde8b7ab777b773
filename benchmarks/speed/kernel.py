"""Measure the cost of the exact gradient kernel relative to one plain training step, and to other methods.

``python -m benchmarks.speed.kernel --peer-python PYTHON`` writes ``benchmarks/results/kernel.json``. With ``--device
cuda`` it measures larger models by CUDA events, with peak memory, and writes ``kernel_cuda.json``. PYTHON is an
interpreter with bergson, torch and transformers, by default the current one.

Every case is a separate process of that interpreter. In it all methods alternate on the same rows of random tokens: a
forward and backward pass over the padded batch, our kernel, our kernel without its certificate, and the peers of
``kernel_peers``, which have no certificate. The goal is for the kernel without certificate. The result also has the
ratio with certificate. The file is rewritten after every case. On a CPU the unit is CPU seconds of one thread. Each
kernel is compared with float64 autograd. Models have random weights.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from benchmarks.speed.kernel_peers import (
    Bergson,
    certificate_taken_out,
    exact_kernel,
    exact_kernel_of_linear_layers,
    forward_backward,
    largest_difference,
    padded,
    row_by_row,
    vmapped,
)
from benchmarks.speed.results import circumstances, digits, timed, write
from oversharp.diagnostics.kernel import KernelRow, gradient_kernel
from oversharp.diagnostics.models.devices import cpu_threads, default_threads, pick_device
from oversharp.diagnostics.models.load import LoadedModel

ROOT = Path(__file__).parents[2]
SEED = 0
TURNS = 3
PAD, END = 0, 1
#: Rows that share a prompt, like the samples of a group.
GROUP = 8
MIB, GIB = 1 << 20, 1 << 30
#: Goals for our kernel: time relative to one plain step over the same batch, and error relative to √(K_ii·K_jj).
GOAL_LONG, GOAL_SHORT = 1.4, 2.2
GOAL_DIFFERENCE = 1e-5
PEERS_FROM_ROWS = 16
BARE = "ours_without_certificate"
OURS = ("plain", "ours", BARE)
#: Peers of the goal. bergson's hooks with our products are measured too.
PEERS = ("row_by_row", "vmap", "bergson")
PACKAGES = ("oversharp", "torch", "transformers", "bergson")

#: vocabulary, hidden, feed-forward, layers, attention heads, key-value heads, head size. All tie the embedding.
SHAPES = {
    "tiny": (64, 128, 256, 4, 4, 2, 32),
    "mid": (8192, 384, 1152, 10, 6, 2, 64),
    "large": (151_936, 1024, 3072, 28, 16, 8, 128),
}
COVERED_BY_BERGSON = "linear layers; no embedding, no norm, no cross-term of the tied head"


@dataclass(frozen=True, kw_only=True)
class Case:
    """``rows`` responses to prompts of ``prompt_tokens``. The longest has ``longest_tokens`` with its prompt.

    ``in_parts``: the memory is too small for all rows in one batch.
    """

    model: str
    rows: int
    longest_tokens: int
    prompt_tokens: int = 12
    memory_bytes: int = GIB
    in_parts: bool = False


#: Each case runs in a separate process.
CASES = {
    "cpu": (
        *(Case(model="tiny", rows=16, longest_tokens=longest) for longest in (32, 64, 128)),
        Case(model="tiny", rows=32, longest_tokens=64),
        Case(model="tiny", rows=64, longest_tokens=64),
        Case(model="tiny", rows=64, longest_tokens=24),
        Case(model="mid", rows=8, longest_tokens=32),
        Case(model="mid", rows=16, longest_tokens=64),
        Case(model="mid", rows=8, longest_tokens=128),
        Case(model="tiny", rows=64, longest_tokens=64, memory_bytes=64 * MIB, in_parts=True),
        Case(model="mid", rows=16, longest_tokens=64, memory_bytes=256 * MIB, in_parts=True),
    ),
    "cuda": (
        Case(model="mid", rows=16, longest_tokens=128, memory_bytes=4 * GIB),
        Case(model="mid", rows=64, longest_tokens=256, memory_bytes=16 * GIB),
        Case(model="large", rows=8, longest_tokens=1024, prompt_tokens=128, memory_bytes=60 * GIB),
        Case(model="large", rows=16, longest_tokens=512, prompt_tokens=128, memory_bytes=60 * GIB),
        Case(model="large", rows=16, longest_tokens=1024, prompt_tokens=128, memory_bytes=24 * GIB, in_parts=True),
    ),
}


@dataclass(frozen=True, kw_only=True)
class Turn:
    """Cost of one call: CPU seconds of this process, or seconds and peak bytes on the GPU."""

    seconds: float
    peak_bytes: int | None


def make_model(name: str, device: torch.device) -> LoadedModel:
    """Build a Qwen3 with random weights.

    Norm scales are random too: at 1, their initial value, a wrong gradient may not be noticed.
    """
    vocabulary, hidden, between, layers, heads, key_value_heads, head_dim = SHAPES[name]
    config = Qwen3Config(
        vocab_size=vocabulary,
        hidden_size=hidden,
        intermediate_size=between,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=key_value_heads,
        head_dim=head_dim,
        max_position_embeddings=2048,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=END,
        pad_token_id=PAD,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        model = Qwen3ForCausalLM(config).eval()
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.ndim == 1:
                    parameter.add_(0.2 * torch.randn_like(parameter))
    words = Tokenizer(WordLevel({"<pad>": PAD, "<eos>": END}, unk_token="<pad>"))
    return LoadedModel(
        model=model.to(device),
        tokenizer=PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>", eos_token="<eos>"),
        device=device,
        end_ids=(END,),
        pad_id=PAD,
        context_tokens=config.max_position_embeddings,
        vocabulary_size=vocabulary,
    )


def make_rows(case: Case) -> list[KernelRow]:
    """Draw random tokens, with a prompt for each ``GROUP`` of rows.

    Response lengths are between a quarter of the maximum and the maximum.
    """
    rng = random.Random(SEED)
    vocabulary, most = SHAPES[case.model][0], case.longest_tokens - case.prompt_tokens

    def words(count: int) -> tuple[int, ...]:
        return tuple(rng.randrange(END + 1, vocabulary) for _ in range(count))

    prompts = [words(case.prompt_tokens) for _ in range(-(-case.rows // GROUP))]
    lengths = [most, *(rng.randint(max(2, most // 4), most) for _ in range(case.rows - 1))]
    return [
        KernelRow(prompt_ids=prompts[number // GROUP], token_ids=(*words(length - 1), END))
        for number, length in enumerate(lengths)
    ]


def goal_ratio(case: Case, mean_tokens: float) -> float | None:
    """Return the largest allowed cost in plain steps.

    None in parts, because the plain step is one batch.

    >>> goal_ratio(Case(model="tiny", rows=16, longest_tokens=32), 24)
    1.4
    """
    if case.in_parts:
        return None
    return GOAL_LONG if mean_tokens >= case.rows else GOAL_SHORT


def take_turn(work: Callable[[], Any], device: torch.device) -> tuple[Any, Turn]:
    """Return the result of ``work`` and its cost."""
    gc.collect()  # hooks leave reference cycles, which keep memory
    if device.type != "cuda":
        start = time.process_time()
        result = work()
        return result, Turn(seconds=time.process_time() - start, peak_bytes=None)
    torch.cuda.synchronize(device)
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    start_event, end_event = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start_event.record()
    result = work()
    end_event.record()
    torch.cuda.synchronize(device)
    return result, Turn(
        seconds=start_event.elapsed_time(end_event) / 1000,
        peak_bytes=torch.cuda.max_memory_allocated(device) - before,
    )


@dataclass(kw_only=True)
class Turns:
    """By name of the method: cost of each turn, largest errors of its kernel, and why it did not run."""

    took: dict[str, list[Turn]] = field(default_factory=dict)
    differences: dict[str, dict[str, float]] = field(default_factory=dict)
    did_not_run: dict[str, str] = field(default_factory=dict)


def take_turns(
    works: Mapping[str, Callable[[], Any]],
    *,
    right: Callable[[str], Mapping[str, np.ndarray]],
    device: torch.device,
    before: Callable[[], None],
) -> Turns:
    """Run all methods alternately, ``TURNS`` times after a warm-up, and compare every kernel with the reference.

    ``right`` returns, for a name, reference kernels by their names. ``before`` is called outside the measured time. A
    peer that fails is left out. The plain step and ours must not fail.
    """
    turns = Turns()
    for turn in range(-1, TURNS):
        for name in [name for name in works if name not in turns.did_not_run]:
            before()
            try:
                kernel_NN, took = take_turn(works[name], device)
            except RuntimeError as error:  # out of memory, or unsupported by these releases
                if name in OURS:
                    raise
                turns.did_not_run[name] = str(error).splitlines()[0][:200]
                continue
            if turn >= 0:
                turns.took.setdefault(name, []).append(took)
            if kernel_NN is None:
                continue
            here_NN = torch.as_tensor(kernel_NN).double().cpu().numpy()
            known = turns.differences.setdefault(name, {})
            for kind, right_NN in right(name).items():
                known[kind] = max(known.get(kind, 0.0), largest_difference(here_NN, right_NN))
    return turns


def measure(case: Case, device: torch.device) -> dict[str, Any]:
    """Measure one case in this process."""
    loaded, rows = make_model(case.model, device), make_rows(case)
    batch = padded(rows, pad_id=PAD, device=device)
    certificates: list[float] = []

    def ours() -> np.ndarray:
        kernel = gradient_kernel(loaded, rows, memory_bytes=case.memory_bytes)
        certificates.append(kernel.certificate)
        return kernel.kernel_NN

    def bare() -> np.ndarray:
        with certificate_taken_out():
            return gradient_kernel(loaded, rows, memory_bytes=case.memory_bytes).kernel_NN

    works: dict[str, Callable[[], Any]] = {
        "plain": lambda: forward_backward(loaded.model, batch),
        "ours": ours,
        BARE: bare,
        "row_by_row": lambda: row_by_row(loaded.model, batch),
        "vmap": lambda: vmapped(loaded.model, batch),
    }
    n_forward = forward_passes(loaded.model, ours)
    of_all = {"largest_difference": exact_kernel(loaded.model, batch)}
    of_bergson = dict(of_all)
    with ExitStack() as stack:
        stack.enter_context(cpu_threads(1 if device.type == "cpu" else default_threads(loaded.model)))
        if find_spec("bergson"):
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="oversharp-speed-"))
            bergson = Bergson(loaded.model, rows, Path(folder))
            works |= {"bergson": bergson.in_memory, "bergson_in_hooks": bergson.in_hooks}
            of_bergson["largest_difference_over_linear_layers"] = exact_kernel_of_linear_layers(loaded.model, batch)
        turns = take_turns(
            works,
            right=lambda name: of_bergson if name.startswith("bergson") else of_all,
            device=device,
            before=loaded.model.zero_grad,
        )
    if "bergson" not in works:
        turns.did_not_run["bergson"] = f"not installed for {sys.executable}"
    mean_tokens = statistics.mean(batch.lengths)
    n_parameters = sum(parameter.numel() for parameter in loaded.model.parameters())
    return {
        "model": case.model,
        "parameters": n_parameters,
        "rows": case.rows,
        "longest_tokens": case.longest_tokens,
        "mean_tokens": digits(mean_tokens),
        "memory_mib": case.memory_bytes // MIB,
        "all_gradients_mib": digits(case.rows * n_parameters * 4 / MIB),
        "in_parts": case.in_parts,
        "forward_passes": n_forward,
        "goal_ratio_to_plain": goal_ratio(case, mean_tokens),
        "largest_certificate": digits(max(certificates)),
        **{name: told_of(name, turns) for name in (*works, *turns.did_not_run)},
    }


def forward_passes(model: Any, work: Callable[[], Any]) -> int:
    """Count how often ``work`` runs the model's embedding."""
    ran: list[None] = []
    hook = model.get_input_embeddings().register_forward_hook(lambda *_: ran.append(None))
    try:
        work()
    finally:
        hook.remove()
    return len(ran)


def told_of(name: str, turns: Turns) -> dict[str, Any]:
    """Return a method's entry in the result file, or why it did not run."""
    if name in turns.did_not_run:
        return {"did_not_run": turns.did_not_run[name]}
    differences = {kind: digits(value) for kind, value in turns.differences.get(name, {}).items()}
    covers = {"covers": COVERED_BY_BERGSON} if name.startswith("bergson") else {}
    return costs(name, turns.took) | differences | covers


def costs(name: str, took: Mapping[str, Sequence[Turn]]) -> dict[str, Any]:
    """Return the median over the turns, its ratio to the plain step and, for a peer, to ours.

    >>> took = {name: [Turn(seconds=s, peak_bytes=None)] for name, s in (("plain", 1), ("ours", 1.2), ("vmap", 3))}
    >>> costs("vmap", took)
    {'seconds': 3.0, 'ratio_to_plain': 3.0, 'ratio_to_ours': 2.5}
    """
    median_s = {one: statistics.median(turn.seconds for turn in turns) for one, turns in took.items()}
    told: dict[str, Any] = {"seconds": digits(median_s[name])}
    if name != "plain":
        told["ratio_to_plain"] = digits(median_s[name] / median_s["plain"])
    if name in ("ours", BARE):
        pairs = zip(took[name], took["plain"], strict=True)
        told["ratios_of_the_turns"] = [digits(mine.seconds / plain.seconds) for mine, plain in pairs]
    elif name != "plain":
        told |= {f"ratio_to_{one}": digits(median_s[name] / median_s[one]) for one in ("ours", BARE) if one in median_s}
    peaks = [turn.peak_bytes for turn in took[name] if turn.peak_bytes is not None]
    return told | ({"peak_mib": digits(max(peaks) / MIB)} if peaks else {})


def verdicts(cases: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the goals and the results over all cases.

    A peer's ratio counts if it ran and ours had memory for one batch, because no peer works within a memory limit.
    Peers are compared with our kernel without the certificate, which does the same work.
    """
    with_goal = [case for case in cases if case["goal_ratio_to_plain"] is not None]
    least = least_ratios(with_goal, BARE)
    return {
        "goal_ratio_to_plain": {"mean_tokens_at_least_rows": GOAL_LONG, "else": GOAL_SHORT},
        "ratio_goals_met": sum(case[BARE]["ratio_to_plain"] <= case["goal_ratio_to_plain"] for case in with_goal),
        "ratio_goals_met_with_certificate": sum(
            case["ours"]["ratio_to_plain"] <= case["goal_ratio_to_plain"] for case in with_goal
        ),
        "ratio_goals": len(with_goal),
        "goal_largest_difference": GOAL_DIFFERENCE,
        "largest_difference": max(case["ours"]["largest_difference"] for case in cases),
        "goal_ratio_of_peers_to_ours": {"above": 1, "from_rows": PEERS_FROM_ROWS, "peers": PEERS},
        "least_ratio_to_ours": least_ratios(with_goal, "ours"),
        f"least_ratio_to_{BARE}": least,
        "all_peers_slower": all(least[name] > 1 for name in PEERS) if least.keys() >= set(PEERS) else None,
    }


def least_ratios(cases: Sequence[Mapping[str, Any]], mine: str) -> dict[str, float]:
    """Return each peer's smallest cost relative to ``mine``, over cases with at least ``PEERS_FROM_ROWS`` rows."""
    least: dict[str, float] = {}
    for case in cases:
        for name, told in case.items():
            if case["rows"] >= PEERS_FROM_ROWS and isinstance(told, dict) and f"ratio_to_{mine}" in told:
                least[name] = min(told[f"ratio_to_{mine}"], least.get(name, math.inf))
    return least


def measured_apart(index: int, device: str, python: str) -> dict[str, Any]:
    """Measure a case in a separate process."""
    environment = {
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH")))),
        "TQDM_DISABLE": "1",
    }
    command = [python, "-m", __spec__.name, "--device", device, "--case", str(index)]
    try:
        took = timed(command, environment)
    except subprocess.CalledProcessError as error:
        sys.exit(f"case {index} failed: {error.stderr.strip()[-500:]}")
    told: dict[str, Any] = json.loads(took.output.splitlines()[-1])
    print(f"case {index}: {json.dumps(told)}", file=sys.stderr)
    return told


def main() -> None:
    """Measure, write the result file and print it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--peer-python", default=sys.executable, help="interpreter with bergson, which runs the cases")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--case", type=int, help="measure this one here, print it and write no file")
    arguments = parser.parse_args()
    device = pick_device(arguments.device)
    cases = CASES[device.type]
    if arguments.case is not None:
        print(json.dumps(measure(cases[arguments.case], device) | {"versions": circumstances(PACKAGES)["versions"]}))
        return
    unit = "CPU seconds of one thread" if device.type == "cpu" else f"seconds on one {torch.cuda.get_device_name()}"
    told: list[dict[str, Any]] = []
    for index in range(len(cases)):
        told.append(measured_apart(index, arguments.device, arguments.peer_python))
        versions = told[-1].pop("versions")
        left = len(cases) - len(told)
        write(
            "kernel" if device.type == "cpu" else "kernel_cuda",
            {
                "benchmark": "kernel",
                "what": f"kernel of all pairs of rows over all parameters, float32 models with random weights, {unit}; "
                "plain is one forward and backward pass over the padded batch with logits at every position",
                "turns": TURNS,
                "difference_unit": "sqrt(K_ii K_jj), against float64 autograd",
                **({"cases_not_measured": left} if left else {}),
                **verdicts(told),
                "cases": told,
                "seed": SEED,
                **circumstances(PACKAGES),
                "versions": versions,
            },
        )


if __name__ == "__main__":
    main()
