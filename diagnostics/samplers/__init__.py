"""Choose and create the sampler that generates responses.

Imports torch and vLLM only when a sampler is created.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from oversharp.diagnostics.records.errors import SamplerError
from oversharp.diagnostics.records.plugins import find_callables, load_callable
from oversharp.diagnostics.records.types import Checkpoint
from oversharp.diagnostics.samplers.contract import (
    EncodedResponse,
    EngineSettings,
    ReportingSampler,
    RestingSampler,
    Sampler,
    SamplerContext,
    SampleRequest,
    SamplerReport,
    ScoringSampler,
)

#: Entry-point group for samplers of other packages. An entry point is a class with the constructor of ``SamplerClass``.
ENTRY_POINT_GROUP = "oversharp.samplers"

_BUILT_IN = ("auto", "endpoint", "transformers", "vllm")
_HINT = "; use --sampler transformers"


class SamplerClass(Protocol):
    """Constructor of a sampler."""

    def __call__(self, context: SamplerContext) -> Sampler: ...


def choose_sampler(
    name: str, checkpoints: Sequence[Checkpoint], *, device: str | None, stored: str | None = None
) -> tuple[str, str]:
    """Return the name of the sampler to use, and the reason.

    ``auto`` selects vLLM if vLLM can run every checkpoint of the series on this machine, else transformers. On a CPU it
    selects transformers for small models (``vllm_support.SMALL_PARAMETERS``). ``stored`` is the sampler that generated
    the series' samples in the store, if there are any. ``auto`` keeps it if it can run, because samples of another
    sampler cannot be combined with them. Raises ``SamplerError`` for an unknown name and for vLLM if it cannot run
    here, ``ConfigError`` for a plugin whose name is already in use.
    """
    from oversharp.diagnostics.samplers.vllm_support import SMALL_PARAMETERS, is_faster_without

    known = (*_BUILT_IN, *sorted(find_callables(ENTRY_POINT_GROUP, _BUILT_IN)))
    if name == "vllm" and (obstacle := _obstacle(checkpoints[:1], device)):
        raise SamplerError(f"--sampler vllm: {obstacle}")
    if name == "auto":
        if stored == "endpoint":
            raise SamplerError(
                "--sampler auto: a server generated the samples in the store; add --endpoint URL, or pass another "
                "--sampler to sample again"
            )
        if stored == "transformers":
            return stored, "auto: it generated the samples in the store"
        obstacle = _obstacle(checkpoints, device)
        if obstacle:
            return "transformers", f"auto: vLLM cannot run here ({obstacle.removesuffix(_HINT)})"
        if stored == "vllm":
            return stored, "auto: it generated the samples in the store"
        if is_faster_without(checkpoints[0], device=device):
            return "transformers", f"auto: on a CPU it is faster below {SMALL_PARAMETERS / 1e6:g} million parameters"
        return "vllm", "auto: it supports this model on this machine"
    if name not in known:
        raise SamplerError(f"--sampler {name}: unknown; choose from {', '.join(known)}")
    return name, "as requested"


def lora_ranks(checkpoints: Sequence[Checkpoint]) -> dict[Path, int]:
    """Return the largest rank of the supported adapters of each base model.

    vLLM reserves memory for it.
    """
    from oversharp.diagnostics.samplers.vllm_support import lora_rank

    ranks: dict[Path, int] = {}
    for checkpoint in checkpoints:
        if checkpoint.base_path is None:
            continue
        try:
            rank = lora_rank(checkpoint)
        except SamplerError:
            continue  # loading the checkpoint raises the error
        model = checkpoint.base_path.resolve()
        ranks[model] = max(rank, ranks.get(model, 0))
    return ranks


def make_sampler(name: str, context: SamplerContext) -> Sampler:
    """Create the sampler that ``choose_sampler`` returned."""
    if name == "vllm":
        from oversharp.diagnostics.samplers.vllm_engine import EngineProcess, engine_environment

        # start the process first: it imports vLLM while this process imports torch and loads the first model
        models = context.models
        environment = engine_environment(models.device_name, context.engine, os.environ, dtype=models.dtype)
        process = EngineProcess(environment)
        from oversharp.diagnostics.samplers.vllm import VllmSampler

        return VllmSampler(context, process)
    if name == "transformers":
        from oversharp.diagnostics.samplers.transformers import TransformersSampler

        return TransformersSampler(context)
    if name == "endpoint" and context.environment is not None:
        from oversharp.diagnostics.samplers.agents.sampler import AgentSampler

        return AgentSampler(context, context.environment)
    if name == "endpoint":
        from oversharp.diagnostics.samplers.endpoint.sampler import EndpointSampler

        return EndpointSampler(context)
    sampler_class: SamplerClass = load_callable(find_callables(ENTRY_POINT_GROUP, _BUILT_IN)[name])
    return sampler_class(context)


def _obstacle(checkpoints: Sequence[Checkpoint], device: str | None) -> str | None:
    """Return why vLLM cannot run all checkpoints, None if it can. Does not import vLLM."""
    from oversharp.diagnostics.samplers.vllm_support import lora_rank, why_not

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
    "EncodedResponse",
    "EngineSettings",
    "ReportingSampler",
    "RestingSampler",
    "SampleRequest",
    "Sampler",
    "SamplerClass",
    "SamplerContext",
    "SamplerReport",
    "ScoringSampler",
    "choose_sampler",
    "lora_ranks",
    "make_sampler",
]
