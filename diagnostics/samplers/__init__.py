"""Samplers draw the responses. Nothing heavy is imported before one is chosen."""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points
from typing import Protocol

from diagnostics.errors import SamplerError
from diagnostics.samplers.contract import EngineSettings, Sampler, SamplerContext, SampleRequest
from diagnostics.types import Checkpoint

#: Other packages add a sampler with an entry point of this group that names a class such as ``SamplerClass``.
ENTRY_POINT_GROUP = "oversharp.samplers"


class SamplerClass(Protocol):
    """How a sampler is made."""

    def __call__(self, context: SamplerContext) -> Sampler: ...


def choose_sampler(name: str, base: Checkpoint, *, device: str | None) -> tuple[str, str]:
    """The sampler that ``name`` stands for, and why: ``auto`` is vLLM where it runs the series' model.

    Raises ``SamplerError`` for a name that is unknown or cannot run here.
    """
    from diagnostics.samplers.vllm_support import why_not

    obstacle = why_not(base, device=device) if name in ("auto", "vllm") else None
    if name == "vllm" and obstacle:
        raise SamplerError(f"--sampler vllm: {obstacle}")
    if name == "auto":
        return (
            ("transformers", f"vLLM cannot run here ({obstacle})")
            if obstacle
            else ("vllm", "auto, it runs this model here")
        )
    if name not in ("vllm", "transformers") and name not in _installed():
        known = ", ".join(["auto", "transformers", "vllm", *sorted(_installed())])
        raise SamplerError(f"--sampler {name}: unknown; choose from {known}")
    return name, "as asked for"


def make_sampler(name: str, context: SamplerContext) -> Sampler:
    """The sampler that ``choose_sampler`` named."""
    if name == "vllm":
        from diagnostics.samplers.vllm import VllmSampler

        return VllmSampler(context)
    if name == "transformers":
        from diagnostics.samplers.transformers import TransformersSampler

        return TransformersSampler(context)
    sampler_class: SamplerClass = _installed()[name].load()
    return sampler_class(context)


def _installed() -> dict[str, EntryPoint]:
    return {entry.name: entry for entry in entry_points(group=ENTRY_POINT_GROUP)}


__all__ = [
    "ENTRY_POINT_GROUP",
    "EngineSettings",
    "SampleRequest",
    "Sampler",
    "SamplerClass",
    "SamplerContext",
    "choose_sampler",
    "make_sampler",
]
