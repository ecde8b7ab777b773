"""Mix LoRA adapters by scaling and concatenating their factors.

An adapter changes the weights by B·A times a scale. So a fraction of the change is the adapter with a smaller B. A sum
of changes is exactly an adapter with concatenated factors, whose rank is the sum of the ranks. Reducing that rank would
lose a part of the sum.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from oversharp.diagnostics.records.errors import CheckpointError
from oversharp.diagnostics.records.types import Checkpoint
from oversharp.diagnostics.repair.mixing import Rounding, load_tensor, scale, scale_numbers
from oversharp.diagnostics.repair.models import load_object
from oversharp.diagnostics.repair.sources import Sources
from oversharp.diagnostics.repair.tensor_files import PlannedFiles, PlannedTensor, plan_copy
from oversharp.diagnostics.series.finding import ADAPTER_CONFIG, adapter_hash
from oversharp.diagnostics.series.fingerprints import is_identity
from oversharp.diagnostics.series.folders import locate_model
from oversharp.diagnostics.series.numbers import FLOAT_BYTES, is_whole, stored_bytes
from oversharp.diagnostics.series.weights import StoredTensor, stored_tensors, tensor_bytes, weight_files, weights_hash

FILE = "adapter_model.safetensors"

#: Names that peft gives to the first (A) and second (B) factors.
_FIRST = (".lora_A.weight", ".lora_embedding_A")
_SECOND = (".lora_B.weight", ".lora_embedding_B")
#: Entries of adapter_config.json with which scaling B does not scale the weight change.
_UNSUPPORTED = {
    "use_dora": "DoRA, which normalises the weights",
    "modules_to_save": "whole modules in addition to its factors (modules_to_save)",
    "trainable_token_indices": "rows of the embeddings in addition to its factors (trainable_token_indices)",
    "lora_bias": "trained biases (lora_bias)",
    "alora_invocation_tokens": "activation by tokens (aLoRA)",
    "arrow_config": "routing between adapters (Arrow)",
    "use_qalora": "QALoRA, which pools its input",
    "use_bdlora": "block-diagonal factors (BD-LoRA)",
    "kasa_config": "singular values in addition to its factors (KaSA)",
    "monteclora_config": "random factors (MonteCLoRA)",
    "velora_config": "compressed activations (VeLoRA)",
}
#: Initialisations that leave the base weights unchanged. Others move base weights into the factors.
_PLAIN_INITS = (None, True, False, "gaussian", "eva")
#: Settings that must be equal in all adapters of an average.
_SHARED = ("r", "lora_alpha", "rank_pattern", "alpha_pattern", "use_rslora", "fan_in_fan_out", "target_modules")
_MERGE = "merge the adapters into their model (merge_and_unload of peft) and repair full models"


@dataclass(frozen=True, kw_only=True)
class _Part:
    """An adapter and its weight in the sum at λ = 1."""

    checkpoint: Checkpoint
    config: Mapping[str, Any]
    tensors: Mapping[str, StoredTensor]
    is_base: bool

    def weight_at(self, lambda_: float, n: int) -> float:
        return 1 - lambda_ if self.is_base else lambda_ / n


class Adapters:
    """The adapters of a repair. If the base is an untrained adapter, it is not part of the sum.

    Raises ``CheckpointError`` for adapters that are not plain LoRA, for pickles, and for a sum of adapters with
    different ranks, scales or targets.
    """

    config_name = ADAPTER_CONFIG
    base_only: tuple[str, ...] = ()

    def __init__(self, sources: Sources) -> None:
        base = sources.base
        trained_base = base.kind == "lora" and not is_identity(weight_files(base.path, adapter=True))
        self._parts = [_load_part(base, is_base=True)] if trained_base else []
        self._parts += [_load_part(checkpoint, is_base=False) for checkpoint in sources.checkpoints]
        self._n = len(sources.checkpoints)
        under = base.base_path
        self._model_hash = base.weights_hash if under is None else weights_hash(weight_files(under))
        for part in self._parts[:-1]:
            _refuse_different_shape(part, self._parts[-1])

    def plan_files(self, lambda_: float, *, float32: bool, rounding: Rounding) -> PlannedFiles:
        """Plan the weight file of this point.

        ``rounding`` is unused, because factors keep their precision.
        """
        return {FILE: [self._plan(name, lambda_, float32) for name in self._parts[-1].tensors]}

    def make_config(self, checkpoint: Checkpoint, *, computed: bool, float32: bool) -> dict[str, Any]:
        """Return the adapter_config.json of ``checkpoint``.

        If ``computed``, its ranks are those of the sum.
        """
        config = load_object(checkpoint.path / ADAPTER_CONFIG)
        config["base_model_name_or_path"] = _portable_model_name(checkpoint, config)
        n = len(self._parts) if computed else 1
        if n > 1:
            config |= {name: n * config[name] for name in ("r", "lora_alpha")}
            for name in ("rank_pattern", "alpha_pattern"):
                config[name] = {key: n * value for key, value in (config.get(name) or {}).items()}
        return config

    def hash_folder(self, folder: Path) -> str:
        """Return the hash of the adapter in ``folder``, including its model."""
        files = weight_files(folder, adapter=True)
        return adapter_hash(files, load_object(folder / ADAPTER_CONFIG), self._model_hash)

    def _plan(self, name: str, lambda_: float, float32: bool) -> PlannedTensor:
        own = [part.tensors[name] for part in self._parts]
        if name.endswith(_FIRST):
            return plan_copy(own[0]) if len(own) == 1 else _concatenate_first(own)
        dtype = "F32" if float32 and FLOAT_BYTES[own[-1].dtype] < 4 else own[-1].dtype
        weights = [part.weight_at(lambda_, self._n) * self._scale() for part in self._parts]
        rows, *rank = own[-1].shape
        shape = (rows, len(own) * rank[0], *rank[1:])
        return PlannedTensor(
            name=name,
            dtype=dtype,
            shape=shape,
            n_bytes=math.prod(shape) * FLOAT_BYTES[dtype],
            chunks=partial(scale, own[0], weights[0], dtype)
            if len(own) == 1
            else partial(_concatenate_second, own, weights, dtype),
        )

    def _scale(self) -> float:
        """Return the factor of B that preserves its scale in a sum of n parts.

        The scale α/√r of rsLoRA grows by √n, the scale α/r of LoRA does not.
        """
        return 1 / math.sqrt(len(self._parts)) if self._parts[-1].config.get("use_rslora") else 1.0


def _portable_model_name(checkpoint: Checkpoint, config: Mapping[str, Any]) -> str:
    """Return a name of the adapter's model that is valid in any folder: its hub name or absolute path."""
    named = str(config.get("base_model_name_or_path") or ".")
    under = checkpoint.base_path
    assert under is not None  # find_series sets base_path for all adapters
    return named if not Path(named).exists() and locate_model(named) else str(under)


def _concatenate_first(own: Sequence[StoredTensor]) -> PlannedTensor:
    """Plan one tensor with all first factors (A), unchanged."""

    def chunks() -> Iterator[bytes]:
        for tensor in own:
            yield from tensor_bytes(tensor)

    rank, *columns = own[0].shape
    return PlannedTensor(
        name=own[0].name,
        dtype=own[0].dtype,
        shape=(len(own) * rank, *columns),
        n_bytes=sum(tensor.end - tensor.start for tensor in own),
        chunks=chunks,
    )


def _concatenate_second(own: Sequence[StoredTensor], weights: Sequence[float], dtype: str) -> Iterator[bytes]:
    import numpy as np

    parts = [
        scale_numbers(load_tensor(tensor), weight, dtype, tensor.name)
        for tensor, weight in zip(own, weights, strict=True)
    ]
    yield stored_bytes(np.concatenate(parts, axis=1), dtype)


# ---------------------------------------------------------------- adapters that cannot be mixed


def _load_part(checkpoint: Checkpoint, *, is_base: bool) -> _Part:
    config = load_object(checkpoint.path / ADAPTER_CONFIG)
    files = weight_files(checkpoint.path, adapter=True)
    if files[0].suffix != ".safetensors":
        raise CheckpointError(
            f"{checkpoint.label}: {files[0].name} is a pickle, which oversharp does not load; save the adapter as "
            "safetensors "
            "(PeftModel.from_pretrained, save_pretrained)"
        )
    feature = _find_unsupported(config)
    tensors = {tensor.name: tensor for tensor in stored_tensors(files)}
    if feature is None:
        others = [
            f"{tensor.name} ({tensor.dtype}) in addition to its factors"
            for tensor in tensors.values()
            if not (tensor.name.endswith((*_FIRST, *_SECOND)) and is_whole(tensor))
        ]
        feature = next(iter(others), None)
    if feature is not None:
        raise CheckpointError(
            f"{checkpoint.label}: the adapter has {feature}, so a fraction of it is not a LoRA adapter; {_MERGE}"
        )
    return _Part(checkpoint=checkpoint, config=config, tensors=tensors, is_base=is_base)


def _find_unsupported(config: Mapping[str, Any]) -> str | None:
    kind = str(config.get("peft_type") or "LORA").upper()
    if kind != "LORA":
        return f"the kind {kind}"
    if config.get("bias", "none") != "none":
        return "trained biases"
    if config.get("init_lora_weights") not in _PLAIN_INITS:
        return f"base weights moved into its factors (init_lora_weights {config['init_lora_weights']})"
    return next((feature for name, feature in _UNSUPPORTED.items() if config.get(name)), None)


def _refuse_different_shape(first: _Part, last: _Part) -> None:
    """Raise ``CheckpointError`` unless all adapters have equal modules, ranks and scales."""
    labels = f"{first.checkpoint.label} and {last.checkpoint.label}"
    for name in _SHARED:
        ours, theirs = (_comparable(part.config.get(name)) for part in (first, last))
        if ours != theirs:
            raise CheckpointError(
                f"{labels}: {name} differs ({_describe(ours)} and {_describe(theirs)}), so their sum is not a LoRA "
                f"adapter; {_MERGE}"
            )
    shapes = [{name: (tensor.dtype, tensor.shape) for name, tensor in part.tensors.items()} for part in (first, last)]
    if shapes[0] != shapes[1]:
        differing = min(name for name, _ in shapes[0].items() ^ shapes[1].items())
        raise CheckpointError(f"{labels}: {differing} differs in shape or dtype, or only one adapter has it; {_MERGE}")
    if last.config.get("target_parameters"):
        raise CheckpointError(
            f"{last.checkpoint.label}: adapts parameters of experts (target_parameters), whose factors cannot be "
            f"concatenated; {_MERGE}"
        )


def _comparable(value: Any) -> Any:
    return sorted(value) if isinstance(value, list) else value or None


def _describe(value: Any) -> str:
    return "none" if value is None else str(value)[:80]
