"""Samplers draw the responses. Nothing heavy is imported before one is chosen."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from oversharp.diagnostics.records.errors import SamplerError
from oversharp.diagnostics.records.plugins import find_callables, load_callable
from oversharp.diagnostics.records.types import Checkpoint
from oversharp.diagnostics.samplers.contract import (
    BatchPlan,
    EngineSettings,
    PlanningSampler,
    RestingSampler,
    Sampler,
    SamplerContext,
    SampleRequest,
)

#: Other packages add a sampler with an entry point of this group that names a class such as ``SamplerClass``.
ENTRY_POINT_GROUP = "oversharp.samplers"

_BUILT_IN = ("auto", "transformers", "vllm")
_MEND = "; use --sampler transformers"


class SamplerClass(Protocol):
    """How a sampler is made."""

    def __call__(self, context: SamplerContext) -> Sampler: ...


def choose_sampler(
    name: str, checkpoints: Sequence[Checkpoint], *, device: str | None, held: str | None = None
) -> tuple[str, str]:
    """The sampler that ``name`` stands for, and why: ``auto`` is vLLM where it runs every checkpoint of the series.

    ``held``: what drew the samples that the store has of the series; ``auto`` stays with it, as samples of another
    sampler would not continue them. Raises ``SamplerError`` for a name that is unknown or cannot run here,
    and ``ConfigError`` for a plugin that takes a name that is taken.
    """
    known = (*_BUILT_IN, *sorted(find_callables(ENTRY_POINT_GROUP, _BUILT_IN)))
    if name == "vllm" and (obstacle := _obstacle(checkpoints[:1], device)):
        raise SamplerError(f"--sampler vllm: {obstacle}")
    if name == "auto":
        if held == "transformers":
            return held, "auto, it drew the samples that the store holds"
        obstacle = _obstacle(checkpoints, device)
        if obstacle:
            return "transformers", f"auto, for vLLM cannot run here ({obstacle.removesuffix(_MEND)})"
        return "vllm", "auto, it runs this model here"
    if name not in known:
        raise SamplerError(f"--sampler {name}: unknown; choose from {', '.join(known)}")
    return name, "as asked for"


def lora_ranks(checkpoints: Sequence[Checkpoint]) -> dict[Path, int]:
    """The largest rank of the adapters on each model, as vLLM reserves it; without those that vLLM does not compute."""
    from oversharp.diagnostics.samplers.vllm_files import lora_rank

    ranks: dict[Path, int] = {}
    for checkpoint in checkpoints:
        if checkpoint.base_path is None:
            continue
        try:
            rank = lora_rank(checkpoint)
        except SamplerError:
            continue  # said when its turn comes
        model = checkpoint.base_path.resolve()
        ranks[model] = max(rank, ranks.get(model, 0))
    return ranks


def make_sampler(name: str, context: SamplerContext) -> Sampler:
    """The sampler that ``choose_sampler`` named."""
    if name == "vllm":
        from oversharp.diagnostics.samplers.vllm_engine import EngineProcess, engine_environment

        # it imports vLLM while this process imports torch and loads the first model
        models = context.models
        environment = engine_environment(models.device_name, context.engine, os.environ, dtype=models.dtype)
        process = EngineProcess(environment)
        from oversharp.diagnostics.samplers.vllm import VllmSampler

        return VllmSampler(context, process)
    if name == "transformers":
        from oversharp.diagnostics.samplers.transformers import TransformersSampler

        return TransformersSampler(context)
    sampler_class: SamplerClass = load_callable(find_callables(ENTRY_POINT_GROUP, _BUILT_IN)[name])
    return sampler_class(context)


def _obstacle(checkpoints: Sequence[Checkpoint], device: str | None) -> str | None:
    """Why vLLM cannot run one of the checkpoints; found without importing it."""
    from oversharp.diagnostics.samplers.vllm_files import lora_rank
    from oversharp.diagnostics.samplers.vllm_support import why_not

    for checkpoint in checkpoints:
        obstacle = why_not(checkpoint, device=device)
        if obstacle:
            return obstacle
        try:
            lora_rank(checkpoint)
        except SamplerError as error:
            return str(error)
    return None


__all__ = [
    "ENTRY_POINT_GROUP",
    "BatchPlan",
    "EngineSettings",
    "PlanningSampler",
    "RestingSampler",
    "SampleRequest",
    "Sampler",
    "SamplerClass",
    "SamplerContext",
    "choose_sampler",
    "lora_ranks",
    "make_sampler",
]
