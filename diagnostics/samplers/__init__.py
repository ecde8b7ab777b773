"""Samplers draw the responses. Nothing heavy is imported before one is chosen."""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import Literal, Protocol

from diagnostics.errors import SamplerError
from diagnostics.samplers.contract import Sampler, SampleRequest

Dtype = Literal["float32", "bfloat16", "float16"]

#: Other packages add a sampler with an entry point of this group that names a class such as ``SamplerClass``.
ENTRY_POINT_GROUP = "oversharp.samplers"


class SamplerClass(Protocol):
    """How a sampler is made. ``batch_size`` None means: chosen from the model's size."""

    def __call__(self, *, device: str | None, dtype: Dtype, batch_size: int | None) -> Sampler: ...


def get_sampler(
    name: str, *, device: str | None = None, dtype: Dtype = "float32", batch_size: int | None = None
) -> Sampler:
    """The sampler of that name; ``auto`` takes the fastest one that runs here.

    Raises ``SamplerError`` for a name that is unknown or cannot run here.

    >>> get_sampler("vllm")
    Traceback (most recent call last):
        ...
    diagnostics.errors.SamplerError: --sampler vllm: not available in this version; use --sampler transformers
    """
    if name == "vllm":
        raise SamplerError("--sampler vllm: not available in this version; use --sampler transformers")
    if name in ("auto", "transformers"):
        from diagnostics.samplers.transformers import TransformersSampler

        return TransformersSampler(device=device, dtype=dtype, batch_size=batch_size)
    installed = {entry.name: entry for entry in entry_points(group=ENTRY_POINT_GROUP)}
    if name not in installed:
        known = ", ".join(["auto", "transformers", *sorted(installed)])
        raise SamplerError(f"--sampler {name}: unknown; choose from {known}")
    sampler_class: SamplerClass = installed[name].load()
    return sampler_class(device=device, dtype=dtype, batch_size=batch_size)


__all__ = ["ENTRY_POINT_GROUP", "Dtype", "SampleRequest", "Sampler", "SamplerClass", "get_sampler"]
