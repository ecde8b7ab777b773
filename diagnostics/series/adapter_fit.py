"""Checks that an adapter fits the model under it, by names and shapes of its factors.

peft drops factors of layers that the model does not have, without a word, and computes the rest.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from oversharp.diagnostics.records.errors import CheckpointError
from oversharp.diagnostics.series.weights import StoredTensor, stored_tensors

_LAYER = re.compile(r"\.(?:layers|h)\.(\d+)\.")
#: The first factor of these modules has a column for every number of a hidden state.
_READS_HIDDEN = re.compile(r"\.(?:q_proj|k_proj|v_proj|gate_proj|up_proj)\.lora_A(?:\.\w+)?\.weight$")


def require_fit(files: Sequence[Path], model_path: Path, *, label: str) -> None:
    """Raise ``CheckpointError`` if factors in ``files`` have no place in the model in ``model_path``."""
    fault = _fault(stored_tensors(files), _text_config(model_path))
    if fault is not None:
        raise CheckpointError(
            f"{label}: its adapter {fault} of {model_path}: it was trained on another model; name that one as "
            f"base_model_name_or_path in {files[0].parent / 'adapter_config.json'}, or by --base where none is named"
        )


def _fault(factors: Sequence[StoredTensor], config: dict[str, Any]) -> str | None:
    layers, width = (
        _first_of(config, *names) for names in (("num_hidden_layers", "n_layer"), ("hidden_size", "n_embd"))
    )
    deepest = max((int(match[1]) for tensor in factors if (match := _LAYER.search(tensor.name))), default=-1)
    if layers is not None and deepest >= layers:
        return f"changes layer {deepest}, beyond the {layers} layers"
    read = {tensor.shape[-1] for tensor in factors if _READS_HIDDEN.search(tensor.name)}
    if width is not None and len(read) == 1 and read != {width}:
        return f"is for a width of {read.pop():,}, not the {width:,}"
    return None


def _first_of(config: dict[str, Any], *names: str) -> int | None:
    return next((config[name] for name in names if isinstance(config.get(name), int)), None)


def _text_config(model_path: Path) -> dict[str, Any]:
    """Return the configuration of the model's language part; empty where there is none to read."""
    try:
        config = json.loads((model_path / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}  # loading the model reports it
    inner = config.get("text_config") if isinstance(config, dict) else None
    return inner if isinstance(inner, dict) else config if isinstance(config, dict) else {}
