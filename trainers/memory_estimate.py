"""What a run will need of its device's memory, told before it starts; and how many responses a pass may hold.

What depends on the architecture is measured and not derived: a model reads a few tokens, and what its forward pass
leaves for the backward pass, and in its cache, is counted.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from diagnostics.errors import TrainingError
from diagnostics.progress import ProgressSink
from trainers.forward import ForwardSettings, autocast
from trainers.head import LOGITS_PER_CHUNK
from trainers.network import Network

if TYPE_CHECKING:
    from trainers.config import TrainConfig

#: Share of the free memory that a run plans with; the rest is for fragments and for others.
USABLE = 0.85
#: Of what a forward pass keeps, the backward pass has so much again in gradients of activations at one time.
_BACKWARD = 0.25
_GIB = 2**30
#: Tokens of the longest of the passes that activations are counted in.
_PROBE_TOKENS = 128


@dataclass(frozen=True, kw_only=True)
class Footprint:
    """Bytes that a network takes.

    A pass keeps ``per_pass`` (copies of weights in the type of the products) and for each row of s tokens
    ``per_token`` s + ``per_pair`` s². ``cache_per_token`` is one token's keys and values in all layers. Logits are made
    a chunk at a time unless ``whole_logits``.
    """

    parameters: int
    trained: int
    per_pass: float
    per_token: float
    per_pair: float
    cache_per_token: float
    vocabulary_size: int
    whole_logits: bool

    def row_bytes(self, tokens: int) -> float:
        """Activations of one row that a backward pass needs, with what that makes on its way."""
        return (self.per_token * tokens + self.per_pair * tokens**2) * (1 + _BACKWARD)

    def logit_bytes(self, positions: int) -> float:
        """Logits of so many positions and what is made of them."""
        logits = positions * self.vocabulary_size
        return 16.0 * logits if self.whole_logits else 12.0 * min(logits, LOGITS_PER_CHUNK)


@dataclass(frozen=True, kw_only=True)
class MemoryPlan:
    """What a run needs of ``free`` bytes, part by part, and the responses that go through the model together."""

    parts: tuple[tuple[str, float], ...]
    free: float
    rows_per_pass: int
    n_rows: int
    device: str

    @property
    def needed(self) -> float:
        """Bytes, generation and update taking turns."""
        sizes = dict(self.parts)
        generating = sizes["KV cache"] + sizes["sampling"]
        updating = sizes["activations"] + sizes["logits"]
        others = sum(sizes.values()) - generating - updating - sizes["parameters"]
        return others + max(generating, updating)

    def sentence(self) -> str:
        """One line for the user."""
        listed = ", ".join(f"{name} {_text(size)}" for name, size in self.parts if size)
        passes = "" if self.rows_per_pass >= self.n_rows else f"; {self.rows_per_pass:,} responses per pass"
        return f"memory: {listed}; needs {_text(self.needed)} more, {_text(self.free)} free on {self.device}{passes}"


def measure(network: Network, settings: ForwardSettings) -> Footprint:
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
        whole_logits=network.head is None,
    )


def plan_memory(
    footprint: Footprint,
    config: TrainConfig,
    *,
    prompt_tokens: int,
    other_weights: int = 0,
    device: torch.device,
    free: float | None = None,
) -> MemoryPlan:
    """What the run needs, with as many responses per pass as fit, or as ``micro_batch`` says.

    ``prompt_tokens`` is the longest prompt's length and ``other_weights`` the bytes of networks beside the policy that
    are still to be loaded, with their optimizers. Raises ``TrainingError`` if one response at a time, or the
    micro-batch asked for, does not fit what is free.
    """
    free = free_bytes(device) if free is None else free
    n_rows = config.batch_prompts * config.group_size // config.updates_per_batch
    wanted = min(config.micro_batch or n_rows, n_rows)
    plan = _plan(footprint, config, wanted, prompt_tokens, other_weights, device, free)
    if config.micro_batch is None:
        while plan.needed > USABLE * free and plan.rows_per_pass > 1:
            fewer = (plan.rows_per_pass + 1) // 2
            plan = _plan(footprint, config, fewer, prompt_tokens, other_weights, device, free)
    if plan.needed > free:
        raise TrainingError(
            f"{plan.sentence()}: too little by {_text(plan.needed - free)}; {_mend(footprint, config, plan)}"
        )
    return plan


def note_memory(plan: MemoryPlan, says: ProgressSink) -> None:
    """Tell the user."""
    says.note(plan.sentence())


def free_bytes(device: torch.device) -> float:
    """Memory that this process could still take: of the GPU, or of the machine and its control group."""
    if device.type == "cuda":
        # what torch holds in reserve is ours too
        unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return float(torch.cuda.mem_get_info(device)[0] + unused)
    limits = []
    meminfo = Path("/proc/meminfo")
    if meminfo.is_file():
        lines = dict(line.split(":", 1) for line in meminfo.read_text().splitlines())
        limits.append(float(lines["MemAvailable"].split()[0]) * 1024)
    group = Path("/sys/fs/cgroup")
    if (group / "memory.max").is_file() and (most := (group / "memory.max").read_text().strip()) != "max":
        limits.append(float(most) - float((group / "memory.current").read_text()))
    # elsewhere nobody says, and a refusal would be a guess
    return min(limits, default=float("inf"))


def _plan(
    footprint: Footprint,
    config: TrainConfig,
    rows: int,
    prompt_tokens: int,
    other_weights: int,
    device: torch.device,
    free: float,
) -> MemoryPlan:
    tokens = prompt_tokens + config.used_max_tokens
    n_rows = config.batch_prompts * config.group_size
    drawn = max(rows, config.group_size)  # the decoder takes whole groups
    drawn = min(drawn, n_rows) if config.micro_batch or rows < n_rows else n_rows
    return MemoryPlan(
        parts=(
            ("parameters", footprint.parameters),
            ("gradients", footprint.trained),
            ("optimizer", 2 * footprint.trained),
            ("other networks", other_weights),
            ("activations", footprint.per_pass + rows * footprint.row_bytes(tokens)),
            ("logits", footprint.logit_bytes(rows * config.used_max_tokens)),
            ("KV cache", drawn * tokens * footprint.cache_per_token),
            ("sampling", 16.0 * drawn * footprint.vocabulary_size),
        ),
        free=free,
        rows_per_pass=rows,
        n_rows=n_rows // config.updates_per_batch,
        device=str(device),
    )


def _mend(footprint: Footprint, config: TrainConfig, plan: MemoryPlan) -> str:
    if config.micro_batch is not None and config.micro_batch > 1:
        return f"lower --micro-batch (it is {config.micro_batch}) or leave it out"
    ways = []
    if not config.lora_rank and 3 * footprint.trained > plan.needed / 3:
        ways.append("--lora-rank 16")
    if not config.gradient_checkpointing:
        ways.append("--gradient-checkpointing")
    return f"try {' or '.join([*ways, f'--max-tokens below {config.used_max_tokens}'])}, or a smaller model"


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
