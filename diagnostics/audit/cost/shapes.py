"""Shape of a model, which determines its cost.

It is read from the configuration, without weights.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oversharp.diagnostics.records.errors import CheckpointError


@dataclass(frozen=True, kw_only=True)
class ModelShape:
    """Shape of a causal language model in bfloat16.

    ``parameters`` counts tied parameters once. ``product_parameters`` are those that every token is multiplied with:
    all except an untied input embedding. ``kv_bytes`` is the size of one token's keys and values, None if unknown.
    ``context`` is the longest sequence, None if unknown. ``shares_prompts``: responses that are scored together share
    their prompt's KV cache.
    """

    name: str
    parameters: int
    product_parameters: int
    layers: int
    hidden_size: int
    attention_width: int
    kv_bytes: int | None
    context: int | None
    experts: bool
    shares_prompts: bool

    @property
    def weight_bytes(self) -> int:
        """Size of all weights in bfloat16, in bytes."""
        return 2 * self.parameters

    def token_flop(self, seen: float) -> float:
        """Return the FLOP of a forward pass for one token that attends to ``seen`` tokens.

        There are two operations per weight, and in each layer two per element of the keys and values it attends to.

        >>> shape = ModelShape(name="m", parameters=10, product_parameters=10, layers=2, hidden_size=3,
        ...                    attention_width=3, kv_bytes=24, context=None, experts=False, shares_prompts=True)
        >>> shape.token_flop(seen=5)
        140.0
        """
        return 2.0 * self.product_parameters + 4.0 * self.layers * self.attention_width * seen


def read_shape(model: str) -> ModelShape:
    """Read the shape of a model from the config.json of a directory or hub name.

    Weights and tokenizer are not read. Raises ``CheckpointError`` if it is no model, and for an adapter, whose files do
    not contain the model's size.
    """
    from oversharp.diagnostics.models.cached_passes import find_reading_rules
    from oversharp.diagnostics.models.load import empty_model
    from oversharp.diagnostics.samplers.vllm_support import token_bytes

    if (Path(model).expanduser() / "adapter_config.json").is_file():
        raise CheckpointError(f"{model}: is an adapter; pass its base model")
    empty: Any = empty_model(model)
    config = empty.config.get_text_config()
    heads = config.num_attention_heads
    looked_up, head = empty.get_input_embeddings(), empty.get_output_embeddings()
    parameters = sum(parameter.numel() for parameter in empty.parameters())
    is_tied = head is None or head.weight is looked_up.weight
    return ModelShape(
        name=model,
        parameters=parameters,
        product_parameters=parameters - (0 if is_tied else looked_up.weight.numel()),
        layers=config.num_hidden_layers,
        hidden_size=config.hidden_size,
        attention_width=heads * (getattr(config, "head_dim", None) or config.hidden_size // heads),
        kv_bytes=token_bytes(config, "bfloat16"),
        context=getattr(config, "max_position_embeddings", None),
        experts=any(getattr(config, name, None) for name in ("num_experts", "num_local_experts", "n_routed_experts")),
        shares_prompts=find_reading_rules(empty).shares_prompts,
    )
