"""Mix full models. Match their tensors, and refuse models that cannot be mixed."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import zip_longest
from math import prod
from pathlib import Path
from typing import Any

from oversharp.diagnostics.records.errors import CheckpointError
from oversharp.diagnostics.records.types import Checkpoint
from oversharp.diagnostics.repair.mixing import Rounding, mix
from oversharp.diagnostics.repair.sources import Sources
from oversharp.diagnostics.repair.tensor_files import PlannedFiles, PlannedTensor, plan_copy
from oversharp.diagnostics.series.numbers import FLOAT_BYTES, is_whole
from oversharp.diagnostics.series.weights import (
    CODED,
    StoredTensor,
    stored_tensors,
    tensor_bytes,
    weight_files,
    weights_hash,
)

Tensors = Mapping[str, StoredTensor]

#: Settings that change the computation although the tensor shapes stay the same.
_ARCHITECTURE = (
    "model_type", "num_hidden_layers", "n_layer", "num_attention_heads", "n_head", "num_key_value_heads", "head_dim",
)  # fmt: skip
#: Names of the matrix that embeddings and output head share. It may be stored under one name or both.
_TIED = ("embed_tokens.weight", "wte.weight", "word_embeddings.weight", "embed_in.weight", "lm_head.weight")
#: Buffers that are computed from the configuration. Only some libraries store them.
_CONSTANTS = ("inv_freq",)


class Models:
    """The full models of a repair, with matched tensors.

    ``base_only`` lists tensors that the checkpoint lacks, such as heads that its trainer does not save. Raises
    ``CheckpointError`` for pickled or quantised weights, and for models of different shapes or architectures.
    """

    config_name = "config.json"

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        for checkpoint in sources.all:
            _refuse_codes_and_pickles(checkpoint)
        _refuse_other_architectures(sources)
        self._base, *self._others = ({tensor.name: tensor for tensor in _tensors(model)} for model in sources.all)
        self._matched = {name: self._match(tensor) for name, tensor in self._others[-1].items()}
        _refuse_lost_head(sources, self._base, self._others[-1])
        lacking = self._base.keys() - self._others[-1].keys()
        self.base_only = tuple(sorted(name for name in lacking if not _is_tied(name)))

    def make_config(self, checkpoint: Checkpoint, *, computed: bool, float32: bool) -> dict[str, Any]:
        """Return the config.json of ``checkpoint``. If ``computed``, its dtype is that of the result."""
        config = _load_config(checkpoint)
        if computed and float32:
            config |= {name: "float32" for name in ("dtype", "torch_dtype") if name in config} or {"dtype": "float32"}
        return config

    def hash_folder(self, folder: Path) -> str:
        """Return the hash of the weights in ``folder``."""
        return weights_hash(weight_files(folder))

    def plan_files(self, lambda_: float, *, float32: bool, rounding: Rounding) -> PlannedFiles:
        """Plan the weight files of this point. They have the checkpoint's file names."""
        planned: dict[str, list[PlannedTensor]] = {}
        for name, tensor in self._others[-1].items():
            plan = self._plan(tensor, self._matched[name], lambda_, float32, rounding)
            planned.setdefault(tensor.file.name, []).append(plan)
        return planned

    def _plan(
        self, own: StoredTensor, matched: Sequence[StoredTensor], lambda_: float, float32: bool, rounding: Rounding
    ) -> PlannedTensor:
        if not matched:
            return plan_copy(own)
        dtype = "F32" if float32 and FLOAT_BYTES[own.dtype] < 4 else own.dtype
        base, *others = matched
        return PlannedTensor(
            name=own.name,
            dtype=dtype,
            shape=own.shape,
            n_bytes=prod(own.shape) * FLOAT_BYTES[dtype],
            chunks=partial(mix, base, others, lambda_ / len(others), dtype, rounding),
        )

    def _match(self, own: StoredTensor) -> tuple[StoredTensor, ...]:
        """Return the tensors that are mixed into this tensor; empty if it is copied unchanged."""
        if own.dtype not in FLOAT_BYTES:
            return ()
        counterparts = [_counterpart(own.name, tensors) for tensors in (self._base, *self._others)]
        last = self._sources.last
        for model, counterpart in zip(self._sources.all, counterparts, strict=True):
            if counterpart is None and own.name.endswith(_CONSTANTS):
                return ()
            if counterpart is None:
                raise CheckpointError(
                    f"{model.label}: has no tensor {own.name}, but {last.label} has it; the architectures differ, or "
                    "different libraries wrote the models. In the second case load and save the first model with "
                    "the library of the second (from_pretrained, save_pretrained)"
                )
            if counterpart.shape != own.shape or not is_whole(counterpart):
                raise CheckpointError(
                    f"{own.name} is {_format(counterpart)} in {model.label} and {_format(own)} in {last.label}; pass "
                    "the model that this run started from with --base"
                )
        return tuple(counterpart for counterpart in counterparts if counterpart is not None)


def _tensors(checkpoint: Checkpoint) -> list[StoredTensor]:
    return stored_tensors(weight_files(checkpoint.path))


def _format(tensor: StoredTensor) -> str:
    return f"{tensor.dtype} {list(tensor.shape)}"


def _is_tied(name: str) -> bool:
    return name.endswith(_TIED)


def _counterpart(name: str, tensors: Tensors) -> StoredTensor | None:
    """Return the tensor of this name, or a tied matrix stored under its other name."""
    if name in tensors or not _is_tied(name):
        return tensors.get(name)
    tied = [tensor for other, tensor in tensors.items() if _is_tied(other)]
    return tied[0] if len(tied) == 1 else None


# ---------------------------------------------------------------- models that cannot be mixed


def _refuse_codes_and_pickles(checkpoint: Checkpoint) -> None:
    pickles = [file for file in weight_files(checkpoint.path) if file.suffix != ".safetensors"]
    if pickles:
        raise CheckpointError(
            f"{checkpoint.label}: {pickles[0].name} is a pickle, which oversharp does not load; save the model as "
            "safetensors "
            "(from_pretrained, save_pretrained)"
        )
    config = _load_config(checkpoint)
    coded = next((tensor for tensor in _tensors(checkpoint) if tensor.dtype in CODED), None)
    if coded is not None or config.get("quantization_config") or config.get("compression_config"):
        reason = "by its config.json" if coded is None else f"{coded.name} is {coded.dtype}"
        raise CheckpointError(
            f"{checkpoint.label}: its weights are quantised ({reason}), and codes cannot be interpolated; pass the "
            "checkpoint before quantisation"
        )


def _load_config(checkpoint: Checkpoint) -> dict[str, Any]:
    return load_object(checkpoint.path / "config.json")


def load_object(path: Path) -> dict[str, Any]:
    """Load a JSON object.

    Raises ``CheckpointError`` for an unreadable file or another JSON value.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(f"{path}: cannot be read ({error}); restore it") from error
    if not isinstance(content, dict):
        raise CheckpointError(f"{path}: is not a JSON object; restore it")
    return content


def _refuse_other_architectures(sources: Sources) -> None:
    architectures = [_architecture(_load_config(checkpoint)) for checkpoint in sources.all]
    for model, architecture in zip(sources.all, architectures, strict=True):
        for name in architecture.keys() & architectures[-1].keys():
            if architecture[name] != architectures[-1][name]:
                raise CheckpointError(
                    f"{model.label} and {sources.last.label}: {name} is {architecture[name]} and "
                    f"{architectures[-1][name]}, so their architectures differ; pass the model that this run started "
                    "from with --base"
                )


def _architecture(config: Mapping[str, Any]) -> dict[str, Any]:
    text_config = config.get("text_config")
    inner = text_config if isinstance(text_config, dict) else {}
    both = {**config, **{name: value for name, value in inner.items() if name != "model_type"}}
    return {name: both[name] for name in _ARCHITECTURE if both.get(name) is not None}


def _refuse_lost_head(sources: Sources, base: Tensors, own: Tensors) -> None:
    """Raise ``CheckpointError`` if the base has a separate output head and the checkpoint does not."""
    base_tied, own_tied = ([tensor for name, tensor in tensors.items() if _is_tied(name)] for tensors in (base, own))
    if len(own_tied) == 1 and len(base_tied) == 2 and not _same(*base_tied):
        raise CheckpointError(
            f"{sources.base.label} has a separate output head, but {sources.last.label} ties it to the embeddings: the "
            "architectures differ; pass the model that this run started from with --base"
        )


def _same(first: StoredTensor, second: StoredTensor) -> bool:
    same_format = (first.dtype, first.shape) == (second.dtype, second.shape)
    return same_format and all(a == b for a, b in zip_longest(tensor_bytes(first), tensor_bytes(second)))
