"""Settings of a run's vLLM engine, and the device memory that it needs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from oversharp.diagnostics.models.load import Dtype, LoadedModel
from oversharp.diagnostics.samplers.contract import EngineSettings
from oversharp.diagnostics.samplers.vllm_engine import EnginePlan
from oversharp.diagnostics.samplers.vllm_support import token_bytes
from oversharp.trainers.model.device_memory import EngineFootprint
from oversharp.trainers.model.policy import count_plain_weights

if TYPE_CHECKING:
    from oversharp.trainers.rollouts.memory_network import MemoryNetwork

#: Maximum share of the free GPU memory for the KV cache. Training needs the rest.
_CACHE_SHARE = 0.5
#: Memory of vLLM on a CPU, measured with a model of 40 million weights: two copies of the weights (packed weights, and
#: heap space of the unpacked weights), and code.
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
    """Return the settings of the engine, with a KV cache for all rows at maximum length.

    The cache has at most half of the free GPU memory, or 2 GiB on a CPU. ``memory_network`` is None if there is none.
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
        # vLLM pads the pages of both networks to the larger size
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
    """Return the memory of an engine with these settings, without starting it."""
    used = memory_network if memory_network is not None and memory_network.mu else None
    plan = engine_plan(policy, used, start, max_model_len=max_model_len, rows=rows, dtype=dtype)
    models = [policy.model] if used is None else [policy.model, used.model]
    weights = sum(map(count_plain_weights, models)) * getattr(torch, dtype).itemsize
    return EngineFootprint(
        weights=_CPU_COPIES * weights + _CPU_CODE_BYTES if plan.on_cpu else weights,
        cache=plan.cache_bytes,
        least_cache=replace(plan, max_num_seqs=1).cache_bytes,
        has_sleep_mode=not plan.on_cpu,
    )
