from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import (
    AutoModelForCausalLM,
    MambaConfig,
    MambaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from oversharp.diagnostics.models.load import LoadedModel, load_model
from oversharp.diagnostics.records.errors import TrainingError
from oversharp.diagnostics.series import find_series
from oversharp.trainers.config import TrainConfig
from oversharp.trainers.model.network import find_network
from oversharp.trainers.model.policy import (
    adapter_off,
    count_plain_weights,
    forward_settings,
    plain_weights,
    prepare_policy,
    reference_network,
)
from oversharp.trainers.run.checkpointing import save_checkpoint
from tests.trainers.runs import SIZES, apply_adapter, loaded_from

IDS = torch.tensor([[5, 6, 7, 8]])


def logits(model: torch.nn.Module) -> torch.Tensor:
    with torch.no_grad():
        logits_BTV: torch.Tensor = model(IDS).logits
    return logits_BTV


@torch.no_grad()
def move(policy: LoadedModel) -> None:
    """Change the weights more than a training step does."""
    for parameter in policy.model.parameters():
        if parameter.requires_grad:
            parameter.add_(0.1)


def test_a_new_adapter_changes_nothing_and_only_it_is_trained(config: TrainConfig, loaded: LoadedModel) -> None:
    before = logits(loaded.model)
    policy = prepare_policy(replace(config, lora_rank=4), loaded)
    assert torch.equal(logits(policy.model), before)
    trained = [name for name, parameter in policy.model.named_parameters() if parameter.requires_grad]
    assert trained
    assert all("lora_" in name for name in trained)
    # seven linear layers in each of three blocks, two factors each
    assert len(trained) == 7 * 3 * 2


@pytest.mark.slow
def test_one_seed_gives_one_adapter(config: TrainConfig, model_path: Path) -> None:
    def first_factor(seed: int) -> torch.Tensor:
        policy = prepare_policy(replace(config, lora_rank=4, seed=seed), loaded_from(model_path))
        return next(parameter for name, parameter in policy.model.named_parameters() if "lora_A" in name)

    assert torch.equal(first_factor(0), first_factor(0))
    assert not torch.equal(first_factor(0), first_factor(1))


def test_adapter_checkpoints_are_a_series_and_can_be_resumed(
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
    assert [checkpoint.kind for checkpoint in series.checkpoints] == [
        "full",
        "lora",
    ]  # a new adapter does not change the model
    audited = load_model(series.checkpoints[1], device=torch.device("cpu"), dtype="float32")
    torch.testing.assert_close(logits(audited.model), logits(policy.model))
    with pytest.raises(TrainingError, match="an adapter of rank 4; resume with --lora-rank 4"):
        prepare_policy(
            replace(config, lora_rank=8),
            loaded_from(model_path),
            adapter_path=tmp_path / "checkpoint-1",
        )


def test_the_reference_of_a_lora_run_is_the_model_without_adapter(config: TrainConfig, loaded: LoadedModel) -> None:
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
    with reference.pass_context():
        assert torch.equal(logits(policy.model), before)


def test_models_with_sliding_windows_or_a_state_only_support_rows() -> None:
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


def test_the_plain_weights_of_a_model_are_its_tensors(model_path: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(model_path)
    parameters = dict(model.named_parameters())
    given = dict(plain_weights(model))
    assert given.keys() == parameters.keys()
    assert all(given[name].data_ptr() == parameters[name].data_ptr() for name in given)


def test_adapters_are_merged_without_changing_the_model(model_path: Path) -> None:
    plain = AutoModelForCausalLM.from_pretrained(model_path)
    names = {name for name, _ in plain.named_parameters()}
    adapted = apply_adapter(plain)
    before = {name: tensor.clone() for name, tensor in adapted.state_dict().items()}
    merged = AutoModelForCausalLM.from_pretrained(model_path)
    given = dict(plain_weights(adapted))
    assert given.keys() == names
    assert count_plain_weights(adapted) == sum(tensor.numel() for tensor in given.values())
    merged.load_state_dict(given, strict=False)  # a tied head is not among the parameters
    ids = torch.tensor([[5, 6, 7, 8]])
    with torch.no_grad():
        assert torch.allclose(merged(ids).logits, adapted(ids).logits, atol=1e-5)
        fresh = AutoModelForCausalLM.from_pretrained(model_path)
        assert not torch.allclose(merged(ids).logits, fresh(ids).logits, atol=1e-2)
    assert all(torch.equal(tensor, before[name]) for name, tensor in adapted.state_dict().items())


def test_dora_is_refused(model_path: Path) -> None:
    plain = AutoModelForCausalLM.from_pretrained(model_path)
    adapted = get_peft_model(plain, LoraConfig(r=4, use_dora=True, target_modules=["q_proj"]))
    with pytest.raises(TrainingError, match="DoRA"):
        dict(plain_weights(adapted))
