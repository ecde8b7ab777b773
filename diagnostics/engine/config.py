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
    """Device and memory settings of models. Samples do not depend on them.

    Attributes
    ----------
    device
        cpu, cuda, cuda:1, … Default: cuda if there is one.
    batch_size
        Number of responses generated at a time. Default: depends on the size of the model.
    tensor_parallel
        Number of GPUs that share one model, vLLM only.
    gpu_memory_share
        Share of each GPU's memory for vLLM. The rest is for the model that teacher-forces.
    max_model_len
        Token limit of prompt and response in vLLM. Default: from the longest prompt and --max-tokens.
    cpu_cache_gib
        Largest KV cache of vLLM without a GPU. A small model uses less.
    trust_remote_code
        For a model that transformers does not support: run the code in its directory, with your permissions on this
        machine. Use it only for models that you trust.
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
