"""The verb ``plan`` of the API: how large an audit must be."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from diagnostics.records.errors import errors_name_arguments

if TYPE_CHECKING:
    from diagnostics.audit.plan import Plan


@errors_name_arguments
def plan(
    store: Path | str,
    *,
    series: str | None = None,
    drop_points: float = 5.0,
    k: int | None = None,
    power: float = 0.8,
    checkpoints: int | None = None,
) -> Plan:
    """Say how many problems and samples an audit needs to find a loss that you name, and how many tokens it costs.

    Starts from the base's samples in STORE: those of a finished audit, or of a small pilot. Simulates audits of
    several sizes in which pass@k falls by DROP, and counts how often the verdict would say that it fell. Samples
    nothing and changes nothing. The fall is planted in two ways: diffuse, where rarely solved problems become rarer and
    the others more frequent, and concentrated, where a few problems are never solved again; an audit is large enough if
    it finds both. Real losses scatter more from problem to problem, and the churn from checkpoint to checkpoint is not
    simulated: take the power for an upper estimate.

    Parameters
    ----------
    store
        The audit.duckdb file.
    series
        Name of the series whose base and responses to plan with; needed where there are several.
    drop_points
        The fall of pass@k that you want to find, in percentage points.
    k
        Where pass@k falls by that much, up to half of the base's samples. Default: half of the audit's n.
    power
        The chance of finding it that is wanted.
    checkpoints
        Trained checkpoints in the audit that is planned. Default: as many as in the store.
    """
    from diagnostics.audit.plan import plan as run

    return run(Path(store), series=series, drop_points=drop_points, k=k, wanted=power, n_checkpoints=checkpoints)
