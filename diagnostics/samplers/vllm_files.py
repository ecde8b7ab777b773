"""Check by a checkpoint's files whether a running engine can swap in its weights or add its adapter."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from oversharp.diagnostics.records.errors import SamplerError
from oversharp.diagnostics.records.types import Checkpoint
from oversharp.diagnostics.series.weights import IncompleteCheckpointError, stored_tensors, weight_files, wrapper_of

#: Entries of config.json that do not affect the computation; the audit sets precision and end tokens.
_HARMLESS = frozenset(
    {
        "_name_or_path",
        "bos_token_id",
        "dtype",
        "eos_token_id",
        "pad_token_id",
        "torch_dtype",
        "transformers_version",
        "use_cache",
    }
)
_ATTENTION = frozenset({"attention", "full_attention", "sliding_attention", "chunked_attention"})
_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
#: LoRA ranks that vLLM can reserve.
LORA_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)


def why_no_swap(old: Path, new: Path) -> str | None:
    """Return why an engine built on ``old`` cannot load the weights in ``new``; None if it can.

    vLLM compares neither configurations nor tensors: it would silently keep the old ones.
    """
    if not (old / "config.json").is_file():
        return "the checkpoint that the engine loaded was deleted"
    configs = [_config(folder) for folder in (old, new)]
    if any("quantization_config" in config for config in configs):
        return "its weights are quantised"
    differing = sorted(
        key for key in configs[0].keys() | configs[1].keys() if configs[0].get(key) != configs[1].get(key)
    )
    if differing:
        return f"its config.json differs in {', '.join(differing[:3])}"
    try:
        shapes = [_shapes(folder) for folder in (old, new)]
    except (IncompleteCheckpointError, SafetensorError) as error:
        return f"its tensors cannot be compared ({error})"
    if None in shapes:
        return "its weights are not in safetensors files"
    return None if shapes[0] == shapes[1] else "its tensors have different names or shapes"


def lora_rank(checkpoint: Checkpoint) -> int:
    """Return the smallest rank of vLLM that fits the adapter; 0 for a full model.

    Raises ``SamplerError`` for tensor names with a prefix, and for an adapter that vLLM does not support.
    """
    wrapper = _wrapper(checkpoint)
    if wrapper:
        raise SamplerError(
            f"{checkpoint.label}: vLLM does not support tensor names with the prefix {wrapper}; use --sampler "
            "transformers"
        )
    if checkpoint.kind != "lora":
        return 0
    config = json.loads((checkpoint.path / "adapter_config.json").read_text(encoding="utf-8"))
    obstacles = {
        "DoRA": config.get("use_dora"),
        "modules_to_save": config.get("modules_to_save"),
        "whole embeddings": any(
            tensor.name.endswith(("embed_tokens.weight", "lm_head.weight"))
            for tensor in stored_tensors(weight_files(checkpoint.path, adapter=True))
        ),
        "trained biases": config.get("bias", "none") != "none",
        f"the kind {config.get('peft_type')}": config.get("peft_type", "LORA") != "LORA",
    }
    for what, present in obstacles.items():
        if present:
            raise SamplerError(
                f"{checkpoint.label}: vLLM does not support an adapter with {what}; use --sampler transformers"
            )
    rank = max([int(config.get("r", 0)), *(config.get("rank_pattern") or {}).values()])
    fitting = next((item for item in LORA_RANKS if rank <= item), None)
    if fitting is None:
        raise SamplerError(
            f"{checkpoint.label}: vLLM supports adapters up to rank {LORA_RANKS[-1]}, this one has {rank}; "
            "use --sampler transformers"
        )
    return fitting


def _wrapper(checkpoint: Checkpoint) -> str:
    """Return the tensor-name prefix of a training run, in the checkpoint or its base model.

    Empty for none.
    """
    groups = [weight_files(checkpoint.path, adapter=checkpoint.kind == "lora")]
    groups += [] if checkpoint.base_path is None else [weight_files(checkpoint.base_path)]
    with suppress(IncompleteCheckpointError, OSError):  # loading it raises them
        return next(filter(None, map(wrapper_of, groups)), "")
    return ""


def token_bytes(config: Any, dtype: str) -> int | None:
    """Return the bytes of keys and values of one token in all layers.

    None if the configuration does not state them.

    >>> from transformers import Qwen3Config
    >>> token_bytes(Qwen3Config(num_hidden_layers=2, num_key_value_heads=4, head_dim=64), "bfloat16")
    2048
    """
    text = config.get_text_config()
    kinds = [*(getattr(text, "layer_types", None) or ()), *(getattr(text, "layers_block_type", None) or ())]
    if any(kind not in _ATTENTION for kind in kinds):
        return None  # a recurrent state does not grow with tokens
    layers, query_heads = getattr(text, "num_hidden_layers", None), getattr(text, "num_attention_heads", None)
    if not layers or not query_heads:
        return None
    heads = getattr(text, "num_key_value_heads", None) or query_heads
    head_size = getattr(text, "head_dim", None) or text.hidden_size // query_heads
    return int(2 * layers * heads * head_size * _BYTES[dtype])


def _config(folder: Path) -> dict[str, Any]:
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    return {key: value for key, value in config.items() if key not in _HARMLESS}


def _shapes(folder: Path) -> dict[str, tuple[int, ...]] | None:
    files = weight_files(folder)
    if not files or any(file.suffix != ".safetensors" for file in files):
        return None
    shapes: dict[str, tuple[int, ...]] = {}
    for file in files:
        with safe_open(file, framework="np") as tensors:
            shapes |= {name: tuple(tensors.get_slice(name).get_shape()) for name in tensors.keys()}  # noqa: SIM118
    return shapes
