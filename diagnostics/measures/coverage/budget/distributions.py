"""Counterfactual counts: samples as they would be without truncation, parse failures or false accepts. Pure.

A response may be truncated; otherwise its answer may be unparsed; then a grader accepts it or not. Each of these can be
undone in the counts: truncated samples are then as often correct as the others, and unparsed samples as parsed ones.
A checkpoint's truncation and parse failures can also be applied to another distribution, such as the sharpened base.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.special import gammaln
from scipy.stats import binom, hypergeom

#: Causes that can be undone in the counts.
Undoable = Literal["cut_off", "unread", "grader"]
PerProblem = Float[np.ndarray, " problem"]
#: Pseudo-counts of correct samples, accepted at the rate of all problems: a problem with few correct samples gives no
#: good estimate of how often correct answers are rejected.
_OF_ALL_PROBLEMS = 2.0


@dataclass(frozen=True, kw_only=True)
class Graded:
    """Samples of every problem by one grader. Truncated and unparsed (``unread``) ones are not correct."""

    n_P: Int[np.ndarray, " problem"]
    correct_P: Int[np.ndarray, " problem"]
    cut_P: Int[np.ndarray, " problem"]
    unread_P: Int[np.ndarray, " problem"]


@dataclass(frozen=True, kw_only=True)
class Gradings:
    """Samples of one checkpoint by its grader, and by a second one if there is one."""

    own: Graded
    second: Graded | None = None


@dataclass(frozen=True, kw_only=True)
class Said:
    """One checkpoint's samples of every problem: all, not truncated, parsed; correct, accepted by the first grader.

    An unknown cause removes nothing, and neither does a cause in a problem without a parsed sample, unless it uses the
    parsed samples of another checkpoint (``is_lent_P``).
    """

    n_P: Int[np.ndarray, " problem"]
    ended_P: Int[np.ndarray, " problem"]
    read_P: Int[np.ndarray, " problem"]
    correct_P: Int[np.ndarray, " problem"]
    accepted_P: Int[np.ndarray, " problem"]
    is_read_P: Bool[np.ndarray, " problem"]
    is_lent_P: Bool[np.ndarray, " problem"]


def said(gradings: Gradings, causes: Sequence[Undoable]) -> Said:
    """Return the samples with these causes; the second grader decides correctness if ``causes`` has the grader."""
    return _nothing_taken_where_unread(_as_taken(gradings, causes))


def said_by_both(base: Gradings, late: Gradings, causes: Sequence[Undoable]) -> tuple[Said, Said]:
    """Return the same of two checkpoints; one without a parsed sample of a problem uses the other's.

    The cause that removed all its samples is then the only known change there.
    """
    was, now = _as_taken(base, causes), _as_taken(late, causes)
    return _nothing_taken_where_unread(_lent(was, now)), _nothing_taken_where_unread(_lent(now, was))


def _as_taken(gradings: Gradings, causes: Sequence[Undoable]) -> Said:
    graded = gradings.second if "grader" in causes and gradings.second is not None else gradings.own
    left_P = graded.n_P - graded.cut_P * ("cut_off" in causes)
    # what the first grader accepted was read, whatever the second says of it
    read_P = np.maximum(left_P - graded.unread_P * ("unread" in causes), gradings.own.correct_P)
    ended_P = np.maximum(left_P, read_P)
    return Said(
        n_P=graded.n_P,
        ended_P=ended_P,
        read_P=read_P,
        correct_P=graded.correct_P,
        accepted_P=gradings.own.correct_P,
        is_read_P=read_P > 0,
        is_lent_P=np.zeros(len(read_P), dtype=bool),
    )


def _nothing_taken_where_unread(one: Said) -> Said:
    untaken_P = (one.read_P == 0) & ~one.is_lent_P
    ended_P, read_P = (np.where(untaken_P, one.n_P, count_P) for count_P in (one.ended_P, one.read_P))
    return replace(one, ended_P=ended_P, read_P=read_P)


def _lent(one: Said, other: Said) -> Said:
    """Return ``one`` with the parsed samples of ``other`` in problems where it has none."""
    is_lent_P = ~one.is_read_P & other.is_read_P
    read_P, correct_P, accepted_P = (
        np.where(is_lent_P, lent_P, own_P)
        for lent_P, own_P in (
            (other.read_P, one.read_P),
            (other.correct_P, one.correct_P),
            (other.correct_P, one.accepted_P),
        )
    )
    return replace(one, read_P=read_P, correct_P=correct_P, accepted_P=accepted_P, is_lent_P=is_lent_P)


@dataclass(frozen=True, kw_only=True)
class Fate:
    """Effect of the present causes on k samples of every problem.

    ``read_PJ``: the probability that j of them are parsed, j = 0 … k. ``none_accepted_P``: that no wrong one is
    accepted.
    """

    read_PJ: Float[np.ndarray, "problem count"]
    none_accepted_P: PerProblem | float = 1.0

    def pass_at_k(self, missed_PJ: Float[np.ndarray, "problem count"]) -> PerProblem:
        """Return pass@k of distributions for which ``missed_PJ`` is the probability that j samples are all wrong."""
        return 1.0 - (self.read_PJ * missed_PJ).sum(axis=1) * self.none_accepted_P

    def of(self, place_U: Int[np.ndarray, " place"]) -> Fate:
        """Return the same of these problems, each as often as it occurs."""
        none = self.none_accepted_P
        return Fate(read_PJ=self.read_PJ[place_U], none_accepted_P=none if isinstance(none, float) else none[place_U])


def drawn_of(one: Said, present: frozenset[Undoable]) -> tuple[np.ndarray, np.ndarray]:
    """Return how many samples of every problem these causes apply to, and how many they leave."""
    if not present & {"cut_off", "unread"}:
        return one.read_P, one.read_P
    is_cut = "cut_off" in present
    drawn_P = one.n_P if is_cut else np.where(one.ended_P > 0, one.ended_P, one.read_P)
    if "unread" not in present:
        return drawn_P, one.ended_P
    return drawn_P, np.where(one.is_lent_P & (is_cut | (one.ended_P > 0)), 0, one.read_P)


def own_fate(one: Said, present: frozenset[Undoable], k_P: Int[np.ndarray, " problem"], k: int) -> Fate:
    """Return the effect on k of the checkpoint's own samples, without replacement; with all causes, observed."""
    drawn_P, left_P = drawn_of(one, present)
    return Fate(read_PJ=np.asarray(hypergeom.pmf(np.arange(k + 1), drawn_P[:, None], left_P[:, None], k_P[:, None])))


def lent_fate(one: Said, present: frozenset[Undoable], k_P: Int[np.ndarray, " problem"], k: int) -> Fate:
    """Return the effect on k samples of another distribution, which loses the same share as the checkpoint's."""
    drawn_P, left_P = drawn_of(one, present)
    if "grader" not in present:
        return own_fate(one, present, k_P, k)
    kept_P = _kept(one)
    wrong_P, extra_P = np.maximum(one.n_P - one.correct_P, 0), np.maximum(one.accepted_P - one.correct_P, 0)
    none_accepted_P = missed(wrong_P, extra_P, k)[np.arange(len(k_P)), k_P]
    return Fate(
        read_PJ=np.asarray(binom.pmf(np.arange(k + 1), k_P[:, None], (kept_P * left_P / drawn_P)[:, None])),
        none_accepted_P=none_accepted_P,
    )


def _kept(one: Said) -> PerProblem:
    """Return the share of each problem's correct samples that the first grader accepts."""
    also_P = np.minimum(one.correct_P, one.accepted_P)
    overall = also_P.sum() / max(int(one.correct_P.sum()), 1)
    return (also_P + _OF_ALL_PROBLEMS * overall) / (one.correct_P + _OF_ALL_PROBLEMS)


def graded_as(
    one: Said, correct_RP: Int[np.ndarray, "split problem"], rng: np.random.Generator
) -> Int[np.ndarray, "split problem"]:
    """Return how many of ``correct_RP`` other correct samples the first grader accepts, by the grades of ``one``.

    Drawn without replacement from its correct samples; beyond these, accepted at its rate.
    """
    also_P = np.minimum(one.correct_P, one.accepted_P)
    from_RP = np.minimum(correct_RP, one.correct_P)
    drawn_RP = rng.hypergeometric(also_P, one.correct_P - also_P, from_RP)
    return np.asarray(drawn_RP + rng.binomial(correct_RP - from_RP, _kept(one)))


def missed(
    n_P: Int[np.ndarray, " problem"], correct_P: Int[np.ndarray, " problem"], k: int
) -> Float[np.ndarray, "problem count"]:
    """Return the probability that j fresh samples are all wrong, j = 0 … k; unbiased up to n, beyond it that of n.

    >>> missed(np.array([4, 2]), np.array([1, 0]), 3).round(4).tolist()
    [[1.0, 0.75, 0.5, 0.25], [1.0, 1.0, 1.0, 1.0]]
    """
    j_PJ = np.minimum(np.arange(k + 1), n_P[:, None])
    wrong_PJ, n_PJ = (n_P - correct_P)[:, None], n_P[:, None]
    log_PJ = (gammaln(wrong_PJ + 1.0) - gammaln(np.maximum(wrong_PJ - j_PJ, 0) + 1.0)) - (
        gammaln(n_PJ + 1.0) - gammaln(n_PJ - j_PJ + 1.0)
    )
    return np.where(j_PJ <= wrong_PJ, np.exp(np.minimum(log_PJ, 0.0)), 0.0)
