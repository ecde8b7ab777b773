"""Everything that computes, on a GPU against the CPU: forward and backward pass, scores, kernel, entropies, samples.

Skipped without a GPU. ``GPU_TESTS=cpu`` runs them on the CPU, which shows that they run; `make gpu` sets it.
"""

from __future__ import annotations

import copy
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from oversharp.diagnostics.engine.teacher_forcing import ForcedRequest, teacher_force
from oversharp.diagnostics.kernel import gradient_kernel
from oversharp.diagnostics.models import load
from oversharp.diagnostics.models.devices import elements_per_chunk
from oversharp.diagnostics.models.holder import ModelHolder
from oversharp.diagnostics.models.load import LoadedModel, load_model
from oversharp.diagnostics.records.types import ForcedResponse, Sample, SamplingSettings
from oversharp.diagnostics.samplers import EngineSettings, SamplerContext, SampleRequest
from oversharp.diagnostics.samplers.transformers import TransformersSampler
from oversharp.diagnostics.samplers.vllm_support import why_not
from oversharp.diagnostics.samplers.vllm_worker import entropy_nats
from tests.kernel.small_models import as_loaded, build, draw_rows
from tests.samplers.tiny_models import checkpoint_at, problem, write_checkpoint, write_tied

DEVICE = os.environ.get("GPU_TESTS") or ("cuda" if torch.cuda.is_available() else None)
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(DEVICE is None, reason="this machine has no GPU; GPU_TESTS=cpu runs them on the CPU"),
]
on_a_gpu_alone = pytest.mark.skipif(DEVICE == "cpu", reason="a CPU has no memory of its own that could be short")

PROBLEMS = tuple(problem(prompt) for prompt in ("a b c ?", "d ?", "e e e e e ?", "f g ?"))
SETTINGS = SamplingSettings(sampler="transformers", max_tokens=8)
#: Vocabulary and rows of a step of a real model.
VOCABULARY, ROWS = 151_936, 64


def device() -> torch.device:
    assert DEVICE is not None
    return torch.device(DEVICE)


def loaded_on(path: Path, where: torch.device) -> LoadedModel:
    return load_model(checkpoint_at(path), device=where, dtype="float32")


def scores(loaded: LoadedModel, n: int = 48) -> dict[str, ForcedResponse]:
    """Of responses of 1 to 12 tokens."""
    requests = [
        ForcedRequest(
            problem=PROBLEMS[index % 4],
            response_id=str(index),
            token_ids=(*(2 + (index * 7 + place * 3) % 8 for place in range(index % 12)), 1),
        )
        for index in range(n)
    ]
    return {one.response_id: one for batch in teacher_force(loaded, requests, SETTINGS) for one in batch}


def test_scores_are_those_of_the_cpu(tmp_path: Path) -> None:
    path = write_checkpoint(tmp_path / "model", seed=0)
    there, here = scores(loaded_on(path, device())), scores(loaded_on(path, torch.device("cpu")))
    assert len(there) == 48
    for name, one in there.items():
        assert one.token_logps == pytest.approx(here[name].token_logps, abs=1e-4)
        assert one.token_entropies == pytest.approx(here[name].token_entropies, abs=1e-4)


@on_a_gpu_alone
def test_scores_are_the_same_where_memory_is_so_short_that_a_batch_must_be_halved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_checkpoint(tmp_path / "model", seed=0, vocab_size=VOCABULARY)
    loaded = loaded_on(path, device())
    plenty = scores(loaded, 512)
    emptied: list[bool] = []
    empty = torch.cuda.empty_cache
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: (emptied.append(True), empty()))
    empty()
    free, total = torch.cuda.mem_get_info()
    held = (torch.cuda.memory_reserved() + (600 << 20)) / total
    torch.cuda.set_per_process_memory_fraction(min(1.0, held))
    try:
        little = scores(loaded, 512)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert emptied
    assert free > 0
    for name, one in little.items():
        assert one.logp_sum == pytest.approx(plenty[name].logp_sum, abs=1e-3)


def test_a_model_that_lies_in_part_elsewhere_scores_as_it_does_in_one_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_checkpoint(tmp_path / "model", seed=0)
    plain = scores(loaded_on(path, device()))
    room: dict[int | str, int] = {"cpu": 12_000} if DEVICE == "cpu" else {0: 12_000, "cpu": 1 << 30}
    monkeypatch.setattr(load, "find_room", lambda *_, **__: room)
    apart = loaded_on(path, device())
    assert "meta" in {one.device.type for one in apart.model.parameters()}  # the rest waits
    for name, one in scores(apart).items():
        assert one.token_logps == pytest.approx(plain[name].token_logps, abs=1e-5)


@pytest.mark.parametrize("name", ["qwen3_tied", "lora"])
def test_the_kernel_is_that_of_the_cpu(name: str) -> None:
    rows, model = draw_rows(9), build(name)
    here = gradient_kernel(as_loaded(model), rows)
    moved = as_loaded(copy.deepcopy(model).to(device()))
    there = gradient_kernel(replace(moved, device=device()), rows)
    scale_N = np.sqrt(here.kernel_NN.diagonal())
    assert np.abs((there.kernel_NN - here.kernel_NN) / np.outer(scale_N, scale_N)).max() <= 1e-4
    assert there.certificate <= 1e-6


def rollouts_on(where: torch.device) -> Any:
    from oversharp.trainers.batch import RolloutBatch

    generator = torch.Generator().manual_seed(1)
    n_rows, n_tokens = 8, 12
    zeros = torch.zeros(n_rows, device=where)
    return RolloutBatch(
        group_size=4,
        prompt_ids_PL=torch.randint(2, 10, (2, 6), generator=generator).to(where),
        prompt_mask_PL=torch.ones(2, 6, dtype=torch.bool, device=where),
        response_ids_BT=torch.randint(2, 10, (n_rows, n_tokens), generator=generator).to(where),
        response_mask_BT=(torch.arange(n_tokens) < 5 + torch.arange(n_rows)[:, None]).to(where),
        behaviour_logp_BT=torch.zeros(n_rows, n_tokens, device=where),
        logp_sum_B=zeros,
        entropy_sum_B=zeros,
        truncated_B=torch.zeros(n_rows, dtype=torch.bool, device=where),
    )


def test_a_training_step_has_the_gradients_of_the_cpu(tmp_path: Path) -> None:
    from oversharp.trainers.model.forward import ForwardSettings, token_logps
    from oversharp.trainers.model.network import find_network

    path = write_checkpoint(tmp_path / "model", seed=0)
    gradients = []
    for where in (torch.device("cpu"), device()):
        model = loaded_on(path, where).model
        logp_BT, _ = token_logps(
            find_network(model), rollouts_on(where), torch.arange(8, device=where), ForwardSettings(temperature=1.0)
        )
        advantage_B = torch.linspace(-1, 1, 8, device=where)
        (logp_BT.sum(dim=1) * advantage_B).sum().backward()
        gradients.append({name: one.grad.cpu() for name, one in model.named_parameters() if one.grad is not None})
    here, there = gradients
    assert there.keys() == here.keys()
    for name, gradient in here.items():
        assert float((there[name] - gradient).norm()) <= 1e-3 * float(gradient.norm()) + 1e-6, name


def test_a_grpo_run_of_two_steps_trains(tmp_path: Path, make_checkpoint: Any) -> None:
    pytest.importorskip("cyclopts", reason="the trainer's settings need cyclopts")
    from oversharp.trainers.config import TrainConfig
    from oversharp.trainers.loop import train

    base = make_checkpoint(tmp_path / "base", 0)
    config = TrainConfig(
        model=str(base),
        output_dir=tmp_path / "run",
        task="countdown",
        max_steps=2,
        save_every=2,
        batch_prompts=2,
        group_size=4,
        device=str(DEVICE),
    )
    run = train(config)
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [1, 2]
    assert all(np.isfinite(line["grad_norm"]) for line in lines)
    assert (run / "checkpoint-2" / "model.safetensors").is_file()


def test_entropies_of_a_whole_step_are_exact() -> None:
    logit_BV = 3 * torch.randn(ROWS, VOCABULARY, generator=torch.Generator().manual_seed(0))
    logp_BV = logit_BV.log_softmax(-1).to(device())
    exact_B = -(logp_BV[:4].double().exp() * logp_BV[:4].double()).sum(-1).cpu()
    assert entropy_nats(logp_BV)[:4].cpu().tolist() == pytest.approx(exact_B.tolist(), abs=2e-4)
    if DEVICE != "cpu":
        assert elements_per_chunk(logp_BV.device, 1) >= logp_BV.numel()


def drawn(sampler: Any, path: Path, settings: SamplingSettings) -> dict[tuple[str, int], Sample]:
    requests = [SampleRequest(problem=one, sample_indices=tuple(range(16))) for one in PROBLEMS]
    checkpoint = checkpoint_at(path, weights_hash=path.name)
    return {
        (one.problem_id, one.sample_index): one
        for batch in sampler.sample(checkpoint, requests, settings)
        for one in batch
    }


def test_transformers_draws_there_what_it_draws_on_the_cpu(tmp_path: Path) -> None:
    path = write_checkpoint(tmp_path / "model", seed=0)
    there, here = (
        drawn(TransformersSampler(SamplerContext(models=ModelHolder(device=where))), path, SETTINGS)
        for where in (str(DEVICE), "cpu")
    )
    same = [one.token_ids == here[identity].token_ids for identity, one in there.items()]
    assert len(same) == 64
    assert sum(same) >= 62  # a token may turn where two rounded sums lie on either side of a random number


def test_vllm_swaps_weights_rests_and_draws_the_same_again(tmp_path: Path) -> None:
    first, second = (write_tied(tmp_path / f"checkpoint-{seed}", seed) for seed in (0, 1))
    if obstacle := why_not(checkpoint_at(first), device=DEVICE):
        pytest.skip(obstacle)
    from oversharp.diagnostics.samplers.vllm import VllmSampler

    notes: list[str] = []
    settings = EngineSettings(cpu_cache_gib=1, gpu_memory_share=0.3)
    context = SamplerContext(models=ModelHolder(device=DEVICE), engine=settings, note=notes.append)
    sampler = VllmSampler(context)
    asked = SamplingSettings(sampler="vllm", max_tokens=8)
    try:
        before = drawn(sampler, first, asked)
        other = drawn(sampler, second, asked)
        sampler.rest()
        again = drawn(sampler, first, asked)
    finally:
        sampler.close()
    tokens = [{identity: one.token_ids for identity, one in draws.items()} for draws in (before, other, again)]
    assert tokens[0] == tokens[2]
    assert tokens[0] != tokens[1]
    assert notes == []  # the probe after every swap found nothing, and the entropy hook works
    assert all(one.entropy_sum is not None for one in before.values())
