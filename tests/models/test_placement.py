"""Models that do not fit one GPU are distributed, and compute the same.

Without a GPU, the tests limit the room and offload weights to files: the same hooks move activations and weights
between the devices.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import oversharp.diagnostics.models.load as loading
from oversharp.diagnostics.engine.teacher_forcing import ForcedRequest, teacher_force
from oversharp.diagnostics.kernel import KernelRow, gradient_kernel
from oversharp.diagnostics.models.holder import ModelHolder
from oversharp.diagnostics.models.load import LoadedModel, load_model
from oversharp.diagnostics.models.placement import Room, find_room, plan_room
from oversharp.diagnostics.records.errors import CheckpointError, KernelError
from oversharp.diagnostics.records.types import Checkpoint, SamplingSettings
from oversharp.diagnostics.samplers.contract import SamplerContext, SampleRequest
from oversharp.diagnostics.samplers.transformers import TransformersSampler
from tests.samplers.tiny_models import checkpoint_at, problem, write_adapter, write_checkpoint

CPU = torch.device("cpu")
GIB = 2**30
SETTINGS = SamplingSettings(sampler="transformers", max_tokens=6)
PROBLEMS = tuple(problem(prompt) for prompt in ("a b c ?", "d ?"))
REQUESTS = [
    ForcedRequest(problem=PROBLEMS[index % 2], response_id=str(index), token_ids=(*tokens, 1))
    for index, tokens in enumerate([(2, 3), (4,), (2, 5, 6), (3, 3, 7, 8), (9,)])
]


def test_a_model_is_distributed_if_the_first_gpu_is_too_small_and_refused_if_all_memory_is() -> None:
    def room(needed: int, free: list[int], machine: int, share: float = 0.0) -> Room | None:
        memory = {number: (free_gib * GIB, 100 * GIB) for number, free_gib in enumerate(free)}
        return plan_room(needed * GIB, memory, machine * GIB, engine_share=share, name="m")

    assert room(78, [79], 500) is not None  # activations need memory too
    assert room(70, [79], 500) is None
    assert room(70, [10, 79, 0], 500) == {0: 8 * GIB, 1: int(0.8 * 79 * GIB), "cpu": 400 * GIB}  # the last is full
    assert room(140, [100, 50], 500) == {0: 80 * GIB, 1: 40 * GIB, "cpu": 400 * GIB}
    assert room(140, [100, 20], 500, share=0.6) == {0: 30 * GIB, 1: 16 * GIB, "cpu": 400 * GIB}
    with pytest.raises(
        CheckpointError, match=r"^m needs 140 GiB, but only 80 GiB are free on 2 GPUs and 40 GiB in this .*--dtype"
    ):
        room(140, [50, 50], 50)
    with pytest.raises(CheckpointError, match=r"^m .*vLLM's share of 0\.9 .*lower --gpu-memory-share"):
        room(140, [100, 100], 500, share=0.9)


@pytest.mark.parametrize(("name", "seen"), [("cuda", {0, 1}), ("cuda:1", {1})])
def test_a_device_with_a_number_is_that_gpu_alone(
    name: str, seen: set[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_checkpoint(tmp_path / "checkpoint-0", seed=0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (10_500, 24_000))

    def room(dtype: torch.dtype) -> Room | None:
        return find_room(folder, dtype, torch.device(name), engine_share=0.0, name="m")

    in_float32 = room(torch.float32)
    assert in_float32 is not None
    assert in_float32.keys() == {*seen, "cpu"}
    assert room(torch.bfloat16) is not None
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (11_000, 24_000))  # 10,080 bytes in half precision
    assert room(torch.bfloat16) is None


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Change to a temporary folder: peft copies offloaded weights to a path below the current folder."""
    monkeypatch.chdir(tmp_path)


def distribute(monkeypatch: pytest.MonkeyPatch, checkpoint: Checkpoint) -> LoadedModel:
    """Load the checkpoint with its embedding in memory and the rest in files."""

    def small(*_: Any, **__: Any) -> Room:
        return {"cpu": 12_000}

    with monkeypatch.context() as patched:
        patched.setattr(loading, "find_room", small)
        loaded = load_model(checkpoint, device=CPU, dtype="float32")
    assert loaded.room is not None
    assert {parameter.device.type for parameter in loaded.model.parameters()} == {"cpu", "meta"}
    return loaded


@pytest.fixture(params=["full", "lora"])
def checkpoint(request: pytest.FixtureRequest, tmp_path: Path) -> Checkpoint:
    base = write_checkpoint(tmp_path / "checkpoint-0", seed=0)
    if request.param == "full":
        return checkpoint_at(base)
    return checkpoint_at(write_adapter(tmp_path / "checkpoint-5", base, seed=1), base_path=base)


@pytest.mark.slow
def test_a_distributed_model_gives_the_same_scores_and_samples(
    checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, distributed = load_model(checkpoint, device=CPU, dtype="float32"), distribute(monkeypatch, checkpoint)

    def score(loaded: LoadedModel) -> list[tuple[str, float]]:
        scores = [forced for batch in teacher_force(loaded, REQUESTS, SETTINGS) for forced in batch]
        return [(forced.response_id, value) for forced in scores for value in (forced.logp_sum, forced.entropy_sum)]

    def sample(loaded: LoadedModel) -> list[tuple[int, ...] | None]:
        models = ModelHolder(device="cpu")
        models._current = (checkpoint, loaded)
        sampler = TransformersSampler(SamplerContext(models=models, batch_size=None, note=lambda _: None))
        requests = [SampleRequest(problem=asked, sample_indices=(0, 1, 2), greedy=True) for asked in PROBLEMS]
        return [drawn.token_ids for batch in sampler.sample(checkpoint, requests, SETTINGS) for drawn in batch]

    assert score(distributed) == score(plain)
    assert sample(distributed) == sample(plain)


def test_kernels_of_a_distributed_model_are_refused_in_one_line(
    checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [KernelRow(prompt_ids=(2, 3), token_ids=(4, 1)), KernelRow(prompt_ids=(2, 3), token_ids=(5, 1))]
    with pytest.raises(KernelError, match=r"does not fit one GPU.*--kernel-problems 0"):
        gradient_kernel(distribute(monkeypatch, checkpoint), rows)


def test_nan_in_offloaded_weights_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_checkpoint(tmp_path / "checkpoint-0", seed=0)
    tensors = load_file(folder / "model.safetensors")
    tensors["model.layers.1.mlp.up_proj.weight"][0, 0] = float("nan")
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(CheckpointError, match=r"model\.layers\.1\.mlp\.up_proj\.weight contains NaN"):
        distribute(monkeypatch, checkpoint_at(folder))


@pytest.mark.slow
def test_after_a_distributed_model_the_base_weights_are_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = write_checkpoint(tmp_path / "checkpoint-0", seed=0)
    first, second = (
        checkpoint_at(
            write_adapter(tmp_path / f"checkpoint-{seed}", base, seed=seed), weights_hash=str(seed), base_path=base
        )
        for seed in (1, 2)
    )
    assert loading.reload_adapter(distribute(monkeypatch, first), first, second) is None
