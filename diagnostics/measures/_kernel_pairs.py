"""Pairs of responses by how their problems are related, and intervals over problems for what is said of pairs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float
from scipy.stats import t as student_t

from diagnostics.measures._kernel import Rows
from diagnostics.statistics.intervals import Interval, mean_interval

WITHIN, RELATED, UNRELATED = "within problems", "related problems", "unrelated problems"


@dataclass(frozen=True, kw_only=True)
class PairGroup:
    """The pairs i < j of one kind, as a mask over the kernel; ``why`` says why there is none."""

    scope: str
    pairs_NN: Bool[np.ndarray, "row row"]
    why: str | None


def pair_groups(rows: Rows) -> tuple[PairGroup, ...]:
    """Pairs within a problem, between related problems, and between unrelated ones; each pair is in one group."""
    upper_NN = np.triu(np.ones((len(rows), len(rows)), dtype=bool), k=1)
    same_NN = rows.problem_N[:, None] == rows.problem_N
    kin_NN = rows.related_N[:, None] == rows.related_N
    masks = {WITHIN: upper_NN & same_NN, RELATED: upper_NN & kin_NN & ~same_NN, UNRELATED: upper_NN & ~kin_NN}
    why = {
        WITHIN: "no problem has two responses in the kernel",
        RELATED: "no two problems in the kernel are of one group",
        UNRELATED: "one group of problems only",
    }
    return tuple(
        PairGroup(scope=scope, pairs_NN=mask_NN, why=None if mask_NN.any() else why[scope])
        for scope, mask_NN in masks.items()
    )


def pair_mean(values_NN: Float[np.ndarray, "row row"], rows: Rows, group: PairGroup) -> Interval:
    """Mean over the pairs of ``group``, averaged within a problem (or a pair of problems) first.

    The interval resamples problems: Student's t over problems within problems, the delete-one-problem jackknife
    between them, where every problem is in many pairs. ``n`` counts problems. Needs a pair.
    """
    problem_ids, problem_N = np.unique(rows.problem_N, return_inverse=True)
    first_E, second_E = np.nonzero(group.pairs_NN)
    low_E, high_E = np.sort(np.stack([problem_N[first_E], problem_N[second_E]]), axis=0)
    n = len(problem_ids)
    count_PP, sum_PP = np.zeros((n, n)), np.zeros((n, n))
    np.add.at(count_PP, (low_E, high_E), 1.0)
    np.add.at(sum_PP, (low_E, high_E), values_NN[first_E, second_E])
    there_PP = count_PP > 0
    mean_PP = sum_PP / np.where(there_PP, count_PP, 1.0)
    if group.scope == WITHIN:
        return mean_interval(np.diag(mean_PP)[np.diag(there_PP)], bounds=(-1.0, 1.0))
    estimate = float(mean_PP[there_PP].mean())
    left_out = []
    for problem in np.flatnonzero(there_PP.any(axis=0) | there_PP.any(axis=1)):
        rest_PP = there_PP.copy()
        rest_PP[problem, :] = rest_PP[:, problem] = False
        left_out.append(float(mean_PP[rest_PP].mean()) if rest_PP.any() else None)
    return jackknife(estimate, left_out, bounds=(-1.0, 1.0))


def jackknife(
    estimate: float, *left_out: Sequence[float | None], bounds: tuple[float, float] = (-math.inf, math.inf)
) -> Interval:
    """95 % interval of ``estimate`` from its values with one problem left out, None where one of them is undefined.

    se² = (P − 1)/P · Σ (θ₋ₚ − mean)², times Student's t with P − 1 degrees of freedom; of a mean this is its plain t
    interval. Problems of several kinds (audited, trained on) are left out kind by kind, and their variances added; the
    fewest give the degrees of freedom, and ``n`` counts the first kind. Source: Tukey 1958 (Ann. Math. Stat. 29:614).

    >>> three = jackknife(2.0, [2.5, 2.0, 1.5])  # the mean of 1, 2 and 3
    >>> three.mean, round(three.low, 3), round(three.high, 3), three.n
    (2.0, -0.484, 4.484, 3)
    >>> jackknife(0.5, [0.5, None]).low is None
    True
    """
    n = len(left_out[0])
    if any(len(values) < 2 or None in values for values in left_out):
        return Interval(mean=estimate, low=None, high=None, n=n)
    se = math.sqrt(sum(_jackknife_variance(np.array(values, dtype=np.float64)) for values in left_out))
    half_width = float(student_t.ppf(0.975, min(map(len, left_out)) - 1)) * se
    low, high = bounds
    return Interval(
        mean=estimate,
        low=min(estimate, max(low, estimate - half_width)),
        high=max(estimate, min(high, estimate + half_width)),
        n=n,
    )


def _jackknife_variance(left_out_P: Float[np.ndarray, " problem"]) -> float:
    n = len(left_out_P)
    return (n - 1) / n * float(np.sum((left_out_P - left_out_P.mean()) ** 2))
