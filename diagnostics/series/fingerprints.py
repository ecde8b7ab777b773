"""Finds checkpoints of a series with equal weights, without torch.

A merge or an export that wrote the base again is common and silent: every number of an audit would say that training
changed nothing. A run that never got a reward looks the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from oversharp.diagnostics.records.errors import CheckpointError
from oversharp.diagnostics.records.types import Checkpoint
from oversharp.diagnostics.series.numbers import is_whole, rounded, stored_floats
from oversharp.diagnostics.series.weights import (
    IncompleteCheckpointError,
    StoredTensor,
    stored_tensors,
    tensor_bytes,
    weight_files,
)

#: Where a model ties it to the embeddings, some writers store it and others do not.
_TIED_HEAD = "lm_head.weight"
_EMBEDDINGS = ("model.embed_tokens.weight", "transformer.wte.weight", "model.language_model.embed_tokens.weight")


def mark_equal_weights(checkpoints: Sequence[Checkpoint], layout: str) -> tuple[list[Checkpoint], list[str]]:
    """``checkpoints`` with those marked whose weights an earlier one has, and a line that names them; none for none.

    A run that never got a reward has such checkpoints, and so has a save that wrote one model twice. Full models are
    compared with the base, the first of ``checkpoints``, also in other dtypes. Adapters after the base that change
    nothing count as equal to it. ``layout`` is that of the series: raises ``CheckpointError`` for verl's, whose merger
    writes the base again.
    """
    base = checkpoints[0]
    first_by_hash: dict[str, Checkpoint] = {}
    marked: list[Checkpoint] = []
    equal: dict[str, list[str]] = {}
    for checkpoint in checkpoints:
        twin = first_by_hash.setdefault(checkpoint.weights_hash, checkpoint)
        marked.append(checkpoint if twin is checkpoint else replace(checkpoint, repeats=True))
        if checkpoint is base:
            continue
        what = "hold the same weights"
        if twin is checkpoint and is_base_again(checkpoint, base):
            twin, what = base, f"{what} but for their rounding" if checkpoint.kind == "full" else what
        if twin is checkpoint:
            continue
        if layout == "verl" and checkpoint.kind == "full":
            raise _merged_base(twin, checkpoint, what)
        equal.setdefault(twin.label, []).append(checkpoint.label)
    return marked, [_equal_line(first, labels) for first, labels in equal.items()]


def is_base_again(checkpoint: Checkpoint, base: Checkpoint) -> bool:
    """Return whether a later checkpoint is the base: equal or rounded weights, or an adapter that adds nothing."""
    if checkpoint.weights_hash == base.weights_hash:
        return True
    if checkpoint.kind == "lora":
        return is_identity(weight_files(checkpoint.path, adapter=True))
    return base.kind == "full" and same_in_another_form(weight_files(checkpoint.path), weight_files(base.path))


def _merged_base(first: Checkpoint, second: Checkpoint, what: str) -> CheckpointError:
    return CheckpointError(
        f"{first.label} and {second.label} {what}; verl's model_merger writes the unmodified base of a LoRA run and "
        f"the training into lora_adapter/: put that folder into {second.path}, or merge again, or leave it out"
    )


def _equal_line(first: str, labels: Sequence[str]) -> str:
    listed = f"{', '.join(labels[:3])}{f' and {len(labels) - 3} more' if len(labels) > 3 else ''}"
    return (
        f"warning: {listed} {'has' if len(labels) == 1 else 'have'} the same weights as {first}: the run learned "
        "nothing there (no reward, or updates lost in rounding), or a save wrote one model twice; differences between "
        "them are sampling noise"
    )


def same_in_another_form(files: Sequence[Path], base: Sequence[Path]) -> bool:
    """Return whether ``files`` hold the weights in ``base`` rounded to other dtypes, or with a tied head more or less.

    Reads up to the first difference, and nothing where names and dtypes agree: there the hashes decide. The rounding
    goes one way: float32 weights that round to those of a bfloat16 base may have been trained. Pickles are not opened.
    """
    if any(file.suffix != ".safetensors" for file in (*files, *base)):
        return False
    ours, theirs = ({tensor.name: tensor for tensor in stored_tensors(group)} for group in (files, base))
    shared = sorted(ours.keys() & theirs.keys())
    same_form = ours.keys() == theirs.keys() and all(ours[name].dtype == theirs[name].dtype for name in shared)
    if same_form or not shared or (ours.keys() ^ theirs.keys()) - {_TIED_HEAD}:
        return False
    return all(_is_rounded(ours[name], theirs[name]) for name in shared)


def is_identity(files: Sequence[Path]) -> bool:
    """Return whether the LoRA adapter in ``files`` adds nothing: the second factor of each pair is zero."""
    import numpy as np

    tensors = stored_tensors(files)
    seconds = [tensor for tensor in tensors if "lora_B" in tensor.name or "lora_embedding_B" in tensor.name]
    firsts = [tensor for tensor in tensors if "lora_A" in tensor.name or "lora_embedding_A" in tensor.name]
    if not seconds or len(firsts) + len(seconds) != len(tensors) or not all(map(is_whole, seconds)):
        return False
    return not any(np.any(number_N) for tensor in seconds for number_N in stored_floats(tensor))


def refuse_untied_head(files: Sequence[Path], *, tied: bool) -> None:
    """Raise ``IncompleteCheckpointError`` for a stored head that differs from the embeddings it would be tied to.

    transformers takes the embeddings where the configuration ties both, and ignores the head in the file.
    """
    if not tied:
        return
    by_name = {tensor.name: tensor for tensor in stored_tensors(files)}
    head = by_name.get(_TIED_HEAD)
    embeddings = next((by_name[name] for name in _EMBEDDINGS if name in by_name), None)
    if head is None or embeddings is None or _is_rounded(head, embeddings) or _is_rounded(embeddings, head):
        return
    raise IncompleteCheckpointError(
        f"config.json ties the head to the embeddings (tie_word_embeddings), and {head.file.name} has another "
        f"{_TIED_HEAD} than {embeddings.name}; set tie_word_embeddings to false if the head was trained, or remove it "
        "from the file"
    )


def is_tied(config: Mapping[str, Any]) -> bool:
    """Return whether the content of a config.json says that the head is tied to the embeddings."""
    inner = config.get("text_config")
    return any(isinstance(part, dict) and part.get("tie_word_embeddings") is True for part in (config, inner))


def _is_rounded(ours: StoredTensor, theirs: StoredTensor) -> bool:
    """Return whether the first tensor is the second, rounded to the dtype of the first."""
    import numpy as np

    if ours.dtype == theirs.dtype:
        same_size = ours.end - ours.start == theirs.end - theirs.start
        pairs = zip(tensor_bytes(ours), tensor_bytes(theirs), strict=True)
        return ours.shape == theirs.shape and same_size and all(ours_value == other for ours_value, other in pairs)
    if ours.shape != theirs.shape or not (is_whole(ours) and is_whole(theirs)):
        return False
    chunks = zip(stored_floats(ours), stored_floats(theirs), strict=True)
    return all(np.array_equal(number_N, rounded(other_N, ours.dtype)) for number_N, other_N in chunks)
