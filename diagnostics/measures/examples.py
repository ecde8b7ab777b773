"""Tiny evidence for the examples in docstrings and for tests of measures."""

from __future__ import annotations

import pandas as pd

from oversharp.diagnostics.measures.contract import Evidence
from oversharp.diagnostics.measures.modes.ways.counts import LEVELS


def tiny_evidence(
    view: str, columns: str, rows: list[tuple[object, ...]], *, n: int = 4, ks: tuple[int, ...] = (1,)
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
    return Evidence(checkpoints=_checkpoints(list(frame["checkpoint_id"])), frames={view: frame}, n=n, ks=ks)


def tiny_ways(
    rows: list[tuple[str, str, str | None, bool, int]], *, n: int = 4, ks: tuple[int, ...] = (1,)
) -> Evidence:
    """From rows of checkpoint, problem, way, whether in the first half, and correct samples; each problem has ``n``.

    Every class is the same at each level. A way that is None is not known.

    >>> tiny_ways([("base", "q", "13 26", True, 2)]).frames["problem_counts"]["n_correct"].tolist()
    [2]
    """
    columns = ["checkpoint_id", "problem_id", "way", "first_half", "n"]
    ways = pd.concat([pd.DataFrame(rows, columns=columns).assign(level=level, n_planned=n) for level in LEVELS])
    own = ways[ways["level"] == LEVELS[0]].groupby(["checkpoint_id", "problem_id"], sort=False)["n"].sum()
    counts = own.rename("n_correct").reset_index().assign(task="task", n=n, n_planned=n)
    checkpoints = _checkpoints([row[0] for row in rows])
    return Evidence(checkpoints=checkpoints, frames={"way_counts": ways, "problem_counts": counts}, n=n, ks=ks)


def _checkpoints(named: list[str]) -> pd.DataFrame:
    ids = list(dict.fromkeys(named))
    return pd.DataFrame(
        {
            "checkpoint_id": ids,
            "checkpoint": ids,
            "step": range(len(ids)),
            "is_base": [step == 0 for step in range(len(ids))],
        }
    )
