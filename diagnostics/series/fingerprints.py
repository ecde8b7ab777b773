"""Are the checkpoints of a series different models? Compares the weights on disk, without torch.

A merge or an export that wrote the base again is common and silent: every number of an audit would say that training
changed nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from diagnostics.records.errors import CheckpointError
from diagnostics.records.types import Checkpoint
from diagnostics.series.numbers import is_whole, rounded, stored_floats
from diagnostics.series.weights import StoredTensor, stored_tensors, tensor_bytes, weight_files

#: Where a model ties it to the embeddings, some writers store it and others do not.
_TIED_HEAD = "lm_head.weight"


def refuse_equal_weights(checkpoints: Sequence[Checkpoint], layout: str) -> None:
    """Raise ``CheckpointError`` for weights that are there twice, and for adapters after the base that change nothing.

    Full models are compared with the base, the first of ``checkpoints``, whatever the dtypes: verl's merger writes
    bfloat16 where the base may be float32. ``layout`` is that of the series.
    """
    base = checkpoints[0]
    by_hash: dict[str, Checkpoint] = {}
    for checkpoint in checkpoints:
        twin = by_hash.setdefault(checkpoint.weights_hash, checkpoint)
        if twin is not checkpoint:
            raise _written_twice(twin, checkpoint, f"hold the same weights ({checkpoint.weights_hash})", layout)
        if checkpoint is base:
            continue
        if checkpoint.kind == "lora" and is_identity(weight_files(checkpoint.path, adapter=True)):
            raise CheckpointError(
                f"{checkpoint.label}: the adapter changes nothing, every lora_B in {checkpoint.path} is zero: the save "
                "wrote an untrained one, or nothing was learnt up to there; write it anew or leave it out"
            )
        both_full = checkpoint.kind == base.kind == "full"
        if both_full and same_in_another_form(weight_files(checkpoint.path), weight_files(base.path)):
            raise _written_twice(base, checkpoint, "hold the same weights but for their rounding", layout)


def _written_twice(first: Checkpoint, second: Checkpoint, what: str, layout: str) -> CheckpointError:
    why = f"a merge or save wrote one model twice: write {second.path} anew or leave it out"
    if layout == "verl":
        why = (
            "verl's model_merger writes the unmodified base of a LoRA run and the training into lora_adapter/: put "
            f"that folder into {second.path}, or merge again, or leave it out"
        )
    return CheckpointError(f"{first.label} and {second.label} {what}; {why}")


def same_in_another_form(files: Sequence[Path], base: Sequence[Path]) -> bool:
    """Whether ``files`` hold the weights in ``base`` rounded to other dtypes, or with a tied head more or less.

    Reads up to the first difference, and nothing where names and dtypes agree: there the hashes tell. The rounding
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
    """Whether the LoRA adapter in ``files`` adds nothing: it has factors alone, and the second of each pair is zero."""
    import numpy as np

    tensors = stored_tensors(files)
    seconds = [tensor for tensor in tensors if "lora_B" in tensor.name or "lora_embedding_B" in tensor.name]
    firsts = [tensor for tensor in tensors if "lora_A" in tensor.name or "lora_embedding_A" in tensor.name]
    if not seconds or len(firsts) + len(seconds) != len(tensors) or not all(map(is_whole, seconds)):
        return False
    return not any(np.any(number_N) for tensor in seconds for number_N in stored_floats(tensor))


def _is_rounded(ours: StoredTensor, theirs: StoredTensor) -> bool:
    """Whether the first tensor is the second, rounded to the dtype of the first."""
    import numpy as np

    if ours.dtype == theirs.dtype:
        same_size = ours.end - ours.start == theirs.end - theirs.start
        pairs = zip(tensor_bytes(ours), tensor_bytes(theirs), strict=True)
        return ours.shape == theirs.shape and same_size and all(one == other for one, other in pairs)
    if ours.shape != theirs.shape or not (is_whole(ours) and is_whole(theirs)):
        return False
    chunks = zip(stored_floats(ours), stored_floats(theirs), strict=True)
    return all(np.array_equal(number_N, rounded(other_N, ours.dtype)) for number_N, other_N in chunks)
