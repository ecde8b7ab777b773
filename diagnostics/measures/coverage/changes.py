"""Changes of pass@k since the base, of every problem, at all checkpoints and all k that allow inference."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float, Int

from oversharp.diagnostics.measures.contract import Evidence
from oversharp.diagnostics.measures.counts import load_sampled_counts
from oversharp.diagnostics.measures.declare import compare_with_base
from oversharp.diagnostics.statistics.clusters import by_cluster
from oversharp.diagnostics.statistics.keys import inference_ks
from oversharp.diagnostics.statistics.units import named_clusters


@dataclass(frozen=True, kw_only=True)
class Changes:
    """Differences of pass@k, late minus base, at the complete checkpoints but the base, for ascending ``ks``.

    ``cluster_P`` has the clusters of the problems if the audit has clusters. ``why`` has the reason for every
    checkpoint but the base that is not in ``checkpoint_ids``.
    """

    ks: tuple[int, ...]
    checkpoint_ids: tuple[str, ...]
    change_TPK: Float[np.ndarray, "checkpoint problem k"]
    why: Mapping[str, str]
    cluster_P: Int[np.ndarray, " problem"] | None = None

    @property
    def over(self) -> Literal["problems", "clusters"]:
        """The independent units of an interval."""
        return "problems" if self.cluster_P is None else "clusters"

    @property
    def by_unit(self) -> Float[np.ndarray, "checkpoint unit k"]:
        """The changes by independent unit."""
        return np.stack([by_cluster(change_PK, self.cluster_P) for change_PK in self.change_TPK])


def load_changes(evidence: Evidence) -> Changes:
    """Compute the changes for k up to half of the fewest samples of any problem at any checkpoint."""
    counts, why = load_sampled_counts(evidence)
    compared = dict(compare_with_base(evidence, why))
    complete = [checkpoint_id for checkpoint_id, why_not in compared.items() if not why_not]
    cluster_P = None
    if not complete:
        ks, change_TPK = inference_ks(evidence.n), np.empty((0, 0, 0))
    else:
        base = counts[evidence.base_id]
        cluster_P = named_clusters(base.cluster_P)
        ks = inference_ks(min(counts[checkpoint_id].fewest for checkpoint_id in (evidence.base_id, *complete)))
        base_PK = np.stack([base.pass_at_k(k) for k in ks], axis=-1)
        change_TPK = np.stack(
            [np.stack([counts[i].pass_at_k(k) for k in ks], axis=-1) - base_PK for i in complete],
        )
    return Changes(
        ks=ks,
        checkpoint_ids=tuple(complete),
        change_TPK=change_TPK,
        why={checkpoint_id: why_not for checkpoint_id, why_not in compared.items() if why_not},
        cluster_P=cluster_P,
    )
