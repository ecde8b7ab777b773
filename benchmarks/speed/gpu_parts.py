"""Measure each part of the work on a device, within minutes. ``make gpu`` runs the parts one by one.

    python -m benchmarks.speed.gpu_parts training --device cuda --size full     # prints one line of JSON

``full`` has the sizes of Qwen2.5-0.5B with random weights in bfloat16. ``smallest`` is a model of 0.6 million
parameters in float32, which only tests that the part runs. Times are medians of the turns, by wall time after the
device has finished.
"""

from __future__ import annotations

import argparse
import copy
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from benchmarks.speed.results import digits
from benchmarks.speed.training_models import HALF_BILLION, SMALL, Size, random_model
from oversharp.diagnostics.engine.teacher_forcing import ForcedRequest, budget_for, teacher_force
from oversharp.diagnostics.kernel import KernelRow, gradient_kernel
from oversharp.diagnostics.models.load import Dtype, LoadedModel, load_path
from oversharp.diagnostics.records.types import Checkpoint, Problem, SamplingSettings
from oversharp.diagnostics.samplers.vllm_support import why_not
from oversharp.diagnostics.samplers.vllm_worker import entropy_nats

TINY = replace(SMALL, name="tiny", vocabulary=1024, hidden=128, intermediate=384, layers=3, heads=4, end_tokens=16)
TURNS = 3


@dataclass(frozen=True, kw_only=True)
class Load:
    """Size of a turn: rows, prompt and response tokens, and rows of a kernel."""

    model: Size
    dtype: Dtype
    rows: int
    prompt_tokens: int
    response_tokens: int
    kernel_rows: int


LOADS: Mapping[str, Load] = {
    "full": Load(model=HALF_BILLION, dtype="bfloat16", rows=64, prompt_tokens=128, response_tokens=512, kernel_rows=32),
    "smallest": Load(model=TINY, dtype="float32", rows=8, prompt_tokens=16, response_tokens=16, kernel_rows=8),
}


@dataclass(frozen=True, kw_only=True)
class Place:
    """Device, size, and folder of a part's model."""

    device: torch.device
    load: Load
    models: Path

    def model(self) -> Path:
        """Return the checkpoint, and write it if it is missing."""
        return random_model(self.load.model, self.models)

    def loaded(self) -> LoadedModel:
        """Load the checkpoint on the device."""
        return load_path(self.model(), device=self.device, dtype=self.load.dtype)

    def token_rows(self, n: int) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
        """Return random prompts and responses, always the same."""
        generator = torch.Generator().manual_seed(0)
        widths = (n, self.load.prompt_tokens + self.load.response_tokens)
        ids = torch.randint(self.load.model.end_tokens + 1, self.load.model.vocabulary, widths, generator=generator)
        split = self.load.prompt_tokens
        return [(tuple(row[:split]), tuple(row[split:])) for row in ids.tolist()]

    def seconds(self, work: Callable[[], object]) -> float:
        """Return the median seconds of the turns, after one turn to warm up."""
        took = []
        for turn in range(TURNS + 1):
            self._wait()
            start = time.perf_counter()
            work()
            self._wait()
            took += [time.perf_counter() - start] if turn else []
        return statistics.median(took)

    def _wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def peak_gib(self) -> float | None:
        """Return torch's peak memory on the device; None on a CPU."""
        return digits(torch.cuda.max_memory_allocated() / 2**30) if self.device.type == "cuda" else None


def training(place: Place) -> dict[str, Any]:
    """Measure forward, backward and optimizer step over the rows of one batch.

    Products are in bfloat16 on a GPU.
    """
    from oversharp.trainers.batch import RolloutBatch
    from oversharp.trainers.model.forward import ForwardSettings, token_logps
    from oversharp.trainers.model.network import find_network

    device, load = place.device, place.load
    model = load_path(place.model(), device=device, dtype="float32").model
    rows = place.token_rows(load.rows)
    zeros = torch.zeros(load.rows, device=device)
    shape = (load.rows, load.response_tokens)
    rollouts = RolloutBatch(
        group_size=load.rows // 4,
        prompt_ids_PL=torch.tensor([prompt for prompt, _ in rows[:4]], device=device),
        prompt_mask_PL=torch.ones(4, load.prompt_tokens, dtype=torch.bool, device=device),
        response_ids_BT=torch.tensor([response for _, response in rows], device=device),
        response_mask_BT=torch.ones(shape, dtype=torch.bool, device=device),
        behaviour_logp_BT=torch.zeros(shape, device=device),
        logp_sum_B=zeros,
        entropy_sum_B=zeros,
        truncated_B=torch.zeros(load.rows, dtype=torch.bool, device=device),
    )
    on_gpu = device.type == "cuda"
    network = find_network(model, recompute=on_gpu)
    settings = ForwardSettings(temperature=1.0, micro_batch=8, autocast=torch.bfloat16 if on_gpu else None)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6, fused=True)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        for first in range(0, load.rows, 8):
            logp_BT, _ = token_logps(network, rollouts, torch.arange(first, first + 8, device=device), settings)
            logp_BT.sum().backward()
        optimizer.step()

    took = place.seconds(step)
    return {"response_tokens_per_s": digits(load.rows * load.response_tokens / took), "peak_gib": place.peak_gib()}


def scoring(place: Place) -> dict[str, Any]:
    """Compare teacher forcing with entropies with a plain forward pass in equally large batches."""
    loaded, rows = place.loaded(), place.token_rows(place.load.rows)
    problems = [
        Problem(task="speed", prompt=" ".join(f"w{token}" for token in prompt), gold="", verifier="exact")
        for prompt, _ in rows
    ]
    requests = [
        ForcedRequest(problem=problem, response_id=str(number), token_ids=response)
        for number, (problem, (_, response)) in enumerate(zip(problems, rows, strict=True))
    ]
    settings = SamplingSettings(sampler="transformers")
    budget = budget_for(loaded)
    ids_BL = torch.tensor([[*prompt, *response] for prompt, response in rows], device=place.device)
    per_batch = max(1, budget // ids_BL.shape[1])
    model: Any = loaded.model

    @torch.inference_mode()
    def plain() -> None:
        for batch_BL in ids_BL.split(per_batch):
            logits_BTV = model(batch_BL).logits[:, place.load.prompt_tokens - 1 : -1]
            for row_TV, row_L in zip(logits_BTV, batch_BL, strict=True):
                row_TV.float().log_softmax(-1).gather(1, row_L[place.load.prompt_tokens :, None]).sum().item()

    ours_s = place.seconds(lambda: list(teacher_force(loaded, requests, settings, token_budget=budget)))
    plain_s = place.seconds(plain)
    tokens = ids_BL.numel()
    return {
        "tokens_per_s": digits(tokens / ours_s),
        "ratio_to_plain": digits(plain_s / ours_s),
        "goal_ratio_to_plain": 0.9,
        "peak_gib": place.peak_gib(),
    }


def kernel(place: Place) -> dict[str, Any]:
    """Compare the gradient kernel and its certificate with a plain forward and backward pass of the same rows."""
    loaded = place.loaded()
    rows = [
        KernelRow(prompt_ids=prompt, token_ids=response[: place.load.response_tokens // 4])
        for prompt, response in place.token_rows(place.load.kernel_rows)
    ]
    ids_BL = torch.tensor([[*row.prompt_ids, *row.token_ids] for row in rows], device=place.device)
    certificates: list[float] = []
    plain_s = _plain_s(place, copy.deepcopy(loaded.model).float(), ids_BL)
    kernel_s = place.seconds(lambda: certificates.append(gradient_kernel(loaded, rows).certificate))
    return {
        "rows": len(rows),
        "kernel_s": digits(kernel_s),
        "over_forward_and_backward": digits(kernel_s / plain_s),
        "certificate": max(certificates),
        "peak_gib": place.peak_gib(),
    }


def _plain_s(place: Place, model: Any, ids_BL: torch.Tensor) -> float:
    """Return seconds of a forward and backward pass.

    The model is released when the call ends.
    """

    def run() -> None:
        for batch_BL in ids_BL.split(4):
            model(batch_BL, labels=batch_BL).loss.backward()

    return place.seconds(run)


def entropy(place: Place) -> dict[str, Any]:
    """Compare the entropies of one sampling step with its log-softmax."""
    rows = 256 if place.device.type == "cuda" else 8
    logits_BV = torch.randn(rows, place.load.model.vocabulary, device=place.device)
    logp_BV = logits_BV.log_softmax(-1)
    softmax_s = place.seconds(lambda: logits_BV.log_softmax(-1))
    entropy_s = place.seconds(lambda: entropy_nats(logp_BV))
    return {"rows": rows, "entropy_ms": digits(1e3 * entropy_s), "over_log_softmax": digits(entropy_s / softmax_s)}


def sampling(place: Place) -> dict[str, Any]:
    """Return tokens per second of transformers' and vLLM's samplers, and the seconds of a swap.

    Those of vLLM are None if it is not installed.
    """
    from oversharp.diagnostics.models.holder import ModelHolder
    from oversharp.diagnostics.samplers import EngineSettings, SamplerContext, SampleRequest
    from oversharp.diagnostics.samplers.transformers import TransformersSampler
    from oversharp.diagnostics.samplers.vllm import VllmSampler

    load, path = place.load, place.model()
    problems = [
        Problem(task="speed", prompt=" ".join(f"w{token}" for token in prompt), gold="", verifier="exact")
        for prompt, _ in place.token_rows(load.rows // 4)
    ]
    requests = [SampleRequest(problem=problem, sample_indices=tuple(range(8))) for problem in problems]
    # the same weights under two names: a swap takes equally long, and all samples are of the same model
    names = [Checkpoint(step=step, label=str(step), path=path, kind="full", weights_hash=str(step)) for step in (0, 1)]
    context = SamplerContext(
        models=ModelHolder(device=str(place.device), dtype=load.dtype), engine=EngineSettings(gpu_memory_share=0.5)
    )

    def drawn(sampler: Any, checkpoint: Checkpoint) -> tuple[int, float]:
        settings = SamplingSettings(sampler="any", max_tokens=load.response_tokens)
        start = time.perf_counter()
        batches = list(sampler.sample(checkpoint, requests, settings))
        return sum(len(one.token_ids) for batch in batches for one in batch), time.perf_counter() - start

    def rate(sampler: Any) -> float:
        drawn(sampler, names[0])
        tokens, took = drawn(sampler, replace(names[0], step=2))
        return tokens / took

    told: dict[str, Any] = {"transformers_tokens_per_s": digits(rate(TransformersSampler(context)))}
    if obstacle := why_not(names[0], device=str(place.device)):
        return {**told, "vllm": obstacle}
    sampler = VllmSampler(context)
    try:
        vllm = rate(sampler)
    finally:
        sampler.close()
    told["vllm_tokens_per_s"] = digits(vllm)
    told["vllm_over_transformers"] = digits(vllm / told["transformers_tokens_per_s"])
    return told


PARTS: Mapping[str, Callable[[Place], dict[str, Any]]] = {
    "training": training,
    "scoring": scoring,
    "kernel": kernel,
    "entropy": entropy,
    "sampling": sampling,
}


def main() -> None:
    """Measure one part and print the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=list(PARTS))
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--size", choices=list(LOADS), default="full")
    parser.add_argument("--models", type=Path, help="where the model is kept; default: nowhere")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="oversharp-gpu-") as temporary:
        models = asked.models or Path(temporary)
        models.mkdir(parents=True, exist_ok=True)
        place = Place(device=torch.device(asked.device), load=LOADS[asked.size], models=models)
        print(json.dumps(PARTS[asked.part](place)))


if __name__ == "__main__":
    main()
