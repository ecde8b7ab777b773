"""Compare two runs: problem by problem for every task and k, or at equal pass@1.

Problem by problem, both runs are compared at the same kind of checkpoint (the last, the late window). Their best
checkpoints are biased: with 8 samples of 30 problems, the best of 40 checkpoints that do not differ is 4 points of
pass@1 and 12 of pass@8 above the truth.

At the same step a slower run looks better because it has moved less. So pass@k is compared at the same pass@1: the path
over steps (x = pass@1, y = pass@k) is followed from the base to where it first reaches x.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from jaxtyping import Float, Int
from scipy.special import ndtri, stdtr

from oversharp.diagnostics.statistics.band import draw_null, from_normal, quantile_of_draws, stepped_down
from oversharp.diagnostics.statistics.pass_at_k import pass_at_k_table
from oversharp.diagnostics.statistics.stopping import StoppingRule
from oversharp.diagnostics.statistics.units import by_cluster, effective_clusters, few_clusters, named_clusters

#: Seed of the null distribution of the largest statistic.
_SEED = 20_261_127
#: Smallest and largest number of draws of that distribution. Between them, the total number of random signs is fixed.
_LEAST_DRAWS, _MOST_DRAWS, _SIGNS = 1_999, 9_999, 5_000_000
#: Confidence level of the simultaneous intervals.
CONFIDENCE = 0.95

#: Samples of each problem, of all problems, or the stopping rule that determined them.
Samples = Int[np.ndarray, " problem"] | int | StoppingRule


@dataclass(frozen=True, kw_only=True, slots=True)
class RunDifference:
    """pass@k of two runs on one task.

    Means over its problems, ``difference`` = second − first, in probability.

    ``low`` and ``high`` bound the difference, at 95 % for all comparisons together. ``p_adjusted`` is the two-sided p
    value, adjusted for all comparisons. ``p`` is the p value of this comparison alone. They are None for a single
    problem, and for fewer than 10 clusters.
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
    n_comparisons: int = 1,
) -> list[RunDifference]:
    """Return one difference per task and k, sorted by task, then in the order of ``ks``.

    ``first_P`` and ``second_P`` count the correct samples of the same problems in the same order; ``n_first`` and
    ``n_second`` are the sample counts (one number, or one per problem) and may differ. If a stopping rule determined
    them, they are the rule, and ``first_P`` and ``second_P`` are the codes of its end points. The statistic is a paired
    t over problems with the variance floor of ``intervals.share_interval``. ``p_adjusted`` compares it with the largest
    absolute value over all tasks and k in a multiplier bootstrap, by step-down, because a reader picks from the whole
    table. For two runs that do not differ, the smallest ``p_adjusted`` is below 0.05 with probability 5 % at most.
    Neighbouring k are correlated, so this costs less power than Holm's correction. The intervals use the critical value
    of the largest statistic. If a difference is significant only by step-down, its interval ends at 0. So an interval
    contains values of both signs if and only if ``p_adjusted`` is above 0.05. If a reader picks from several such
    tables, ``n_comparisons`` is their number (Bonferroni). Unless the caller pools seeds, each side is one training
    seed, and the difference may be due to the seed.

    Raises ``ValueError`` where lengths differ, a count is outside 0 … n, or a k exceeds the samples of a problem.

    Source: Romano and Wolf 2005 (Econometrica 73:1237); Chernozhukov, Chetverikov, Kato 2013 (Ann. Stat. 41:2786).

    >>> better = compare_runs(np.full(40, 2), np.full(40, 6), n_first=8, n_second=8, task_P=["sums"] * 40, ks=[1, 4])
    >>> [(row.k, round(row.difference, 3), row.p_adjusted < 0.001) for row in better]
    [(1, 0.5, True), (4, 0.214, True)]
    """
    task_P = np.asarray(task_P)
    if not len(first_P) == len(second_P) == len(task_P):
        raise ValueError(f"{len(first_P)} and {len(second_P)} counts, but {len(task_P)} tasks; give one per problem")
    first_PK, second_PK = _pass_at_k(first_P, n_first, ks), _pass_at_k(second_P, n_second, ks)
    changes = [
        _TaskChange(
            task=str(task),
            first_PK=first_PK[task_P == task],
            second_PK=second_PK[task_P == task],
            cluster_P=None if cluster_P is None else named_clusters(cluster_P[task_P == task]),
        )
        for task in np.unique(task_P)
    ]
    tested = [change for change in changes if change.is_testable]
    tests = iter(_test_together(tested, n_comparisons) if tested else ())
    return [row for change in changes for row in change.rows(ks, next(tests) if change.is_testable else None)]


def _pass_at_k(correct_P: np.ndarray, n: Samples, ks: Sequence[int]) -> Float[np.ndarray, "problem k"]:
    if isinstance(n, StoppingRule):
        if len(correct_P) and not ((correct_P >= 0) & (correct_P <= n.cap)).all():
            raise ValueError(f"codes must be between 0 and {n.cap}, the cap; got {correct_P.tolist()}")
        return n.pass_at_k_table(ks)[correct_P]
    n_P = np.broadcast_to(n, len(correct_P))
    if len(correct_P) and not ((correct_P >= 0) & (correct_P <= n_P)).all():
        raise ValueError(f"counts must be between 0 and the number of samples; got {correct_P.tolist()} of {n}")
    value_PK = np.empty((len(correct_P), len(ks)))
    for each in np.unique(n_P):
        value_PK[n_P == each] = pass_at_k_table(int(each), ks)[correct_P[n_P == each]]
    return value_PK


@dataclass(frozen=True, kw_only=True)
class _Tests:
    """Results of one task by k."""

    low_K: Float[np.ndarray, " k"]
    high_K: Float[np.ndarray, " k"]
    p_K: Float[np.ndarray, " k"]
    p_adjusted_K: Float[np.ndarray, " k"]


@dataclass(frozen=True, kw_only=True)
class _TaskChange:
    """pass@k of both runs on the problems of one task."""

    task: str
    first_PK: Float[np.ndarray, "problem k"]
    second_PK: Float[np.ndarray, "problem k"]
    cluster_P: Int[np.ndarray, " problem"] | None

    @property
    def is_testable(self) -> bool:
        """Whether there is more than one problem, and enough clusters."""
        return len(self.first_PK) > 1 and few_clusters(self.cluster_P) is None

    @property
    def freedom(self) -> float:
        """Degrees of freedom of Student's t."""
        return (len(self.first_PK) if self.cluster_P is None else effective_clusters(self.cluster_P)) - 1.0

    @cached_property
    def changes(self) -> Float[np.ndarray, "unit k"]:
        """Second minus first per problem, or per cluster."""
        return by_cluster(self.second_PK - self.first_PK, self.cluster_P)

    @property
    def means(self) -> Float[np.ndarray, " k"]:
        """Mean difference over the problems."""
        return (self.second_PK - self.first_PK).mean(axis=0)

    @cached_property
    def errors(self) -> Float[np.ndarray, " k"]:
        """Standard error of the mean, with the floor of ``share_interval``."""
        return np.sqrt(((self.changes - self.changes.mean(axis=0)) ** 2).sum(axis=0) + 1.0) / len(self.changes)

    @property
    def t_statistics(self) -> Float[np.ndarray, " k"]:
        """Paired t of each k."""
        return self.means / self.errors

    def draw_null(self, rng: np.random.Generator) -> Float[np.ndarray, "draw k"]:
        """Draw the absolute statistics of two equal runs, with normal tails."""
        n_units = len(self.changes)
        scale_K = self.errors * n_units
        draws = min(_MOST_DRAWS, max(_LEAST_DRAWS, _SIGNS // n_units))
        # With the runs exchanged, the draws stay the same.
        sign = 1.0 if self.t_statistics.sum() >= 0.0 else -1.0
        studentised_UK = sign * (self.changes - self.means) / scale_K
        return np.abs(np.concatenate(list(draw_null(studentised_UK, 1.0 / scale_K, rng=rng, draws=draws))))

    def rows(self, ks: Sequence[int], tests: _Tests | None) -> list[RunDifference]:
        """Return one row per k, without interval and p if there are no ``tests``."""
        first_K, second_K = self.first_PK.mean(axis=0), self.second_PK.mean(axis=0)
        return [
            RunDifference(
                task=self.task,
                k=k,
                first=float(first_K[j]),
                second=float(second_K[j]),
                difference=float(self.means[j]),
                low=None if tests is None else float(tests.low_K[j]),
                high=None if tests is None else float(tests.high_K[j]),
                p=None if tests is None else float(tests.p_K[j]),
                p_adjusted=None if tests is None else float(tests.p_adjusted_K[j]),
                n_problems=len(self.first_PK),
                over="problems" if self.cluster_P is None or tests is None else "clusters",
            )
            for j, k in enumerate(ks)
        ]


def _test_together(changes: Sequence[_TaskChange], n_comparisons: int) -> list[_Tests]:
    """Test all tasks and k together, with simultaneous intervals.

    Student's t of different tasks have different degrees of freedom, so all are converted to the normal's tails.
    """
    generators = np.random.default_rng(_SEED).spawn(len(changes))
    draws = [change.draw_null(rng) for change, rng in zip(changes, generators, strict=True)]
    null_DX = np.hstack([null_DK[: min(map(len, draws))] for null_DK in draws])
    p_X = np.concatenate([2.0 * stdtr(change.freedom, -np.abs(change.t_statistics)) for change in changes])
    adjusted_X = stepped_down(-ndtri(p_X / 2.0), null_DX)
    adjusted_X = np.minimum(1.0, n_comparisons * np.maximum(adjusted_X, p_X))
    level = (1.0 - CONFIDENCE) / n_comparisons
    critical = max(quantile_of_draws(null_DX.max(axis=1), 1.0 - level), float(-ndtri(level / 2.0)))
    tests = []
    for change, p_K, adjusted_K in zip(
        changes, *(np.split(values_X, len(changes)) for values_X in (p_X, adjusted_X)), strict=True
    ):
        margin_K = from_normal(critical, change.freedom) * change.errors
        low_K, high_K = np.maximum(change.means - margin_K, -1.0), np.minimum(change.means + margin_K, 1.0)
        is_significant_K = adjusted_K <= 1.0 - CONFIDENCE
        low_K = np.where(is_significant_K & (change.means > 0), np.maximum(low_K, 0.0), low_K)
        high_K = np.where(is_significant_K & (change.means < 0), np.minimum(high_K, 0.0), high_K)
        tests.append(_Tests(low_K=low_K, high_K=high_K, p_K=p_K, p_adjusted_K=adjusted_K))
    return tests


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
        if min(x_a, x_b) <= x <= max(x_a, x_b):  # a flat segment at x was reached earlier
            share = (x - x_a) / (x_b - x_a)
            return MatchedValue(value=y_a + share * (y_b - y_a), step=step_a + share * (step_b - step_a))
    low, high = min(x_t for _, x_t, _ in points), max(x_t for _, x_t, _ in points)
    return MatchedValue(why=f"never reaches {x:.3g}: the run covers {low:.3g} to {high:.3g}")
