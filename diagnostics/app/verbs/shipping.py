"""``ship``: the checkpoint to ship."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from oversharp.diagnostics.records.arguments import check_arguments
from oversharp.diagnostics.records.names import store_file

if TYPE_CHECKING:
    from oversharp.diagnostics.verdict.recommendation import Recommendation


@check_arguments
def ship(
    store: Path | str,
    *,
    series: Sequence[str] | None = None,
    allow_loss_points: float = 0.0,
    held_out: bool = False,
    memory_gib: float | None = None,
) -> tuple[Recommendation, ...]:
    """Recommend a checkpoint: the eligible one with the highest pass@1, with its guarantee.

    A checkpoint is not eligible if pass@k fell significantly at some k, if the verdict tested it as lost, or if the
    estimate fell by more than 2 points. Control samples are candidates too: the base at a lower temperature, which
    needs no training, and checkpoints at a higher one. The guarantee bounds the gain of pass@1 and the loss of pass@k,
    and accounts for the choice among all checkpoints. The recommendation may be the base. Series with the same base,
    problems and sampling settings are compared with each other. Reads the store only. Exit code 3: no recommendation.

    Parameters
    ----------
    store
        The audit.duckdb file, or its directory.
    series
        Names of the series to choose from, for example --series grpo iac. Default: all.
    allow_loss_points
        Fall of pass@k that keeps a checkpoint eligible, in percentage points, from 0 to below 100.
    held_out
        Choose on one half of the problems and guarantee on the other; for many checkpoints, raw and repaired.
    memory_gib
        Memory limit for queries, in GiB. Default: 1, or half of the free memory if that is less.

    Examples
    --------
    ::

        (best,) = oversharp.ship("audit/audit.duckdb")
        print(best.sentence, best.recommended.path)
    """
    from oversharp.diagnostics.audit.shipping import ship as run

    return run(
        store_file(store), series=series, allow_loss_points=allow_loss_points, held_out=held_out, memory_gib=memory_gib
    )
