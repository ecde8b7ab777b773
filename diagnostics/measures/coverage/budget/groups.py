"""Groups of problems that carry a change: lost, gained, guessed, a way gone. Pure.

A problem's samples are split in two at random, many times: one part determines the group of the problem, the other the
size of its change. Two samples of one distribution then have parts of mean 0, however few the samples are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.stats import binom

from oversharp.diagnostics.measures.coverage.budget.distributions import Fate, PerProblem, Said, missed

#: Groups by how often problems were solved by the base and are by the checkpoint.
GROUPS = ("guesses", "lost", "gained", "ways", "unexplained")
#: Quantile of false accepts: more correct samples than this are no guesses, in 99 % of problems.
_GUESSED = 0.99
#: A way is gone if this many of its samples were expected for each sample of unknown way.
_EXPECTED_PER_UNKNOWN = 2.0
#: Least samples of a way at the base to decide whether it is gone.
_LEAST_OF_A_WAY = 3
_SPLITS = 32


@dataclass(frozen=True, kw_only=True)
class Ways:
    """Correct samples of each way of the base, one row per problem and way.

    ``unknown_P``: correct samples of the checkpoint of unknown way; any of them may be of any way.
    """

    problem_W: Int[np.ndarray, " way"]
    base_W: Int[np.ndarray, " way"]
    late_W: Int[np.ndarray, " way"]
    unknown_P: Int[np.ndarray, " problem"]


@dataclass(frozen=True, kw_only=True)
class Counted:
    """Samples of one checkpoint that measure the change, in every split: all, correct and accepted ones."""

    n_P: Int[np.ndarray, " problem"]
    correct_RP: Int[np.ndarray, "split problem"]
    accepted_RP: Int[np.ndarray, "split problem"]


@dataclass(frozen=True, kw_only=True)
class Grouped:
    """The groups of the problems in every split, as places in ``GROUPS``, and the samples that count there."""

    group_RP: Int[np.ndarray, "split problem"]
    base: Counted
    late: Counted

    @property
    def share(self) -> Float[np.ndarray, "group problem"]:
        """The share of the splits in which a problem is of each group."""
        return np.stack([(self.group_RP == place).mean(axis=0) for place in range(len(GROUPS))])

    def meaned(self, value_RP: Float[np.ndarray, "split problem"]) -> Float[np.ndarray, "group problem"]:
        """Return the mean over the splits of a value, counted only where a problem is of each group."""
        return np.stack([np.where(self.group_RP == place, value_RP, 0.0).mean(axis=0) for place in range(len(GROUPS))])


def guessed_at_most(n_P: Int[np.ndarray, " problem"], guess_rate: float) -> Int[np.ndarray, " problem"]:
    """Return the number of correct samples among n that false accepts alone exceed in 1 % of problems.

    >>> guessed_at_most(np.array([32, 128]), 0.005).tolist()
    [2, 3]
    """
    return np.asarray(binom.ppf(_GUESSED, n_P, guess_rate), dtype=np.int64) if guess_rate > 0 else np.zeros_like(n_P)


def grouped(
    base: Said, late: Said, k: int, *, guess_rate: float, ways: Ways | None, rng: np.random.Generator
) -> Grouped:
    """Split the parsed samples at random, and determine the group of every problem by the first part.

    The first part leaves k samples to the second, and has at least one eighth and at most seven eighths of all. A
    problem is solved if it has more correct ones than false accepts explain, or one of a way of the base.
    """
    told_base_P, told_late_P = (_telling(one.read_P, k) for one in (base, late))
    hits_base_RP, counted_base = _split(base, told_base_P, rng)
    hits_late_RP, counted_late = _split(late, told_late_P, rng)
    solved_base_RP = hits_base_RP > guessed_at_most(told_base_P, guess_rate)
    solved_late_RP = hits_late_RP > guessed_at_most(told_late_P, guess_rate)
    gone_RP = np.zeros_like(solved_base_RP)
    if ways is not None and len(ways.problem_W):
        gone_RP, kept_RP = _told_of_ways(ways, (base, late), (hits_base_RP, hits_late_RP), rng)
        solved_late_RP |= kept_RP & solved_base_RP
    # in the order of GROUPS
    place_RP = np.where(gone_RP, 3, 4)
    place_RP = np.where(~solved_base_RP, np.where(solved_late_RP, 2, 0), np.where(solved_late_RP, place_RP, 1))
    place_RP = np.where(base.is_read_P & late.is_read_P, place_RP, 4)
    return Grouped(group_RP=place_RP, base=counted_base, late=counted_late)


def _telling(n_P: Int[np.ndarray, " problem"], k: int) -> Int[np.ndarray, " problem"]:
    return np.clip(n_P - k, n_P // 8, 7 * n_P // 8)


def _split(one: Said, told_P: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, Counted]:
    """Return the correct samples in the first part, and the counts of the second."""
    size = (_SPLITS, len(told_P))
    hits_RP = rng.hypergeometric(one.correct_P, one.read_P - one.correct_P, told_P, size=size)
    also_P = np.minimum(one.accepted_P, one.correct_P)
    extra_P = one.accepted_P - also_P
    also_RP = rng.hypergeometric(also_P, one.correct_P - also_P, hits_RP)
    extra_RP = rng.hypergeometric(extra_P, one.read_P - one.correct_P - extra_P, told_P - hits_RP)
    return hits_RP, Counted(
        n_P=one.read_P - told_P,
        correct_RP=one.correct_P - hits_RP,
        accepted_RP=one.accepted_P - also_RP - extra_RP,
    )


def _told_of_ways(
    ways: Ways, sides: tuple[Said, Said], hits: tuple[np.ndarray, np.ndarray], rng: np.random.Generator
) -> tuple[Bool[np.ndarray, "split problem"], Bool[np.ndarray, "split problem"]]:
    """Return whether the first part lacks a way of the base, and whether it still has one."""
    went_RW = _told_by_row(ways.problem_W, ways.base_W, sides[0].correct_P, hits[0], rng)
    late_W = np.concatenate([ways.late_W, ways.unknown_P])  # of unknown way: one row more of every problem
    row_W = np.concatenate([ways.problem_W, np.arange(len(ways.unknown_P))])
    still_RW, unknown_RP = np.split(
        _told_by_row(row_W, late_W, sides[1].correct_P, hits[1], rng), [len(ways.problem_W)], axis=1
    )
    gone_RW = (went_RW >= _LEAST_OF_A_WAY) & (still_RW == 0)
    gone_RW &= went_RW > _EXPECTED_PER_UNKNOWN * unknown_RP[:, ways.problem_W]
    return _any_of_problem(gone_RW, ways), _any_of_problem((went_RW > 0) & (still_RW > 0), ways)


def _any_of_problem(is_RW: Bool[np.ndarray, "split way"], ways: Ways) -> Bool[np.ndarray, "split problem"]:
    found_PR = np.zeros((len(ways.unknown_P), len(is_RW)), dtype=bool)
    np.logical_or.at(found_PR, ways.problem_W, is_RW.T)
    return found_PR.T


def _told_by_row(
    problem_W: np.ndarray, n_W: np.ndarray, correct_P: np.ndarray, hits_RP: np.ndarray, rng: np.random.Generator
) -> Int[np.ndarray, "split way"]:
    """Return how many of each way's samples are among the correct ones of the first part, drawn way by way."""
    told_RW = np.zeros((len(hits_RP), len(n_W)), dtype=np.int64)
    left_P, hits_RP = correct_P.copy(), hits_RP.copy()
    for rows in _one_of_each_problem(problem_W):
        problem = problem_W[rows]
        n = np.minimum(n_W[rows], left_P[problem])
        told_RW[:, rows] = rng.hypergeometric(n, left_P[problem] - n, hits_RP[:, problem])
        left_P[problem] -= n
        hits_RP[:, problem] -= told_RW[:, rows]
    return told_RW


def _one_of_each_problem(problem_W: np.ndarray) -> Iterator[Int[np.ndarray, " way"]]:
    """Yield sets of rows in which no problem occurs twice, until every row is yielded."""
    order = np.argsort(problem_W, kind="stable")
    _, first, size = np.unique(problem_W[order], return_index=True, return_counts=True)
    for turn in range(int(size.max(initial=0))):
        yield order[(first + turn)[size > turn]]


def by_split(
    n_P: Int[np.ndarray, " problem"], correct_RP: Int[np.ndarray, "split problem"], fates: list[Fate], k: int
) -> list[Float[np.ndarray, "split problem"]]:
    """Return pass@k in every split under each of the fates; equal counts of a problem are computed once."""
    most = int(n_P.max(initial=0)) + 1
    key_RP = np.arange(len(n_P)) * most + correct_RP
    found_U, place = np.unique(key_RP, return_inverse=True)
    problem_U = found_U // most
    missed_UJ = missed(n_P[problem_U], found_U % most, k)
    return [fate.of(problem_U).pass_at_k(missed_UJ)[place].reshape(correct_RP.shape) for fate in fates]


def whole(one: Said, fate: Fate, k: int, *, accepted: bool) -> PerProblem:
    """Return pass@k of all parsed samples under ``fate``."""
    return fate.pass_at_k(missed(one.read_P, one.accepted_P if accepted else one.correct_P, k))
