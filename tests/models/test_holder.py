"""The holder keeps one model, and reads the base weights of a series of adapters once, with equal results."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from oversharp.diagnostics.kernel import KernelRow, gradient_kernel
from oversharp.diagnostics.models import load as loading
from oversharp.diagnostics.models.holder import ModelHolder
from oversharp.diagnostics.models.load import load_model
from oversharp.diagnostics.records.types import Checkpoint
from tests.samplers.tiny_models import checkpoint_at, write_adapter, write_checkpoint

pytestmark = pytest.mark.slow

CPU = torch.device("cpu")
IDS = torch.tensor([[2, 3, 4, 9, 5, 6]])


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that gets the name of each model whose weights are read from now on."""
    names: list[str] = []
    load_weights = loading.load_weights

    def record(path: Any, *arguments: Any, **keywords: Any) -> Any:
        names.append(Path(path).name)
        return load_weights(path, *arguments, **keywords)

    monkeypatch.setattr(loading, "load_weights", record)
    return names


@pytest.fixture
def series(tmp_path: Path) -> list[Checkpoint]:
    """Return a base, two adapters of it, and another model."""
    base = write_checkpoint(tmp_path / "base", seed=0)
    adapters = [write_adapter(tmp_path / f"adapter-{seed}", base, seed) for seed in (1, 2)]
    other = write_checkpoint(tmp_path / "other", seed=3)
    return [
        checkpoint_at(base, weights_hash="base"),
        *(checkpoint_at(path, weights_hash=path.name, base_path=base) for path in adapters),
        checkpoint_at(other, weights_hash="other"),
    ]


def logits(model: Any) -> torch.Tensor:
    with torch.inference_mode():
        return model(IDS).logits


def fresh(checkpoint: Checkpoint) -> Any:
    return load_model(checkpoint, device=CPU, dtype="float32")


def test_base_weights_of_adapters_are_read_once_and_every_model_equals_a_fresh_one(
    series: list[Checkpoint], reads: list[str]
) -> None:
    expected = {checkpoint.label: fresh(checkpoint) for checkpoint in series}
    reads.clear()
    holder = ModelHolder(device="cpu")
    base, first, second, other = series
    for checkpoint in (base, first, second, base, first, first, other, base):
        loaded = holder.load(checkpoint)
        alone = expected[checkpoint.label]
        assert torch.equal(logits(loaded.model), logits(alone.model)), checkpoint.label
        assert (loaded.end_ids, loaded.stated_ends, loaded.pad_id) == (alone.end_ids, alone.stated_ends, alone.pad_id)
        assert [parameter.requires_grad for parameter in loaded.model.parameters()] == [
            parameter.requires_grad for parameter in alone.model.parameters()
        ]
        assert not loaded.model.training
    assert reads == ["base", "other", "base"]


def test_the_kernel_of_a_model_after_an_adapter_was_removed_equals_a_fresh_models(series: list[Checkpoint]) -> None:
    rows = [KernelRow(prompt_ids=(2, 9), token_ids=(number, 1)) for number in (3, 4, 5)]
    holder = ModelHolder(device="cpu")
    for checkpoint in (series[1], series[0], series[2]):
        kernel_NN = gradient_kernel(holder.load(checkpoint), rows).kernel_NN
        assert kernel_NN.tolist() == gradient_kernel(fresh(checkpoint), rows).kernel_NN.tolist()


def _with_bias(path: Path) -> None:
    file = path / "adapter_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"bias": "all"}))


def _with_embedding(path: Path) -> None:
    file = path / "adapter_model.safetensors"
    tensors = load_file(file)
    tensors["base_model.model.model.embed_tokens.weight"] = torch.full((10, 16), 0.5)
    save_file(tensors, file)


def _with_orthogonal_start(path: Path) -> None:
    """OLoRA moves its initial factors out of the base weights."""
    file = path / "adapter_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"init_lora_weights": "olora"}))


@pytest.mark.parametrize("change", [_with_bias, _with_embedding, _with_orthogonal_start])
def test_after_an_adapter_that_changes_its_base_weights_these_are_read_again(
    series: list[Checkpoint], reads: list[str], change: Callable[[Path], None]
) -> None:
    change(series[1].path)
    holder = ModelHolder(device="cpu")
    holder.load(series[1])
    loaded = holder.load(series[2])
    assert reads == ["base", "base"]
    assert torch.equal(logits(loaded.model), logits(fresh(series[2]).model))


def test_two_full_models_in_one_folder_are_two_models(tmp_path: Path, reads: list[str]) -> None:
    holder = ModelHolder(device="cpu")
    path = write_checkpoint(tmp_path / "model", seed=0)
    before = logits(holder.load(checkpoint_at(path, weights_hash="before")).model)
    write_checkpoint(path, seed=1)
    after = logits(holder.load(checkpoint_at(path, weights_hash="after")).model)
    assert reads == ["model", "model"]
    assert not torch.equal(before, after)
