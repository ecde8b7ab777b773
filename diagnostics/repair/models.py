"""Full models: which tensor of the base belongs to which of the checkpoint, and what cannot be mixed."""

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
from oversharp.diagnostics.repair.mixing import Rounding, mixed
from oversharp.diagnostics.repair.sources import Sources
from oversharp.diagnostics.repair.tensor_files import PlannedFiles, PlannedTensor, as_it_lies
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

#: What tensors do not show: two models of equal shapes that differ here compute something else.
_LAW = (
    "model_type",
    "num_hidden_layers",
    "n_layer",
    "num_attention_heads",
    "n_head",
    "num_key_value_heads",
    "head_dim",
)
#: Where a model has one matrix for tokens in and out, writers store it under either name, or both.
_TIED = ("embed_tokens.weight", "wte.weight", "word_embeddings.weight", "embed_in.weight", "lm_head.weight")
#: Computed from the configuration, stored by some writers only.
_CONSTANTS = ("inv_freq",)


class Models:
    """The full models of a repair, matched tensor by tensor.

    Raises ``CheckpointError`` for weights in pickles, quantised ones, and models of other shapes or architectures.
    ``of_base_alone`` are tensors that the checkpoint lacks, such as heads that its trainer does not save.
    """

    config_name = "config.json"

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        for one in sources.all:
            _refuse_what_is_no_numbers(one)
        _refuse_other_laws(sources)
        self._base, *self._others = ({one.name: one for one in _tensors(model)} for model in sources.all)
        self._matched = {name: self._match(tensor) for name, tensor in self._others[-1].items()}
        _refuse_lost_head(sources, self._base, self._others[-1])
        lacking = self._base.keys() - self._others[-1].keys()
        self.of_base_alone = tuple(sorted(name for name in lacking if not _is_tied(name)))

    def config(self, checkpoint: Checkpoint, *, computed: bool, float32: bool) -> dict[str, Any]:
        """The config.json of ``checkpoint``, with the dtype of what was ``computed``."""
        config = configuration(checkpoint)
        if computed and float32:
            config |= {name: "float32" for name in ("dtype", "torch_dtype") if name in config} or {"dtype": "float32"}
        return config

    def hash(self, folder: Path) -> str:
        """What identifies the weights that were written into ``folder``."""
        return weights_hash(weight_files(folder))

    def files(self, lambda_: float, *, float32: bool, rounding: Rounding) -> PlannedFiles:
        """The weight files of this point, laid out as those of the checkpoint."""
        planned: dict[str, list[PlannedTensor]] = {}
        for name, tensor in self._others[-1].items():
            one = self._planned(tensor, self._matched[name], lambda_, float32, rounding)
            planned.setdefault(tensor.file.name, []).append(one)
        return planned

    def _planned(
        self, own: StoredTensor, matched: Sequence[StoredTensor], lambda_: float, float32: bool, rounding: Rounding
    ) -> PlannedTensor:
        if not matched:
            return as_it_lies(own)
        dtype = "F32" if float32 and FLOAT_BYTES[own.dtype] < 4 else own.dtype
        base, *others = matched
        return PlannedTensor(
            name=own.name,
            dtype=dtype,
            shape=own.shape,
            n_bytes=prod(own.shape) * FLOAT_BYTES[dtype],
            chunks=partial(mixed, base, others, lambda_ / len(others), dtype, rounding),
        )

    def _match(self, own: StoredTensor) -> tuple[StoredTensor, ...]:
        """The tensor of the base and of every checkpoint that goes into this one; none where it is copied."""
        if own.dtype not in FLOAT_BYTES:
            return ()
        found = [_counterpart(own.name, tensors) for tensors in (self._base, *self._others)]
        last = self._sources.last
        for model, one in zip(self._sources.all, found, strict=True):
            if one is None and own.name.endswith(_CONSTANTS):
                return ()
            if one is None:
                raise CheckpointError(
                    f"{model.label}: has no tensor {own.name}, which {last.label} has; they are of other "
                    "architectures, or of other writers: then load and save the first with the library that wrote the "
                    "second (from_pretrained, save_pretrained)"
                )
            if one.shape != own.shape or not is_whole(one):
                raise CheckpointError(
                    f"{own.name} is {_form(one)} in {model.label} and {_form(own)} in {last.label}; give with --base "
                    "the model that this run began from"
                )
        return tuple(one for one in found if one is not None)


def _tensors(checkpoint: Checkpoint) -> list[StoredTensor]:
    return stored_tensors(weight_files(checkpoint.path))


def _form(tensor: StoredTensor) -> str:
    return f"{tensor.dtype} {list(tensor.shape)}"


def _is_tied(name: str) -> bool:
    return name.endswith(_TIED)


def _counterpart(name: str, tensors: Tensors) -> StoredTensor | None:
    """The tensor of this name; of a tied matrix that is stored once, the one under its other name."""
    if name in tensors or not _is_tied(name):
        return tensors.get(name)
    twins = [one for other, one in tensors.items() if _is_tied(other)]
    return twins[0] if len(twins) == 1 else None


# ---------------------------------------------------------------- what cannot be mixed


def _refuse_what_is_no_numbers(checkpoint: Checkpoint) -> None:
    pickles = [file for file in weight_files(checkpoint.path) if file.suffix != ".safetensors"]
    if pickles:
        raise CheckpointError(
            f"{checkpoint.label}: {pickles[0].name} is a pickle, which is not opened; save the model as safetensors "
            "(from_pretrained, save_pretrained)"
        )
    config = configuration(checkpoint)
    odd = next((one for one in _tensors(checkpoint) if one.dtype in CODED), None)
    said = config.get("quantization_config") or config.get("compression_config")
    if odd is not None or said:
        what = "config.json says so" if odd is None else f"{odd.name} is {odd.dtype}"
        raise CheckpointError(
            f"{checkpoint.label}: its weights are quantised ({what}), and there is nothing between two codes; give the "
            "checkpoint as it was before it was quantised"
        )


def configuration(checkpoint: Checkpoint) -> dict[str, Any]:
    """The content of the checkpoint's config.json. Raises ``CheckpointError`` where it is no object."""
    return read_object(checkpoint.path / "config.json")


def read_object(path: Path) -> dict[str, Any]:
    """A JSON object on disk. Raises ``CheckpointError`` where it is none."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(f"{path}: cannot be read ({error}); restore it") from error
    if not isinstance(content, dict):
        raise CheckpointError(f"{path}: is not a JSON object; restore it")
    return content


def _refuse_other_laws(sources: Sources) -> None:
    laws = [_law(configuration(one)) for one in sources.all]
    for model, law in zip(sources.all, laws, strict=True):
        for name in law.keys() & laws[-1].keys():
            if law[name] != laws[-1][name]:
                raise CheckpointError(
                    f"{model.label} and {sources.last.label}: {name} is {law[name]} and {laws[-1][name]}, they are of "
                    "other architectures; give with --base the model that this run began from"
                )


def _law(config: Mapping[str, Any]) -> dict[str, Any]:
    of_text = config.get("text_config")
    inner = of_text if isinstance(of_text, dict) else {}
    both = {**config, **{name: value for name, value in inner.items() if name != "model_type"}}
    return {name: both[name] for name in _LAW if both.get(name) is not None}


def _refuse_lost_head(sources: Sources, base: Tensors, own: Tensors) -> None:
    """Raise ``CheckpointError`` where the base has two matrices and the checkpoint ties them to one."""
    of_base, of_own = ([one for name, one in tensors.items() if _is_tied(name)] for tensors in (base, own))
    if len(of_own) == 1 and len(of_base) == 2 and not _same(of_base[0], of_base[1]):
        raise CheckpointError(
            f"{sources.base.label} has an output head of its own, {sources.last.label} ties it to the embeddings: they "
            "are of other architectures; give with --base the model that this run began from"
        )


def _same(one: StoredTensor, other: StoredTensor) -> bool:
    same_form = (one.dtype, one.shape) == (other.dtype, other.shape)
    return same_form and all(a == b for a, b in zip_longest(tensor_bytes(one), tensor_bytes(other)))
