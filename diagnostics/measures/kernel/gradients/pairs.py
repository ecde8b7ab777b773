"""Pairs of responses by relation of their problems, and intervals of means over pairs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float
from scipy.special import stdtrit

from oversharp.diagnostics.measures.kernel.gradients.coupling import Rows
from oversharp.diagnostics.statistics.intervals import mean_interval
from oversharp.diagnostics.statistics.units import Interval

WITHIN, RELATED, UNRELATED = "within problems", "related problems", "unrelated problems"
NO_PAIR = "no problem has two responses in the kernel; run the audit with a larger --panel or --kernel-responses"
NO_CORRECT_PAIR = "no problem has two correct responses in the kernel; run the audit with more --kernel-responses"
NO_RELATED = "no two problems in the kernel have the same group; run the audit with more --kernel-problems"
ONE_GROUP = 'all problems are one group; give them a field "group" in --problems to separate related from unrelated'


@dataclass(frozen=True, kw_only=True)
class PairGroup:
    """The pairs i < j of one kind as a mask. ``why`` is the reason if there are none."""

    scope: str
    pairs_NN: Bool[np.ndarray, "row row"]
    why: str | None


def pair_groups(rows: Rows) -> tuple[PairGroup, ...]:
    """Return the pairs within problems, between related, and between unrelated problems."""
    upper_NN = np.triu(np.ones((len(rows), len(rows)), dtype=bool), k=1)
    same_NN = rows.problem_N[:, None] == rows.problem_N
    related_NN = rows.related_N[:, None] == rows.related_N
    masks = {WITHIN: upper_NN & same_NN, RELATED: upper_NN & related_NN & ~same_NN, UNRELATED: upper_NN & ~related_NN}
    why = {WITHIN: NO_PAIR, RELATED: NO_RELATED, UNRELATED: ONE_GROUP}
    return tuple(
        PairGroup(scope=scope, pairs_NN=mask_NN, why=None if mask_NN.any() else why[scope])
        for scope, mask_NN in masks.items()
    )


def pair_mean(values_NN: Float[np.ndarray, "row row"], rows: Rows, group: PairGroup) -> Interval:
    """Return the mean over the pairs of ``group``, averaged within (pairs of) problems first.

    The interval is over problems. Pairs within problems use Student's t. Pairs between problems use a jackknife that
    leaves out one problem at a time, because every problem is in many pairs. ``n`` counts problems. Requires at least
    one pair.
    """
    problem_ids, problem_N = np.unique(rows.problem_N, return_inverse=True)
    first_E, second_E = np.nonzero(group.pairs_NN)
    low_E, high_E = np.sort(np.stack([problem_N[first_E], problem_N[second_E]]), axis=0)
    n = len(problem_ids)
    count_PP, sum_PP = np.zeros((n, n)), np.zeros((n, n))
    np.add.at(count_PP, (low_E, high_E), 1.0)
    np.add.at(sum_PP, (low_E, high_E), values_NN[first_E, second_E])
    has_pair_PP = count_PP > 0
    mean_PP = sum_PP / np.where(has_pair_PP, count_PP, 1.0)
    if group.scope == WITHIN:
        return mean_interval(np.diag(mean_PP)[np.diag(has_pair_PP)], bounds=(-1.0, 1.0))
    estimate = float(mean_PP[has_pair_PP].mean())
    left_out = []
    for problem in np.flatnonzero(has_pair_PP.any(axis=0) | has_pair_PP.any(axis=1)):
        rest_PP = has_pair_PP.copy()
        rest_PP[problem, :] = rest_PP[:, problem] = False
        left_out.append(float(mean_PP[rest_PP].mean()) if rest_PP.any() else None)
    return jackknife(estimate, left_out, bounds=(-1.0, 1.0))


def jackknife(
    estimate: float, *left_out: Sequence[float | None], bounds: tuple[float, float] = (-math.inf, math.inf)
) -> Interval:
    """Return ``estimate`` with its 95 % interval from a jackknife over problems.

    ``left_out`` are the estimates without each problem. If one of them is None (undefined), there is no interval. se² =
    (P − 1)/P · Σ (θ₋ₚ − mean)², with Student's t at P − 1 degrees of freedom. For a mean this equals its t interval. If
    there are several kinds of problems (audited, trained on), each kind has its own sequence, and the variances are
    added. Then the smallest kind determines the degrees of freedom, and ``n`` counts the first kind. Source: Tukey 1958
    (Ann. Math. Stat. 29:614).

    >>> interval = jackknife(2.0, [2.5, 2.0, 1.5])  # the mean of 1, 2 and 3
    >>> interval.mean, round(interval.low, 3), round(interval.high, 3), interval.n
    (2.0, -0.484, 4.484, 3)
    >>> jackknife(0.5, [0.5, None]).low is None
    True
    """
    n = len(left_out[0])
    if any(len(values) < 2 or None in values for values in left_out):
        return Interval(mean=estimate, low=None, high=None, n=n)
    se = math.sqrt(sum(_jackknife_variance(np.array(values, dtype=np.float64)) for values in left_out))
    half_width = float(stdtrit(min(map(len, left_out)) - 1, 0.975)) * se
    low, high = bounds
    return Interval(
        mean=estimate,
        low=min(estimate, max(low, estimate - half_width)),
        high=max(estimate, min(high, estimate + half_width)),
        n=n,
    )


def fieller(
    numerator_P: Float[np.ndarray, " problem"], denominator_P: Float[np.ndarray, " problem"], *, least: float
) -> Interval | None:
    """Return Σ numerator / Σ denominator, at least ``least``, with Fieller's 95 % interval.

    The interval contains every ratio R for which the mean of numerator − R·denominator does not differ significantly
    from 0 (Student's t). The result is None if the denominator does not differ significantly from 0, because then no
    large ratio can be excluded. For a single problem there is no interval. Requires Σ denominator > 0. Source: Fieller
    1954 (J. R. Stat. Soc. B 16:175).

    >>> ratio = fieller(np.ones(3), np.array([0.4, 0.5, 0.6]), least=1.0)  # 1 over the interval of 0.5
    >>> round(ratio.mean, 3), round(1 / ratio.high, 3), round(1 / ratio.low, 3)
    (2.0, 0.252, 0.748)
    >>> fieller(np.ones(2), np.array([0.1, 0.9]), least=1.0) is None
    True
    """
    n = len(denominator_P)
    ratio = max(least, float(numerator_P.sum()) / float(denominator_P.sum()))
    if n < 2:
        return Interval(mean=ratio, low=None, high=None, n=n)
    # divided by their means, so that R becomes a multiple of the estimate
    part_PX = np.stack([numerator_P / numerator_P.mean(), denominator_P / denominator_P.mean()], axis=1)
    t2 = float(stdtrit(n - 1, 0.975)) ** 2 / n
    ((upper, both), (_, lower)) = (t2 * np.cov(part_PX, rowvar=False)).tolist()
    if lower >= 1.0:
        return None
    # computed from differences, because the textbook discriminant subtracts two nearly equal squares
    difference = t2 * float(np.var(part_PX[:, 0] - part_PX[:, 1], ddof=1))
    half_width = math.sqrt(max(0.0, difference + both**2 - upper * lower))
    low, high = (ratio * (1.0 - both + sign * half_width) / (1.0 - lower) for sign in (-1.0, 1.0))
    return Interval(mean=ratio, low=min(ratio, max(least, low)), high=max(ratio, high), n=n)


def _jackknife_variance(left_out_P: Float[np.ndarray, " problem"]) -> float:
    n = len(left_out_P)
    return (n - 1) / n * float(np.sum((left_out_P - left_out_P.mean()) ** 2))
