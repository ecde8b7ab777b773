"""Checkpoints as verl's FSDP workers write them, by verl's own manager, on one CPU."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch


@contextmanager
def one_cpu(store: Path) -> Iterator[Any]:
    """A mesh of one; ``store`` is a file that does not exist."""
    from torch.distributed.device_mesh import init_device_mesh

    torch.distributed.init_process_group("gloo", init_method=f"file://{store}", rank=0, world_size=1)
    yield init_device_mesh("cpu", (1,), mesh_dim_names=("fsdp",))
    torch.distributed.destroy_process_group()


def adapters() -> Any:
    """A small LoRA."""
    from peft import LoraConfig

    return LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")


def fsdp_manager(model: Any, base: Path, mesh: Any, *, contents: list[str]) -> Any:
    """Shards the model; ``contents`` names what of it verl saves."""
    from torch.distributed.fsdp import fully_shard
    from transformers import AutoTokenizer
    from verl.utils.checkpoint.fsdp_checkpoint_manager import FSDPCheckpointManager

    fully_shard(model, mesh=mesh)
    return FSDPCheckpointManager(
        model=model,
        optimizer=None,
        lr_scheduler=None,
        processing_class=AutoTokenizer.from_pretrained(base),
        checkpoint_config={"save_contents": contents, "load_contents": ["model"]},
    )
