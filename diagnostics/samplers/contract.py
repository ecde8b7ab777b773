"""Protocol of samplers, for transformers, vLLM and other packages."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Protocol, runtime_checkable

from oversharp.diagnostics.models.holder import ModelHolder
from oversharp.diagnostics.records.types import Checkpoint, Problem, Sample, SamplingSettings


@dataclass(frozen=True, kw_only=True)
class SampleRequest:
    """Missing responses of one problem: these indices, and the greedy one if ``greedy``."""

    problem: Problem
    sample_indices: tuple[int, ...]
    greedy: bool = False


@dataclass(frozen=True, kw_only=True)
class EngineSettings:
    """Settings of an inference engine; never part of a sample's identity.

    The engine uses ``gpu_memory_share`` of each GPU; the rest is for the model that scores. ``max_model_len`` is in
    tokens, prompt and response together; None: as long as the longest request. ``cpu_cache_gib`` limits the KV cache
    without a GPU. ``trust_remote_code`` runs code in the model's folder. ``lora_ranks`` is the largest rank of the
    adapters of each model, reserved from the start.
    """

    tensor_parallel: int = 1
    gpu_memory_share: float = 0.6
    max_model_len: int | None = None
    cpu_cache_gib: int = 2
    trust_remote_code: bool = False
    lora_ranks: Mapping[Path, int] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class SamplerContext:
    """Arguments of a sampler's constructor.

    ``models`` loads transformers models and is shared with the scorer, so that a checkpoint is loaded once.
    ``batch_size`` is in rows (concurrent responses), None: chosen from the model's size. ``note`` prints a line, such
    as the reason for an engine restart.
    """

    models: ModelHolder
    batch_size: int | None = None
    engine: EngineSettings = field(default_factory=EngineSettings)
    note: Callable[[str], None] = lambda line: None


class Sampler(Protocol):
    """Generates responses of a whole series; ``sample`` swaps the weights as needed."""

    name: str

    def sample(
        self, checkpoint: Checkpoint, requests: Sequence[SampleRequest], settings: SamplingSettings
    ) -> Iterator[list[Sample]]:
        """Yield finished samples in batches that are small enough to commit separately.

        A sample depends only on (settings.seed, checkpoint.checkpoint_id, problem_id, sample_index), not on other
        requests or their order.
        """

    def close(self) -> None:
        """Release the engine and its memory. Closing twice is allowed."""


@runtime_checkable
class RestingSampler(Protocol):
    """A sampler whose engine can release memory for the model that scores."""

    def rest(self) -> None:
        """Release as much memory as possible until the next ``sample``."""


def row_key(*identity: str | int) -> int:
    """Return a signed 64-bit hash of the identity of a row of samples.

    >>> row_key(0, "weights", "problem", 1) == row_key(0, "weights", "problem", 11)
    False
    """
    blob = "\x1f".join(map(str, identity)).encode()
    return int.from_bytes(blake2b(blob, digest_size=8).digest(), "little", signed=True)
