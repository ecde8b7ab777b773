"""The settings of a run's vLLM engine, and the device memory that it will hold."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from oversharp.diagnostics.models.load import Dtype, LoadedModel
from oversharp.diagnostics.samplers.contract import EngineSettings
from oversharp.diagnostics.samplers.vllm_engine import EnginePlan
from oversharp.diagnostics.samplers.vllm_files import token_bytes
from oversharp.trainers.model.device_memory import EngineFootprint
from oversharp.trainers.model.plain_weights import count_plain_weights

if TYPE_CHECKING:
    from oversharp.trainers.rollouts.memory_network import MemoryNetwork

#: Of a GPU's memory that is free when the engine starts, the KV cache gets at most this; training needs the rest.
_CACHE_SHARE = 0.5
#: What vLLM holds on a CPU, measured with 40 million weights: its weights packed for products, with the room in the
#: heap that the unpacked ones left, and its code.
_CPU_COPIES = 2
_CPU_CODE_BYTES = 256 << 20


def engine_plan(
    policy: LoadedModel,
    memory_network: MemoryNetwork | None,
    start: Path,
    *,
    max_model_len: int,
    rows: int,
    dtype: Dtype,
) -> EnginePlan:
    """The engine's settings, with room for the keys and values of all rows at their longest.

    But for no more than half of a GPU's free memory or 2 GiB of a CPU's. ``memory_network`` is None where it is not
    read.
    """
    per_network = [
        token_bytes(loaded.model.config, dtype)
        for loaded in (policy, memory_network.loaded if memory_network else None)
        if loaded
    ]
    on_gpu = policy.device.type != "cpu"
    room = (
        int(torch.cuda.mem_get_info(policy.device)[0] * _CACHE_SHARE) >> 30 if on_gpu else EngineSettings.cpu_cache_gib
    )
    return EnginePlan(
        model=start,
        dtype=dtype,
        device=policy.device.type,
        max_model_len=max_model_len,
        row_tokens=max_model_len,
        max_num_seqs=rows,
        max_lora_rank=0,
        eager=not on_gpu,
        threads=None,
        # pages of two networks are padded to the larger one
        token_bytes=None if None in per_network else sum(filter(None, per_network)) * len(per_network),
        settings=EngineSettings(cpu_cache_gib=max(1, room)),
    )


def engine_footprint(
    policy: LoadedModel,
    memory_network: MemoryNetwork | None,
    *,
    start: Path,
    max_model_len: int,
    rows: int,
    dtype: Dtype,
) -> EngineFootprint:
    """The memory that an engine of these settings will hold; nothing is started."""
    read = memory_network if memory_network is not None and memory_network.mu else None
    plan = engine_plan(policy, read, start, max_model_len=max_model_len, rows=rows, dtype=dtype)
    models = [policy.model] if read is None else [policy.model, read.model]
    weights = sum(map(count_plain_weights, models)) * getattr(torch, dtype).itemsize
    return EngineFootprint(
        weights=_CPU_COPIES * weights + _CPU_CODE_BYTES if plan.on_cpu else weights,
        cache=plan.cache_bytes,
        least_cache=replace(plan, max_num_seqs=1).cache_bytes,
        rests=not plan.on_cpu,
    )
