"""The verb ``ship``: a function of the API and a command."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from oversharp.diagnostics.records.arguments import checked_arguments
from oversharp.diagnostics.records.names import store_file

if TYPE_CHECKING:
    from oversharp.diagnostics.verdict.recommendation import Recommendation


@checked_arguments
def ship(
    store: Path | str,
    *,
    series: Sequence[str] | None = None,
    allow_loss_points: float = 0.0,
    held_out: bool = False,
    memory_gib: float | None = None,
) -> tuple[Recommendation, ...]:
    """Say which checkpoint to ship: the highest pass@1 among those that lost nothing that is shown or estimated.

    A checkpoint is out where pass@k surely fell at some k, where the verdict calls it lost, or where the estimate fell
    by more than 2 points. What controls drew is to choose from too: the base at a lower temperature, which needs no
    training, and checkpoints at a higher one. Says of the chosen one what is sure of it although it was chosen by
    looking at all: how much pass@1 rose at least, and how much pass@k fell at most; and what every other one would
    trade. The base is an answer. Series with the same base, problems and sampling settings are compared with each
    other, others by themselves. Changes nothing. The command ends with 3 where there is no recommendation.

    Parameters
    ----------
    store
        The audit.duckdb file, or the directory that holds it.
    series
        Names of the series to choose from, for example --series grpo iac. Default: all.
    allow_loss_points
        Ship a checkpoint although pass@k fell by as much, in percentage points, from 0 to below 100.
    held_out
        Let one half of the problems choose, and the other say what is sure: for many checkpoints, raw and repaired.
    memory_gib
        Most memory for queries, in GiB; default: 1, or half of what is free if that is less.

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
