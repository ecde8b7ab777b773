"""Compare two runs: problem by problem for every task and k, or at equal pass@1.

Problem by problem, both runs are taken at the same kind of checkpoint (the last, the late window). Their best
checkpoints are biased: with 8 samples of 30 problems, the best of 40 checkpoints that do not differ is 4 points of
pass@1 and 12 of pass@8 above the truth.

At the same step a slower run looks better because it has moved less. So pass@k is compared at the same pass@1: the path
over steps (x = pass@1, y = pass@k) is followed from the base to where it first reaches x.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from jaxtyping import Float, Int
from scipy.stats import t as student_t

from oversharp.diagnostics.statistics.confirmation import holm
from oversharp.diagnostics.statistics.intervals import share_interval
from oversharp.diagnostics.statistics.pass_at_k import pass_at_k_table
from oversharp.diagnostics.statistics.units import by_cluster, effective_clusters, named_clusters

Samples = Int[np.ndarray, " problem"] | int


@dataclass(frozen=True, kw_only=True, slots=True)
class RunDifference:
    """pass@k of two runs on one task.

    Means over its problems, ``difference`` = second − first, in probability.

    ``low`` and ``high`` bound the 95 % interval of this difference, and ``p`` is its two-sided p value, both
    unadjusted; ``p_adjusted`` is adjusted for all comparisons. None for a single problem, and for fewer than 10
    clusters.
    """

    task: str
    k: int
    first: float
    second: float
    difference: float
    low: float | None
    high: float | None
    p: float | None
    p_adjusted: float | None
    n_problems: int
    #: Resampling unit of the interval and p.
    over: Literal["problems", "clusters"] = "problems"


def compare_runs(
    first_P: Int[np.ndarray, " problem"],
    second_P: Int[np.ndarray, " problem"],
    *,
    n_first: Samples,
    n_second: Samples,
    task_P: Sequence[str] | np.ndarray,
    ks: Sequence[int],
    cluster_P: Int[np.ndarray, " problem"] | None = None,
) -> list[RunDifference]:
    """Return one difference per task and k, sorted by task, then in the order of ``ks``.

    ``first_P`` and ``second_P`` count the correct samples of the same problems in the same order; ``n_first`` and
    ``n_second`` are the sample counts (one number, or one per problem) and may differ. p is a paired t over problems
    with the variance floor of ``intervals.share_interval``. ``p_adjusted`` is Holm's over all tasks and k, because a
    reader picks from the whole table: for two runs that do not differ, any of it is below 0.05 with probability 5 % at
    most. Each side is one training seed unless the caller pools several, so the difference may be due to the seed.

    Raises ``ValueError`` where lengths differ, a count is outside 0 … n, or a k exceeds the samples of a problem.

    >>> better = compare_runs(np.full(40, 2), np.full(40, 6), n_first=8, n_second=8, task_P=["sums"] * 40, ks=[1, 4])
    >>> [(row.k, round(row.difference, 3), row.p_adjusted < 0.001) for row in better]
    [(1, 0.5, True), (4, 0.214, True)]
    """
    task_P = np.asarray(task_P)
    if not len(first_P) == len(second_P) == len(task_P):
        raise ValueError(f"{len(first_P)} and {len(second_P)} counts, but {len(task_P)} tasks; give one per problem")
    first_PK, second_PK = _pass_at_k(first_P, n_first, ks), _pass_at_k(second_P, n_second, ks)
    rows = [
        _difference(
            str(task),
            k,
            first_PK[task_P == task, column],
            second_PK[task_P == task, column],
            None if cluster_P is None else named_clusters(cluster_P[task_P == task]),
        )
        for task in np.unique(task_P)
        for column, k in enumerate(ks)
    ]
    tested = [i for i, row in enumerate(rows) if row.p is not None]
    adjusted = holm(np.array([rows[i].p for i in tested]))
    for i, p_adjusted in zip(tested, adjusted, strict=True):
        rows[i] = replace(rows[i], p_adjusted=float(p_adjusted))
    return rows


def _pass_at_k(correct_P: np.ndarray, n: Samples, ks: Sequence[int]) -> Float[np.ndarray, "problem k"]:
    n_P = np.broadcast_to(n, len(correct_P))
    if len(correct_P) and not ((correct_P >= 0) & (correct_P <= n_P)).all():
        raise ValueError(f"counts must be between 0 and the number of samples; got {correct_P.tolist()} of {n}")
    value_PK = np.empty((len(correct_P), len(ks)))
    for each in np.unique(n_P):
        value_PK[n_P == each] = pass_at_k_table(int(each), ks)[correct_P[n_P == each]]
    return value_PK


def _difference(
    task: str, k: int, first_P: np.ndarray, second_P: np.ndarray, cluster_P: np.ndarray | None
) -> RunDifference:
    change_P = second_P - first_P
    n_problems = len(change_P)
    interval = share_interval(change_P, bounds=(-1.0, 1.0), cluster_P=cluster_P)
    p = None
    if interval.low is not None:
        change_U = by_cluster(change_P, cluster_P)
        error = np.sqrt((len(change_U) - 1) * change_U.var(ddof=1) + 1.0) / len(change_U)  # as in share_interval
        freedom = (n_problems if cluster_P is None else effective_clusters(cluster_P)) - 1.0
        p = float(2.0 * student_t.sf(abs(interval.mean) / error, freedom))
    return RunDifference(
        task=task,
        k=k,
        first=float(first_P.mean()),
        second=float(second_P.mean()),
        difference=interval.mean,
        low=interval.low,
        high=interval.high,
        p=p,
        p_adjusted=None,
        n_problems=n_problems,
        over=interval.over,
    )


@dataclass(frozen=True, kw_only=True)
class RunPath:
    """One run over its steps, ascending: ``x`` (pass@1) and ``y`` (pass@k), None where unknown."""

    steps: Sequence[int]
    x: Sequence[float | None]
    y: Sequence[float | None]


@dataclass(frozen=True, kw_only=True, slots=True)
class MatchedValue:
    """``value`` of y where x first reached the level, at the interpolated ``step``.

    If it was not reached, both are None and ``why`` is the reason.
    """

    value: float | None = None
    step: float | None = None
    why: str | None = None


def value_at(path: RunPath, x: float) -> MatchedValue:
    """Return y of ``path`` where it first reaches ``x``, linear between neighbouring checkpoints.

    The path need not be monotone. The first passage counts, in either direction, because later passages mix the cost of
    reaching x with the cost of staying there. Checkpoints with an unknown x or y are skipped. There is no
    extrapolation: outside the range of the path, the result is a reason instead of a value.

    >>> grpo = RunPath(steps=[0, 20, 40], x=[0.25, 0.75, 0.5], y=[1.0, 0.75, 0.5])
    >>> value_at(grpo, 0.5)
    MatchedValue(value=0.875, step=10.0, why=None)
    >>> value_at(grpo, 0.8).why
    'never reaches 0.8: the run covers 0.25 to 0.75'
    """
    points = [
        (step, x_t, y_t)
        for step, x_t, y_t in zip(path.steps, path.x, path.y, strict=True)
        if x_t is not None and y_t is not None
    ]
    if not points:
        return MatchedValue(why="no checkpoint of the run has both values")
    first_step, first_x, first_y = points[0]
    if first_x == x:
        return MatchedValue(value=first_y, step=float(first_step))
    for (step_a, x_a, y_a), (step_b, x_b, y_b) in itertools.pairwise(points):
        if min(x_a, x_b) <= x <= max(x_a, x_b):  # a flat stretch at x was entered before
            share = (x - x_a) / (x_b - x_a)
            return MatchedValue(value=y_a + share * (y_b - y_a), step=step_a + share * (step_b - step_a))
    low, high = min(x_t for _, x_t, _ in points), max(x_t for _, x_t, _ in points)
    return MatchedValue(why=f"never reaches {x:.3g}: the run covers {low:.3g} to {high:.3g}")
