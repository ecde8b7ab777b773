"""What a sampler is: one protocol for transformers and vLLM."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from diagnostics.types import Checkpoint, Problem, Sample, SamplingSettings


@dataclass(frozen=True, kw_only=True)
class SampleRequest:
    """The responses still wanted for one problem: these indices, and the greedy one if ``greedy``."""

    problem: Problem
    sample_indices: tuple[int, ...]
    greedy: bool = False


class Sampler(Protocol):
    """Draws responses. One instance serves a whole series; ``sample`` swaps the weights as needed."""

    name: str

    def sample(
        self, checkpoint: Checkpoint, requests: Sequence[SampleRequest], settings: SamplingSettings
    ) -> Iterator[list[Sample]]:
        """Yield finished samples in batches small enough to commit one by one.

        A sample depends on (settings.seed, checkpoint.weights_hash, problem_id, sample_index) only,
        never on what else was asked for or in which order.
        """

    def close(self) -> None:
        """Let go of the model and its memory. Closing twice is allowed."""
