"""Choose the default precision of a model from the headers of its weight files."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, cast

from oversharp.diagnostics.records.types import Checkpoint
from oversharp.diagnostics.series.weights import stored_tensors, weight_files

if TYPE_CHECKING:
    import torch

    from oversharp.diagnostics.models.load import Dtype

_NAMES = {"F32": "float32", "BF16": "bfloat16", "F16": "float16"}


def choose_dtype(base: Checkpoint, device: torch.device) -> tuple[Dtype, str]:
    """Return the precision for a series with this base, and the reason.

    It is the precision of the weight files, because models are trained and served in it. float32 is used instead in
    three cases: the model has fewer than ``ONE_THREAD_BELOW_PARAMETERS`` parameters, so that a lower precision is not
    faster; this CPU has no matrix instructions for the precision; or the precision of the weight files is unknown.
    """
    from oversharp.diagnostics.models.devices import ONE_THREAD_BELOW_PARAMETERS, has_products_of

    own, n_parameters = stored_dtype(base.base_path or base.path)
    if own is None:
        return "float32", "the precision of the weight files is unknown"
    if own == "float32":
        return own, "the precision of the checkpoint"
    if n_parameters < ONE_THREAD_BELOW_PARAMETERS:
        return "float32", f"more exact, and as fast at {n_parameters:,} parameters"
    if device.type == "cpu" and not has_products_of(own):
        return "float32", f"this CPU has no matrix instructions for {own}"
    return own, "the precision of the checkpoint"


def stored_dtype(folder: Path) -> tuple[Dtype | None, int]:
    """Return the precision of most of the stored numbers, and the count of all numbers.

    The precision is None for pickle files and for integer codes of quantised weights.
    """
    sizes: Counter[str] = Counter()
    for tensor in stored_tensors(weight_files(folder)):
        sizes[tensor.dtype] += math.prod(tensor.shape)
    if not sizes:
        return None, 0
    most = sizes.most_common(1)[0][0]
    return cast("Dtype | None", _NAMES.get(most)), sizes.total()
