"""Two tests of one question: did pass@k fall at some k? One for these problems, one for problems like these.

Under moderate sharpening (Definition 2.1 of [A]) no response that the base gives correctly loses probability, so pass@k
falls at no k, and neither does the chance of a correct response outside a problem's dominant mode. A one-sided
rejection therefore proves a loss somewhere. Each test looks at all k at once and is paired by problem.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int
from scipy.stats import norm
from scipy.stats import t as student_t

from diagnostics.statistics.pass_at_k import pass_at_k_table

#: Draws of the tests' own randomness: p values are multiples of 1 / (draws + 1).
EXACT_DRAWS, POPULATION_DRAWS = 599, 999
#: Where the multiplier bootstrap is stretched from the normal to Student's t.
_STRETCHED_AT = 0.95
#: Numbers that exist at one time while the null distribution is drawn.
_NUMBERS_AT_ONCE = 1 << 22


@dataclass(frozen=True, kw_only=True)
class PairedCounts:
    """Hits of every problem among ``n_base`` samples of the base and ``n_late`` samples late in training.

    Raises ``ValueError`` where the two sides are not of one length or a count is outside 0 … n.
    """

    base_P: Int[np.ndarray, " problem"]
    late_P: Int[np.ndarray, " problem"]
    n_base: int
    n_late: int

    def __post_init__(self) -> None:
        if len(self.base_P) != len(self.late_P):
            raise ValueError(f"counts of {len(self.base_P)} problems beside those of {len(self.late_P)}")
        for counts_P, n in ((self.base_P, self.n_base), (self.late_P, self.n_late)):
            if len(counts_P) and not 0 <= counts_P.min() <= counts_P.max() <= n:
                raise ValueError(f"counts of {n} samples lie between {counts_P.min()} and {counts_P.max()}")

    @property
    def n_problems(self) -> int:
        """Problems that are compared."""
        return len(self.base_P)

    def changes(self, ks: Sequence[int]) -> Float[np.ndarray, "problem k"]:
        """pass@k late minus pass@k of the base, unbiased for each problem. Raises ``ValueError`` for k above n."""
        return pass_at_k_table(self.n_late, ks)[self.late_P] - pass_at_k_table(self.n_base, ks)[self.base_P]


def mean_changes(pairs: Sequence[PairedCounts], ks: Sequence[int]) -> Float[np.ndarray, "problem k"]:
    """The change of pass@k, averaged over late checkpoints that are each paired with the base.

    Their pooled counts would not give it: k draws from several models reach more than k draws from one, so that pooled
    counts hide a part of every fall. (The tests take pooled counts all the same: that costs power, not honesty.)

    >>> one = PairedCounts(base_P=np.array([4]), late_P=np.array([0]), n_base=4, n_late=4)
    >>> mean_changes([one, PairedCounts(base_P=one.base_P, late_P=np.array([4]), n_base=4, n_late=4)], [1, 2]).tolist()
    [[-0.5, -0.5]]
    """
    return np.mean([pair.changes(ks) for pair in pairs], axis=0)


def inference_ks(n: int) -> tuple[int, ...]:
    """Powers of two up to n / 2, beyond which the variance of pass@k cannot be estimated; 1 in any case.

    >>> inference_ks(64), inference_ks(1)
    ((1, 2, 4, 8, 16, 32), (1,))
    """
    return tuple(1 << power for power in range(max(1, (n // 2).bit_length())))


def exact_key(counts: PairedCounts, *, ks: Sequence[int], rng: np.random.Generator, draws: int = EXACT_DRAWS) -> float:
    """p value of "pass@k of these very problems fell at none of ``ks``", one-sided, exact at any number of samples.

    Given the hits of both sides together, those that fall to the late side are hypergeometric if nothing changed, and
    more if the problem became easier. The statistic is the least over k of the summed change, studentised by the
    drawn distribution; p counts the observed one among the draws. Problems that are always or never solved say nothing.

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
    late_CK, base_CK = pass_at_k_table(counts.n_late, ks), pass_at_k_table(counts.n_base, ks)

    def summed(late_DP: np.ndarray) -> np.ndarray:
        base_DP = total_P - late_DP
        return np.stack(
            [late_CK[:, j].take(late_DP).sum(axis=1) - base_CK[:, j].take(base_DP).sum(axis=1) for j in range(len(ks))],
            axis=1,
        )

    sums = [summed(late_P[None])]
    at_once = max(1, _NUMBERS_AT_ONCE // len(total_P))
    for start in range(0, draws, at_once):
        size = (min(at_once, draws - start), len(total_P))
        sums.append(summed(rng.hypergeometric(total_P, n_total - total_P, counts.n_late, size=size)))
    sum_DK = np.concatenate(sums)
    least_D = ((sum_DK - sum_DK.mean(axis=0)) / np.maximum(sum_DK.std(axis=0), 1e-9)).min(axis=1)
    return float((least_D <= least_D[0] + 1e-12).mean())


def population_key(
    counts: PairedCounts, *, ks: Sequence[int], rng: np.random.Generator, draws: int = POPULATION_DRAWS
) -> float:
    """p value of "over problems like these, pass@k fell at none of ``ks``", one-sided; 1 for a single problem.

    The least paired t over k against a Rademacher multiplier bootstrap over problems, which is stretched to Student's
    t; the floor of the variance (``intervals.share_interval``) only weighs the ks against each other. A few problems
    that all fall alike have no spread to learn from: p is at least that of as many coins that all fall the same way.

    >>> rng = np.random.default_rng(0)
    >>> lost = PairedCounts(base_P=np.full(30, 8), late_P=np.zeros(30, dtype=int), n_base=64, n_late=64)
    >>> population_key(lost, ks=[1, 8, 32], rng=rng) < 0.01
    True
    """
    n_problems = counts.n_problems
    if n_problems < 2:
        return 1.0
    change_PK = counts.changes(ks)
    mean_K = change_PK.mean(axis=0)
    # of the sum over problems, and of their mean
    scale_K = np.sqrt((n_problems - 1) * change_PK.var(axis=0, ddof=1) + 1.0)
    least = float((mean_K * n_problems / scale_K).min())
    sign_DP = rng.integers(0, 2, size=(draws, n_problems)) * 2.0 - 1.0
    largest_D = (sign_DP @ (change_PK - mean_K) / scale_K).max(axis=1)
    largest_D *= student_t.ppf(_STRETCHED_AT, n_problems - 1) / norm.ppf(_STRETCHED_AT)
    p = float((1 + (largest_D >= -least).sum()) / (draws + 1))
    return max(p, 2.0**-n_problems)
