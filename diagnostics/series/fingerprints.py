"""Find checkpoints with equal weights in a series, without torch.

Merges and exports often write the base again without an error. An audit would then find that training changed nothing.
A run that never received a reward looks the same.
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

#: Some libraries store a tied output head, others do not.
_TIED_HEAD = "lm_head.weight"
_EMBEDDINGS = ("model.embed_tokens.weight", "transformer.wte.weight", "model.language_model.embed_tokens.weight")


def mark_equal_weights(checkpoints: Sequence[Checkpoint], layout: str) -> tuple[list[Checkpoint], list[str]]:
    """Mark checkpoints whose weights equal those of an earlier one, and return a note per group.

    Full models are also compared with the base (the first checkpoint) across dtypes. Untrained adapters after the base
    count as equal to it. Raises ``CheckpointError`` for equal models in verl's ``layout``, because its merger can write
    the base again.
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
        equality = "have the same weights"
        if twin is checkpoint and equals_base(checkpoint, base):
            twin, equality = base, f"{equality} up to rounding" if checkpoint.kind == "full" else equality
        if twin is checkpoint:
            continue
        if layout == "verl" and checkpoint.kind == "full":
            raise CheckpointError(
                f"{twin.label} and {checkpoint.label} {equality}; verl's model_merger writes the unmodified base of "
                f"a LoRA run, and the trained adapter into lora_adapter/: move that folder into {checkpoint.path}, "
                "or merge again, or exclude the checkpoint"
            )
        equal.setdefault(twin.label, []).append(checkpoint.label)
    return marked, [
        f"warning: {join_labels(labels)} {'has' if len(labels) == 1 else 'have'} the same weights as {first}: "
        "training changed nothing (no reward, or updates lost in rounding), or the same model was saved twice; "
        "differences between them are sampling noise"
        for first, labels in equal.items()
    ]


def join_labels(labels: Sequence[str]) -> str:
    """Return at most three labels, followed by the number of other labels.

    >>> join_labels(["a", "b", "c", "d"])
    'a, b, c and 1 more'
    """
    return f"{', '.join(labels[:3])}{f' and {len(labels) - 3} more' if len(labels) > 3 else ''}"


def equals_base(checkpoint: Checkpoint, base: Checkpoint) -> bool:
    """Return whether a checkpoint has the base's weights, equal or rounded, or an untrained adapter."""
    if checkpoint.weights_hash == base.weights_hash:
        return True
    if checkpoint.kind == "lora":
        return is_identity(weight_files(checkpoint.path, adapter=True))
    return base.kind == "full" and is_rounded_copy(weight_files(checkpoint.path), weight_files(base.path))


def is_rounded_copy(files: Sequence[Path], base: Sequence[Path]) -> bool:
    """Return whether ``files`` are ``base`` in other dtypes, or with or without a tied output head.

    Reads up to the first difference. Returns False if names and dtypes agree, because then the hashes decide. Only
    rounding of the base counts: float32 weights that round to a bfloat16 base may have been trained. Pickles are not
    opened.
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
    """Return whether the LoRA adapter in ``files`` is untrained: its second factors (B) are zero."""
    import numpy as np

    tensors = stored_tensors(files)
    seconds = [tensor for tensor in tensors if "lora_B" in tensor.name or "lora_embedding_B" in tensor.name]
    firsts = [tensor for tensor in tensors if "lora_A" in tensor.name or "lora_embedding_A" in tensor.name]
    if not seconds or len(firsts) + len(seconds) != len(tensors) or not all(map(is_whole, seconds)):
        return False
    return not any(np.any(number_N) for tensor in seconds for number_N in stored_floats(tensor))


def refuse_untied_head(files: Sequence[Path], *, tied: bool) -> None:
    """Raise ``IncompleteCheckpointError`` if a ``tied`` output head differs from the embeddings.

    transformers would use the embeddings and ignore the stored head.
    """
    if not tied:
        return
    by_name = {tensor.name: tensor for tensor in stored_tensors(files)}
    head = by_name.get(_TIED_HEAD)
    embeddings = next((by_name[name] for name in _EMBEDDINGS if name in by_name), None)
    if head is None or embeddings is None or _is_rounded(head, embeddings) or _is_rounded(embeddings, head):
        return
    raise IncompleteCheckpointError(
        f"config.json ties the output head to the embeddings (tie_word_embeddings), but in {head.file.name} "
        f"{_TIED_HEAD} differs from {embeddings.name}; set tie_word_embeddings to false if the head was trained, or "
        "remove it "
        "from the file"
    )


def is_tied(config: Mapping[str, Any]) -> bool:
    """Return whether a config.json ties the output head to the embeddings."""
    inner = config.get("text_config")
    return any(isinstance(part, dict) and part.get("tie_word_embeddings") is True for part in (config, inner))


def _is_rounded(ours: StoredTensor, theirs: StoredTensor) -> bool:
    """Return whether the first tensor equals the second, rounded to the dtype of the first."""
    import numpy as np

    if ours.dtype == theirs.dtype:
        same_size = ours.end - ours.start == theirs.end - theirs.start
        pairs = zip(tensor_bytes(ours), tensor_bytes(theirs), strict=True)
        return ours.shape == theirs.shape and same_size and all(first == second for first, second in pairs)
    if ours.shape != theirs.shape or not (is_whole(ours) and is_whole(theirs)):
        return False
    chunks = zip(stored_floats(ours), stored_floats(theirs), strict=True)
    return all(np.array_equal(number_N, rounded(other_N, ours.dtype)) for number_N, other_N in chunks)
