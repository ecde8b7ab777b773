"""Mix LoRA adapters: the weight change is B·A times a scale, so a part of it is the adapter with a smaller B.

A sum of such changes is an adapter with concatenated factors: exact, at the sum of the ranks. Reducing it to the
original rank would lose a part of it.
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
from oversharp.diagnostics.repair.mixing import Rounding, scale, scale_numbers, whole
from oversharp.diagnostics.repair.models import read_object
from oversharp.diagnostics.repair.sources import Sources
from oversharp.diagnostics.repair.tensor_files import PlannedFiles, PlannedTensor, plan_copy
from oversharp.diagnostics.series.finding import ADAPTER_CONFIG, adapter_hash
from oversharp.diagnostics.series.fingerprints import is_identity
from oversharp.diagnostics.series.folders import locate_model
from oversharp.diagnostics.series.numbers import FLOAT_BYTES, is_whole, stored_bytes
from oversharp.diagnostics.series.weights import StoredTensor, stored_tensors, tensor_bytes, weight_files, weights_hash

FILE = "adapter_model.safetensors"

#: First and second factors, as named by peft.
_FIRST = (".lora_A.weight", ".lora_embedding_A")
_SECOND = (".lora_B.weight", ".lora_embedding_B")
#: Entries of adapter_config.json that make a scaled adapter differ from a scaled weight change, with their meaning.
_OTHER_LAWS = {
    "use_dora": "DoRA, which normalises the weights",
    "modules_to_save": "whole modules besides its factors (modules_to_save)",
    "trainable_token_indices": "rows of the embeddings besides its factors (trainable_token_indices)",
    "lora_bias": "trained biases (lora_bias)",
    "alora_invocation_tokens": "activation by tokens (aLoRA)",
    "arrow_config": "routing between adapters (Arrow)",
    "use_qalora": "QALoRA, which pools its input",
    "use_bdlora": "block-diagonal factors (BD-LoRA)",
    "kasa_config": "singular values besides its factors (KaSA)",
    "monteclora_config": "random factors (MonteCLoRA)",
    "velora_config": "compressed activations (VeLoRA)",
}
#: Initialisations that leave the model under the adapter unchanged; the others move base weights into the factors.
_PLAIN_STARTS = (None, True, False, "gaussian", "eva")
#: Settings that all adapters of an average must share.
_SHARED = ("r", "lora_alpha", "rank_pattern", "alpha_pattern", "use_rslora", "fan_in_fan_out", "target_modules")
_MERGE = "merge the adapters into their model (merge_and_unload of peft) and repair full models"


@dataclass(frozen=True, kw_only=True)
class _Part:
    """An adapter and its weight in the sum at λ = 1."""

    checkpoint: Checkpoint
    config: Mapping[str, Any]
    tensors: Mapping[str, StoredTensor]
    is_base: bool

    def weight(self, lambda_: float, n: int) -> float:
        return 1 - lambda_ if self.is_base else lambda_ / n


class Adapters:
    """The adapters of a repair.

    An untrained adapter as base adds nothing and is left out of the sum.

    Raises ``CheckpointError`` for adapters that are not plain LoRA, for pickles, and for a sum of adapters with
    different ranks, scales or targets.
    """

    config_name = ADAPTER_CONFIG
    of_base_alone: tuple[str, ...] = ()

    def __init__(self, sources: Sources) -> None:
        base = sources.base
        trained_base = base.kind == "lora" and not is_identity(weight_files(base.path, adapter=True))
        self._parts = [_part(base, is_base=True)] if trained_base else []
        self._parts += [_part(checkpoint, is_base=False) for checkpoint in sources.checkpoints]
        self._n = len(sources.checkpoints)
        under = base.base_path
        self._model_hash = base.weights_hash if under is None else weights_hash(weight_files(under))
        for part in self._parts[:-1]:
            _refuse_other_form(part, self._parts[-1])

    def files(self, lambda_: float, *, float32: bool, rounding: Rounding) -> PlannedFiles:
        """Return the weight file of this point.

        ``rounding`` is unused: scaled factors keep their precision.
        """
        planned = [self._plan(name, lambda_, float32) for name in self._parts[-1].tensors]
        return {FILE: planned}

    def config(self, checkpoint: Checkpoint, *, computed: bool, float32: bool) -> dict[str, Any]:
        """Return the adapter_config.json of ``checkpoint``.

        The ranks are those of a sum if ``computed``.
        """
        config = read_object(checkpoint.path / ADAPTER_CONFIG)
        config["base_model_name_or_path"] = _portable_model_name(checkpoint, config)
        n = len(self._parts) if computed else 1
        if n > 1:
            config |= {name: n * config[name] for name in ("r", "lora_alpha")}
            for name in ("rank_pattern", "alpha_pattern"):
                config[name] = {key: n * value for key, value in (config.get(name) or {}).items()}
        return config

    def hash(self, folder: Path) -> str:
        """Return the hash of the weights written into ``folder``, with the model under them."""
        files = weight_files(folder, adapter=True)
        return adapter_hash(files, read_object(folder / ADAPTER_CONFIG), self._model_hash)

    def _plan(self, name: str, lambda_: float, float32: bool) -> PlannedTensor:
        own = [part.tensors[name] for part in self._parts]
        if name.endswith(_FIRST):
            return plan_copy(own[0]) if len(own) == 1 else _concatenate_first(own)
        dtype = "F32" if float32 and FLOAT_BYTES[own[-1].dtype] < 4 else own[-1].dtype
        weights = [part.weight(lambda_, self._n) * self._scale() for part in self._parts]
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
        """Scale of B: rsLoRA's α/√r grows by √n for n parts with n·α and n·r, plain LoRA's α/r does not."""
        return 1 / math.sqrt(len(self._parts)) if self._parts[-1].config.get("use_rslora") else 1.0


def _portable_model_name(checkpoint: Checkpoint, config: Mapping[str, Any]) -> str:
    """Return a name of the model under the adapter valid in any folder.

    Its hub name, else its absolute path.
    """
    named = str(config.get("base_model_name_or_path") or ".")
    under = checkpoint.base_path
    assert under is not None  # find_series requires it of adapters
    by_name = not Path(named).exists() and locate_model(named)
    return named if by_name else str(under)


def _concatenate_first(own: Sequence[StoredTensor]) -> PlannedTensor:
    """Concatenate first factors, unchanged."""

    def chunks() -> Iterator[bytes]:
        for item in own:
            yield from tensor_bytes(item)

    rank, *columns = own[0].shape
    return PlannedTensor(
        name=own[0].name,
        dtype=own[0].dtype,
        shape=(len(own) * rank, *columns),
        n_bytes=sum(entry.end - entry.start for entry in own),
        chunks=chunks,
    )


def _concatenate_second(own: Sequence[StoredTensor], weights: Sequence[float], dtype: str) -> Iterator[bytes]:
    import numpy as np

    parts = [scale_numbers(whole(item), weight, dtype, item.name) for item, weight in zip(own, weights, strict=True)]
    yield stored_bytes(np.concatenate(parts, axis=1), dtype)


# ---------------------------------------------------------------- adapters that cannot be mix


def _part(checkpoint: Checkpoint, *, is_base: bool) -> _Part:
    config = read_object(checkpoint.path / ADAPTER_CONFIG)
    files = weight_files(checkpoint.path, adapter=True)
    if files[0].suffix != ".safetensors":
        raise CheckpointError(
            f"{checkpoint.label}: {files[0].name} is a pickle, which is not loaded; save the adapter as safetensors "
            "(PeftModel.from_pretrained, save_pretrained)"
        )
    what = _unsupported_feature(config)
    tensors = {tensor.name: tensor for tensor in stored_tensors(files)}
    odd = next(
        (item for item in tensors.values() if not (item.name.endswith((*_FIRST, *_SECOND)) and is_whole(item))), None
    )
    if what is None and odd is not None:
        what = f"{odd.name} ({odd.dtype}) besides its factors"
    if what is not None:
        raise CheckpointError(
            f"{checkpoint.label}: the adapter has {what}, so a part of it is not a LoRA adapter; {_MERGE}"
        )
    return _Part(checkpoint=checkpoint, config=config, tensors=tensors, is_base=is_base)


def _unsupported_feature(config: Mapping[str, Any]) -> str | None:
    kind = str(config.get("peft_type") or "LORA").upper()
    if kind != "LORA":
        return f"the kind {kind}"
    if config.get("bias", "none") != "none":
        return "trained biases"
    if config.get("init_lora_weights") not in _PLAIN_STARTS:
        return f"base weights moved into its factors (init_lora_weights {config['init_lora_weights']})"
    return next((what for name, what in _OTHER_LAWS.items() if config.get(name)), None)


def _refuse_other_form(first: _Part, last: _Part) -> None:
    """Raise ``CheckpointError`` unless modules, ranks and scales are equal.

    Only then factors can be concatenated.
    """
    labels = f"{first.checkpoint.label} and {last.checkpoint.label}"
    for name in _SHARED:
        ours, theirs = (_comparable(part.config.get(name)) for part in (first, last))
        if ours != theirs:
            raise CheckpointError(
                f"{labels}: {name} differs ({_describe(ours)} and {_describe(theirs)}), so their sum is not a LoRA "
                f"adapter; {_MERGE}"
            )
    shapes = [{name: (item.dtype, item.shape) for name, item in part.tensors.items()} for part in (first, last)]
    if shapes[0] != shapes[1]:
        odd = min(name for name, _ in shapes[0].items() ^ shapes[1].items())
        raise CheckpointError(f"{labels}: {odd} differs in shape or dtype, or only one adapter has it; {_MERGE}")
    if last.config.get("target_parameters"):
        raise CheckpointError(
            f"{last.checkpoint.label}: adapts parameters of experts (target_parameters), whose factors cannot be "
            f"concatenated; {_MERGE}"
        )


def _comparable(value: Any) -> Any:
    return sorted(value) if isinstance(value, list) else value or None


def _describe(value: Any) -> str:
    return "none" if value is None else str(value)[:80]
