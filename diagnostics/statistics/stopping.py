"""Stopping rules of sampling, and unbiased pass@k from the samples that they leave.

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
from math import log

import numpy as np
from jaxtyping import Float, Int
from scipy.special import gammaln, xlog1py, xlogy

#: Buckets of the uniform numbers in ``RowDraws``.
_BUCKETS = 1024


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
        n_E, correct_E = _ends_of(self)
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
        rate_U, row_P = np.unique(np.asarray(rate_P, dtype=np.float64), return_inverse=True)
        return _end_draws(self, rate_U.tobytes()).draw(row_P, rng=rng, draws=draws)

    def chances(self, rate_R: Float[np.ndarray, " rate"]) -> Float[np.ndarray, "rate end"]:
        """Return the probability of every end point at these success rates.

        >>> StoppingRule(rounds=(2, 4), enough=1).chances(np.array([0.5])).round(4).tolist()
        [[0.0625, 0.125, 0.0625, 0.5, 0.25]]
        """
        n_E, correct_E = _ends_of(self)
        log_paths_E = _log_paths_of(self)
        rate_R1 = np.asarray(rate_R)[:, None]
        return np.asarray(np.exp(log_paths_E + xlogy(correct_E, rate_R1) + xlog1py(n_E - correct_E, -rate_R1)))

    def largest_variance(self, ks: Sequence[int]) -> Float[np.ndarray, " k"]:
        """Return the largest variance of the estimate of pass@k over success rates on a grid."""
        table_EK = self.pass_at_k_table(ks)
        chance_RE = self.chances(np.linspace(0.0, 1.0, 1001)[1:-1])
        return np.asarray((chance_RE @ table_EK**2 - (chance_RE @ table_EK) ** 2).max(axis=0))

    def expected_samples(self, rate_P: Float[np.ndarray, " problem"]) -> Float[np.ndarray, " problem"]:
        """Return the expected number of samples of problems with these success rates.

        >>> StoppingRule(rounds=(2, 4), enough=1).expected_samples(np.array([0.0, 0.5, 1.0])).tolist()
        [4.0, 2.5, 2.0]
        """
        from scipy.stats import binom  # takes a second to import

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

    def first_alike(self, j: int, *, correct: bool) -> Float[np.ndarray, " end"]:
        """Return the probability that the first ``j`` samples are all correct, or all wrong, given the end point.

        If fewer were drawn, these are the first ``j``.

        >>> rule = StoppingRule(rounds=(2, 4), enough=1)
        >>> rule.first_alike(1, correct=True).tolist(), rule.first_alike(1, correct=False).tolist()
        ([0.0, 0.0, 0.0, 0.5, 1.0], [1.0, 1.0, 1.0, 0.5, 0.0])
        """
        alike_E, all_E = _at_ends(self, j, correct=correct), _at_ends(self, 0)
        return np.array([alike / paths for alike, paths in zip(alike_E, all_E, strict=True)])

    def _require(self, ks: Sequence[int], *, most: int) -> None:
        if any(not 1 <= k <= most for k in ks):
            raise ValueError(f"needs 1 <= k <= {most} with at most {self.cap} samples; got k = {list(ks)}")


@dataclass(frozen=True, kw_only=True)
class RowDraws:
    """Draws of columns from the rows of a table of cumulative probabilities, by inversion.

    The interval from 0 to 1 is cut into ``_BUCKETS``. Uniform numbers in bucket b have between ``least_RB`` and
    ``most_RB`` entries of the row at or below them. Where both are equal, no search is needed.
    """

    cumulative_RE: Float[np.ndarray, "row column"]
    least_RB: Int[np.ndarray, "row bucket"]
    most_RB: Int[np.ndarray, "row bucket"]

    @classmethod
    def from_cumulative(cls, cumulative_RE: Float[np.ndarray, "row column"]) -> RowDraws:
        """Build the buckets of every row."""
        edges = np.arange(_BUCKETS + 1) / _BUCKETS
        least = [row.searchsorted(edges[:-1], side="right") for row in cumulative_RE]
        most = [row.searchsorted(edges[1:], side="left") for row in cumulative_RE]
        shape = (len(cumulative_RE), _BUCKETS)
        least_RB, most_RB = (np.array(counts, dtype=np.int64).reshape(shape) for counts in (least, most))
        return cls(cumulative_RE=cumulative_RE, least_RB=least_RB, most_RB=most_RB)

    def draw(
        self, row_P: Int[np.ndarray, " problem"], *, rng: np.random.Generator, draws: int
    ) -> Int[np.ndarray, "draw problem"]:
        """Draw a column from each problem's row.

        The random numbers of all draws of the problems with the lowest row come first.

        >>> coins = RowDraws.from_cumulative(np.array([[0.5, 1.0], [0.0, 1.0]]))
        >>> coins.draw(np.array([1, 0]), rng=np.random.default_rng(0), draws=3).tolist()
        [[1, 1], [1, 0], [1, 0]]
        """
        row_U, of_P, times_U = np.unique(row_P, return_inverse=True, return_counts=True)
        uniform_X, row_X = rng.random(draws * len(of_P)), np.repeat(row_U, draws * times_U)
        bucket_X = row_X * _BUCKETS + (uniform_X * _BUCKETS).astype(np.int64)
        column_X = self.least_RB.ravel()[bucket_X]
        (open_X,) = (column_X < self.most_RB.ravel()[bucket_X]).nonzero()
        column_X[open_X] = self._search(uniform_X[open_X], row_X[open_X], bucket_X[open_X])
        # rounding may leave the last sum below 1
        np.minimum(column_X, self.cumulative_RE.shape[1] - 1, out=column_X)
        before_U, rank_P = np.cumsum(times_U) - times_U, np.empty(len(of_P), dtype=np.int64)
        rank_P[np.argsort(of_P, kind="stable")] = np.arange(len(of_P))
        first_P = (draws - 1) * before_U[of_P] + rank_P
        return column_X[first_P + np.arange(draws)[:, None] * times_U[of_P]]

    def _search(
        self, uniform_X: Float[np.ndarray, " x"], row_X: Int[np.ndarray, " x"], bucket_X: Int[np.ndarray, " x"]
    ) -> Int[np.ndarray, " x"]:
        """Return the number of entries of the row at or below each uniform number, by bisection."""
        low_X, high_X = self.least_RB.ravel()[bucket_X], self.most_RB.ravel()[bucket_X]
        while (is_open_X := low_X < high_X).any():
            middle_X = np.where(is_open_X, (low_X + high_X) // 2, 0)
            is_below_X = self.cumulative_RE[row_X, middle_X] <= uniform_X
            low_X = np.where(is_open_X & is_below_X, middle_X + 1, low_X)
            high_X = np.where(is_open_X & ~is_below_X, middle_X, high_X)
        return low_X


#: Samples of every problem: an equal number, or drawn by a stopping rule.
Samples = int | StoppingRule


def most_samples(samples: Samples) -> int:
    """Return the number of samples of a problem, or the cap of the rule."""
    return samples.cap if isinstance(samples, StoppingRule) else samples


def as_rule(samples: Samples) -> StoppingRule:
    """Return the rule of an equal number of samples: a single round."""
    return samples if isinstance(samples, StoppingRule) else StoppingRule(rounds=(samples,), enough=1)


def draw_codes(
    samples: Samples, rate_P: Float[np.ndarray, " problem"], *, rng: np.random.Generator, draws: int
) -> Int[np.ndarray, "draw problem"]:
    """Draw the numbers of correct samples, or the codes of end points, of problems with these success rates."""
    if isinstance(samples, StoppingRule):
        return samples.draw(rate_P, rng=rng, draws=draws)
    return rng.binomial(samples, rate_P, size=(draws, len(rate_P)))


@lru_cache(maxsize=1024)
def _paths(rule: StoppingRule, n_alike: int, correct_first: bool = False) -> tuple[dict[int, int], ...]:
    """Return, for each round, the number of paths to each end point whose first ``n_alike`` samples are wrong.

    With ``correct_first`` they are correct.
    """
    going, before, ended = {0: 1}, 0, []
    for number, n in enumerate(rule.rounds):
        n_free = n - max(before, min(n_alike, n))
        n_correct = n - before - n_free if correct_first else 0
        after: dict[int, int] = {}
        for correct, paths in going.items():
            for more, ways in enumerate(_binomials(n_free)):
                hits = correct + n_correct + more
                after[hits] = after.get(hits, 0) + paths * ways
        is_last = number == len(rule.rounds) - 1
        ended.append({correct: paths for correct, paths in after.items() if is_last or correct >= rule.enough})
        going = {correct: paths for correct, paths in after.items() if correct < rule.enough}
        before = n
    return tuple(ended)


@lru_cache(maxsize=1024)
def _binomials(n: int) -> tuple[int, ...]:
    """Return C(n, 0) … C(n, n)."""
    row = [1]
    for more in range(n):
        row.append(row[-1] * (n - more) // (more + 1))
    return tuple(row)


@lru_cache(maxsize=64)
def _ends_of(rule: StoppingRule) -> tuple[Int[np.ndarray, " end"], Int[np.ndarray, " end"]]:
    n_E, correct_E = np.array(rule.ends).T
    return n_E, correct_E


@lru_cache(maxsize=2)
def _end_draws(rule: StoppingRule, rates: bytes) -> RowDraws:
    """Return the draws at these rates, which a test repeats."""
    return RowDraws.from_cumulative(rule.chances(np.frombuffer(rates)).cumsum(axis=1))


@lru_cache(maxsize=64)
def _log_paths_of(rule: StoppingRule) -> Float[np.ndarray, " end"]:
    return np.array([log(paths) for paths in _at_ends(rule, 0)])


def _at_ends(rule: StoppingRule, n_alike: int, *, correct: bool = False) -> list[int]:
    """Return the number of paths to every end point whose first ``n_alike`` samples are wrong, or correct."""
    by_round = dict(zip(rule.rounds, _paths(rule, n_alike, correct), strict=True))
    return [by_round[n].get(hits, 0) for n, hits in rule.ends]


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

        def paths_to(hits: int, going_JH: np.ndarray = going_JH, free_J: np.ndarray = free_J) -> np.ndarray:
            more_H = hits - np.arange(rule.enough)
            possible_JH = (more_H >= 0) & (more_H <= free_J[:, None])
            more_H, left_JH = np.maximum(more_H, 0), np.maximum(free_J[:, None] - more_H, 0)
            ways_JH = gammaln(free_J + 1.0)[:, None] - gammaln(more_H + 1.0) - gammaln(left_JH + 1.0)
            return np.asarray(np.logaddexp.reduce(np.where(possible_JH, going_JH + ways_JH, -np.inf), axis=1))

        ended = np.array([paths_to(correct) for correct in sorted(paths)]).reshape(-1, len(j_J))
        ended[:, j_J > n] = -np.inf
        rows[:0] = np.exp(ended - ended[:, :1])
        going_JH, before = np.stack([paths_to(correct) for correct in range(rule.enough)], axis=1), n
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
