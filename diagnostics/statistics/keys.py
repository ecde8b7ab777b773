"""Tests whether pass@k fell at some k: for these problems, for their population, and at single checkpoints.

The null hypothesis is moderate sharpening (Definition 2.1 of [A]): no correct response of the base loses probability.
Then pass@k falls at no k, and neither does the probability of a correct response outside the dominant mode. So a
one-sided rejection shows a loss. Each test covers all k together and is paired by problem.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.special import ndtri, stdtrit

from oversharp.diagnostics.statistics.band import stepped_down
from oversharp.diagnostics.statistics.pass_at_k import (
    pass_at_k_table,
    within_problem_covariance_table,
    within_problem_variance_table,
)
from oversharp.diagnostics.statistics.stopping import Samples, StoppingRule, draw_codes, most_samples
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
#: Draws whose counts are counted at once, so that the numbers stay in the processor's cache.
_COUNTED_AT_ONCE = 32


@dataclass(frozen=True, kw_only=True)
class PairedCounts:
    """Numbers of correct samples of every problem: ``base_P`` of ``n_base``, and ``late_P`` of ``n_late``.

    If a stopping rule determined the number of samples, ``n_base`` or ``n_late`` is the rule, and the numbers are the
    codes of its end points. Counts of several checkpoints cannot be summed then, because each stopped by its own
    counts. So ``late_P`` may have one row per checkpoint, and their estimates are averaged. ``first`` has the counts of
    the first round, in which all problems have equally many samples.

    Raises ``ValueError`` where the two sides differ in length or a count is outside 0 … n.
    """

    base_P: Int[np.ndarray, " problem"]
    late_P: Int[np.ndarray, "*step problem"]
    n_base: Samples
    n_late: Samples
    first: PairedCounts | None = None

    def __post_init__(self) -> None:
        if len(self.base_P) != self.late_P.shape[-1]:
            n_late = self.late_P.shape[-1]
            raise ValueError(f"counts of {len(self.base_P)} problems of the base, but of {n_late} late ones")
        for counts, n in ((self.base_P, most_samples(self.n_base)), (self.late_P, most_samples(self.n_late))):
            if counts.size and not 0 <= counts.min() <= counts.max() <= n:
                raise ValueError(f"counts must be between 0 and {n} samples; got {counts.min()} to {counts.max()}")

    @property
    def n_problems(self) -> int:
        """Number of compared problems."""
        return len(self.base_P)

    @property
    def late_rows(self) -> Int[np.ndarray, "step problem"]:
        """Late counts, one row per checkpoint whose estimates are averaged."""
        return np.atleast_2d(self.late_P)

    @property
    def n_most(self) -> int:
        """Largest number of samples that every problem may have on both sides."""
        return min(most_samples(self.n_base), most_samples(self.n_late))

    @property
    def is_stopped(self) -> bool:
        """Whether a stopping rule determined the number of samples of a side."""
        return isinstance(self.n_base, StoppingRule) or isinstance(self.n_late, StoppingRule)

    @property
    def equal(self) -> PairedCounts:
        """Counts with an equal number of samples of every problem: these, or those of the first round.

        Raises ``ValueError`` if the first round is unknown.
        """
        if self.is_stopped and self.first is None:
            raise ValueError("the counts of the first round are unknown")
        return self.first if self.is_stopped and self.first is not None else self

    @property
    def base_hits(self) -> tuple[Int[np.ndarray, " problem"], Int[np.ndarray, " problem"]]:
        """Numbers of samples and of correct samples of the base."""
        return _hits(self.n_base, self.base_P)

    @property
    def late_hits(self) -> tuple[Int[np.ndarray, " problem"], Int[np.ndarray, " problem"]]:
        """Numbers of late samples and of correct late samples, summed over the checkpoints."""
        n_TP, correct_TP = _hits(self.n_late, self.late_rows)
        return n_TP.sum(axis=0), correct_TP.sum(axis=0)

    @property
    def all_hits(self) -> tuple[Int[np.ndarray, " problem"], Int[np.ndarray, " problem"]]:
        """Numbers of samples and of correct samples of both sides together."""
        (n_base_P, base_P), (n_late_P, late_P) = self.base_hits, self.late_hits
        return n_base_P + n_late_P, base_P + late_P

    @property
    def is_informative(self) -> Bool[np.ndarray, " problem"]:
        """Whether a problem is neither always nor never solved."""
        n_P, correct_P = self.all_hits
        return (correct_P > 0) & (correct_P < n_P)

    def only(self, part_P: Bool[np.ndarray, " problem"]) -> PairedCounts:
        """Return the counts of some problems."""
        first = None if self.first is None else self.first.only(part_P)
        return replace(self, base_P=self.base_P[part_P], late_P=self.late_P[..., part_P], first=first)

    def base_pass_at_k(self, ks: Sequence[int]) -> Float[np.ndarray, "problem k"]:
        """Return pass@k of the base, unbiased per problem. Raises ``ValueError`` for k above n."""
        return pass_at_k_table(self.n_base, ks)[self.base_P]

    def changes(self, ks: Sequence[int]) -> Float[np.ndarray, "problem k"]:
        """Return pass@k late minus pass@k of the base, unbiased per problem.

        Raises ``ValueError`` for k above n.
        """
        return pass_at_k_table(self.n_late, ks)[self.late_rows].mean(axis=0) - self.base_pass_at_k(ks)


def _hits(samples: Samples, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return samples.hits(counts) if isinstance(samples, StoppingRule) else (np.full_like(counts, samples), counts)


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
      both sides together, the late ones are hypergeometric. With a stopping rule they are not, so both sides are drawn
      again by the rule instead, at the pooled success rate of each problem. That is its maximum-likelihood estimate if
      nothing changed, so this p value is approximate.
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
    >>> rule = StoppingRule.doubling(first=8, cap=64, enough=2)
    >>> base_P, same_P = (rule.draw(np.full(60, 0.1), rng=rng, draws=1)[0] for _ in range(2))
    >>> lost_P = np.where(np.arange(60) < 20, 0, same_P)
    >>> late = (same_P, np.stack([lost_P, lost_P]))  # one late checkpoint, and the average of two
    >>> pairs = [PairedCounts(base_P=base_P, late_P=late_P, n_base=rule, n_late=rule) for late_P in late]
    >>> [exact_key(pair, ks=[1, 8, 32], rng=rng) < 0.01 for pair in pairs]
    [False, True]
    """
    counts = counts.only(counts.is_informative)
    if not counts.n_problems:
        return 1.0
    studentised = Studentised.of(counts.n_base, counts.n_late, ks)
    observed = float(studentised.least(counts.base_P[None], counts.late_rows[:, None])[0])
    draw = _draw_stopped if counts.is_stopped else _draw_exactly
    as_low_D = np.zeros(0, dtype=bool)
    while len(as_low_D) < draws and as_low_D.sum() < _ENOUGH:
        as_low_D = np.append(as_low_D, studentised.least(*draw(counts, rng)) <= observed + 1e-12)
    p = _p_of_draws(as_low_D[:draws])
    if counts.n_most < 2:
        return p  # a single sample gives no variance: use only the permutation
    base_KK, late_KK = summed_covariances(counts, ks)
    return max(p, least_normal_p(observed, base_KK + late_KK, rng=rng, draws=8 * draws))


def _draw_exactly(counts: PairedCounts, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Draw base and late counts given those of both together, as if no problem changed."""
    n_P, total_P = counts.all_hits
    size = (_DRAWS_AT_ONCE, len(total_P))
    late_DP = rng.hypergeometric(total_P, n_P - total_P, most_samples(counts.n_late), size=size)
    return total_P - late_DP, late_DP[None]


def _draw_stopped(counts: PairedCounts, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Draw all sides again by their rules, at the pooled success rate of each problem."""
    n_P, correct_P = counts.all_hits
    sides = (counts.n_base, *[counts.n_late] * len(counts.late_rows))
    base_DP, *late_TDP = (draw_codes(side, correct_P / n_P, rng=rng, draws=_DRAWS_AT_ONCE) for side in sides)
    return base_DP, np.stack(late_TDP)


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
    n_ks = len(ks)
    base_KK = _summed_covariance(steps[0].n_base, steps[0].base_P[None], ks)
    late_TKK = np.stack([_summed_covariance(step.n_late, step.late_rows, ks) for step in steps])
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


def summed_covariances(
    counts: PairedCounts, ks: Sequence[int]
) -> tuple[Float[np.ndarray, "k k"], Float[np.ndarray, "k k"]]:
    """Return the covariances over k of the summed pass@k of the base, and of the late checkpoints."""
    base_KK = _summed_covariance(counts.n_base, counts.base_P[None], ks)
    return base_KK, _summed_covariance(counts.n_late, counts.late_rows, ks)


def _summed_covariance(samples: Samples, counts_TP: np.ndarray, ks: Sequence[int]) -> Float[np.ndarray, "k k"]:
    """Return the covariance over k of pass@k, summed over problems and averaged over checkpoints.

    With a single sample per problem, the largest possible one.
    """
    if most_samples(samples) < 2:
        return np.full((len(ks), len(ks)), 0.25 * counts_TP.size / len(counts_TP) ** 2)
    return np.asarray(covariance_table(samples, tuple(ks))[counts_TP].sum(axis=(0, 1)) / len(counts_TP) ** 2)


def _root(covariance_KK: Float[np.ndarray, "k k"]) -> Float[np.ndarray, "k k"]:
    """Return a matrix. The product of standard normal rows with it has this covariance."""
    value_K, vector_KK = np.linalg.eigh((covariance_KK + covariance_KK.T) / 2)
    return np.asarray((vector_KK * np.sqrt(np.maximum(value_K, 0.0))).T)


def _stretch(counts: PairedCounts) -> float:
    """Return a quantile of Student's t divided by the normal's. Problems always or never solved do not count."""
    n_informative = int(counts.is_informative.sum())
    return float(stdtrit(max(1, n_informative - 1), _FAMILY_STRETCHED_AT) / ndtri(_FAMILY_STRETCHED_AT))


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
    def of(cls, n_base: Samples, n_late: Samples, ks: Sequence[int]) -> Studentised:
        """Build the tables for these sample counts.

        Raises ``ValueError`` for a k above half of either, except 1.
        """
        return cls(base_CK=_with_variance(n_base, tuple(ks)), late_CK=_with_variance(n_late, tuple(ks)))

    def least(
        self, base_DP: Int[np.ndarray, "draw problem"], late_TDP: Int[np.ndarray, "step draw problem"]
    ) -> Float[np.ndarray, " draw"]:
        """Return the minimum over k for every draw of counts."""
        base_D2K, n_ks, n_steps = sums_of_rows(self.base_CK, base_DP), self.base_CK.shape[1] // 2, len(late_TDP)
        late_D2K = np.sum([sums_of_rows(self.late_CK, late_DP) for late_DP in late_TDP], axis=0)
        change_DK = late_D2K[:, :n_ks] / n_steps - base_D2K[:, :n_ks]
        variance_DK = late_D2K[:, n_ks:] / n_steps**2 + base_D2K[:, n_ks:]
        return np.asarray((change_DK / scale_of(variance_DK)).min(axis=1))


@lru_cache(maxsize=8)
def _with_variance(samples: Samples, ks: tuple[int, ...]) -> Float[np.ndarray, "correct twice_k"]:
    """Return pass@k of every count and its variance; with a single sample, the largest possible variance."""
    if most_samples(samples) < 2:
        variance_CK = np.full((2, len(ks)), 0.25)
    else:
        variance_CK = within_problem_variance_table(samples, ks)
    return np.concatenate([pass_at_k_table(samples, ks), variance_CK], axis=1)


@lru_cache(maxsize=8)
def covariance_table(samples: Samples, ks: tuple[int, ...]) -> Float[np.ndarray, "correct k k"]:
    """Return ``within_problem_covariance_table``, cached by ``samples`` and ``ks``."""
    return within_problem_covariance_table(samples, ks)


def sums_of_rows(
    table_CK: Float[np.ndarray, "correct k"], count_DP: Int[np.ndarray, "draw problem"]
) -> Float[np.ndarray, "draw k"]:
    """Sum the table rows of the counts over the problems of every draw.

    With many problems, each row is multiplied by its frequency; with few, summing the rows is cheaper.
    """
    n_draws, n_counts = len(count_DP), len(table_CK)
    if count_DP.shape[1] * table_CK.shape[1] < n_counts:
        return table_CK[count_DP].sum(axis=1)
    times_DC = np.empty((n_draws, n_counts))
    for start in range(0, n_draws, _COUNTED_AT_ONCE):
        part_DP = count_DP[start : start + _COUNTED_AT_ONCE]
        of_draw_DP = part_DP + n_counts * np.arange(len(part_DP))[:, None]
        times = np.bincount(of_draw_DP.ravel(), minlength=len(part_DP) * n_counts)
        times_DC[start : start + len(part_DP)] = times.reshape(len(part_DP), n_counts)
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
    largest_D *= stdtrit(n_units - 1, _STRETCHED_AT) / ndtri(_STRETCHED_AT)
    p = float((1 + (largest_D >= -least).sum()) / (draws + 1))
    return max(p, 2.0**-n_units)
