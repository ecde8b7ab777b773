"""LoRA adapters: the move of the weights is B·A times a scale, so a part of it is the adapter with a smaller B.

A sum of such moves is an adapter whose factors are those of its parts side by side: exact, at the sum of their ranks.
Rounding it back to one rank would lose a part of it that nobody asked to lose.
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
from oversharp.diagnostics.repair.mixing import Rounding, scaled, scaled_numbers, whole
from oversharp.diagnostics.repair.models import read_object
from oversharp.diagnostics.repair.sources import Sources
from oversharp.diagnostics.repair.tensor_files import PlannedFiles, PlannedTensor, as_it_lies
from oversharp.diagnostics.series.finding import ADAPTER_CONFIG, adapter_hash
from oversharp.diagnostics.series.fingerprints import is_identity
from oversharp.diagnostics.series.folders import locate_model
from oversharp.diagnostics.series.numbers import FLOAT_BYTES, is_whole, stored_bytes
from oversharp.diagnostics.series.weights import StoredTensor, stored_tensors, tensor_bytes, weight_files, weights_hash

FILE = "adapter_model.safetensors"

#: First and second factors, as peft names them.
_FIRST = (".lora_A.weight", ".lora_embedding_A")
_SECOND = (".lora_B.weight", ".lora_embedding_B")
#: Entries of adapter_config.json with which a part of the adapter is not a part of the way, and what they mean.
_OTHER_LAWS = {
    "use_dora": "DoRA, which normalises the weights",
    "modules_to_save": "whole modules beside its factors (modules_to_save)",
    "trainable_token_indices": "rows of the embeddings beside its factors (trainable_token_indices)",
    "lora_bias": "trained biases (lora_bias)",
    "alora_invocation_tokens": "activation by tokens (aLoRA)",
    "arrow_config": "routing between adapters (Arrow)",
    "use_qalora": "QALoRA, which pools its input",
    "use_bdlora": "block-diagonal factors (BD-LoRA)",
    "kasa_config": "singular values beside its factors (KaSA)",
    "monteclora_config": "random factors (MonteCLoRA)",
    "velora_config": "compressed activations (VeLoRA)",
}
#: Starts that leave the model under the adapter as it is; the others move weights of the base into the factors.
_PLAIN_STARTS = (None, True, False, "gaussian", "eva")
#: What the adapters of one average must share.
_SHARED = ("r", "lora_alpha", "rank_pattern", "alpha_pattern", "use_rslora", "fan_in_fan_out", "target_modules")
_MERGE = "merge the adapters into their model (merge_and_unload of peft) and repair full models"


@dataclass(frozen=True, kw_only=True)
class _Part:
    """An adapter, and its weight in the sum at λ = 1, apart from what λ does to it."""

    checkpoint: Checkpoint
    config: Mapping[str, Any]
    tensors: Mapping[str, StoredTensor]
    is_base: bool

    def weight(self, lambda_: float, n: int) -> float:
        return 1 - lambda_ if self.is_base else lambda_ / n


class Adapters:
    """The adapters of a repair. An untrained adapter as base adds nothing and is left out of the sum.

    Raises ``CheckpointError`` for adapters that are not plain LoRA, pickles, and a sum of adapters of other ranks,
    scales or targets.
    """

    config_name = ADAPTER_CONFIG
    of_base_alone: tuple[str, ...] = ()

    def __init__(self, sources: Sources) -> None:
        base = sources.base
        trained_base = base.kind == "lora" and not is_identity(weight_files(base.path, adapter=True))
        self._parts = [_part(base, is_base=True)] if trained_base else []
        self._parts += [_part(one, is_base=False) for one in sources.checkpoints]
        self._n = len(sources.checkpoints)
        under = base.base_path
        self._model_hash = base.weights_hash if under is None else weights_hash(weight_files(under))
        for one in self._parts[:-1]:
            _refuse_other_form(one, self._parts[-1])

    def files(self, lambda_: float, *, float32: bool, rounding: Rounding) -> PlannedFiles:
        """The one weight file of this point. ``rounding`` is for models: scaled factors keep their digits."""
        planned = [self._planned(name, lambda_, float32) for name in self._parts[-1].tensors]
        return {FILE: planned}

    def config(self, checkpoint: Checkpoint, *, computed: bool, float32: bool) -> dict[str, Any]:
        """The adapter_config.json of ``checkpoint``, with the ranks of a sum where one was ``computed``."""
        config = read_object(checkpoint.path / ADAPTER_CONFIG)
        config["base_model_name_or_path"] = _found_anywhere(checkpoint, config)
        n = len(self._parts) if computed else 1
        if n > 1:
            config |= {name: n * config[name] for name in ("r", "lora_alpha")}
            for name in ("rank_pattern", "alpha_pattern"):
                config[name] = {key: n * value for key, value in (config.get(name) or {}).items()}
        return config

    def hash(self, folder: Path) -> str:
        """What identifies the weights that were written into ``folder``, with the model under them."""
        files = weight_files(folder, adapter=True)
        return adapter_hash(files, read_object(folder / ADAPTER_CONFIG), self._model_hash)

    def _planned(self, name: str, lambda_: float, float32: bool) -> PlannedTensor:
        own = [part.tensors[name] for part in self._parts]
        if name.endswith(_FIRST):
            return as_it_lies(own[0]) if len(own) == 1 else _stacked(own)
        dtype = "F32" if float32 and FLOAT_BYTES[own[-1].dtype] < 4 else own[-1].dtype
        weights = [part.weight(lambda_, self._n) * self._scale() for part in self._parts]
        rows, *rank = own[-1].shape
        shape = (rows, len(own) * rank[0], *rank[1:])
        return PlannedTensor(
            name=name,
            dtype=dtype,
            shape=shape,
            n_bytes=math.prod(shape) * FLOAT_BYTES[dtype],
            chunks=partial(scaled, own[0], weights[0], dtype)
            if len(own) == 1
            else partial(_side_by_side, own, weights, dtype),
        )

    def _scale(self) -> float:
        """With rsLoRA α/√r of n parts at n·α and n·r is √n times that of one, with plain LoRA α/r is the same."""
        return 1 / math.sqrt(len(self._parts)) if self._parts[-1].config.get("use_rslora") else 1.0


def _found_anywhere(checkpoint: Checkpoint, config: Mapping[str, Any]) -> str:
    """What names the model under the adapter from any folder: the hub's name where it has one, else the whole path."""
    named = str(config.get("base_model_name_or_path") or ".")
    under = checkpoint.base_path
    assert under is not None  # what find_series says of adapters
    by_name = not Path(named).exists() and locate_model(named)
    return named if by_name else str(under)


def _stacked(own: Sequence[StoredTensor]) -> PlannedTensor:
    """First factors one below the other, as they lie."""

    def chunks() -> Iterator[bytes]:
        for one in own:
            yield from tensor_bytes(one)

    rank, *columns = own[0].shape
    return PlannedTensor(
        name=own[0].name,
        dtype=own[0].dtype,
        shape=(len(own) * rank, *columns),
        n_bytes=sum(one.end - one.start for one in own),
        chunks=chunks,
    )


def _side_by_side(own: Sequence[StoredTensor], weights: Sequence[float], dtype: str) -> Iterator[bytes]:
    import numpy as np

    parts = [scaled_numbers(whole(one), weight, dtype, one.name) for one, weight in zip(own, weights, strict=True)]
    yield stored_bytes(np.concatenate(parts, axis=1), dtype)


# ---------------------------------------------------------------- what cannot be mixed


def _part(checkpoint: Checkpoint, *, is_base: bool) -> _Part:
    config = read_object(checkpoint.path / ADAPTER_CONFIG)
    files = weight_files(checkpoint.path, adapter=True)
    if files[0].suffix != ".safetensors":
        raise CheckpointError(
            f"{checkpoint.label}: {files[0].name} is a pickle, which is not opened; save the adapter as safetensors "
            "(PeftModel.from_pretrained, save_pretrained)"
        )
    what = _other_law(config)
    tensors = {one.name: one for one in stored_tensors(files)}
    odd = next(
        (one for one in tensors.values() if not (one.name.endswith((*_FIRST, *_SECOND)) and is_whole(one))), None
    )
    if what is None and odd is not None:
        what = f"{odd.name} ({odd.dtype}) beside its factors"
    if what is not None:
        raise CheckpointError(
            f"{checkpoint.label}: the adapter has {what}, so a part of it is no LoRA adapter; {_MERGE}"
        )
    return _Part(checkpoint=checkpoint, config=config, tensors=tensors, is_base=is_base)


def _other_law(config: Mapping[str, Any]) -> str | None:
    kind = str(config.get("peft_type") or "LORA").upper()
    if kind != "LORA":
        return f"the kind {kind}"
    if config.get("bias", "none") != "none":
        return "trained biases"
    if config.get("init_lora_weights") not in _PLAIN_STARTS:
        return f"moved weights of its model into its factors (init_lora_weights {config['init_lora_weights']})"
    return next((what for name, what in _OTHER_LAWS.items() if config.get(name)), None)


def _refuse_other_form(one: _Part, last: _Part) -> None:
    """Factors stand side by side only where the modules, the ranks and the scales are the same."""
    labels = f"{one.checkpoint.label} and {last.checkpoint.label}"
    for name in _SHARED:
        ours, theirs = (_comparable(part.config.get(name)) for part in (one, last))
        if ours != theirs:
            raise CheckpointError(
                f"{labels}: adapters with other {name} ({_told(ours)} and {_told(theirs)}) have no sum of one form; "
                f"{_MERGE}"
            )
    shapes = [{name: (one.dtype, one.shape) for name, one in part.tensors.items()} for part in (one, last)]
    if shapes[0] != shapes[1]:
        odd = min(name for name, _ in shapes[0].items() ^ shapes[1].items())
        raise CheckpointError(f"{labels}: {odd} differs in shape or dtype, or only one has it; {_MERGE}")
    if last.config.get("target_parameters"):
        raise CheckpointError(
            f"{last.checkpoint.label}: adapts parameters of experts (target_parameters), whose factors do not lie side "
            f"by side; {_MERGE}"
        )


def _comparable(value: Any) -> Any:
    return sorted(value) if isinstance(value, list) else value or None


def _told(value: Any) -> str:
    return "none" if value is None else str(value)[:80]
