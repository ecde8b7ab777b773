"""Problems solved less or more often at one checkpoint than at another, with significance tests.

``oversharp lost``, ``diff`` and the report use these states and p values, for equal numbers of samples of a problem at
both checkpoints. Each direction is tested separately: a test for losses is not corrected for gains.

A stopping rule leaves unequal numbers of samples, which depend on the outcome. There the statistic is the signed root
of the likelihood ratio of "two success rates" against "one". Its p value is the largest one over all success rates that
both checkpoints may have, from the exact distribution of the end points. Fisher's test, which is for given numbers of
samples, has less power. In rounds from 16 to 512 and 256 samples with four correct ones, it detects the loss of a
problem with a success rate of 5 % (p below 0.001) in 42 % of cases, this one in 72 %.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.special import expit, gammaln, xlogy

from oversharp.diagnostics.statistics.confirmation import fisher_fell, holm
from oversharp.diagnostics.statistics.pass_at_k import pass_at_k_table
from oversharp.diagnostics.statistics.stopping import StoppingRule

State = Literal["lost", "fell", "unchanged", "rose", "gained"]
#: States of a problem, in the order of the change.
STATES: tuple[State, ...] = ("lost", "fell", "unchanged", "rose", "gained")
#: Level of the tests of single problems, for adjusted p values.
SURE = 0.05
#: Number of success rates over which the p value of stopped counts is maximised. 3,000 rates raise it by 0.5 % at most.
_RATES = 301
#: Signed roots of likelihood ratios that differ by less are equal.
_EQUAL_ROOTS = 1e-9
#: Probability beyond each end of a 95 % interval.
_TAIL = 0.025


@dataclass(frozen=True, kw_only=True)
class StoppedPair:
    """Stopping rules of two checkpoints, and whether each problem is solved in as many samples as both caps allow."""

    before: StoppingRule
    after: StoppingRule
    solved_before_P: Bool[np.ndarray, " problem"]
    solved_after_P: Bool[np.ndarray, " problem"]

    @property
    def mirror(self) -> StoppedPair:
        """Return the pair with the checkpoints exchanged."""
        return StoppedPair(
            before=self.after,
            after=self.before,
            solved_before_P=self.solved_after_P,
            solved_after_P=self.solved_before_P,
        )

    @property
    def reach(self) -> int:
        """Number of samples after which an unsolved problem counts as unsolved."""
        return min(self.before.cap, self.after.cap)


@dataclass(frozen=True, kw_only=True)
class ProblemCounts:
    """Correct samples of the same problems at two checkpoints, each with its sample count ``n``.

    ``stopped`` is given if a stopping rule determined the sample counts.
    """

    before_P: Int[np.ndarray, " problem"]
    n_before_P: Int[np.ndarray, " problem"]
    after_P: Int[np.ndarray, " problem"]
    n_after_P: Int[np.ndarray, " problem"]
    stopped: StoppedPair | None = None

    @property
    def swapped(self) -> ProblemCounts:
        """Return the counts with the checkpoints exchanged."""
        return ProblemCounts(
            before_P=self.after_P,
            n_before_P=self.n_after_P,
            after_P=self.before_P,
            n_after_P=self.n_before_P,
            stopped=None if self.stopped is None else self.stopped.mirror,
        )

    @property
    def codes(self) -> tuple[Int[np.ndarray, " problem"], Int[np.ndarray, " problem"]]:
        """Return the codes of the end points at both checkpoints.

        Raises ``ValueError`` without a stopping rule, and for counts that it cannot leave.
        """
        if self.stopped is None:
            raise ValueError("only counts of a stopping rule have end points")
        return (
            self.stopped.before.codes(self.n_before_P, self.before_P),
            self.stopped.after.codes(self.n_after_P, self.after_P),
        )

    @property
    def directions(self) -> Int[np.ndarray, " problem"]:
        """Return the direction of each problem's change: below 0 for lost or fell, above 0 for rose or gained.

        With a stopping rule, a problem that is solved at one checkpoint alone is lost or gained, and one that is solved
        at neither is unchanged.
        """
        # integers, so that equal shares compare equal
        change_P = self.after_P * self.n_before_P - self.before_P * self.n_after_P
        if self.stopped is None:
            return change_P
        solved_P = self.stopped.solved_after_P.astype(np.int64) - self.stopped.solved_before_P
        both_P = self.stopped.solved_after_P & self.stopped.solved_before_P
        return np.where(both_P, change_P, solved_P)


def problem_states(counts: ProblemCounts) -> tuple[State, ...]:
    """Return the state of each problem: lost, gained, fell or rose.

    Lost has no correct sample left, gained has a first one.

    >>> problem_states(ProblemCounts(before_P=np.array([1, 4, 4, 4, 0]), n_before_P=np.full(5, 8),
    ...                              after_P=np.array([0, 1, 2, 3, 1]), n_after_P=np.array([8, 4, 4, 4, 4])))
    ('lost', 'fell', 'unchanged', 'rose', 'gained')
    """
    stopped = counts.stopped
    before_P = counts.before_P > 0 if stopped is None else stopped.solved_before_P
    after_P = counts.after_P > 0 if stopped is None else stopped.solved_after_P
    return tuple(
        _state(bool(before), bool(after), int(change))
        for before, after, change in zip(before_P, after_P, counts.directions, strict=True)
    )


def change_p(counts: ProblemCounts, *, falls_only: bool = False) -> Float[np.ndarray, " problem"]:
    """Return the adjusted p of the change of each problem; 1 where its share is the same.

    The test is Fisher's exact test, one-sided in the direction of the change, or with a stopping rule the test of
    ``fall_p_table``. Holm's correction is over all problems that can change, separately for falls and rises. If no
    problem fell, the smallest p of a fall is at most 0.05 with probability 0.05 or less; likewise for rises. Problems
    whose samples are all wrong or all correct at both checkpoints cannot change and are not counted. With
    ``falls_only``, p is NaN for problems that rose, which takes half of the time.

    Raises ``ValueError`` where a count is outside 0 … n, a problem has no sample, or its counts are no end point of the
    stopping rule.

    >>> counts = ProblemCounts(before_P=np.array([8, 1, 0, 0, 8]), n_before_P=np.full(5, 8),
    ...                        after_P=np.array([0, 0, 8, 0, 8]), n_after_P=np.full(5, 8))
    >>> change_p(counts).round(4).tolist()  # 1 in C(16, 8) = 12,870 and one half, of three that can change
    [0.0002, 1.0, 0.0002, 1.0, 1.0]
    """
    can_P = _can_change(counts)
    change_P = counts.directions
    p_P = np.ones(len(change_P))
    fell_P, rose_P = change_P < 0, change_P > 0
    p_P[fell_P] = _p_fell(counts, can_P, fell_P)[fell_P]
    p_P[rose_P] = np.nan if falls_only else _p_fell(counts.swapped, can_P, rose_P)[rose_P]
    return p_P


@lru_cache(maxsize=8)
def fall_p_table(
    before: StoppingRule, after: StoppingRule, *, falls_only: bool = False
) -> Float[np.ndarray, "before after"]:
    """Return the p of "the success rate did not fall" for every pair of end points, by their codes.

    The p value is the largest probability, over all success rates, of a signed root of the likelihood ratio as low as
    the observed one. With ``falls_only``, pairs whose share of correct samples did not fall have p = 1, which takes
    half of the time. Source: Barnard 1947 (Biometrika 34:123), with the likelihood ratio as the order of outcomes.

    >>> rule = StoppingRule(rounds=(2, 4), enough=1)
    >>> round(float(fall_p_table(rule, rule)[rule.codes(np.array([2]), np.array([2]))[0], 0]), 4)  # p² (1 − p)⁴ at 1/3
    0.0219
    """
    (n_B, hits_B), (n_A, hits_A) = (np.array(rule.ends).T for rule in (before, after))
    separate_BA = _log_likelihood(hits_B, n_B)[:, None] + _log_likelihood(hits_A, n_A)
    ratio_BA = separate_BA - _log_likelihood(hits_B[:, None] + hits_A, n_B[:, None] + n_A)
    sign_BA = np.sign(hits_A * n_B[:, None] - hits_B[:, None] * n_A)
    root_X = (sign_BA * np.sqrt(2.0 * np.maximum(ratio_BA, 0.0))).ravel()
    order_X = np.argsort(root_X, kind="stable")
    if falls_only:
        order_X = order_X[: np.searchsorted(root_X[order_X], _EQUAL_ROOTS, side="right")]
    # rounding must not separate equal roots
    last_X = np.searchsorted(root_X[order_X], root_X[order_X] + _EQUAL_ROOTS, side="right") - 1
    most = np.log(16 * max(before.cap, after.cap))
    rate_R = expit(np.linspace(-most, most, _RATES))  # evenly spaced log-odds
    chance_RB, chance_RA = before.chances(rate_R), after.chances(rate_R)
    # two rates at a time, as real and imaginary part: a cumulative sum takes as long for a wider number
    chance_BA, below_X = np.empty(sign_BA.shape, dtype=np.complex128), np.empty(len(order_X), dtype=np.complex128)
    most_X2 = np.zeros((len(order_X), 2))
    for first in range(0, _RATES, 2):
        second = min(first + 1, _RATES - 1)
        np.multiply(chance_RB[first][:, None], chance_RA[first], out=chance_BA.real)
        np.multiply(chance_RB[second][:, None], chance_RA[second], out=chance_BA.imag)
        np.cumsum(np.take(chance_BA, order_X, out=below_X, mode="clip"), out=below_X)  # "clip" needs no copy
        np.maximum(most_X2, below_X.view(np.float64).reshape(most_X2.shape), out=most_X2)
    most_X = most_X2.max(axis=1)
    table_X = np.ones(len(root_X))
    table_X[order_X] = np.minimum(most_X[last_X], 1.0)
    if falls_only:
        table_X[root_X >= 0] = 1.0
    table_BA = table_X.reshape(ratio_BA.shape)
    table_BA.setflags(write=False)
    return table_BA


def _log_likelihood(hits: Int[np.ndarray, "*end"], n: Int[np.ndarray, "*end"]) -> Float[np.ndarray, "*end"]:
    """Return the largest log-likelihood of these hits over all success rates."""
    return np.asarray(xlogy(hits, hits / n) + xlogy(n - hits, (n - hits) / n))


def rate_interval(
    rule: StoppingRule, code_P: Int[np.ndarray, " problem"]
) -> tuple[Float[np.ndarray, " problem"], Float[np.ndarray, " problem"]]:
    """Return the bounds of exact 95 % intervals of the success rates of stopped problems.

    Clopper and Pearson's interval (Biometrika 26, 1934), with end points in place of numbers of correct samples: their
    codes grow with the success rate.

    >>> low, high = rate_interval(StoppingRule(rounds=(8,), enough=1), np.array([0, 4, 8]))
    >>> low.round(2).tolist(), high.round(2).tolist()
    ([0.0, 0.16, 0.63], [0.37, 0.84, 1.0])
    """
    low_E, high_E = _rate_bounds(rule)
    return low_E[code_P], high_E[code_P]


@lru_cache(maxsize=8)
def _rate_bounds(rule: StoppingRule) -> tuple[Float[np.ndarray, " end"], Float[np.ndarray, " end"]]:
    most = np.log(400 * rule.cap)
    rate_R = expit(np.linspace(-most, most, 2001))
    chance_RE = rule.chances(rate_R)
    below_RE = chance_RE.cumsum(axis=1)  # chance of this code or a lower one
    above_RE = 1.0 - below_RE + chance_RE
    # both are monotone in the rate; the bound is the nearest rate at which the code is too rare
    low_E = rate_R[np.maximum((above_RE < _TAIL).sum(axis=0) - 1, 0)]
    high_E = rate_R[np.minimum((below_RE >= _TAIL).sum(axis=0), len(rate_R) - 1)]
    low_E[0], high_E[-1] = 0.0, 1.0
    return low_E, high_E


def lost_by_chance(counts: ProblemCounts) -> float | None:
    """Return the expected number of problems that lose every correct sample by chance.

    The hits are distributed at random over both checkpoints. For the ``swapped`` counts it is the expected number of
    problems that gain a first one. With a stopping rule it is the number of problems that one checkpoint alone would
    solve in the second half of its samples, and not in the first. It is None unless the cap of that checkpoint, such as
    the base, is at least twice that of the other one.

    >>> counts = ProblemCounts(before_P=np.array([1, 8]), n_before_P=np.array([8, 8]),
    ...                        after_P=np.array([0, 8]), n_after_P=np.array([8, 8]))
    >>> round(lost_by_chance(counts), 6)  # half of the time the one hit falls to the first
    0.5
    """
    if counts.stopped is not None:
        return _lost_by_chance_of_one(counts, counts.stopped)
    hits_P = counts.before_P + counts.after_P
    n_before_P, n_P = counts.n_before_P, counts.n_before_P + counts.n_after_P
    may_lose_P = (hits_P > 0) & (hits_P <= n_before_P)
    # C(n before, hits) / C(n, hits)
    log_none_P = gammaln(n_before_P + 1.0) - gammaln(np.maximum(n_before_P - hits_P, 0) + 1.0)
    log_none_P -= gammaln(n_P + 1.0) - gammaln(n_P - hits_P + 1.0)
    return float(np.exp(log_none_P[may_lose_P]).sum())


def _lost_by_chance_of_one(counts: ProblemCounts, stopped: StoppedPair) -> float | None:
    for rule, code_P in zip((stopped.before, stopped.after), counts.codes, strict=True):
        if rule.cap >= 2 * stopped.reach:
            at_once_C, twice_C = pass_at_k_table(rule, [stopped.reach, 2 * stopped.reach]).T
            return float((twice_C - at_once_C)[code_P].sum())
    return None


def _can_change(counts: ProblemCounts) -> Bool[np.ndarray, " problem"]:
    hits_P = counts.before_P + counts.after_P
    return np.asarray((hits_P > 0) & (hits_P < counts.n_before_P + counts.n_after_P))


def _p_fell(
    counts: ProblemCounts, can_P: Bool[np.ndarray, " problem"], wanted_P: Bool[np.ndarray, " problem"]
) -> Float[np.ndarray, " problem"]:
    """Return the adjusted p of a fall of each problem. Those of problems that are not ``wanted_P`` may be too large."""
    if counts.stopped is None:
        p_P = fisher_fell(counts.before_P, counts.n_before_P, counts.after_P, counts.n_after_P)
    else:
        fell_P = counts.after_P * counts.n_before_P < counts.before_P * counts.n_after_P
        # p grows with the share at the later checkpoint, so the p of a fall does not depend on those of other problems
        falls_only = bool(fell_P[wanted_P].all())
        p_P = fall_p_table(counts.stopped.before, counts.stopped.after, falls_only=falls_only)[counts.codes]
    p_P[can_P] = holm(p_P[can_P])
    return p_P


def _state(before: bool, after: bool, change: int) -> State:
    if change < 0:
        return "fell" if after else "lost"
    if change > 0:
        return "rose" if before else "gained"
    return "unchanged"


def mcnemar_p(n_lost: int, n_gained: int) -> float:
    """Two-sided p of "a problem whose outcome changed was as likely lost as gained", by the exact binomial test.

    Args:
        n_lost: problems solved before and not after.
        n_gained: problems solved after and not before.

    Twice the smaller tail of Binomial(n_lost + n_gained, 1/2), at most 1; without a change it is 1. Problems are
    assumed independent. Source: McNemar 1947 (Psychometrika 12:153). Raises ``ValueError`` for a negative count.

    >>> mcnemar_p(1, 5)  # 2 · (C(6, 0) + C(6, 1)) / 2^6
    0.21875
    >>> mcnemar_p(0, 6), mcnemar_p(3, 3), mcnemar_p(0, 0)  # 2 / 2^6
    (0.03125, 1.0, 1.0)
    """
    if min(n_lost, n_gained) < 0:
        raise ValueError(f"counts of problems are 0 or more; got {n_lost} lost, {n_gained} gained")
    from scipy.stats import binom  # takes a second to import

    return min(1.0, 2.0 * float(binom.cdf(min(n_lost, n_gained), n_lost + n_gained, 0.5)))
