"""Tiny evidence for the examples in docstrings and for tests of measures."""

from __future__ import annotations

import pandas as pd

from diagnostics.measures.contract import Evidence, View


def tiny_evidence(
    view: View, columns: str, rows: list[tuple[object, ...]], *, n: int = 4, ks: tuple[int, ...] = (1,)
) -> Evidence:
    """One view from rows of plain values. The first checkpoint named is the base; steps count up from 0.

    Unless named, the task is "task" and ``n_planned`` is ``n``.

    >>> tiny_evidence("problem_counts", "checkpoint_id problem_id n n_correct", [("base", "q", 4, 1)]).base_id
    'base'
    """
    frame = pd.DataFrame(rows, columns=columns.split())
    if "task" not in frame.columns:
        frame["task"] = "task"
    if "n_planned" not in frame.columns:
        frame["n_planned"] = n
    ids = list(dict.fromkeys(frame["checkpoint_id"]))
    checkpoints = pd.DataFrame(
        {
            "checkpoint_id": ids,
            "checkpoint": ids,
            "step": range(len(ids)),
            "is_base": [step == 0 for step in range(len(ids))],
        }
    )
    return Evidence(checkpoints=checkpoints, frames={view: frame}, n=n, ks=ks)
