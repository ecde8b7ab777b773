"""The policy as the settings want it: whole weights or a LoRA adapter, its network, and how its passes run."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch

from oversharp.diagnostics.models.load import LoadedModel
from oversharp.diagnostics.records.errors import TrainingError
from oversharp.trainers.model.forward import ForwardSettings
from oversharp.trainers.model.network import Network, find_network
from oversharp.trainers.seeds import stream_seed

if TYPE_CHECKING:
    from oversharp.trainers.config import TrainConfig


def prepare_policy(config: TrainConfig, loaded: LoadedModel, *, adapter_path: Path | None = None) -> LoadedModel:
    """``loaded`` ready to be trained: as it is, or frozen under a LoRA adapter on all its linear layers.

    With ``lora_rank``, ``loaded`` is the model that the run started from, whatever the step, and ``adapter_path`` the
    checkpoint to continue from, None at the start. A fresh adapter changes nothing: its second factor is zero.
    Its ``save_pretrained`` writes adapter_model.safetensors and adapter_config.json, which names that model.

    Raises ``TrainingError`` for a checkpoint that is no adapter of this rank, or a model without linear layers.
    """
    if not config.lora_rank:
        return loaded
    from peft import LoraConfig, PeftModel, TaskType, get_peft_model

    try:
        if adapter_path is not None:
            adapted: Any = PeftModel.from_pretrained(loaded.model, str(adapter_path), is_trainable=True)
        else:
            # a path would otherwise be read from wherever the audit is started
            name = str(loaded.model.name_or_path)
            law = LoraConfig(
                r=config.lora_rank,
                lora_alpha=cast("int", config.lora_alpha or 2 * config.lora_rank),
                target_modules="all-linear",
                task_type=TaskType.CAUSAL_LM,
                base_model_name_or_path=str(Path(name).resolve()) if Path(name).is_dir() else name,
            )
            with torch.random.fork_rng(devices=[loaded.device] if loaded.device.type == "cuda" else []):
                torch.manual_seed(stream_seed(config.seed, "lora"))
                adapted = get_peft_model(loaded.model, law)
            adapted.peft_config["default"].base_model_name_or_path = law.base_model_name_or_path
    except (ValueError, RuntimeError, KeyError, OSError) as error:
        where = adapter_path or loaded.model.name_or_path
        raise TrainingError(
            f"--lora-rank {config.lora_rank}: no adapter for {where} ({str(error).splitlines()[0][:160]}); "
            "train the weights instead, or resume with the rank that the run was started with"
        ) from error
    rank = adapted.peft_config["default"].r
    if rank != config.lora_rank:
        raise TrainingError(f"{adapter_path}: an adapter of rank {rank}; resume with --lora-rank {rank}")
    return replace(loaded, model=adapted.eval())


def policy_network(config: TrainConfig, policy: LoadedModel) -> Network:
    """The policy's network for training."""
    return find_network(policy.model, recompute=config.gradient_checkpointing, compiled=config.compile)


def reference_network(config: TrainConfig, policy: Network, reference: LoadedModel | None) -> Network | None:
    """The reference policy's network: a model of its own, or with LoRA the policy without its adapter."""
    if reference is not None:
        return find_network(reference.model)
    return replace(policy, adapter_off=True, recomputed=()) if config.lora_rank else None


def adapter_off(policy: LoadedModel) -> AbstractContextManager[object]:
    """Within it a policy with a LoRA adapter is the model that the run started from; to sample from that."""
    model: Any = policy.model
    return (
        cast("AbstractContextManager[object]", model.disable_adapter())
        if hasattr(model, "disable_adapter")
        else nullcontext()
    )


def forward_settings(config: TrainConfig, *, rows_per_pass: int | None) -> ForwardSettings:
    """The settings of passes: temperature, precision, and at most so many responses together."""
    return ForwardSettings(
        temperature=config.temperature,
        micro_batch=rows_per_pass,
        autocast=torch.bfloat16 if config.precision == "bfloat16" else None,
    )
