"""Counterfactual counts: samples without truncation, parse failures or false accepts.

A response may be truncated. If not, its answer may be unparsed. If it is parsed, a grader accepts it or not. The counts
can undo each of these causes. If truncation is undone, truncated samples are correct as often as the others. If parse
failures are undone, unparsed samples are correct as often as parsed ones. A checkpoint's truncation and parse failures
can also be applied to another distribution, such as the sharpened base.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.special import gammaln

#: Causes that can be undone in the counts.
Undoable = Literal["cut_off", "unread", "grader"]
PerProblem = Float[np.ndarray, " problem"]
#: Pseudo-count of correct samples, accepted at the mean rate of all problems. It is added to each problem, because few
#: correct samples give a poor estimate of how often correct answers are accepted.
_PSEUDO_COUNT = 2.0


@dataclass(frozen=True, kw_only=True)
class Graded:
    """Counts of the samples of every problem, by one grader.

    Truncated and unparsed samples count as not correct.
    """

    n_P: Int[np.ndarray, " problem"]
    correct_P: Int[np.ndarray, " problem"]
    truncated_P: Int[np.ndarray, " problem"]
    unparsed_P: Int[np.ndarray, " problem"]


@dataclass(frozen=True, kw_only=True)
class Gradings:
    """Counts of one checkpoint's samples by its grader, and by a second grader if there is one."""

    own: Graded
    second: Graded | None = None


@dataclass(frozen=True, kw_only=True)
class SampleCounts:
    """Counts of one checkpoint's samples of every problem, after removing samples by cause.

    Attributes:
        n_P: all samples.
        ended_P: samples that are not truncated.
        parsed_P: samples with a parsed answer.
        correct_P: samples that the grader in use accepts.
        accepted_P: samples that the first grader accepts.
        has_parsed_P: whether the checkpoint itself has a parsed sample of the problem.
        is_borrowed_P: whether the problem uses the parsed samples of another checkpoint.

    A cause that is unknown removes no samples. In a problem without a parsed sample no cause removes samples, unless
    the parsed samples are borrowed.
    """

    n_P: Int[np.ndarray, " problem"]
    ended_P: Int[np.ndarray, " problem"]
    parsed_P: Int[np.ndarray, " problem"]
    correct_P: Int[np.ndarray, " problem"]
    accepted_P: Int[np.ndarray, " problem"]
    has_parsed_P: Bool[np.ndarray, " problem"]
    is_borrowed_P: Bool[np.ndarray, " problem"]


def count_samples(gradings: Gradings, causes: Sequence[Undoable]) -> SampleCounts:
    """Count the samples, without those to which one of ``causes`` applies."""
    return _keep_unparsed_problems(_count(gradings, causes))


def count_samples_of_both(
    base: Gradings, late: Gradings, causes: Sequence[Undoable]
) -> tuple[SampleCounts, SampleCounts]:
    """Count the samples of two checkpoints, each completed by the other's parsed samples.

    If a cause removed all samples of a problem at one checkpoint, the problem uses the parsed samples of the other
    checkpoint. Then that cause is the only known change of the problem.
    """
    base_counts, late_counts = _count(base, causes), _count(late, causes)
    return (
        _keep_unparsed_problems(_borrow_parsed(base_counts, late_counts)),
        _keep_unparsed_problems(_borrow_parsed(late_counts, base_counts)),
    )


def _count(gradings: Gradings, causes: Sequence[Undoable]) -> SampleCounts:
    graded = gradings.second if "grader" in causes and gradings.second is not None else gradings.own
    left_P = graded.n_P - graded.truncated_P * ("cut_off" in causes)
    # a response that the first grader accepted counts as parsed, even if the second grader could not parse it
    parsed_P = np.maximum(left_P - graded.unparsed_P * ("unread" in causes), gradings.own.correct_P)
    ended_P = np.maximum(left_P, parsed_P)
    return SampleCounts(
        n_P=graded.n_P,
        ended_P=ended_P,
        parsed_P=parsed_P,
        correct_P=graded.correct_P,
        accepted_P=gradings.own.correct_P,
        has_parsed_P=parsed_P > 0,
        is_borrowed_P=np.zeros(len(parsed_P), dtype=bool),
    )


def _keep_unparsed_problems(counts: SampleCounts) -> SampleCounts:
    """Return the counts with all samples kept in problems without a parsed sample."""
    is_kept_P = (counts.parsed_P == 0) & ~counts.is_borrowed_P
    ended_P, parsed_P = (np.where(is_kept_P, counts.n_P, count_P) for count_P in (counts.ended_P, counts.parsed_P))
    return replace(counts, ended_P=ended_P, parsed_P=parsed_P)


def _borrow_parsed(counts: SampleCounts, other: SampleCounts) -> SampleCounts:
    """Return ``counts``, completed by the parsed samples of ``other`` where there are none."""
    is_borrowed_P = ~counts.has_parsed_P & other.has_parsed_P
    return replace(
        counts,
        parsed_P=np.where(is_borrowed_P, other.parsed_P, counts.parsed_P),
        correct_P=np.where(is_borrowed_P, other.correct_P, counts.correct_P),
        accepted_P=np.where(is_borrowed_P, other.correct_P, counts.accepted_P),
        is_borrowed_P=is_borrowed_P,
    )


@dataclass(frozen=True, kw_only=True)
class Effect:
    """Effect of the causes that are present, on k samples of every problem.

    ``parsed_PJ`` is the probability that j of the k samples are parsed, for j = 0 … k. ``no_false_accept_P`` is the
    probability that the grader accepts no wrong sample.
    """

    parsed_PJ: Float[np.ndarray, "problem count"]
    no_false_accept_P: PerProblem | float = 1.0

    def pass_at_k(self, all_wrong_PJ: Float[np.ndarray, "problem count"]) -> PerProblem:
        """Return pass@k from the probability ``all_wrong_PJ`` that j samples are all wrong."""
        return 1.0 - (self.parsed_PJ * all_wrong_PJ).sum(axis=1) * self.no_false_accept_P

    def take(self, problem_U: Int[np.ndarray, " row"]) -> Effect:
        """Return the effect on these problems, which may repeat."""
        no_false_accept = self.no_false_accept_P
        if not isinstance(no_false_accept, float):
            no_false_accept = no_false_accept[problem_U]
        return Effect(parsed_PJ=self.parsed_PJ[problem_U], no_false_accept_P=no_false_accept)


def count_drawn_and_kept(counts: SampleCounts, present: frozenset[Undoable]) -> tuple[np.ndarray, np.ndarray]:
    """Return the number of samples of every problem before and after the causes remove samples."""
    if not present & {"cut_off", "unread"}:
        return counts.parsed_P, counts.parsed_P
    is_truncated = "cut_off" in present
    drawn_P = counts.n_P if is_truncated else np.where(counts.ended_P > 0, counts.ended_P, counts.parsed_P)
    if "unread" not in present:
        return drawn_P, counts.ended_P
    return drawn_P, np.where(counts.is_borrowed_P & (is_truncated | (counts.ended_P > 0)), 0, counts.parsed_P)


def own_effect(counts: SampleCounts, present: frozenset[Undoable], k_P: Int[np.ndarray, " problem"], k: int) -> Effect:
    """Return the effect on k of the checkpoint's own samples, drawn without replacement."""
    from scipy.stats import hypergeom  # takes a second to import

    drawn_P, left_P = count_drawn_and_kept(counts, present)
    return Effect(
        parsed_PJ=np.asarray(hypergeom.pmf(np.arange(k + 1), drawn_P[:, None], left_P[:, None], k_P[:, None]))
    )


def applied_effect(
    counts: SampleCounts, present: frozenset[Undoable], k_P: Int[np.ndarray, " problem"], k: int
) -> Effect:
    """Return the effect on k samples of another distribution, from the checkpoint's shares."""
    from scipy.stats import binom  # takes a second to import

    drawn_P, left_P = count_drawn_and_kept(counts, present)
    if "grader" not in present:
        return own_effect(counts, present, k_P, k)
    share_P = _accepted_share(counts)
    wrong_P, false_accept_P = (
        np.maximum(counts.n_P - counts.correct_P, 0),
        np.maximum(counts.accepted_P - counts.correct_P, 0),
    )
    no_false_accept_P = all_wrong(wrong_P, false_accept_P, k)[np.arange(len(k_P)), k_P]
    return Effect(
        parsed_PJ=np.asarray(binom.pmf(np.arange(k + 1), k_P[:, None], (share_P * left_P / drawn_P)[:, None])),
        no_false_accept_P=no_false_accept_P,
    )


def _accepted_share(counts: SampleCounts) -> PerProblem:
    """Return the share of each problem's correct samples that the first grader accepts."""
    both_P = np.minimum(counts.correct_P, counts.accepted_P)
    overall = both_P.sum() / max(int(counts.correct_P.sum()), 1)
    return (both_P + _PSEUDO_COUNT * overall) / (counts.correct_P + _PSEUDO_COUNT)


def resample_accepted(
    counts: SampleCounts, correct_RP: Int[np.ndarray, "split problem"], rng: np.random.Generator
) -> Int[np.ndarray, "split problem"]:
    """Return how many of ``correct_RP`` correct samples the first grader would accept.

    ``correct_RP`` are correct samples of another distribution. They get the grades of the correct samples in
    ``counts``, drawn without replacement. If there are more of them, the rest is accepted at the estimated rate.
    """
    both_P = np.minimum(counts.correct_P, counts.accepted_P)
    drawn_RP = np.minimum(correct_RP, counts.correct_P)
    accepted_RP = rng.hypergeometric(both_P, counts.correct_P - both_P, drawn_RP)
    return np.asarray(accepted_RP + rng.binomial(correct_RP - drawn_RP, _accepted_share(counts)))


def all_wrong(
    n_P: Int[np.ndarray, " problem"], correct_P: Int[np.ndarray, " problem"], k: int
) -> Float[np.ndarray, "problem count"]:
    """Return the unbiased probability that j new samples are all wrong, for j = 0 … k.

    >>> all_wrong(np.array([4, 2]), np.array([1, 0]), 3).round(4).tolist()
    [[1.0, 0.75, 0.5, 0.25], [1.0, 1.0, 1.0, 1.0]]
    """
    j_PJ = np.minimum(np.arange(k + 1), n_P[:, None])
    wrong_PJ, n_PJ = (n_P - correct_P)[:, None], n_P[:, None]
    log_PJ = (gammaln(wrong_PJ + 1.0) - gammaln(np.maximum(wrong_PJ - j_PJ, 0) + 1.0)) - (
        gammaln(n_PJ + 1.0) - gammaln(n_PJ - j_PJ + 1.0)
    )
    return np.where(j_PJ <= wrong_PJ, np.exp(np.minimum(log_PJ, 0.0)), 0.0)
