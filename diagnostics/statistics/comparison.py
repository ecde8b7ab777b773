"""Two runs compared problem by problem, on every task and at every k.

Both runs are taken at the same kind of checkpoint (the last, the late window). Their best checkpoints must not be: with
8 samples of 30 problems, the best of 40 that do not differ is 4 points of pass@1 and 12 of pass@8 above the truth.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from jaxtyping import Float, Int
from scipy.stats import t as student_t

from diagnostics.statistics.clusters import by_cluster
from diagnostics.statistics.confirmation import holm
from diagnostics.statistics.intervals import share_interval
from diagnostics.statistics.pass_at_k import pass_at_k_table
from diagnostics.statistics.units import effective_clusters, named_clusters

Samples = Int[np.ndarray, " problem"] | int


@dataclass(frozen=True, kw_only=True, slots=True)
class RunDifference:
    """pass@k of two runs on one task: mean over its problems, and ``difference`` = second − first, in probability.

    ``low`` and ``high`` bound the 95 % interval of the one difference and ``p`` is its two-sided p value; they are not
    adjusted for looking at many, ``p_adjusted`` is. None for a single problem, and for fewer than 10 clusters.
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
    #: What the interval and p take as independent.
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
    """One difference per task and k, sorted by task, then in the order of ``ks``.

    ``first_P`` and ``second_P`` count the correct samples of the same problems in the same order; ``n_first`` and
    ``n_second`` are the samples, one number or one for each problem, and need not be equal. p is a paired t over
    problems with the variance floor of ``intervals.share_interval``. ``p_adjusted`` is Holm's over all tasks and k
    together, because a reader picks from the whole table: the chance that any of it is below 0.05 for two runs that do
    not differ is at most 5 %. Each side is one training seed unless the caller pools several: what differs may be the
    seed.

    Raises ``ValueError`` where lengths differ, a count is outside 0 … n, or a k exceeds the samples of a problem.

    >>> better = compare_runs(np.full(40, 2), np.full(40, 6), n_first=8, n_second=8, task_P=["sums"] * 40, ks=[1, 4])
    >>> [(row.k, round(row.difference, 3), row.p_adjusted < 0.001) for row in better]
    [(1, 0.5, True), (4, 0.214, True)]
    """
    task_P = np.asarray(task_P)
    if not len(first_P) == len(second_P) == len(task_P):
        raise ValueError(f"{len(first_P)} and {len(second_P)} counts beside {len(task_P)} tasks; give one per problem")
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
        raise ValueError(f"counts lie between 0 and the number of samples; got {correct_P.tolist()} of {n}")
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
