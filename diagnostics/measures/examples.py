"""Small artificial evidence for examples in docstrings and for tests of measures."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd

from oversharp.diagnostics.measures.contract import Evidence
from oversharp.diagnostics.measures.modes.ways.counts import LEVELS


def tiny_evidence(
    view: str,
    columns: str,
    rows: list[tuple[object, ...]],
    *,
    n: int = 4,
    ks: tuple[int, ...] = (1,),
    first_round: int | None = None,
    enough: int | None = None,
) -> Evidence:
    """Return evidence with one view. The first checkpoint is the base, and steps are 0, 1, 2, ….

    By default, the column ``task`` is "task" and ``n_planned`` is ``n``. With a stopping rule, ``n_planned`` is the
    column ``n``, and ``n_cap`` is ``n``.

    >>> tiny_evidence("problem_counts", "checkpoint_id problem_id n n_correct", [("base", "q", 4, 1)]).base_id
    'base'
    """
    frame = pd.DataFrame(rows, columns=columns.split())
    if "task" not in frame.columns:
        frame["task"] = "task"
    if "n_planned" not in frame.columns:
        frame["n_planned"] = n if first_round is None else frame["n"]
    if "n_cap" not in frame.columns:
        frame["n_cap"] = n
    return Evidence(
        checkpoints=_checkpoints(list(frame["checkpoint_id"])),
        frames={view: frame},
        n=n,
        ks=ks,
        first_round=first_round,
        enough=enough,
    )


def tiny_ways(
    rows: list[tuple[str, str, str | None, bool, int]], *, n: int = 4, ks: tuple[int, ...] = (1,)
) -> Evidence:
    """Return evidence of ways from rows (checkpoint, problem, way, is first half, n correct).

    Each problem has ``n`` samples. The way is the same at all levels. None is an unknown way.

    >>> tiny_ways([("base", "q", "13 26", True, 2)]).frames["problem_counts"]["n_correct"].tolist()
    [2]
    """
    columns = ["checkpoint_id", "problem_id", "way", "first_half", "n"]
    ways = pd.concat([pd.DataFrame(rows, columns=columns).assign(level=level, n_planned=n) for level in LEVELS])
    own = ways[ways["level"] == LEVELS[0]].groupby(["checkpoint_id", "problem_id"], sort=False)["n"].sum()
    counts = own.rename("n_correct").reset_index().assign(task="task", n=n, n_planned=n)
    checkpoints = _checkpoints([row[0] for row in rows])
    return Evidence(checkpoints=checkpoints, frames={"way_counts": ways, "problem_counts": counts}, n=n, ks=ks)


def combine_views(first: Evidence, *others: Evidence) -> Evidence:
    """Return ``first`` with the views of the others added."""
    return replace(first, frames={**first.frames, **{name: x.frames[name] for x in others for name in x.frames}})


def tiny_flow() -> Evidence:
    """Return four problems with 4 samples each: one lost, one gained, two kept.

    >>> tiny_flow().frames["problem_counts"]["n_correct"].tolist()
    [1, 2, 0, 3, 0, 4, 1, 4]
    """
    rows = [
        (checkpoint_id, f"q{i}", 4, n_correct)
        for checkpoint_id, of_problem in (("base", (1, 2, 0, 3)), ("late", (0, 4, 1, 4)))
        for i, n_correct in enumerate(of_problem, start=1)
    ]
    return tiny_evidence("problem_counts", "checkpoint_id problem_id n n_correct", list(rows))


def tiny_frontier() -> Evidence:
    """Return 40 problems with 8 samples each: of the base at T = 1 and 0.5, and of a checkpoint.

    >>> tiny_frontier().frames["control_counts"]["n_correct"].head(2).tolist()
    [7, 1]
    """
    return _with_control("base", 0.5, (7, 1), base=(3, 2), late=(6, 1))


def tiny_temperatures() -> Evidence:
    """Return 40 problems with 8 samples each: of the base, and of a checkpoint at T = 1 and 1.5.

    >>> tiny_temperatures().frames["control_counts"]["checkpoint_id"].unique().tolist()
    ['late']
    """
    return _with_control("late", 1.5, (4, 4), base=(2, 2), late=(6, 6))


def _with_control(controlled: str, temperature: float, hits: tuple[int, int], **own: tuple[int, int]) -> Evidence:
    """Return evidence of checkpoints, one of which was also sampled at another temperature.

    A pair of counts is for the problems with even and with odd number.
    """
    rows = [(name, f"q{i}", 8, pair[i % 2]) for name, pair in own.items() for i in range(40)]
    evidence = tiny_evidence("sampled_counts", "checkpoint_id problem_id n n_correct", list(rows), n=8)
    control_rows = [(controlled, f"q{i}", temperature, 1.0, 8, hits[i % 2]) for i in range(40)]
    columns = "checkpoint_id problem_id temperature own_temperature n n_correct"
    return combine_views(evidence, tiny_evidence("control_counts", columns, list(control_rows), n=8))


def _checkpoints(names: list[str]) -> pd.DataFrame:
    ids = list(dict.fromkeys(names))
    return pd.DataFrame(
        {
            "checkpoint_id": ids,
            "checkpoint": ids,
            "step": range(len(ids)),
            "is_base": [step == 0 for step in range(len(ids))],
        }
    )
