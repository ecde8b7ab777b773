"""Prepare the policy for training: full weights or LoRA, its network, and its merged weights for rollout engines."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor

from oversharp.diagnostics.models.load import LoadedModel
from oversharp.diagnostics.records.errors import TrainingError
from oversharp.trainers.model.forward import ForwardSettings
from oversharp.trainers.model.network import Network, find_network
from oversharp.trainers.seeds import stream_seed

if TYPE_CHECKING:
    from oversharp.trainers.config import TrainConfig


def prepare_policy(config: TrainConfig, loaded: LoadedModel, *, adapter_path: Path | None = None) -> LoadedModel:
    """Return the model for training: ``loaded`` itself, or with ``lora_rank``, ``loaded`` with a LoRA adapter.

    With ``lora_rank``, the weights are frozen, and all linear layers have adapters. ``loaded`` is then the model that
    the run started from, and ``adapter_path`` the checkpoint to resume from, None for a new run. A new adapter does not
    change the model, because its second factor is 0. ``save_pretrained`` writes adapter_model.safetensors, and
    adapter_config.json with the name of the model that the run started from.

    Raises ``TrainingError`` for a checkpoint without an adapter of this rank, or a model without linear layers.
    """
    if not config.lora_rank:
        return loaded
    from peft import LoraConfig, PeftModel, TaskType, get_peft_model

    try:
        if adapter_path is not None:
            adapted: Any = PeftModel.from_pretrained(loaded.model, str(adapter_path), is_trainable=True)
        else:
            # an absolute path, because the audit may start in another working directory
            name = str(loaded.model.name_or_path)
            lora = LoraConfig(
                r=config.lora_rank,
                lora_alpha=cast("int", config.lora_alpha or 2 * config.lora_rank),
                target_modules="all-linear",
                task_type=TaskType.CAUSAL_LM,
                base_model_name_or_path=str(Path(name).resolve()) if Path(name).is_dir() else name,
            )
            with torch.random.fork_rng(devices=[loaded.device] if loaded.device.type == "cuda" else []):
                torch.manual_seed(stream_seed(config.seed, "lora"))
                adapted = get_peft_model(loaded.model, lora)
            adapted.peft_config["default"].base_model_name_or_path = lora.base_model_name_or_path
    except (ValueError, RuntimeError, KeyError, OSError) as error:
        where = adapter_path or loaded.model.name_or_path
        raise TrainingError(
            f"--lora-rank {config.lora_rank}: no adapter for {where} ({str(error).splitlines()[0][:160]}); "
            "train the weights instead, or resume with the rank that the run was started with"
        ) from error
    rank = adapted.peft_config["default"].r
    if rank != config.lora_rank:
        raise TrainingError(f"{adapter_path}: has an adapter of rank {rank}; resume with --lora-rank {rank}")
    return replace(loaded, model=adapted.eval())


def policy_network(config: TrainConfig, policy: LoadedModel) -> Network:
    """Return the policy's network for training."""
    return find_network(policy.model, recompute=config.gradient_checkpointing, compiled=config.compile)


def reference_network(config: TrainConfig, policy: Network, reference: LoadedModel | None) -> Network | None:
    """Return the network of the reference: a separate model or, with LoRA, the policy without its adapter."""
    if reference is not None:
        return find_network(reference.model)
    return replace(policy, adapter_off=True, recomputed=()) if config.lora_rank else None


def adapter_off(policy: LoadedModel) -> AbstractContextManager[object]:
    """Return a context that turns off the policy's LoRA adapter, so it is the model that the run started from."""
    model: Any = policy.model
    return (
        cast("AbstractContextManager[object]", model.disable_adapter())
        if hasattr(model, "disable_adapter")
        else nullcontext()
    )


def forward_settings(config: TrainConfig, *, rows_per_pass: int | None) -> ForwardSettings:
    """Return the settings of forward passes with at most ``rows_per_pass`` responses."""
    return ForwardSettings(
        temperature=config.temperature,
        micro_batch=rows_per_pass,
        autocast=torch.bfloat16 if config.precision == "bfloat16" else None,
    )


def count_plain_weights(model: Any) -> int:
    """Return the number of weights that ``plain_weights`` yields, without computing them."""
    inner = model.get_base_model() if hasattr(model, "get_base_model") else model
    return sum(parameter.numel() for name, parameter in inner.named_parameters() if ".lora_" not in name)


@torch.no_grad()
def plain_weights(model: Any) -> Iterator[tuple[str, Tensor]]:
    """Yield the weights with merged adapters for rollout engines, under the names of the model without adapters.

    Merged weights are new tensors, other weights are the model's tensors. The model does not change. (Merging in place
    and undoing it would change frozen weights by rounding.) Raises ``TrainingError`` for DoRA, whose adapters cannot be
    merged by addition.
    """
    inner = model.get_base_model() if hasattr(model, "get_base_model") else model
    adapted: dict[str, Any] = {
        name: module for name, module in inner.named_modules() if hasattr(module, "get_delta_weight")
    }
    if any(getattr(module, "lora_magnitude_vector", None) for module in adapted.values()):
        raise TrainingError("DoRA adapters cannot be merged into plain weights; train plain LoRA, or use --engine own")
    for name, parameter in inner.named_parameters():
        owner, _, leaf = name.rpartition(".base_layer.")
        if ".lora_" in name:
            continue
        if not owner:
            yield name, parameter.detach()
        elif leaf != "weight":
            yield f"{owner}.{leaf}", parameter.detach()
        else:
            layer = adapted[owner]
            yield f"{owner}.weight", parameter.detach() + sum(map(layer.get_delta_weight, layer.active_adapters))
