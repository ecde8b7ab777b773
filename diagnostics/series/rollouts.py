"""Responses of the training batches, from the Parquet files that a trainer left in its run directory.

Optional in an audit: unreadable files are left out and listed, never an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from oversharp.diagnostics.records.errors import first_line
from oversharp.diagnostics.records.types import TrainingResponse

if TYPE_CHECKING:
    import pandas as pd

_COLUMNS = ["step", "prompt", "response", "truncated", "correct"]


def read_training_responses(
    run: Path, steps: Sequence[int], *, limit: int
) -> tuple[tuple[TrainingResponse, ...], tuple[str, ...]]:
    """Responses that led from each checkpoint to the next, and a ``"file: reason"`` line for each unreadable file.

    ``steps`` are those of the checkpoints in ascending order; of the groups drawn after one and up to the next (the
    responses to one prompt in one batch; a prompt's first batch of the interval only), as many are taken as hold at
    most ``limit`` distinct responses, evenly spaced over the interval. ``rollouts/step_*.parquet`` as oversharp's
    trainer writes it, with the columns step, prompt, response, truncated and correct; rows without a response are left
    out.
    """
    import pandas as pd

    frames, faults = [], []
    for path in sorted((run / "rollouts").glob("step_*.parquet")) if limit and len(steps) > 1 else ():
        try:
            frames.append(_checked(pd.read_parquet(path, columns=_COLUMNS).dropna()))
        except (OSError, ValueError, KeyError, TypeError) as error:
            faults.append(f"{path.name}: training responses left out, {path} cannot be read ({first_line(error)})")
    if not frames:
        return (), tuple(faults)
    rows = pd.concat(frames)
    chosen = []
    for before, step in pairwise(steps):
        between = rows[(rows["step"] > before) & (rows["step"] <= step)]
        chosen += [
            TrainingResponse(
                step=step,
                prompt=str(row.prompt),
                text=str(row.response),
                truncated=bool(row.truncated),
                correct=bool(row.correct),
                draws=int(row.draws),
            )
            for row in _spaced_groups(between, limit).itertuples()
        ]
    return tuple(chosen), tuple(faults)


def _checked(rows: pd.DataFrame) -> pd.DataFrame:
    """Raise ``ValueError`` for a column of another kind: ``bool("False")`` would be true."""
    from pandas.api.types import is_bool_dtype, is_integer_dtype

    for name in ("truncated", "correct"):
        if not is_bool_dtype(rows[name].convert_dtypes()) and not rows[name].isin([0, 1]).all():
            raise ValueError(f"column {name} is neither true and false nor 0 and 1")
    if len(rows) and not is_integer_dtype(rows["step"].convert_dtypes()):
        raise ValueError("column step holds other than whole numbers")
    for name in ("prompt", "response"):
        if not rows[name].map(lambda value: isinstance(value, str)).all():
            raise ValueError(f"column {name} holds other than text")
    return rows


def _spaced_groups(rows: pd.DataFrame, limit: int) -> pd.DataFrame:
    """Return distinct responses of evenly spaced groups, how often each was drawn as ``draws``."""
    import numpy as np

    firsts = rows[rows["step"] == rows.groupby("prompt")["step"].transform("min")]
    counted = firsts.groupby(["step", "prompt", "response"], sort=False)
    distinct = counted.agg(
        truncated=("truncated", "first"), correct=("correct", "first"), draws=("correct", "size")
    ).reset_index()
    if len(distinct) <= limit:
        return distinct
    group_R = distinct.groupby(["step", "prompt"], sort=False).ngroup().to_numpy()
    groups = np.split(np.argsort(group_R, kind="stable"), np.cumsum(np.bincount(group_R))[:-1])
    wanted = max(1, limit * len(groups) // len(distinct))
    chosen: list[int] = []
    for place in range(wanted):
        group = groups[place * len(groups) // wanted]
        if len(chosen) + len(group) <= limit:
            chosen += group.tolist()
    # a group larger than the limit is the one thing that is cut
    return distinct.iloc[chosen or groups[0][:limit]]
