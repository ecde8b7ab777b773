"""Protocols of samplers: transformers, vLLM, servers and plugins."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Protocol, runtime_checkable

from oversharp.diagnostics.models.holder import ModelHolder
from oversharp.diagnostics.records.types import Checkpoint, ForcedResponse, Problem, Sample, SamplingSettings
from oversharp.diagnostics.samplers.agents.environment import Environment
from oversharp.diagnostics.samplers.endpoint.places import EndpointSettings


@dataclass(frozen=True, kw_only=True)
class SampleRequest:
    """Responses of one problem to generate.

    They are those at ``sample_indices``, and a greedy response if ``greedy``.
    """

    problem: Problem
    sample_indices: tuple[int, ...]
    greedy: bool = False


@dataclass(frozen=True, kw_only=True)
class EngineSettings:
    """Settings of an inference engine. They do not change the samples' identities.

    Attributes:
        tensor_parallel: number of GPUs that share a model.
        gpu_memory_share: share of each GPU's memory for the engine. The rest is for the model that scores responses.
        max_model_len: largest number of tokens of prompt and response together. None: that of the longest request.
        cpu_cache_gib: limit of the KV cache on a machine without GPU, in GiB.
        trust_remote_code: whether code in the model's folder may run.
        lora_ranks: largest adapter rank of each base model. The engine reserves memory for it at its start.
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

    Attributes:
        models: loads transformers models. The scorer uses the same object, so a checkpoint is loaded only once.
        batch_size: number of concurrent responses. None: chosen from the model's size.
        endpoint: servers of the sampler "endpoint", None without any.
        environment: its tools are called in the samples, which are then trajectories; None for plain responses.
        note: prints a line for the user, such as the reason for an engine restart.
    """

    models: ModelHolder
    batch_size: int | None = None
    engine: EngineSettings = field(default_factory=EngineSettings)
    endpoint: EndpointSettings | None = None
    environment: Environment | None = None
    note: Callable[[str], None] = lambda line: None


class Sampler(Protocol):
    """Generates responses for all checkpoints of a series.

    ``sample`` loads the checkpoint's weights if needed.
    """

    name: str

    def sample(
        self, checkpoint: Checkpoint, requests: Sequence[SampleRequest], settings: SamplingSettings
    ) -> Iterator[list[Sample]]:
        """Yield finished samples in small batches, each of which can be committed separately.

        A sample depends only on the settings, the checkpoint, the problem and the sample index. It does not depend on
        other requests or their order.
        """

    def close(self) -> None:
        """Release the engine and its memory. Closing twice is allowed."""


@runtime_checkable
class RestingSampler(Protocol):
    """A sampler whose engine can release memory for the model that scores responses."""

    def rest(self) -> None:
        """Release as much memory as possible until the next call of ``sample``."""


@dataclass(frozen=True, kw_only=True)
class EncodedResponse:
    """A response to score, with the tokens of its prompt. ``token_ids`` contain its end token if it has one."""

    problem_id: str
    response_id: str
    prompt_ids: tuple[int, ...]
    token_ids: tuple[int, ...]


@runtime_checkable
class ScoringSampler(Protocol):
    """A sampler whose engine may also score given responses."""

    def can_score(self, checkpoint: Checkpoint, problems: Sequence[Problem], settings: SamplingSettings) -> bool:
        """Return whether it can score responses of ``checkpoint``. If not, the reason is printed."""

    def score(
        self,
        checkpoint: Checkpoint,
        responses: Sequence[EncodedResponse],
        problems: Sequence[Problem],
        settings: SamplingSettings,
        *,
        one_by_one: bool,
    ) -> Iterator[list[ForcedResponse]]:
        """Yield scores at temperature 1 over the full vocabulary, without entropies, as they arrive.

        ``one_by_one``: not in a batch with others, so that rounding errors differ.
        """


@dataclass(frozen=True, kw_only=True)
class SamplerReport:
    """An event of a sampler for the store: its stage, duration in seconds, and content."""

    stage: str
    wall_s: float
    note: str


@runtime_checkable
class ReportingSampler(Protocol):
    """A sampler that reports how its samples were made."""

    def take_reports(self) -> list[SamplerReport]:
        """Return the reports since the last call."""


def row_key(*identity: str | int) -> int:
    """Return a signed 64-bit hash of a sample's identity, used as its random key.

    >>> row_key(0, "weights", "problem", 1) == row_key(0, "weights", "problem", 11)
    False
    """
    blob = "\x1f".join(map(str, identity)).encode()
    return int.from_bytes(blake2b(blob, digest_size=8).digest(), "little", signed=True)
