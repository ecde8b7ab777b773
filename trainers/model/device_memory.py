"""Plan the device memory of a run, and the number of responses per pass, before the run starts.

Sizes that depend on the architecture are measured. The model processes a few tokens, and the code counts the bytes
that the forward pass keeps for the backward pass and in the KV cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from oversharp.diagnostics.records import memory
from oversharp.diagnostics.records.errors import TrainingError
from oversharp.trainers.model.forward import ForwardSettings, autocast
from oversharp.trainers.model.head import choose_chunk_logits
from oversharp.trainers.model.kv_cache import supports_fixed_cache
from oversharp.trainers.model.network import Network

if TYPE_CHECKING:
    from oversharp.trainers.config import TrainConfig

#: Share of the free memory that a plan may use. The rest covers errors of the plan. Of four measured runs, three used
#: at most 1/30 more than planned, and one with gradient checkpointing 1/4 more (``benchmarks/speed/memory_plan.py``).
USABLE = 0.8
#: Overhead as a share of the kept activations: gradients, a few of which exist at a time, and fragmentation of the
#: allocator. It is larger on a CPU, because the heap of the C library (blocks below 32 MiB) fragments more: after four
#: steps, 1/3 of a process's memory was free blocks in the heap, in both precisions. It was 1/12 if all blocks above
#: 1 MiB were mapped separately.
_ON_TOP_CPU, _ON_TOP_GPU = 0.4, 0.25
_GIB = 2**30
#: Number of tokens of the longest pass in the measurement.
_PROBE_TOKENS = 128
#: Time at which memory is used: already before the plan, always, or during one of four phases that alternate.
Phase = Literal["loaded", "always", "generation", "rehearsal", "update", "memory network"]
_TURNS: tuple[Phase, ...] = ("generation", "rehearsal", "update", "memory network")


@dataclass(frozen=True, kw_only=True)
class Footprint:
    """Memory of a network, in bytes.

    For its backward pass, a forward pass keeps ``per_pass`` bytes (copies of the weights in the precision of the matrix
    products), and for each row of s tokens ``per_token`` · s + ``per_pair`` · s² bytes. ``cache_per_token`` is the size
    of one token's keys and values in all layers. With ``fixed_cache``, the built-in decoder has permanent buffers for
    them. ``logits_per_chunk`` logits are computed at a time; None: all at once.
    """

    parameters: int
    trained: int
    per_pass: float
    per_token: float
    per_pair: float
    cache_per_token: float
    vocabulary_size: int
    logits_per_chunk: int | None
    fixed_cache: bool

    def row_bytes(self, tokens: int) -> float:
        """Return the bytes of activations that a row of this many tokens keeps for the backward pass."""
        return self.per_token * tokens + self.per_pair * tokens**2

    def logit_bytes(self, positions: int) -> float:
        """Return the bytes of the logits, and of tensors of the same size, at this many positions."""
        logits = positions * self.vocabulary_size
        return 16.0 * logits if self.logits_per_chunk is None else 12.0 * min(logits, self.logits_per_chunk)

    def decoder_bytes(self, rows: int, tokens: int) -> float:
        """Return the bytes that the built-in decoder needs for this many rows: KV cache, logits and probabilities."""
        return rows * (tokens * self.cache_per_token + 16.0 * self.vocabulary_size)


@dataclass(frozen=True, kw_only=True)
class EngineFootprint:
    """Memory of an external rollout engine, in bytes, without the temporary tensors of its passes.

    ``weights`` is the size of its copies of the networks. ``cache`` is the size of a KV cache for all responses of a
    batch, ``least_cache`` for a single response. ``has_sleep_mode`` is whether it releases its memory during training.
    """

    weights: float
    cache: float
    least_cache: float
    has_sleep_mode: bool


@dataclass(frozen=True, kw_only=True)
class DeviceMemoryPart:
    """Memory of one part of the run, in bytes, with the phase that uses it."""

    name: str
    n_bytes: float
    phase: Phase


@dataclass(frozen=True, kw_only=True)
class DeviceMemoryPlan:
    """Planned memory of a run by part, the ``free`` bytes of the device, and the number of responses per pass.

    ``engine_cache`` is the size of the KV cache of an external engine, in bytes; None without such an engine.
    """

    parts: tuple[DeviceMemoryPart, ...]
    free: float
    rows_per_pass: int
    n_rows: int
    device: str
    engine_cache: float | None = None

    @property
    def peak_bytes(self) -> float:
        """Planned maximum of the memory in use, in bytes."""
        return max(_sum_bytes(self.parts, phase) for phase in _TURNS)

    @property
    def fits(self) -> bool:
        """Whether the maximum is within the usable share of the free memory."""
        return self.peak_bytes <= USABLE * self.free

    def sentence(self) -> str:
        """Return the plan as one line."""
        listed = ", ".join(f"{part.name} {_text(part.n_bytes)}" for part in self.parts if part.n_bytes)
        passes = "" if self.rows_per_pass >= self.n_rows else f"; {self.rows_per_pass:,} responses per pass"
        total = f"needs {_text(self.peak_bytes)} more, {_text(self.free)} free on {self.device}"
        missing = _text(self.peak_bytes - USABLE * self.free)
        lacks = f", of which {USABLE:.0%} are usable: {missing} missing"
        return f"device memory: {listed}; {total}{passes}{'' if self.fits else lacks}"


def measure_footprint(network: Network, settings: ForwardSettings) -> Footprint:
    """Measure the footprint of a network by forward passes of three short rows. The model does not change."""
    long = min(_PROBE_TOKENS, getattr(network.config, "max_position_embeddings", None) or _PROBE_TOKENS)
    lengths = torch.tensor([long // 4, long // 2, long], dtype=torch.float64)
    counted = [_measure_kept(network, settings, int(tokens)) for tokens in lengths.tolist()]
    powers = torch.stack([torch.ones_like(lengths), lengths, lengths**2], dim=1)
    kept = torch.tensor([kept for kept, _ in counted], dtype=torch.float64)
    per_pass, per_token, per_pair = torch.linalg.solve(powers, kept).clamp(min=0).tolist()
    parameters = list(network.model.parameters())
    embedding: Any = network.model.get_input_embeddings()
    return Footprint(
        parameters=sum(parameter.numel() * parameter.element_size() for parameter in parameters),
        trained=sum(
            parameter.numel() * parameter.element_size() for parameter in parameters if parameter.requires_grad
        ),
        per_pass=per_pass,
        per_token=per_token,
        per_pair=per_pair,
        cache_per_token=counted[-1][1],
        vocabulary_size=len(embedding.weight),
        logits_per_chunk=None if network.head is None else choose_chunk_logits(network.model.device),
        fixed_cache=network.model.device.type == "cuda" and supports_fixed_cache(network.model),
    )


@dataclass(frozen=True, kw_only=True)
class MemoryNeeds:
    """Inputs of a memory plan.

    ``footprint`` is that of the policy, ``engine`` that of an external rollout engine. ``prompt_tokens`` is the length
    of the longest prompt. ``rehearsal_samples`` is the number of samples of the reference per prompt. ``free`` is the
    free memory of the device in bytes.
    """

    footprint: Footprint
    config: TrainConfig
    prompt_tokens: int
    device: torch.device
    free: float
    memory_network: Footprint | None = None
    engine: EngineFootprint | None = None
    rehearsal_samples: int = 0

    @property
    def n_rows(self) -> int:
        """Number of responses of one update."""
        return self.config.batch_prompts * self.config.group_size // self.config.used_updates_per_batch

    @property
    def tokens(self) -> int:
        """Length of the longest prompt plus the longest response."""
        return self.prompt_tokens + self.config.used_max_tokens

    def plan(self, rows: int) -> DeviceMemoryPlan:
        """Return the plan with this many responses per pass."""
        own = self.footprint
        parts = [
            DeviceMemoryPart(name="parameters", n_bytes=own.parameters, phase="loaded"),
            DeviceMemoryPart(name="gradients", n_bytes=own.trained, phase="always"),
            DeviceMemoryPart(name="optimizer", n_bytes=2 * own.trained, phase="always"),
            DeviceMemoryPart(name="activations", n_bytes=self._activations(own, rows), phase="update"),
            DeviceMemoryPart(
                name="logits", n_bytes=own.logit_bytes(rows * self.config.used_max_tokens), phase="update"
            ),
        ]
        if self.memory_network is not None:
            # its weights are already in memory, and it is trained after the policy
            other = self.memory_network
            learning = self._activations(other, rows) + other.logit_bytes(rows * self.config.used_max_tokens)
            parts += [
                DeviceMemoryPart(name="memory network", n_bytes=3 * other.trained, phase="always"),
                DeviceMemoryPart(name="its activations and logits", n_bytes=learning, phase="memory network"),
            ]
        parts += self._decoders(rows)
        cache = None
        if self.engine is not None:
            taken = _sum_bytes(parts, "generation") + self.engine.weights
            cache = max(self.engine.least_cache, min(self.engine.cache, USABLE * self.free - taken))
            phase: Phase = "generation" if self.engine.has_sleep_mode else "always"
            parts += [
                DeviceMemoryPart(name="vLLM weights", n_bytes=self.engine.weights, phase=phase),
                DeviceMemoryPart(name="vLLM cache", n_bytes=cache, phase=phase),
            ]
        return DeviceMemoryPlan(
            parts=tuple(parts),
            free=self.free,
            rows_per_pass=rows,
            n_rows=self.n_rows,
            device=str(self.device),
            engine_cache=cache,
        )

    def _activations(self, footprint: Footprint, rows: int) -> float:
        """Return the bytes that a pass keeps for its backward pass, including overhead."""
        on_top = _ON_TOP_CPU if self.device.type == "cpu" else _ON_TOP_GPU
        return footprint.per_pass + rows * footprint.row_bytes(self.tokens) * (1 + on_top)

    def _decoders(self, rows: int) -> list[DeviceMemoryPart]:
        """Return the memory for sampling rollouts and rehearsal samples.

        The reference is assumed to be as large as the policy.
        """
        networks = [self.footprint] if self.memory_network is None else [self.footprint, self.memory_network]
        n_rollouts = self.config.batch_prompts * self.config.group_size
        if self.engine is None:
            drawn = min(max(rows, self.config.group_size), n_rollouts)  # at least one group
            n_bytes = sum(network.decoder_bytes(drawn, self.tokens) for network in networks)
        else:
            n_bytes = sum(
                network.decoder_bytes(n_rollouts, 0) for network in networks
            )  # 0 tokens: the KV cache is part of the engine's memory
        stays = self.engine is None and all(network.fixed_cache for network in networks)
        parts = [DeviceMemoryPart(name="decoding", n_bytes=n_bytes, phase="always" if stays else "generation")]
        if self.rehearsal_samples:
            n_samples = self.config.batch_prompts // self.config.used_updates_per_batch * self.rehearsal_samples
            drawn = min(max(rows, self.rehearsal_samples), n_samples)
            parts.append(
                DeviceMemoryPart(
                    name="rehearsal",
                    n_bytes=self.footprint.decoder_bytes(drawn, self.tokens),
                    phase="always" if self.footprint.fixed_cache else "rehearsal",
                )
            )
        return parts


def plan_device_memory(needs: MemoryNeeds, *, rows_per_pass: int | None = None) -> DeviceMemoryPlan:
    """Plan the memory of a run with ``micro_batch`` responses per pass, or with as many as fit.

    ``rows_per_pass`` is the number of responses per pass of a resumed run, None for a new run.

    Raises:
        TrainingError: the run does not fit the share ``USABLE`` of the free memory, with ``micro_batch`` responses per
            pass or, without that setting, with one. Not raised for a resumed run: it fitted before, and plans assume
            responses of maximum length.
    """
    asked = rows_per_pass or needs.config.micro_batch
    plan = needs.plan(min(asked or needs.n_rows, needs.n_rows))
    fewer = plan
    while not fewer.fits and fewer.rows_per_pass > 1:
        fewer = needs.plan((fewer.rows_per_pass + 1) // 2)
    if asked is None:
        plan = fewer
    if not plan.fits and rows_per_pass is None:
        if fewer.fits:
            hint = f"lower --micro-batch from {needs.config.micro_batch} to {fewer.rows_per_pass}, or omit it"
        else:
            plan, hint = fewer, _hint(needs, fewer)
        raise TrainingError(f"{plan.sentence()}; {hint}")
    return plan


def free_bytes(device: torch.device) -> float:
    """Return the memory that this process can still allocate: on the GPU, or in the machine and its cgroup."""
    if device.type == "cuda":
        # memory that torch has reserved but not allocated is free too
        unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return float(torch.cuda.mem_get_info(device)[0] + unused)
    return memory.free_bytes()  # infinite if unknown, so no run is rejected then


def _sum_bytes(parts: Sequence[DeviceMemoryPart], phase: Phase) -> float:
    """Return the bytes that are in use during a phase."""
    return sum(part.n_bytes for part in parts if part.phase in ("always", phase))


def _hint(needs: MemoryNeeds, plan: DeviceMemoryPlan) -> str:
    """Return which settings to change if even one response per pass does not fit."""
    config = needs.config
    ways = {
        "--engine own": needs.engine is not None,
        "--lora-rank 16": not config.lora_rank and 3 * needs.footprint.trained > plan.peak_bytes / 3,
        "--gradient-checkpointing": not config.gradient_checkpointing,
        "--precision bfloat16": config.precision == "float32",
    }
    listed = ", ".join(way for way, is_open in ways.items() if is_open)
    return f"try {listed}{', ' if listed else ''}--max-tokens below {config.used_max_tokens} or a smaller model"


def _measure_kept(network: Network, settings: ForwardSettings, tokens: int) -> tuple[float, float]:
    """Measure a row of ``tokens`` tokens: the bytes kept for the backward pass, and of the KV cache per token.

    Weights are not counted.
    """
    own = {parameter.untyped_storage().data_ptr() for parameter in network.model.parameters()}
    kept: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    device = network.model.device
    ids_1S = torch.arange(tokens, device=device)[None] % network.config.vocab_size
    run: Any = network.model if network.head is None else network.head.trunk
    # measure without gradient checkpointing, because hooks do not see the tensors that checkpointing keeps
    with replace(network, recomputed=()).pass_context(), autocast(device, settings.autocast):
        with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            outputs = run(input_ids=ids_1S, use_cache=False)  # must stay alive: addresses of freed tensors are reused
        with torch.no_grad():
            cache = getattr(run(input_ids=ids_1S, use_cache=True), "past_key_values", None)
    del outputs
    layers = getattr(cache, "layers", None) or ()
    states = [state for layer in layers for state in (getattr(layer, "keys", None), getattr(layer, "values", None))]
    cached = sum(state.numel() * state.element_size() for state in states if isinstance(state, Tensor))
    total = float(sum(kept.values()))
    if network.recomputed:
        n_layers = len(network.recomputed)
        # checkpointing keeps the input of every layer, and the activations and gradients of one layer at a time
        total = 2 * total / n_layers + n_layers * 4.0 * tokens * network.config.hidden_size
    return total, cached / tokens


def _text(size: float) -> str:
    """Return a number of bytes as text.

    >>> _text(3 * 2**30), _text(5e7)
    ('3.0 GiB', '48 MiB')
    """
    return f"{size / _GIB:.1f} GiB" if size >= _GIB else f"{size / 2**20:.0f} MiB"
