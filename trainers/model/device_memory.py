"""The device memory that a run needs, planned before it starts, and how many responses a pass may hold.

What depends on the architecture is measured and not derived: a model reads a few tokens, and what its forward pass
leaves for the backward pass, and in its cache, is counted.
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
from oversharp.trainers.model.head import logits_on
from oversharp.trainers.model.kv_cache import takes_fixed_cache
from oversharp.trainers.model.network import Network

if TYPE_CHECKING:
    from oversharp.trainers.config import TrainConfig

#: Share of the free memory that a run may plan with; the rest is for what a plan misses: of four measured runs
#: three took at most a thirtieth more than was planned for them, the one with gradient checkpointing a quarter more
#: (``benchmarks/speed/memory_plan.py``).
USABLE = 0.8
#: On top of the activations that a forward pass keeps come the gradients of a few of them at a time, and the holes
#: that an allocator cannot fill. The C library's heap, which holds all blocks below 32 MiB, has more of these: after
#: four steps a third of what a process used lay free in it, in either precision; a twelfth where all blocks above
#: 1 MiB were mapped by themselves.
_ON_TOP_CPU, _ON_TOP_GPU = 0.4, 0.25
_GIB = 2**30
#: Tokens of the longest of the passes that activations are counted in.
_PROBE_TOKENS = 128
#: When memory is taken: before the plan, throughout, or while one of four things is done, which take turns.
Phase = Literal["loaded", "always", "generation", "rehearsal", "update", "memory network"]
_TURNS: tuple[Phase, ...] = ("generation", "rehearsal", "update", "memory network")


@dataclass(frozen=True, kw_only=True)
class Footprint:
    """Bytes that a network takes.

    A pass keeps ``per_pass`` (copies of weights in the type of the products) and for each row of s tokens
    ``per_token`` s + ``per_pair`` s². ``cache_per_token`` is one token's keys and values in all layers; with
    ``fixed_cache`` the run's own decoder has them in buffers that stay. Logits are made ``logits_per_chunk`` at a time,
    all together where that is None.
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
        """Activations of one row that a backward pass needs."""
        return self.per_token * tokens + self.per_pair * tokens**2

    def logit_bytes(self, positions: int) -> float:
        """Logits of so many positions and what is made of them."""
        logits = positions * self.vocabulary_size
        return 16.0 * logits if self.logits_per_chunk is None else 12.0 * min(logits, self.logits_per_chunk)

    def decoder_bytes(self, rows: int, tokens: int) -> float:
        """Bytes that the run's own decoder takes for so many rows: keys and values, logits and what is drawn from."""
        return rows * (tokens * self.cache_per_token + 16.0 * self.vocabulary_size)


@dataclass(frozen=True, kw_only=True)
class EngineFootprint:
    """Bytes that an engine beside the trainer holds; what its own passes take for a moment is not counted.

    ``weights`` are its copies of the networks. ``cache`` is room for the keys and values of all responses that it is
    to draw together, ``least_cache`` for those of one. ``rests``: it holds nothing while the networks are trained.
    """

    weights: float
    cache: float
    least_cache: float
    rests: bool


@dataclass(frozen=True, kw_only=True)
class DeviceMemoryPart:
    """Bytes that a part of the run takes, and when."""

    name: str
    n_bytes: float
    phase: Phase


@dataclass(frozen=True, kw_only=True)
class DeviceMemoryPlan:
    """Memory that a run needs of ``free`` bytes, part by part, and the responses that go through the model together.

    ``engine_cache`` are the bytes of keys and values that an engine beside the trainer gets, None without one.
    """

    parts: tuple[DeviceMemoryPart, ...]
    free: float
    rows_per_pass: int
    n_rows: int
    device: str
    engine_cache: float | None = None

    @property
    def needed(self) -> float:
        """Bytes at the time when it is most."""
        return max(_taken(self.parts, phase) for phase in _TURNS)

    @property
    def fits(self) -> bool:
        """Whether that is no more than may be planned with."""
        return self.needed <= USABLE * self.free

    def sentence(self) -> str:
        """One line for the user."""
        listed = ", ".join(f"{part.name} {_text(part.n_bytes)}" for part in self.parts if part.n_bytes)
        passes = "" if self.rows_per_pass >= self.n_rows else f"; {self.rows_per_pass:,} responses per pass"
        total = f"needs {_text(self.needed)} more, {_text(self.free)} free on {self.device}"
        lacks = f", of which a run may plan with {USABLE:.0%}: too little by {_text(self.needed - USABLE * self.free)}"
        return f"device memory: {listed}; {total}{passes}{'' if self.fits else lacks}"


def measure_footprint(network: Network, settings: ForwardSettings) -> Footprint:
    """Count what three short rows leave behind in a forward pass. Nothing of the model changes."""
    long = min(_PROBE_TOKENS, getattr(network.config, "max_position_embeddings", None) or _PROBE_TOKENS)
    lengths = torch.tensor([long // 4, long // 2, long], dtype=torch.float64)
    counted = [_kept(network, settings, int(tokens)) for tokens in lengths.tolist()]
    powers = torch.stack([torch.ones_like(lengths), lengths, lengths**2], dim=1)
    kept = torch.tensor([kept for kept, _ in counted], dtype=torch.float64)
    per_pass, per_token, per_pair = torch.linalg.solve(powers, kept).clamp(min=0).tolist()
    parameters = list(network.model.parameters())
    embedding: Any = network.model.get_input_embeddings()
    return Footprint(
        parameters=sum(one.numel() * one.element_size() for one in parameters),
        trained=sum(one.numel() * one.element_size() for one in parameters if one.requires_grad),
        per_pass=per_pass,
        per_token=per_token,
        per_pair=per_pair,
        cache_per_token=counted[-1][1],
        vocabulary_size=len(embedding.weight),
        logits_per_chunk=None if network.head is None else logits_on(network.model.device),
        fixed_cache=network.model.device.type == "cuda" and takes_fixed_cache(network.model),
    )


def plan_device_memory(
    footprint: Footprint,
    config: TrainConfig,
    *,
    prompt_tokens: int,
    device: torch.device,
    rows_per_pass: int | None = None,
    memory_network: Footprint | None = None,
    engine: EngineFootprint | None = None,
    rehearsal_samples: int = 0,
    free: float | None = None,
) -> DeviceMemoryPlan:
    """The plan with as many responses per pass as fit, or as ``micro_batch`` says.

    ``prompt_tokens`` is the longest prompt's length and ``rows_per_pass`` what a run that goes on began with.
    ``memory_network`` is the memory network, ``engine`` draws the rollouts where the run's own decoder does not, and
    ``rehearsal_samples`` are drawn from the reference for each prompt. Raises ``TrainingError`` if the run needs more
    than the share ``USABLE`` of what is free, with the responses per pass that are asked for or with one; a run that
    goes on is not refused, as it went with this before and a plan is of the longest responses.
    """
    run = _Run(
        footprint=footprint,
        config=config,
        prompt_tokens=prompt_tokens,
        device=device,
        memory_network=memory_network,
        engine=engine,
        rehearsal_samples=rehearsal_samples,
        free=free_bytes(device) if free is None else free,
    )
    asked = rows_per_pass or config.micro_batch
    plan = run.planned(min(asked or run.n_rows, run.n_rows))
    fewer = plan
    while not fewer.fits and fewer.rows_per_pass > 1:
        fewer = run.planned((fewer.rows_per_pass + 1) // 2)
    if asked is None:
        plan = fewer
    if not plan.fits and rows_per_pass is None:
        if fewer.fits:
            mend = f"lower --micro-batch to {fewer.rows_per_pass} (it is {config.micro_batch}) or leave it out"
        else:
            plan, mend = fewer, _mend(run, fewer)
        raise TrainingError(f"{plan.sentence()}; {mend}")
    return plan


def free_bytes(device: torch.device) -> float:
    """Memory that this process could still take: of the GPU, or of the machine and its control group."""
    if device.type == "cuda":
        # what torch holds in reserve is ours too
        unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return float(torch.cuda.mem_get_info(device)[0] + unused)
    return memory.free_bytes()  # infinite where nobody says: a refusal would be a guess


@dataclass(frozen=True, kw_only=True)
class _Run:
    """The quantities that a plan is made from; see ``plan_device_memory``."""

    footprint: Footprint
    config: TrainConfig
    prompt_tokens: int
    device: torch.device
    memory_network: Footprint | None
    engine: EngineFootprint | None
    rehearsal_samples: int
    free: float

    @property
    def n_rows(self) -> int:
        """Responses of one update."""
        return self.config.batch_prompts * self.config.group_size // self.config.used_updates_per_batch

    @property
    def tokens(self) -> int:
        """Length of the longest prompt and response together."""
        return self.prompt_tokens + self.config.used_max_tokens

    def planned(self, rows: int) -> DeviceMemoryPlan:
        """The plan with so many responses per pass."""
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
            # its weights are loaded already; its turn to learn comes behind the policy's
            other = self.memory_network
            learning = self._activations(other, rows) + other.logit_bytes(rows * self.config.used_max_tokens)
            parts += [
                DeviceMemoryPart(name="memory network", n_bytes=3 * other.trained, phase="always"),
                DeviceMemoryPart(name="its activations and logits", n_bytes=learning, phase="memory network"),
            ]
        parts += self._decoders(rows)
        cache = None
        if self.engine is not None:
            taken = _taken(parts, "generation") + self.engine.weights
            cache = max(self.engine.least_cache, min(self.engine.cache, USABLE * self.free - taken))
            phase: Phase = "generation" if self.engine.rests else "always"
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
        """What a pass of so many responses keeps for its backward pass, and what an allocator adds to that."""
        on_top = _ON_TOP_CPU if self.device.type == "cpu" else _ON_TOP_GPU
        return footprint.per_pass + rows * footprint.row_bytes(self.tokens) * (1 + on_top)

    def _decoders(self, rows: int) -> list[DeviceMemoryPart]:
        """The decoders of rollouts and of samples to rehearse, from a reference taken to be as large as the policy."""
        networks = [self.footprint] if self.memory_network is None else [self.footprint, self.memory_network]
        n_rollouts = self.config.batch_prompts * self.config.group_size
        if self.engine is None:
            drawn = min(max(rows, self.config.group_size), n_rollouts)  # it takes whole groups
            n_bytes = sum(one.decoder_bytes(drawn, self.tokens) for one in networks)
        else:
            n_bytes = sum(one.decoder_bytes(n_rollouts, 0) for one in networks)  # keys and values are the engine's own
        stays = self.engine is None and all(one.fixed_cache for one in networks)
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


def _taken(parts: Sequence[DeviceMemoryPart], phase: Phase) -> float:
    """Bytes that are taken at that time."""
    return sum(part.n_bytes for part in parts if part.phase in ("always", phase))


def _mend(run: _Run, plan: DeviceMemoryPlan) -> str:
    """The settings to change where one response per pass is too much."""
    config = run.config
    ways = {
        "--engine own": run.engine is not None,
        "--lora-rank 16": not config.lora_rank and 3 * run.footprint.trained > plan.needed / 3,
        "--gradient-checkpointing": not config.gradient_checkpointing,
        "--precision bfloat16": config.precision == "float32",
    }
    listed = ", ".join(way for way, is_open in ways.items() if is_open)
    return f"try {listed}{', ' if listed else ''}--max-tokens below {config.used_max_tokens} or a smaller model"


def _kept(network: Network, settings: ForwardSettings, tokens: int) -> tuple[float, float]:
    """Bytes that a row of so many tokens leaves for the backward pass, weights not counted, and its cache per token."""
    own = {one.untyped_storage().data_ptr() for one in network.model.parameters()}
    kept: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    device = network.model.device
    ids_1S = torch.arange(tokens, device=device)[None] % network.config.vocab_size
    run: Any = network.model if network.head is None else network.head.trunk
    # every layer keeps all here: what recomputing keeps, torch holds where no hook sees it
    with replace(network, recomputed=()).running(), autocast(device, settings.autocast):
        with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            held = run(input_ids=ids_1S, use_cache=False)  # alive until all is counted: a freed address comes again
        with torch.no_grad():
            cache = getattr(run(input_ids=ids_1S, use_cache=True), "past_key_values", None)
    del held
    layers = getattr(cache, "layers", None) or ()
    states = [state for layer in layers for state in (getattr(layer, "keys", None), getattr(layer, "values", None))]
    cached = sum(state.numel() * state.element_size() for state in states if isinstance(state, Tensor))
    total = float(sum(kept.values()))
    if network.recomputed:
        n_layers = len(network.recomputed)
        # every layer's input, and one layer with the gradients of it
        total = 2 * total / n_layers + n_layers * 4.0 * tokens * network.config.hidden_size
    return total, cached / tokens


def _text(size: float) -> str:
    """Bytes for people.

    >>> _text(3 * 2**30), _text(5e7)
    ('3.0 GiB', '48 MiB')
    """
    return f"{size / _GIB:.1f} GiB" if size >= _GIB else f"{size / 2**20:.0f} MiB"
