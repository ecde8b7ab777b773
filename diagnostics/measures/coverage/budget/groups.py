"""Group problems by their change: lost, gained, guessed, lost a way, unexplained.

Pure functions. The samples of a problem are split in two at random, many times. The first part determines the group of
the problem, the second part the size of its change. So if base and checkpoint are the same, the parts of the change
have mean 0 for any number of samples.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

from oversharp.diagnostics.measures.coverage.budget.distributions import Effect, PerProblem, SampleCounts, all_wrong

#: Groups of problems, by how often the base and the checkpoint solve them.
GROUPS = ("guesses", "lost", "gained", "ways", "unexplained")
#: Quantile of the number of false accepts. A problem with more correct samples than this quantile counts as solved.
_FALSE_ACCEPT_QUANTILE = 0.99
#: A way counts as lost only if the base has more than this number of its samples per sample of unknown way.
_EXPECTED_PER_UNKNOWN = 2.0
#: A way counts as lost only if the base has at least this number of its samples.
_LEAST_OF_A_WAY = 3
_SPLITS = 32


@dataclass(frozen=True, kw_only=True)
class Ways:
    """Correct samples by way of the base, with one row per problem and way.

    ``unknown_P`` counts the checkpoint's correct samples of each problem whose way is unknown. Each of them may use any
    way.
    """

    problem_W: Int[np.ndarray, " way"]
    base_W: Int[np.ndarray, " way"]
    late_W: Int[np.ndarray, " way"]
    unknown_P: Int[np.ndarray, " problem"]


@dataclass(frozen=True, kw_only=True)
class MeasuredPart:
    """The second part of one checkpoint's samples, which measures the change."""

    n_P: Int[np.ndarray, " problem"]
    correct_RP: Int[np.ndarray, "split problem"]
    accepted_RP: Int[np.ndarray, "split problem"]


@dataclass(frozen=True, kw_only=True)
class ProblemGroups:
    """The group of each problem in every split (an index into ``GROUPS``), and the second parts."""

    group_RP: Int[np.ndarray, "split problem"]
    base: MeasuredPart
    late: MeasuredPart

    @property
    def share(self) -> Float[np.ndarray, "group problem"]:
        """The share of the splits in which a problem is in each group."""
        return np.stack([(self.group_RP == place).mean(axis=0) for place in range(len(GROUPS))])

    def group_means(self, value_RP: Float[np.ndarray, "split problem"]) -> Float[np.ndarray, "group problem"]:
        """Return the mean over the splits of a value, which counts as 0 outside the group."""
        return np.stack([np.where(self.group_RP == place, value_RP, 0.0).mean(axis=0) for place in range(len(GROUPS))])


def false_accept_limit(n_P: Int[np.ndarray, " problem"], guess_rate: float) -> Int[np.ndarray, " problem"]:
    """Return the number of correct samples that false accepts exceed in at most 1 % of problems.

    >>> false_accept_limit(np.array([32, 128]), 0.005).tolist()
    [2, 3]
    """
    from scipy.stats import binom  # takes a second to import

    if guess_rate <= 0:
        return np.zeros_like(n_P)
    return np.asarray(binom.ppf(_FALSE_ACCEPT_QUANTILE, n_P, guess_rate), dtype=np.int64)


def group_problems(
    base: SampleCounts, late: SampleCounts, k: int, *, guess_rate: float, ways: Ways | None, rng: np.random.Generator
) -> ProblemGroups:
    """Split the parsed samples at random, and group the problems by the first part.

    The second part has k samples, but the first part has at least one eighth and at most seven eighths of all samples.
    A problem counts as solved in two cases: more of its samples are correct than false accepts explain, or a correct
    sample uses a way of the base.
    """
    base_first_P, late_first_P = (_first_part_size(counts.parsed_P, k) for counts in (base, late))
    base_hits_RP, base_rest = _split_samples(base, base_first_P, rng)
    late_hits_RP, late_rest = _split_samples(late, late_first_P, rng)
    base_solved_RP = base_hits_RP > false_accept_limit(base_first_P, guess_rate)
    late_solved_RP = late_hits_RP > false_accept_limit(late_first_P, guess_rate)
    lost_way_RP = np.zeros_like(base_solved_RP)
    if ways is not None and len(ways.problem_W):
        lost_way_RP, kept_way_RP = _compare_ways(ways, (base, late), (base_hits_RP, late_hits_RP), rng)
        late_solved_RP |= kept_way_RP & base_solved_RP
    # numbers are indices into GROUPS
    group_RP = np.where(lost_way_RP, 3, 4)
    group_RP = np.where(~base_solved_RP, np.where(late_solved_RP, 2, 0), np.where(late_solved_RP, group_RP, 1))
    group_RP = np.where(base.has_parsed_P & late.has_parsed_P, group_RP, 4)
    return ProblemGroups(group_RP=group_RP, base=base_rest, late=late_rest)


def _first_part_size(n_P: Int[np.ndarray, " problem"], k: int) -> Int[np.ndarray, " problem"]:
    return np.clip(n_P - k, n_P // 8, 7 * n_P // 8)


def _split_samples(
    counts: SampleCounts, first_P: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, MeasuredPart]:
    """Return the number of correct samples in the first part, and the counts of the second part."""
    size = (_SPLITS, len(first_P))
    hits_RP = rng.hypergeometric(counts.correct_P, counts.parsed_P - counts.correct_P, first_P, size=size)
    both_P = np.minimum(counts.accepted_P, counts.correct_P)
    false_P = counts.accepted_P - both_P
    both_RP = rng.hypergeometric(both_P, counts.correct_P - both_P, hits_RP)
    false_RP = rng.hypergeometric(false_P, counts.parsed_P - counts.correct_P - false_P, first_P - hits_RP)
    return hits_RP, MeasuredPart(
        n_P=counts.parsed_P - first_P,
        correct_RP=counts.correct_P - hits_RP,
        accepted_RP=counts.accepted_P - both_RP - false_RP,
    )


def _compare_ways(
    ways: Ways,
    counts: tuple[SampleCounts, SampleCounts],
    first_hits: tuple[np.ndarray, np.ndarray],
    rng: np.random.Generator,
) -> tuple[Bool[np.ndarray, "split problem"], Bool[np.ndarray, "split problem"]]:
    """Return, from the first part, whether a way of the base is lost, and whether one is kept."""
    base_RW = _split_ways(ways.problem_W, ways.base_W, counts[0].correct_P, first_hits[0], rng)
    late_W = np.concatenate([ways.late_W, ways.unknown_P])  # samples of unknown way are an additional row per problem
    row_W = np.concatenate([ways.problem_W, np.arange(len(ways.unknown_P))])
    late_RW, unknown_RP = np.split(
        _split_ways(row_W, late_W, counts[1].correct_P, first_hits[1], rng), [len(ways.problem_W)], axis=1
    )
    lost_RW = (base_RW >= _LEAST_OF_A_WAY) & (late_RW == 0)
    lost_RW &= base_RW > _EXPECTED_PER_UNKNOWN * unknown_RP[:, ways.problem_W]
    return _any_by_problem(lost_RW, ways), _any_by_problem((base_RW > 0) & (late_RW > 0), ways)


def _any_by_problem(is_RW: Bool[np.ndarray, "split way"], ways: Ways) -> Bool[np.ndarray, "split problem"]:
    any_PR = np.zeros((len(ways.unknown_P), len(is_RW)), dtype=bool)
    np.logical_or.at(any_PR, ways.problem_W, is_RW.T)
    return any_PR.T


def _split_ways(
    problem_W: np.ndarray, n_W: np.ndarray, correct_P: np.ndarray, hits_RP: np.ndarray, rng: np.random.Generator
) -> Int[np.ndarray, "split way"]:
    """Draw the number of samples of each way in the first part, one way after the other."""
    first_RW = np.zeros((len(hits_RP), len(n_W)), dtype=np.int64)
    left_P, hits_RP = correct_P.copy(), hits_RP.copy()
    for rows in _rows_of_distinct_problems(problem_W):
        problem = problem_W[rows]
        n = np.minimum(n_W[rows], left_P[problem])
        first_RW[:, rows] = rng.hypergeometric(n, left_P[problem] - n, hits_RP[:, problem])
        left_P[problem] -= n
        hits_RP[:, problem] -= first_RW[:, rows]
    return first_RW


def _rows_of_distinct_problems(problem_W: np.ndarray) -> Iterator[Int[np.ndarray, " way"]]:
    """Yield sets of rows in which no problem is repeated, until every row has been yielded."""
    order = np.argsort(problem_W, kind="stable")
    _, first, size = np.unique(problem_W[order], return_index=True, return_counts=True)
    for repeat in range(int(size.max(initial=0))):
        yield order[(first + repeat)[size > repeat]]


def pass_at_k_by_split(
    n_P: Int[np.ndarray, " problem"], correct_RP: Int[np.ndarray, "split problem"], effects: list[Effect], k: int
) -> list[Float[np.ndarray, "split problem"]]:
    """Return pass@k in every split under each effect."""
    most = int(n_P.max(initial=0)) + 1
    key_RP = np.arange(len(n_P)) * most + correct_RP
    key_U, place = np.unique(key_RP, return_inverse=True)
    problem_U = key_U // most
    all_wrong_UJ = all_wrong(n_P[problem_U], key_U % most, k)
    return [effect.take(problem_U).pass_at_k(all_wrong_UJ)[place].reshape(correct_RP.shape) for effect in effects]


def pass_at_k_of_all(counts: SampleCounts, effect: Effect, k: int, *, accepted: bool) -> PerProblem:
    """Return pass@k of all parsed samples under ``effect``."""
    return effect.pass_at_k(all_wrong(counts.parsed_P, counts.accepted_P if accepted else counts.correct_P, k))
