"""Interface of rollout engines, and the engine that samples with the trained model itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import torch

from oversharp.diagnostics.models.load import LoadedModel
from oversharp.diagnostics.models.tokens import pad_left
from oversharp.trainers.batch import RolloutBatch, concatenate
from oversharp.trainers.model.kv_cache import supports_fixed_cache
from oversharp.trainers.rollouts.decode import (
    Decoder,
    FixedDecoder,
    GrowingDecoder,
    TokenDistribution,
    generate,
    uniform_noise,
)

if TYPE_CHECKING:
    from oversharp.trainers.rollouts.memory_network import MemoryNetwork


class RolloutEngine(Protocol):
    """Samples rollouts from the current policy."""

    def sample(
        self, prompts: Sequence[Sequence[int]], *, group_size: int, max_tokens: int, temperature: float, seed: int
    ) -> RolloutBatch:
        """Return ``group_size`` rollouts of each prompt. Equal seeds and weights give equal rollouts."""

    def greedy(self, prompts: Sequence[Sequence[int]], *, max_tokens: int) -> RolloutBatch:
        """Return one greedy response per prompt, without the memory network."""

    def sync(self) -> dict[str, float]:
        """Copy the policy's new weights to the engine, verify them, and return metrics."""

    def close(self) -> None:
        """Release the engine's resources."""


class OwnEngine:
    """Engine that runs the decoder of ``oversharp.trainers.rollouts.decode`` on the trained model itself.

    ``rows_per_part`` is the maximum number of responses to sample at a time. ``static`` selects a KV cache of fixed
    size, with CUDA graphs on a GPU. It is the default on GPUs if the model supports it.
    """

    def __init__(
        self,
        policy: LoadedModel,
        *,
        memory_network: MemoryNetwork | None = None,
        rows_per_part: int | None = None,
        static: bool | None = None,
    ) -> None:
        self._policy = policy
        self._memory_network = memory_network if memory_network is not None and memory_network.mu else None
        self._rows_per_part = rows_per_part
        models = [policy.model] if self._memory_network is None else [policy.model, self._memory_network.model]
        on_gpu = policy.device.type == "cuda"
        self._fixed: list[FixedDecoder] | None = None
        if (on_gpu if static is None else static) and all(map(supports_fixed_cache, models)):
            self._fixed = [FixedDecoder(model, graphs=on_gpu) for model in models]
        self._models = models

    def sample(
        self, prompts: Sequence[Sequence[int]], *, group_size: int, max_tokens: int, temperature: float, seed: int
    ) -> RolloutBatch:
        """See ``RolloutEngine.sample``."""
        mu = 0.0 if self._memory_network is None else self._memory_network.mu
        noise_BT = uniform_noise(seed, rows=len(prompts) * group_size, max_tokens=max_tokens)
        return self._sample_parts(prompts, noise_BT, TokenDistribution(temperature=temperature, mu=mu))

    def greedy(self, prompts: Sequence[Sequence[int]], *, max_tokens: int) -> RolloutBatch:
        """See ``RolloutEngine.greedy``."""
        return self._sample_parts(prompts, torch.zeros(len(prompts), max_tokens), TokenDistribution(temperature=0.0))

    def sync(self) -> dict[str, float]:
        """Do nothing, because the engine uses the policy's weights."""
        return {}

    def close(self) -> None:
        """Release the buffers."""
        self._fixed = None

    def _sample_parts(
        self, prompts: Sequence[Sequence[int]], noise_BT: torch.Tensor, distribution: TokenDistribution
    ) -> RolloutBatch:
        prompt_ids_PL, prompt_mask_PL = pad_left(prompts, self._policy)
        group_size = len(noise_BT) // len(prompts)
        prompts_per_part = max(1, (self._rows_per_part or len(noise_BT)) // group_size)
        parts = [
            generate(
                self._decoders(distribution),
                ids,
                mask,
                noise,
                distribution=distribution,
                end_ids=self._policy.end_ids,
                pad_id=self._policy.pad_id,
            )
            for ids, mask, noise in zip(
                prompt_ids_PL.split(prompts_per_part),
                prompt_mask_PL.split(prompts_per_part),
                noise_BT.split(prompts_per_part * group_size),
                strict=True,
            )
        ]
        return concatenate(parts)

    def _decoders(self, distribution: TokenDistribution) -> Sequence[Decoder]:
        n_models = 2 if distribution.mu else 1
        if self._fixed is not None:
            return self._fixed[:n_models]
        return [GrowingDecoder(model) for model in self._models[:n_models]]
