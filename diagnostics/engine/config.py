"""Settings of the engine that samples and teacher-forces: device and memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from cyclopts import Group, Parameter

from oversharp.diagnostics.records.errors import ConfigError
from oversharp.diagnostics.records.settings import require_at_least

ENGINE = Parameter(group=Group("Engine", sort_key=6))


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class EngineConfig:
    """Where models run, and how much of the machine they use. No sample depends on it.

    Attributes
    ----------
    device
        cpu, cuda, cuda:1, … Default: cuda if there is one.
    batch_size
        Responses generated at a time. Default: chosen from the model's size.
    tensor_parallel
        GPUs that share one model, vLLM only.
    gpu_memory_share
        Share of each GPU's memory that vLLM takes; the rest is for the model that teacher-forces.
    max_model_len
        Longest sequence of prompt and response in vLLM. Default: as the longest prompt needs.
    cpu_cache_gib
        Most memory for vLLM's KV cache without a GPU; a small model uses less.
    trust_remote_code
        Run the code in the directory of a model that transformers does not know, with your rights on this machine. Only
        for models of people you trust.
    """

    device: Annotated[str | None, ENGINE] = None
    batch_size: Annotated[int | None, ENGINE] = None
    tensor_parallel: Annotated[int, ENGINE] = 1
    gpu_memory_share: Annotated[float, ENGINE] = 0.6
    max_model_len: Annotated[int | None, ENGINE] = None
    cpu_cache_gib: Annotated[int, ENGINE] = 2
    trust_remote_code: Annotated[bool, ENGINE, Parameter(negative=())] = False

    def __post_init__(self) -> None:
        require_at_least("--batch-size", self.batch_size, 1)
        require_at_least("--tensor-parallel", self.tensor_parallel, 1)
        require_at_least("--max-model-len", self.max_model_len, 2)
        require_at_least("--cpu-cache-gib", self.cpu_cache_gib, 1)
        if not 0 < self.gpu_memory_share <= 1:
            raise ConfigError(f"--gpu-memory-share {self.gpu_memory_share}: must be in (0, 1]")
