"""What a sampler is: one protocol for transformers, vLLM and outside packages."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Protocol, runtime_checkable

from oversharp.diagnostics.models.holder import ModelHolder
from oversharp.diagnostics.records.shard import WHOLE, Shard
from oversharp.diagnostics.records.types import Checkpoint, Problem, Sample, SamplingSettings


@dataclass(frozen=True, kw_only=True)
class SampleRequest:
    """The responses still wanted for one problem: these indices, and the greedy one if ``greedy``."""

    problem: Problem
    sample_indices: tuple[int, ...]
    greedy: bool = False


@dataclass(frozen=True, kw_only=True)
class EngineSettings:
    """How an inference engine is built; never part of a sample's identity.

    ``gpu_memory_share`` of each GPU is the engine's, the rest is left to the model that scores. ``max_model_len`` in
    tokens, prompt and response together; None: as long as the longest request. ``cpu_cache_gib``: most memory
    for the KV cache where there is no GPU. ``trust_remote_code``: code that lies beside the weights may run.
    ``lora_ranks``: the largest rank of the adapters on each model, for which room is kept from the start.
    """

    tensor_parallel: int = 1
    gpu_memory_share: float = 0.6
    max_model_len: int | None = None
    cpu_cache_gib: int = 2
    trust_remote_code: bool = False
    lora_ranks: Mapping[Path, int] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class SamplerContext:
    """What a sampler is made with.

    ``models`` loads transformers models and is shared with the scorer, so that a checkpoint is loaded once.
    ``batch_size`` in rows (responses drawn at a time), None: chosen from the model's size. ``note`` tells the user one
    line, such as why an engine had to be started again.
    """

    models: ModelHolder
    batch_size: int | None = None
    engine: EngineSettings = field(default_factory=EngineSettings)
    note: Callable[[str], None] = lambda line: None


class Sampler(Protocol):
    """Draws responses. One instance serves a whole series; ``sample`` swaps the weights as needed."""

    name: str

    def sample(
        self, checkpoint: Checkpoint, requests: Sequence[SampleRequest], settings: SamplingSettings
    ) -> Iterator[list[Sample]]:
        """Yield finished samples in batches small enough to commit one by one.

        A sample depends on (settings.seed, checkpoint.checkpoint_id, problem_id, sample_index) only,
        never on what else was asked for or in which order.
        """

    def close(self) -> None:
        """Let go of the engine and its memory. Closing twice is allowed."""


@runtime_checkable
class RestingSampler(Protocol):
    """A sampler with an engine of its own, which can leave memory to the model that scores."""

    def rest(self) -> None:
        """Hold as little memory as can be until the next ``sample``, which takes it again."""


@dataclass(frozen=True, kw_only=True)
class BatchPlan:
    """How the rows of a call are put into batches: as many as ``rows_per_batch`` in each, the last may hold fewer."""

    n_batches: int
    rows_per_batch: int


@runtime_checkable
class PlanningSampler(Protocol):
    """A sampler whose log-probabilities depend, in their last bits, on what else is in a batch.

    So that several machines draw what one would have drawn, all make the same batches, by the plan of one of them, and
    each draws every so manyth. Other samplers are given every so manyth request.
    """

    def plan(self, checkpoint: Checkpoint, requests: Sequence[SampleRequest], settings: SamplingSettings) -> BatchPlan:
        """The batches that ``sample`` draws these requests in."""

    def sample(
        self,
        checkpoint: Checkpoint,
        requests: Sequence[SampleRequest],
        settings: SamplingSettings,
        *,
        part: Shard = WHOLE,
        plan: BatchPlan | None = None,
    ) -> Iterator[list[Sample]]:
        """As ``Sampler.sample``, but only the batches of ``part``; without a plan, in batches that fit this machine."""


def row_key(*identity: str | int) -> int:
    """A signed 64-bit hash of what a row of samples depends on.

    >>> row_key(0, "weights", "problem", 1) == row_key(0, "weights", "problem", 11)
    False
    """
    blob = "\x1f".join(map(str, identity)).encode()
    return int.from_bytes(blake2b(blob, digest_size=8).digest(), "little", signed=True)
