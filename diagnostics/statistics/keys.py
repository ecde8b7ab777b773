"""Tests whether pass@k fell at some k: for these problems, for their population, and at single checkpoints.

The null hypothesis is moderate sharpening (Definition 2.1 of [A]): no correct response of the base loses probability.
Then pass@k falls at no k, and neither does the probability of a correct response outside the dominant mode. So a
one-sided rejection shows a loss. Each test covers all k together and is paired by problem.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.stats import norm
from scipy.stats import t as student_t

from oversharp.diagnostics.statistics.band import stepped_down
from oversharp.diagnostics.statistics.pass_at_k import (
    StoppingRule,
    pass_at_k_table,
    within_problem_covariance_table,
    within_problem_variance_table,
)
from oversharp.diagnostics.statistics.units import by_cluster

#: Number of random draws of a test. p values are multiples of 1 / (draws + 1).
EXACT_DRAWS, POPULATION_DRAWS = 599, 999
#: A test at level α has at least ``_DRAWS_PER_LEVEL`` / α draws, so that p values can be below α, and at most
#: ``_MOST_DRAWS``, which take minutes. At smaller levels the smallest possible p value may be above α.
_DRAWS_PER_LEVEL, _MOST_DRAWS = 18, 50_000
#: Variance floor: term added to the variance of the summed change, in problems squared.
_FLOOR = 0.5
#: Quantiles at which the normal distribution is converted to Student's t: for the multiplier bootstrap, and for the
#: largest fall of many checkpoints.
_STRETCHED_AT, _FAMILY_STRETCHED_AT = 0.95, 0.9995
#: Draws per batch of ``exact_key``, which stops when ``_ENOUGH`` draws are as low as the observed statistic. Below, the
#: same numbers for normal draws, which are cheaper.
_DRAWS_AT_ONCE, _ENOUGH = 60, 25
_NORMALS_AT_ONCE, _ENOUGH_NORMALS = 2_000, 200


@dataclass(frozen=True, kw_only=True)
class PairedCounts:
    """Numbers of correct samples of every problem: ``base_P`` of ``n_base``, and ``late_P`` of ``n_late``.

    Raises ``ValueError`` where the two sides differ in length or a count is outside 0 … n.
    """

    base_P: Int[np.ndarray, " problem"]
    late_P: Int[np.ndarray, " problem"]
    n_base: int
    n_late: int

    def __post_init__(self) -> None:
        if len(self.base_P) != len(self.late_P):
            raise ValueError(f"counts of {len(self.base_P)} problems of the base, but of {len(self.late_P)} late ones")
        for counts_P, n in ((self.base_P, self.n_base), (self.late_P, self.n_late)):
            if len(counts_P) and not 0 <= counts_P.min() <= counts_P.max() <= n:
                raise ValueError(f"counts must be between 0 and {n} samples; got {counts_P.min()} to {counts_P.max()}")

    @property
    def n_problems(self) -> int:
        """Number of compared problems."""
        return len(self.base_P)

    def changes(self, ks: Sequence[int]) -> Float[np.ndarray, "problem k"]:
        """Return pass@k late minus pass@k of the base, unbiased per problem.

        Raises ``ValueError`` for k above n.
        """
        return pass_at_k_table(self.n_late, ks)[self.late_P] - pass_at_k_table(self.n_base, ks)[self.base_P]


def mean_changes(pairs: Sequence[PairedCounts], ks: Sequence[int]) -> Float[np.ndarray, "problem k"]:
    """Return the change of pass@k, averaged over late checkpoints that are each paired with the base.

    Their pooled counts would hide a part of every fall: k samples from several models reach more than k samples from
    one. (The tests use pooled counts nevertheless: that costs power, not validity.)

    >>> one = PairedCounts(base_P=np.array([4]), late_P=np.array([0]), n_base=4, n_late=4)
    >>> mean_changes([one, PairedCounts(base_P=one.base_P, late_P=np.array([4]), n_base=4, n_late=4)], [1, 2]).tolist()
    [[-0.5, -0.5]]
    """
    return np.mean([pair.changes(ks) for pair in pairs], axis=0)


def inference_ks(n: int) -> tuple[int, ...]:
    """Return the powers of two up to n / 2, above which the variance of pass@k cannot be estimated; at least 1.

    >>> inference_ks(64), inference_ks(1)
    ((1, 2, 4, 8, 16, 32), (1,))
    """
    return tuple(1 << power for power in range(max(1, (n // 2).bit_length())))


def draws_for(level: float) -> int:
    """Return the number of draws of a test at ``level``."""
    return min(_MOST_DRAWS, max(EXACT_DRAWS, int(_DRAWS_PER_LEVEL / level)))


def exact_key(counts: PairedCounts, *, ks: Sequence[int], rng: np.random.Generator, draws: int = EXACT_DRAWS) -> float:
    """Return the one-sided p of "the mean pass@k of these problems fell at none of ``ks``".

    The statistic is the minimum over k of the summed change divided by its standard error, which is estimated from the
    counts (``within_problem_variance_table``, plus ``_FLOOR``). The p value is the larger of two:

    - A permutation p value. It is exact for any number of samples if no problem changed: given the correct samples of
      both sides together, the late ones are hypergeometric.
    - A normal p value, from normal numbers with the estimated correlation over k. It is valid for many problems if some
      rose as much as others fell. In such series, a permutation test that is not studentised rejects in half of the
      cases, and a studentised one in up to an eighth.

    Problems that are always or never solved have no effect. Sampling stops at ``_ENOUGH`` draws as low as the observed
    statistic. Then p is ``_ENOUGH`` divided by the number of draws, which is valid.

    Raises ``ValueError`` for a k above half of the samples of either side, 1 excepted.

    Source: Chung and Romano 2013 (Ann. Stat. 41:484); Wu and Ding 2021 (JASA 116:1898); Besag and Clifford 1991
    (Biometrika 78:301), for the stopping.

    >>> rng = np.random.default_rng(0)
    >>> same = PairedCounts(base_P=np.full(30, 8), late_P=np.full(30, 8), n_base=64, n_late=64)
    >>> lost = PairedCounts(base_P=np.full(30, 8), late_P=np.zeros(30, dtype=int), n_base=64, n_late=64)
    >>> exact_key(same, ks=[1, 8, 32], rng=rng) > 0.2, exact_key(lost, ks=[1, 8, 32], rng=rng)
    (True, 0.0016666666666666668)
    """
    total_P = counts.base_P + counts.late_P
    n_total = counts.n_base + counts.n_late
    informative_P = (total_P > 0) & (total_P < n_total)
    if not informative_P.any():
        return 1.0
    total_P, late_P = total_P[informative_P], counts.late_P[informative_P]
    studentised = Studentised.of(counts.n_base, counts.n_late, ks)
    observed = float(studentised.least(total_P[None] - late_P, late_P[None])[0])
    size = (_DRAWS_AT_ONCE, len(total_P))
    as_low_D = np.zeros(0, dtype=bool)
    while len(as_low_D) < draws and as_low_D.sum() < _ENOUGH:
        late_DP = rng.hypergeometric(total_P, n_total - total_P, counts.n_late, size=size)
        as_low_D = np.append(as_low_D, studentised.least(total_P - late_DP, late_DP) <= observed + 1e-12)
    p = _p_of_draws(as_low_D[:draws])
    if min(counts.n_base, counts.n_late) < 2:
        return p  # a single sample gives no variance: use only the permutation
    covariance_KK = _summed_covariance(counts.n_base, counts.base_P, ks)
    covariance_KK = covariance_KK + _summed_covariance(counts.n_late, counts.late_P, ks)
    return max(p, least_normal_p(observed, covariance_KK, rng=rng, draws=8 * draws))


def until_solved_key(
    base_P: Int[np.ndarray, " problem"],
    late_TP: Int[np.ndarray, "step problem"],
    *,
    rule: StoppingRule,
    ks: Sequence[int],
    rng: np.random.Generator,
    draws: int = EXACT_DRAWS,
) -> float:
    """Return the p value of ``exact_key`` for samples drawn by a stopping rule, and the mean of late checkpoints.

    ``base_P`` and ``late_TP`` are codes of end points (``StoppingRule.codes``). Counts of several checkpoints cannot be
    pooled, because each problem stopped by its own counts, so their estimates of pass@k are averaged.

    Given both sides together, the late counts are not hypergeometric. So the first p value is parametric instead of
    exact: all sides are drawn again by the rule at the pooled success rate of each problem, its maximum-likelihood
    estimate if nothing changed. The second one, from normal numbers, and the stopping are as in ``exact_key``.

    Raises ``ValueError`` for a k above half of the cap.

    >>> rng = np.random.default_rng(0)
    >>> rule = StoppingRule(rounds=(8, 16, 32, 64), enough=2)
    >>> base_P, same_P = (rule.draw(np.full(60, 0.1), rng=rng, draws=1)[0] for _ in range(2))
    >>> lost_P = np.where(np.arange(60) < 20, 0, same_P)
    >>> late = (same_P, lost_P)
    >>> [until_solved_key(base_P, late_P[None], rule=rule, ks=[1, 8, 32], rng=rng) < 0.01 for late_P in late]
    [False, True]
    """
    n_E, correct_E = np.array(rule.ends).T
    n_P, correct_P = n_E[base_P] + n_E[late_TP].sum(axis=0), correct_E[base_P] + correct_E[late_TP].sum(axis=0)
    informative_P = (correct_P > 0) & (correct_P < n_P)
    if not informative_P.any():
        return 1.0
    base_P, late_TP = base_P[informative_P], late_TP[:, informative_P]
    rate_P, n_steps = (correct_P / n_P)[informative_P], len(late_TP)
    covariance_EKK = rule.covariance_table(ks)
    table_E2K = np.concatenate([rule.pass_at_k_table(ks), np.diagonal(covariance_EKK, axis1=1, axis2=2)], axis=1)

    def least(base_DP: np.ndarray, late_TDP: np.ndarray) -> Float[np.ndarray, " draw"]:
        base_D2K = sums_of_rows(table_E2K, base_DP)
        late_D2K = np.sum([sums_of_rows(table_E2K, late_DP) for late_DP in late_TDP], axis=0)
        change_DK = late_D2K[:, : len(ks)] / n_steps - base_D2K[:, : len(ks)]
        variance_DK = late_D2K[:, len(ks) :] / n_steps**2 + base_D2K[:, len(ks) :]
        return np.asarray((change_DK / scale_of(variance_DK)).min(axis=1))

    observed = float(least(base_P[None], late_TP[:, None])[0])
    as_low_D = np.zeros(0, dtype=bool)
    while len(as_low_D) < draws and as_low_D.sum() < _ENOUGH:
        base_DP, *late_TDP = (rule.draw(rate_P, rng=rng, draws=_DRAWS_AT_ONCE) for _ in range(1 + n_steps))
        as_low_D = np.append(as_low_D, least(base_DP, np.stack(late_TDP)) <= observed + 1e-12)
    covariance_KK = covariance_EKK[base_P].sum(axis=0) + covariance_EKK[late_TP].sum(axis=(0, 1)) / n_steps**2
    return max(_p_of_draws(as_low_D[:draws]), least_normal_p(observed, covariance_KK, rng=rng, draws=8 * draws))


def _p_of_draws(as_low_D: Bool[np.ndarray, " draw"], enough: int = _ENOUGH) -> float:
    """Return the p value if sampling stops at ``enough`` draws as low as the observed value."""
    (at_X,) = as_low_D.nonzero()
    if len(at_X) >= enough:
        return float(enough / (at_X[enough - 1] + 1))
    return float((1 + len(at_X)) / (len(as_low_D) + 1))


def least_normal_p(
    least: float, covariance_KK: Float[np.ndarray, "k k"], *, rng: np.random.Generator, draws: int
) -> float:
    """Return the probability that the minimum of scaled normal numbers with this covariance is at most ``least``.

    The numbers have mean 0 and are divided by the root of their variance plus ``_FLOOR``. At most ``draws`` are
    sampled. Sampling stops at ``_ENOUGH_NORMALS`` draws as low as ``least``; the relative error is then about 1/14.
    """
    root_KK = _root(covariance_KK) / scale_of(np.diag(covariance_KK))
    as_low_D = np.zeros(0, dtype=bool)
    while len(as_low_D) < draws and as_low_D.sum() < _ENOUGH_NORMALS:
        size = min(max(_NORMALS_AT_ONCE, len(as_low_D)), draws - len(as_low_D))
        normal_DK = rng.normal(size=(size, len(covariance_KK))) @ root_KK
        as_low_D = np.append(as_low_D, normal_DK.min(axis=1) <= least)
    return _p_of_draws(as_low_D, _ENOUGH_NORMALS)


def checkpoint_keys(
    steps: Sequence[PairedCounts], *, ks: Sequence[int], rng: np.random.Generator, draws: int = EXACT_DRAWS
) -> Float[np.ndarray, " step"]:
    """Return the p value of "mean pass@k of these problems fell at none of ``ks``" of each checkpoint.

    p values are adjusted for all checkpoints.

    The statistic is that of ``exact_key``. Its null distribution is normal. It has the estimated covariances over k of
    the base, which all checkpoints share, and of each checkpoint. The step-down adjustment uses the largest fall of all
    checkpoints (``stepped_down``).

    Variances of few problems are estimated poorly, so each statistic is divided by the ratio of a quantile of Student's
    t to that of the normal distribution. The degrees of freedom are the number of problems that are neither always nor
    never solved, minus one. ``benchmarks/calibration/transient.py`` measures false alarms and power.

    Raises ``ValueError`` for a k above half of the samples of either side, 1 excepted.

    >>> rng = np.random.default_rng(0)
    >>> base_P = np.full(40, 8)
    >>> same, lost = (PairedCounts(base_P=base_P, late_P=base_P // by, n_base=64, n_late=64) for by in (1, 4))
    >>> (checkpoint_keys([same, lost, same], ks=[1, 8, 32], rng=rng) < 0.01).tolist()
    [False, True, False]
    """
    base, n_ks = steps[0], len(ks)
    base_KK = _summed_covariance(base.n_base, base.base_P, ks)
    late_TKK = np.stack([_summed_covariance(step.n_late, step.late_P, ks) for step in steps])
    scale_TK = scale_of(np.diagonal(base_KK + late_TKK, axis1=1, axis2=2))
    change_TK = np.stack([step.changes(ks).sum(axis=0) for step in steps])
    fall_T = -(change_TK / scale_TK).min(axis=1) / np.array([_stretch(step) for step in steps])
    base_root_KK, late_root_TKK = _root(base_KK), np.stack([_root(late_KK) for late_KK in late_TKK])
    batches: list[np.ndarray] = []
    n_as_large = 0
    while len(batches) * _NORMALS_AT_ONCE < draws and n_as_large < _ENOUGH_NORMALS:
        base_DK = rng.normal(size=(_NORMALS_AT_ONCE, n_ks)) @ base_root_KK
        late_TDK = rng.normal(size=(len(steps), _NORMALS_AT_ONCE, n_ks)) @ late_root_TKK
        batches.append(((base_DK - late_TDK) / scale_TK[:, None]).max(axis=2).T)
        n_as_large += int((batches[-1].max(axis=1) >= fall_T.max()).sum())
    return stepped_down(fall_T, np.concatenate(batches))


def _summed_covariance(n: int, counts_P: np.ndarray, ks: Sequence[int]) -> Float[np.ndarray, "k k"]:
    """Return the covariance over k of the summed pass@k; with a single sample per problem, the largest possible one."""
    if n < 2:
        return np.full((len(ks), len(ks)), 0.25 * len(counts_P))
    return np.asarray(covariance_table(n, tuple(ks))[counts_P].sum(axis=0))


def _root(covariance_KK: Float[np.ndarray, "k k"]) -> Float[np.ndarray, "k k"]:
    """Return a matrix. The product of standard normal rows with it has this covariance."""
    value_K, vector_KK = np.linalg.eigh((covariance_KK + covariance_KK.T) / 2)
    return np.asarray((vector_KK * np.sqrt(np.maximum(value_K, 0.0))).T)


def _stretch(counts: PairedCounts) -> float:
    """Return a quantile of Student's t divided by the normal's. Problems always or never solved do not count."""
    total_P = counts.base_P + counts.late_P
    n_informative = int(((total_P > 0) & (total_P < counts.n_base + counts.n_late)).sum())
    return float(student_t.ppf(_FAMILY_STRETCHED_AT, max(1, n_informative - 1)) / norm.ppf(_FAMILY_STRETCHED_AT))


def scale_of(variance_K: Float[np.ndarray, " k"]) -> Float[np.ndarray, " k"]:
    """Return the root of the variance of a sum over problems plus ``_FLOOR``.

    Without the floor, sums with almost no variance would determine the minimum over k.
    """
    return np.sqrt(np.maximum(variance_K, 0.0) + _FLOOR)


@dataclass(frozen=True, kw_only=True)
class Studentised:
    """Summed change of pass@k divided by its standard error, for given counts. The tables have one row per count."""

    base_CK: Float[np.ndarray, "correct k"]
    late_CK: Float[np.ndarray, "correct k"]

    @classmethod
    def of(cls, n_base: int, n_late: int, ks: Sequence[int]) -> Studentised:
        """Build the tables for these sample counts.

        Raises ``ValueError`` for a k above half of either, except 1.
        """
        return cls(base_CK=_with_variance(n_base, tuple(ks)), late_CK=_with_variance(n_late, tuple(ks)))

    def least(
        self, base_DP: Int[np.ndarray, "draw problem"], late_DP: Int[np.ndarray, "draw problem"]
    ) -> Float[np.ndarray, " draw"]:
        """Return the minimum over k for every draw of counts."""
        late_D2K, base_D2K = sums_of_rows(self.late_CK, late_DP), sums_of_rows(self.base_CK, base_DP)
        n_ks = self.base_CK.shape[1] // 2
        change_DK = late_D2K[:, :n_ks] - base_D2K[:, :n_ks]
        variance_DK = late_D2K[:, n_ks:] + base_D2K[:, n_ks:]
        return (change_DK / np.sqrt(variance_DK + _FLOOR)).min(axis=1)


@lru_cache(maxsize=8)
def _with_variance(n: int, ks: tuple[int, ...]) -> Float[np.ndarray, "correct twice_k"]:
    """Return pass@k of every count and its variance; with a single sample, the largest possible variance."""
    variance_CK = np.full((n + 1, len(ks)), 0.25) if n < 2 else within_problem_variance_table(n, ks)
    return np.concatenate([pass_at_k_table(n, ks), variance_CK], axis=1)


@lru_cache(maxsize=8)
def covariance_table(n: int, ks: tuple[int, ...]) -> Float[np.ndarray, "correct k k"]:
    """Return ``within_problem_covariance_table``, cached by ``n`` and ``ks``."""
    return within_problem_covariance_table(n, ks)


def sums_of_rows(
    table_CK: Float[np.ndarray, "correct k"], count_DP: Int[np.ndarray, "draw problem"]
) -> Float[np.ndarray, "draw k"]:
    """Sum the table rows of the counts over the problems of every draw.

    With many problems, each row is multiplied by its frequency; with few, summing the rows is cheaper.
    """
    n_draws, n_counts = len(count_DP), len(table_CK)
    if count_DP.shape[1] * table_CK.shape[1] < n_counts:
        return table_CK[count_DP].sum(axis=1)
    of_draw_DP = count_DP + n_counts * np.arange(n_draws)[:, None]
    times_DC = np.bincount(of_draw_DP.ravel(), minlength=n_draws * n_counts).reshape(n_draws, n_counts)
    return times_DC @ table_CK


def population_key(
    counts: PairedCounts,
    *,
    ks: Sequence[int],
    rng: np.random.Generator,
    draws: int = POPULATION_DRAWS,
    cluster_P: Int[np.ndarray, " problem"] | None = None,
) -> float:
    """Return the one-sided p of "in the population of these problems, pass@k fell at none of ``ks``".

    The statistic is the minimum over k of the paired t. Its null distribution is a Rademacher multiplier bootstrap over
    problems, converted to Student's t. The variance floor of ``intervals.share_interval`` is in the statistic and in
    the draws, so it only weights the k. If a few problems all fall alike, the spread cannot be estimated, so p is at
    least 2^−(number of problems). p is 1 for a single problem. With ``cluster_P`` the units are clusters: related
    problems share a sign.

    >>> rng = np.random.default_rng(0)
    >>> lost = PairedCounts(base_P=np.full(30, 8), late_P=np.zeros(30, dtype=int), n_base=64, n_late=64)
    >>> population_key(lost, ks=[1, 8, 32], rng=rng) < 0.01
    True
    """
    return population_p(by_cluster(counts.changes(ks), cluster_P), rng=rng, draws=draws)


def population_p(
    change_GK: Float[np.ndarray, "unit k"], *, rng: np.random.Generator, draws: int = POPULATION_DRAWS
) -> float:
    """Return the p value of ``population_key`` from the changes of pass@k of problems or clusters."""
    n_units = len(change_GK)
    if n_units < 2:
        return 1.0
    mean_K = change_GK.mean(axis=0)
    # standard error of the sum over units, with the variance floor
    scale_K = np.sqrt((n_units - 1) * change_GK.var(axis=0, ddof=1) + 1.0)
    least = float((mean_K * n_units / scale_K).min())
    sign_DG = rng.integers(0, 2, size=(draws, n_units)) * 2.0 - 1.0
    largest_D = (sign_DG @ (change_GK - mean_K) / scale_K).max(axis=1)
    largest_D *= student_t.ppf(_STRETCHED_AT, n_units - 1) / norm.ppf(_STRETCHED_AT)
    p = float((1 + (largest_D >= -least).sum()) / (draws + 1))
    return max(p, 2.0**-n_units)
