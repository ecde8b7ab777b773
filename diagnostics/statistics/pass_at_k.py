"""Unbiased pass@k, as a table over the number of correct samples, or over the end points of a stopping rule.

With c of n samples correct, h(c) = 1 − C(n−c, k) / C(n, k) is the unbiased estimator of the chance that at least one of
k fresh samples is correct (Chen et al. 2021, arXiv 2107.03374, Eq 1). A whole audit uses one table, because n is the
same for every problem and checkpoint.

A stopping rule draws the samples of a problem in rounds, and stops after the first round that leaves it with enough
correct samples. The number of samples then depends on the outcome, so the share of correct samples is biased. The
estimates here are not. At an end point, the share of all paths to it whose first k samples are wrong is an unbiased
estimate of (1 − p)^k, for every k up to the cap.

An end point is the pair of the numbers of samples and of correct samples at which a problem stopped. There are cap + 1
of them, as many as numbers of correct samples of ``cap`` samples. They have codes from 0 (never solved) to the cap
(solved by every sample of the first round), so ``table[code_P]`` is the estimate of each problem. With a single round
the code is the number of correct samples.

Source: Girshick, Mosteller, Savage 1946 (Ann. Math. Stat. 17:13), estimates by path counting.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from math import comb

import numpy as np
from jaxtyping import Float, Int
from scipy.special import gammaln
from scipy.stats import binom, hypergeom


def pass_at_k_table(n: Samples, ks: Sequence[int]) -> Float[np.ndarray, "correct k"]:
    """Return h(c) for every number of correct samples: row c = 0 … n, one column per k.

    A probability, exactly 0 in row c = 0 and exactly 1 where n − c < k. Relative error below 1e-14 up to n = 16384 (the
    log-gamma form loses up to 2e-7 there for small c). For a stopping rule, the rows are the codes of its end points,
    and n is the cap. Cached and read-only.

    Raises ``ValueError`` unless 1 ≤ k ≤ n: fewer than k samples give no unbiased estimate of pass@k.

    >>> pass_at_k_table(4, [1, 2]).round(4).tolist()
    [[0.0, 0.0], [0.25, 0.5], [0.5, 0.8333], [0.75, 1.0], [1.0, 1.0]]
    """
    if isinstance(n, StoppingRule):
        return n.pass_at_k_table(ks)
    if n < 1 or any(not 1 <= k <= n for k in ks):
        raise ValueError(f"pass@k needs 1 <= k <= n; got k = {list(ks)} with n = {n}")
    return _pass_at_k_table(int(n), tuple(map(int, ks)))


@lru_cache(maxsize=64)
def _pass_at_k_table(n: int, ks: tuple[int, ...]) -> Float[np.ndarray, "correct k"]:
    table_CK = -np.expm1(_log_miss_table(n, ks)) + 0.0  # + 0.0 turns the −0.0 of row 0 into 0.0
    table_CK.setflags(write=False)
    return table_CK


def pass_at_k_each(
    n_P: Int[np.ndarray, " problem"], correct_P: Int[np.ndarray, " problem"], k_P: Int[np.ndarray, " problem"]
) -> Float[np.ndarray, " problem"]:
    """Return h(c) of problems with separate n and k, as a probability; 0 where k is 0.

    By log-gamma, to 1e-9 up to n = 4096: a table for each n would be larger than the number of problems.
    Raises ``ValueError`` unless 0 ≤ k ≤ n and 0 ≤ c ≤ n.

    >>> pass_at_k_each(np.array([4, 4, 2, 0]), np.array([1, 3, 0, 0]), np.array([2, 2, 1, 0])).round(4).tolist()
    [0.5, 1.0, 0.0, 0.0]
    """
    if ((k_P < 0) | (k_P > n_P) | (correct_P < 0) | (correct_P > n_P)).any():
        raise ValueError("pass@k needs 0 <= k <= n and 0 <= correct <= n of every problem")
    wrong_P = n_P - correct_P
    log_miss_P = (gammaln(wrong_P + 1.0) - gammaln(np.maximum(wrong_P - k_P, 0) + 1.0) - gammaln(n_P + 1.0)) + gammaln(
        n_P - k_P + 1.0
    )
    return np.where(correct_P == 0, 0.0, np.where(wrong_P < k_P, 1.0, -np.expm1(np.minimum(log_miss_P, 0.0))))


def within_problem_variance_table(n: Samples, ks: Sequence[int]) -> Float[np.ndarray, "correct k"]:
    """Return the unbiased estimate of the variance of h(c) at one problem.

    Row c = 0 … n, one column per k. For a stopping rule, the diagonal of its ``covariance_table``.

    v = q_k² − q_{2k}, with q_k = C(n−c, k) / C(n, k): q_k and q_{2k} are unbiased for (1−p)^k and (1−p)^{2k}, so the
    mean of v is E[q_k²] − E[q_k]² at every p. Unit: probability squared. Never negative; 0 in the rows 0 and n.
    Relative error below 1e-12 up to n = 16384.

    Raises ``ValueError`` unless 1 ≤ k ≤ n / 2: above, no unbiased estimate of the variance exists.

    >>> within_problem_variance_table(4, [1, 2]).round(4).tolist()
    [[0.0, 0.0], [0.0625, 0.25], [0.0833, 0.0278], [0.0625, 0.0], [0.0, 0.0]]
    """
    if isinstance(n, StoppingRule):
        return np.diagonal(n.covariance_table(ks), axis1=1, axis2=2)
    if any(not 2 <= 2 * k <= n for k in ks):
        raise ValueError(f"the variance of pass@k needs 1 <= k <= n / 2; got k = {list(ks)} with n = {n}")
    log_miss_CK, log_miss_twice_CK = _log_miss_table(n, ks), _log_miss_table(n, [2 * k for k in ks])
    # q_k² / q_{2k} = Π 1 + x² / (1 − 2x) with x = k / (n − i). Where c is small, the difference of the two tables would
    # lose all digits to rounding.
    left_C = n - np.arange(n, dtype=np.float64)
    k_K = np.asarray(ks, dtype=np.float64)
    enough_CK = left_C[:, None] > 2.0 * k_K
    ratio_CK = np.where(enough_CK, k_K / left_C[:, None], 0.0)
    log_excess_CK = np.vstack([np.zeros((1, len(ks))), np.cumsum(np.log1p(ratio_CK**2 / (1 - 2 * ratio_CK)), axis=0)])
    near_CK = log_excess_CK < 1.0
    return np.where(
        near_CK & np.isfinite(log_miss_twice_CK),
        np.exp(log_miss_twice_CK) * np.expm1(np.minimum(log_excess_CK, 1.0)),
        np.exp(2.0 * log_miss_CK) - np.exp(log_miss_twice_CK),
    )


def within_problem_covariance_table(n: Samples, ks: Sequence[int]) -> Float[np.ndarray, "correct k k"]:
    """Return the unbiased estimate of the covariance of h(c) at two k of one problem.

    Row c = 0 … n, or the codes of a stopping rule. It is q_k q_k' − q_{k+k'}, as in ``within_problem_variance_table``,
    by plain differences: absolute error below 1e-12 (probability squared), not relative. Raises ``ValueError`` unless
    1 ≤ k ≤ n / 2.

    >>> within_problem_covariance_table(4, [1, 2])[1].round(4).tolist()
    [[0.0625, 0.125], [0.125, 0.25]]
    """
    if isinstance(n, StoppingRule):
        return n.covariance_table(ks)
    if any(not 2 <= 2 * k <= n for k in ks):
        raise ValueError(f"the covariance of pass@k needs 1 <= k <= n / 2; got k = {list(ks)} with n = {n}")
    miss_CK = np.exp(_log_miss_table(n, ks))
    both_CKK = np.stack([np.exp(_log_miss_table(n, [k + other for other in ks])) for k in ks], axis=1)
    return miss_CK[:, :, None] * miss_CK[:, None, :] - both_CKK


def _log_miss_table(n: int, ks: Sequence[int]) -> Float[np.ndarray, "correct k"]:
    """log C(n−c, k) − log C(n, k) = Σ_{i<c} log(1 − k/(n−i)), and −inf where n − c < k."""
    left_C = n - np.arange(n, dtype=np.float64)  # samples not yet drawn: n, n−1, …, 1
    k_K = np.asarray(ks, dtype=np.float64)
    enough_CK = left_C[:, None] > k_K
    ratio_CK = np.where(enough_CK, k_K / left_C[:, None], 0.0)
    log_factor_CK = np.where(enough_CK, np.log1p(-ratio_CK), -np.inf)
    return np.vstack([np.zeros((1, len(ks))), np.cumsum(log_factor_CK, axis=0)])


def at_least_table(n: int, k: int, least: int) -> Float[np.ndarray, " correct"]:
    """Return the chance that at least ``least`` of k samples are correct, per count c = 0 … n.

    The upper tail of the hypergeometric distribution, unbiased for the binomial tail of k fresh samples: ``least`` = 1
    gives pass@k, ``least`` = k all correct. Unit: probability.

    Raises ``ValueError`` unless 1 ≤ ``least`` ≤ k ≤ n.

    Source: Liu et al. 2024 (arXiv 2412.13147), G-Pass@k.

    >>> at_least_table(4, 2, 2).round(4).tolist()
    [0.0, 0.0, 0.1667, 0.5, 1.0]
    """
    if not 1 <= least <= k <= n:
        raise ValueError(f"needs 1 <= least <= k <= n; got least = {least}, k = {k}, n = {n}")
    return np.asarray(hypergeom.sf(least - 1, n, np.arange(n + 1), k))


@dataclass(frozen=True, kw_only=True)
class StoppingRule:
    """Draw each problem in rounds; stop after the first round that leaves it with ``enough`` correct samples.

    ``rounds`` has the number of samples after each round. The last one is the cap, at which every problem stops. A
    single round draws equally many samples of every problem.

    Raises ``ValueError`` unless the rounds grow and 1 ≤ ``enough`` ≤ cap.

    >>> rule = StoppingRule(rounds=(2, 4), enough=1)
    >>> rule.ends  # (samples, correct samples)
    ((4, 0), (4, 1), (4, 2), (2, 1), (2, 2))
    >>> rule.pass_at_k_table([1, 2, 4]).tolist()
    [[0.0, 0.0, 0.0], [0.0, 0.0, 1.0], [0.0, 0.0, 1.0], [0.5, 1.0, 1.0], [1.0, 1.0, 1.0]]
    """

    rounds: tuple[int, ...]
    enough: int

    def __post_init__(self) -> None:
        if not self.rounds or min(self.rounds) < 1 or any(late <= early for early, late in pairwise(self.rounds)):
            raise ValueError(f"the rounds of a stopping rule must grow, from 1 or more samples; got {self.rounds}")
        if not 1 <= self.enough <= self.cap:
            raise ValueError(f"enough must be between 1 and {self.cap}, the cap; got {self.enough}")

    @classmethod
    def doubling(cls, *, first: int, cap: int, enough: int) -> StoppingRule:
        """Return the rule whose rounds double from ``first`` up to ``cap``; a single round if ``first`` is the cap.

        >>> StoppingRule.doubling(first=16, cap=100, enough=4).rounds
        (16, 32, 64, 100)
        """
        rounds = [first]
        while rounds[-1] < cap:
            rounds.append(2 * rounds[-1])
        return cls(rounds=(*rounds[:-1], cap), enough=min(enough, cap))

    @property
    def cap(self) -> int:
        """Largest number of samples of a problem."""
        return self.rounds[-1]

    @property
    def ends(self) -> tuple[tuple[int, int], ...]:
        """All end points in the order of their codes, as (number of samples, number of correct samples)."""
        late_first = zip(reversed(self.rounds), reversed(_paths(self, 0)), strict=True)
        return tuple((n, correct) for n, paths in late_first for correct in sorted(paths))

    def codes(
        self, n_P: Int[np.ndarray, " problem"], correct_P: Int[np.ndarray, " problem"]
    ) -> Int[np.ndarray, " problem"]:
        """Return the code of each problem's end point.

        Raises ``ValueError`` for counts that the rule cannot produce.

        >>> StoppingRule(rounds=(2, 4), enough=1).codes(np.array([4, 2]), np.array([0, 1])).tolist()
        [0, 3]
        """
        code = {end: row for row, end in enumerate(self.ends)}
        pairs = list(zip(n_P.tolist(), correct_P.tolist(), strict=True))
        wrong = next((pair for pair in pairs if pair not in code), None)
        if wrong is not None:
            raise ValueError(f"{wrong[1]} correct of {wrong[0]} samples: not an end point of {self}")
        return np.array([code[pair] for pair in pairs], dtype=np.int64)

    def next_n(self, n: int, correct: int) -> int | None:
        """Return up to how many samples a problem is drawn next; None if it stops.

        >>> rule = StoppingRule(rounds=(8, 16, 32), enough=2)
        >>> rule.next_n(0, 0), rule.next_n(8, 1), rule.next_n(8, 2), rule.next_n(32, 0)
        (8, 16, None, None)
        """
        if correct >= self.enough and n in self.rounds:
            return None
        return next((more for more in self.rounds if more > n), None)

    def hits(self, code_P: Int[np.ndarray, "*shape"]) -> tuple[Int[np.ndarray, "*shape"], Int[np.ndarray, "*shape"]]:
        """Return the numbers of samples and of correct samples at these end points.

        >>> [each.tolist() for each in StoppingRule(rounds=(2, 4), enough=1).hits(np.array([0, 3]))]
        [[4, 2], [0, 1]]
        """
        n_E, correct_E = np.array(self.ends).T
        return n_E[code_P], correct_E[code_P]

    def stop(self, correct_RP: Int[np.ndarray, "round problem"]) -> Int[np.ndarray, " problem"]:
        """Return the code of each problem from its number of correct samples after every round.

        Numbers after the round at which a problem stops have no effect.

        >>> StoppingRule(rounds=(2, 4), enough=1).stop(np.array([[0, 1, 0], [0, 1, 2]])).tolist()
        [0, 3, 2]
        """
        stops_RP = correct_RP >= self.enough
        stops_RP[-1] = True
        at_P = stops_RP.argmax(axis=0)
        correct_P = np.take_along_axis(correct_RP, at_P[None], axis=0)[0]
        return self.codes(np.array(self.rounds)[at_P], correct_P)

    def pass_at_k_table(self, ks: Sequence[int]) -> Float[np.ndarray, "end k"]:
        """Return the unbiased estimate of pass@k at every end point, a probability.

        It grows with k, and with the code of the end point. Raises ``ValueError`` unless 1 ≤ k ≤ cap.
        """
        self._require(ks, most=self.cap)
        return _table_of_ends(self, tuple(map(int, ks)))

    def covariance_table(self, ks: Sequence[int]) -> Float[np.ndarray, "end k k"]:
        """Return the unbiased estimate of the covariance of the estimates at two k of one problem.

        It is q_k q_k' − q_{k+k'}, where q_k estimates (1 − p)^k, in exact integers until the last division. The
        diagonal has the variances. No entry is negative, because the number of paths to an end point whose first k
        samples are wrong is log-concave in k. Raises ``ValueError`` unless 1 ≤ k ≤ cap / 2.

        >>> StoppingRule(rounds=(2, 4), enough=1).covariance_table([1])[:, 0, 0].tolist()
        [0.0, 0.0, 0.0, 0.25, 0.0]
        """
        self._require(ks, most=self.cap // 2)
        return _covariance_of_ends(self, tuple(map(int, ks)))

    def draw(
        self, rate_P: Float[np.ndarray, " problem"], *, rng: np.random.Generator, draws: int
    ) -> Int[np.ndarray, "draw problem"]:
        """Draw the codes of the end points of problems with these success rates."""
        correct_DP = np.zeros((draws, len(rate_P)), dtype=np.int64)
        code_DP = np.full_like(correct_DP, -1)
        before, first = 0, self.cap + 1
        for n, paths in zip(self.rounds, _paths(self, 0), strict=True):
            going_DP, least = code_DP < 0, min(paths, default=n + 1)
            first -= len(paths)
            more_DP = rng.binomial(n - before, np.broadcast_to(rate_P, code_DP.shape)[going_DP])
            correct_DP[going_DP] += more_DP
            stops_DP = going_DP & (correct_DP >= least)
            code_DP[stops_DP] = first + correct_DP[stops_DP] - least
            before = n
        return code_DP

    def expected_samples(self, rate_P: Float[np.ndarray, " problem"]) -> Float[np.ndarray, " problem"]:
        """Return the expected number of samples of problems with these success rates.

        >>> StoppingRule(rounds=(2, 4), enough=1).expected_samples(np.array([0.0, 0.5, 1.0])).tolist()
        [4.0, 2.5, 2.0]
        """
        going_PC = np.zeros((len(rate_P), self.enough))
        going_PC[:, 0] = 1.0
        samples_P, before = np.zeros(len(rate_P)), 0
        for n in self.rounds:
            samples_P += going_PC.sum(axis=1) * (n - before)
            after_PC = np.zeros_like(going_PC)
            for more in range(min(self.enough, n - before + 1)):
                chance_P = np.asarray(binom.pmf(more, n - before, rate_P))
                after_PC[:, more:] += going_PC[:, : self.enough - more] * chance_P[:, None]
            going_PC, before = after_PC, n
        return samples_P

    def first_wrong_table(self) -> Float[np.ndarray, "end sample"]:
        """Return the probability that the first j = 0 … cap samples are all wrong, given the end point.

        The same as 1 − ``pass_at_k_table``, for all j at once in floating point; relative error below 1e-10. It is 0
        where j is above the number of samples.
        """
        return _first_wrong_of_ends(self)

    def _require(self, ks: Sequence[int], *, most: int) -> None:
        if any(not 1 <= k <= most for k in ks):
            raise ValueError(f"needs 1 <= k <= {most} with at most {self.cap} samples; got k = {list(ks)}")


#: Samples of every problem: an equal number, or drawn by a stopping rule.
Samples = int | StoppingRule


def most_samples(samples: Samples) -> int:
    """Return the number of samples of a problem, or the cap of the rule."""
    return samples.cap if isinstance(samples, StoppingRule) else samples


def draw_codes(
    samples: Samples, rate_P: Float[np.ndarray, " problem"], *, rng: np.random.Generator, draws: int
) -> Int[np.ndarray, "draw problem"]:
    """Draw the numbers of correct samples, or the codes of end points, of problems with these success rates."""
    if isinstance(samples, StoppingRule):
        return samples.draw(rate_P, rng=rng, draws=draws)
    return rng.binomial(samples, rate_P, size=(draws, len(rate_P)))


@lru_cache(maxsize=1024)
def _paths(rule: StoppingRule, n_wrong: int) -> tuple[dict[int, int], ...]:
    """Return, for each round, the number of paths to each end point whose first ``n_wrong`` samples are wrong."""
    going, before, ended = {0: 1}, 0, []
    for number, n in enumerate(rule.rounds):
        n_free = n - max(before, min(n_wrong, n))
        after: dict[int, int] = {}
        for correct, paths in going.items():
            for more in range(n_free + 1):
                after[correct + more] = after.get(correct + more, 0) + paths * comb(n_free, more)
        is_last = number == len(rule.rounds) - 1
        ended.append({correct: paths for correct, paths in after.items() if is_last or correct >= rule.enough})
        going = {correct: paths for correct, paths in after.items() if correct < rule.enough}
        before = n
    return tuple(ended)


def _at_ends(rule: StoppingRule, n_wrong: int) -> list[int]:
    """Return the number of paths to every end point whose first ``n_wrong`` samples are wrong."""
    by_round = dict(zip(rule.rounds, _paths(rule, n_wrong), strict=True))
    return [by_round[n].get(correct, 0) for n, correct in rule.ends]


def _read_only(make: Callable[[StoppingRule, tuple[int, ...]], np.ndarray]) -> Callable[..., np.ndarray]:
    @lru_cache(maxsize=64)
    def table(rule: StoppingRule, ks: tuple[int, ...]) -> np.ndarray:
        made = make(rule, ks)
        made.setflags(write=False)
        return made

    return table


@lru_cache(maxsize=8)
def _first_wrong_of_ends(rule: StoppingRule) -> Float[np.ndarray, "end sample"]:
    j_J = np.arange(rule.cap + 1)
    going_JH = np.full((len(j_J), rule.enough), -np.inf)  # logarithms of numbers of paths
    going_JH[:, 0] = 0.0
    rows: list[np.ndarray] = []
    before = 0
    for n, paths in zip(rule.rounds, _paths(rule, 0), strict=True):
        free_J = n - before - np.clip(j_J - before, 0, n - before)

        def after(hits: int, going_JH: np.ndarray = going_JH, free_J: np.ndarray = free_J) -> np.ndarray:
            more_H = hits - np.arange(rule.enough)
            possible_JH = (more_H >= 0) & (more_H <= free_J[:, None])
            more_H, left_JH = np.maximum(more_H, 0), np.maximum(free_J[:, None] - more_H, 0)
            ways_JH = gammaln(free_J + 1.0)[:, None] - gammaln(more_H + 1.0) - gammaln(left_JH + 1.0)
            return np.asarray(np.logaddexp.reduce(np.where(possible_JH, going_JH + ways_JH, -np.inf), axis=1))

        ended = np.array([after(correct) for correct in sorted(paths)]).reshape(-1, len(j_J))
        ended[:, j_J > n] = -np.inf
        rows[:0] = np.exp(ended - ended[:, :1])
        going_JH, before = np.stack([after(correct) for correct in range(rule.enough)], axis=1), n
    table_EJ = np.array(rows)
    table_EJ.setflags(write=False)
    return table_EJ


@_read_only
def _table_of_ends(rule: StoppingRule, ks: tuple[int, ...]) -> Float[np.ndarray, "end k"]:
    all_E = _at_ends(rule, 0)
    return np.array(
        [[(paths - missed) / paths for paths, missed in zip(all_E, _at_ends(rule, k), strict=True)] for k in ks]
    ).T


@_read_only
def _covariance_of_ends(rule: StoppingRule, ks: tuple[int, ...]) -> Float[np.ndarray, "end k k"]:
    all_E = _at_ends(rule, 0)
    missed = {k: _at_ends(rule, k) for k in ks}
    both = {k: _at_ends(rule, k) for k in {k + other for k in ks for other in ks}}
    return np.array(
        [
            [
                [(missed[k][end] * missed[other][end] - both[k + other][end] * paths) / paths**2 for other in ks]
                for k in ks
            ]
            for end, paths in enumerate(all_E)
        ]
    )
