from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import MambaConfig, MambaForCausalLM, MistralConfig, MistralForCausalLM, Qwen3Config, Qwen3ForCausalLM

from oversharp.diagnostics.models.load import LoadedModel, load_model
from oversharp.diagnostics.records.errors import TrainingError
from oversharp.diagnostics.series import find_series
from oversharp.trainers.config import TrainConfig
from oversharp.trainers.model.network import find_network
from oversharp.trainers.model.policy import adapter_off, forward_settings, prepare_policy, reference_network
from oversharp.trainers.run.checkpointing import save_checkpoint
from tests.trainers.runs import SIZES, loaded_from

IDS = torch.tensor([[5, 6, 7, 8]])


def logits(model: torch.nn.Module) -> torch.Tensor:
    with torch.no_grad():
        found: torch.Tensor = model(IDS).logits
    return found


@torch.no_grad()
def move(policy: LoadedModel) -> None:
    """What training does, only more."""
    for parameter in policy.model.parameters():
        if parameter.requires_grad:
            parameter.add_(0.1)


def test_a_fresh_adapter_changes_nothing_and_only_it_is_trained(config: TrainConfig, loaded: LoadedModel) -> None:
    before = logits(loaded.model)
    policy = prepare_policy(replace(config, lora_rank=4), loaded)
    assert torch.equal(logits(policy.model), before)
    trained = [name for name, one in policy.model.named_parameters() if one.requires_grad]
    assert trained
    assert all("lora_" in name for name in trained)
    # seven linear layers in each of three blocks, two factors each
    assert len(trained) == 7 * 3 * 2


def test_one_seed_gives_one_adapter(config: TrainConfig, model_path: Path) -> None:
    def first_factor(seed: int) -> torch.Tensor:
        policy = prepare_policy(replace(config, lora_rank=4, seed=seed), loaded_from(model_path))
        return next(one for name, one in policy.model.named_parameters() if "lora_A" in name)

    assert torch.equal(first_factor(0), first_factor(0))
    assert not torch.equal(first_factor(0), first_factor(1))


def test_adapter_checkpoints_are_a_series_and_continue(
    config: TrainConfig, loaded: LoadedModel, model_path: Path, tmp_path: Path
) -> None:
    config = replace(config, lora_rank=4)
    policy = prepare_policy(config, loaded)
    save_checkpoint(tmp_path, 0, policy.model, policy.tokenizer)
    move(policy)
    save_checkpoint(tmp_path, 1, policy.model, policy.tokenizer)
    again = prepare_policy(config, loaded_from(model_path), adapter_path=tmp_path / "checkpoint-1")
    assert torch.equal(logits(again.model), logits(policy.model))
    assert any(parameter.requires_grad for parameter in again.model.parameters())
    series = find_series([tmp_path])
    assert [one.kind for one in series.checkpoints] == [
        "full",
        "lora",
    ]  # an adapter that changes nothing yet is its model
    audited = load_model(series.checkpoints[1], device=torch.device("cpu"), dtype="float32")
    torch.testing.assert_close(logits(audited.model), logits(policy.model))
    with pytest.raises(TrainingError, match="an adapter of rank 4; resume with --lora-rank 4"):
        prepare_policy(
            replace(config, lora_rank=8),
            loaded_from(model_path),
            adapter_path=tmp_path / "checkpoint-1",
        )


def test_the_reference_of_an_adapter_is_the_model_under_it(config: TrainConfig, loaded: LoadedModel) -> None:
    before = logits(loaded.model)
    config = replace(config, lora_rank=4)
    policy = prepare_policy(config, loaded)
    move(policy)
    assert not torch.allclose(logits(policy.model), before)
    with adapter_off(policy):
        assert torch.equal(logits(policy.model), before)
    network = find_network(policy.model)
    assert network.layouts == ("rows", "tree", "packed")
    reference = reference_network(config, network, None)
    assert reference is not None
    with reference.running():
        assert torch.equal(logits(policy.model), before)


def test_models_with_windows_or_a_state_keep_every_response_in_a_row_of_its_own() -> None:
    windowed = Qwen3Config(**SIZES, sliding_window=8, use_sliding_window=True, max_window_layers=1)
    models = [
        Qwen3ForCausalLM(windowed),
        MistralForCausalLM(MistralConfig(**SIZES, sliding_window=8)),
        MambaForCausalLM(MambaConfig(vocab_size=53, hidden_size=16, num_hidden_layers=2, state_size=4)),
    ]
    assert [find_network(model.eval()).layouts for model in models] == [("rows",)] * 3


def test_precision_and_micro_batch_reach_the_passes(config: TrainConfig) -> None:
    settings = forward_settings(replace(config, precision="bfloat16", temperature=0.5), rows_per_pass=3)
    assert (settings.autocast, settings.temperature, settings.micro_batch) == (torch.bfloat16, 0.5, 3)
