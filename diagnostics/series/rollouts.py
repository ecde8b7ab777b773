"""Responses of the training batches, from the Parquet files that a trainer left in its run directory.

A bonus of the audit: what cannot be read is left out and said, never an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from diagnostics.types import TrainingResponse

_COLUMNS = ["step", "prompt", "response", "truncated", "correct"]


def read_training_responses(
    run: Path, steps: Sequence[int], *, limit: int
) -> tuple[tuple[TrainingResponse, ...], tuple[str, ...]]:
    """Responses that led from each checkpoint to the next, and a ``"file: reason"`` line for each unreadable file.

    ``steps`` are those of the checkpoints in ascending order; of the responses drawn after one and up to the next, at
    most ``limit`` are taken, evenly spaced over the interval. ``rollouts/step_*.parquet`` as oversharp's trainer
    writes it, with the columns step, prompt, response, truncated and correct; rows without a response are left out.
    """
    import pandas as pd

    frames, faults = [], []
    for path in sorted((run / "rollouts").glob("step_*.parquet")) if limit and len(steps) > 1 else ():
        try:
            frames.append(pd.read_parquet(path, columns=_COLUMNS).dropna())
        except (OSError, ValueError, KeyError) as error:
            first = str(error).strip().splitlines() or [type(error).__name__]
            faults.append(f"{path.name}: training responses left out, {path} cannot be read ({first[0][:200]})")
    if not frames:
        return (), tuple(faults)
    rows = pd.concat(frames).drop_duplicates(["step", "prompt", "response"])
    chosen = []
    for before, step in pairwise(steps):
        between = rows[(rows["step"] > before) & (rows["step"] <= step)]
        places = [index * len(between) // limit for index in range(limit)] if len(between) > limit else None
        chosen += [
            TrainingResponse(
                step=step,
                prompt=str(row.prompt),
                text=str(row.response),
                truncated=bool(row.truncated),
                correct=bool(row.correct),
            )
            for row in (between if places is None else between.iloc[places]).itertuples()
        ]
    return tuple(chosen), tuple(faults)
