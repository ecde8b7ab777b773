"""The change of pass@k since the base, of every problem, at all checkpoints and all k that allow inference."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from diagnostics.measures._counts import sampled_counts
from diagnostics.measures._findings import comparisons
from diagnostics.measures.contract import Evidence
from diagnostics.statistics.keys import inference_ks


@dataclass(frozen=True, kw_only=True)
class Changes:
    """Probabilities, late less base, at the complete checkpoints but the base, in step order, for ascending ``ks``.

    ``why`` has the reason for every checkpoint but the base that is not in ``checkpoint_ids``.
    """

    ks: tuple[int, ...]
    checkpoint_ids: tuple[str, ...]
    change_TPK: Float[np.ndarray, "checkpoint problem k"]
    why: Mapping[str, str]


def changes_of(evidence: Evidence) -> Changes:
    """From the view ``sampled_counts``. k goes up to half of the fewest samples of any problem at any checkpoint."""
    counts = sampled_counts(evidence)
    compared = dict(comparisons(evidence, counts.why))
    complete = [checkpoint_id for checkpoint_id, why_not in compared.items() if not why_not]
    if not complete:
        ks, change_TPK = inference_ks(evidence.n), np.empty((0, 0, 0))
    else:
        base_id = evidence.base_id
        ks = inference_ks(min(counts.least(checkpoint_id) for checkpoint_id in (base_id, *complete)))
        base_PK = np.stack([counts.pass_at_k(base_id, k) for k in ks], axis=-1)
        change_TPK = np.stack(
            [np.stack([counts.pass_at_k(i, k) for k in ks], axis=-1) - base_PK for i in complete],
        )
    why = {checkpoint_id: why_not for checkpoint_id, why_not in compared.items() if why_not}
    return Changes(ks=ks, checkpoint_ids=tuple(complete), change_TPK=change_TPK, why=why)
