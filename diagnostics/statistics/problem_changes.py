"""Problems solved less or more often at one checkpoint than at another, with significance tests.

``oversharp lost``, ``diff`` and the report use these states and p values, for equal numbers of samples of a problem at
both checkpoints. Each direction is tested separately: a test for losses is not corrected for gains.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.stats import binom, hypergeom

from oversharp.diagnostics.statistics.confirmation import fisher_fell, holm

State = Literal["lost", "fell", "unchanged", "rose", "gained"]
#: States of a problem, in the order of the change.
STATES: tuple[State, ...] = ("lost", "fell", "unchanged", "rose", "gained")
#: Level of the tests of single problems, for adjusted p values.
SURE = 0.05


@dataclass(frozen=True, kw_only=True)
class ProblemCounts:
    """Correct samples of the same problems at two checkpoints, each with its sample count ``n``."""

    before_P: Int[np.ndarray, " problem"]
    n_before_P: Int[np.ndarray, " problem"]
    after_P: Int[np.ndarray, " problem"]
    n_after_P: Int[np.ndarray, " problem"]

    @property
    def swapped(self) -> ProblemCounts:
        """Return the counts with the checkpoints exchanged."""
        return ProblemCounts(
            before_P=self.after_P, n_before_P=self.n_after_P, after_P=self.before_P, n_after_P=self.n_before_P
        )


def problem_states(counts: ProblemCounts) -> tuple[State, ...]:
    """Return the state of each problem: lost, gained, fell or rose.

    Lost has no correct sample left, gained has a first one.

    >>> problem_states(ProblemCounts(before_P=np.array([1, 4, 4, 4, 0]), n_before_P=np.full(5, 8),
    ...                              after_P=np.array([0, 1, 2, 3, 1]), n_after_P=np.array([8, 4, 4, 4, 4])))
    ('lost', 'fell', 'unchanged', 'rose', 'gained')
    """
    # integers, so that equal shares compare equal
    change_P = counts.after_P * counts.n_before_P - counts.before_P * counts.n_after_P
    return tuple(
        _state(int(before), int(after), int(change))
        for before, after, change in zip(counts.before_P, counts.after_P, change_P, strict=True)
    )


def change_p(counts: ProblemCounts) -> Float[np.ndarray, " problem"]:
    """Return the adjusted p of the change of each problem; 1 where its share is the same.

    The test is Fisher's exact test, one-sided in the direction of the change. Holm's correction is over all problems
    that can change, separately for falls and rises. If no problem fell, the smallest p of a fall is at most 0.05 with
    probability 0.05 or less; likewise for rises. Problems whose samples are all wrong or all correct at both
    checkpoints cannot change and are not counted.

    Raises ``ValueError`` where a count is outside 0 … n or a problem has no sample.

    >>> counts = ProblemCounts(before_P=np.array([8, 1, 0, 0, 8]), n_before_P=np.full(5, 8),
    ...                        after_P=np.array([0, 0, 8, 0, 8]), n_after_P=np.full(5, 8))
    >>> change_p(counts).round(4).tolist()  # 1 in C(16, 8) = 12,870 and one half, of three that can change
    [0.0002, 1.0, 0.0002, 1.0, 1.0]
    """
    can_P = _can_change(counts)
    change_P = counts.after_P * counts.n_before_P - counts.before_P * counts.n_after_P
    return np.where(change_P < 0, _p_fell(counts, can_P), np.where(change_P > 0, _p_fell(counts.swapped, can_P), 1.0))


def lost_by_chance(counts: ProblemCounts) -> float:
    """Return the expected number of problems that lose every correct sample by chance.

    The hits are distributed at random over both checkpoints. For the ``swapped`` counts it is the expected number of
    problems that gain a first one.

    >>> counts = ProblemCounts(before_P=np.array([1, 8]), n_before_P=np.array([8, 8]),
    ...                        after_P=np.array([0, 8]), n_after_P=np.array([8, 8]))
    >>> round(lost_by_chance(counts), 6)  # half of the time the one hit falls to the first
    0.5
    """
    hits_P = counts.before_P + counts.after_P
    none_P = np.asarray(hypergeom.pmf(0, counts.n_before_P + counts.n_after_P, hits_P, counts.n_after_P))
    return float(none_P[hits_P > 0].sum())


def _can_change(counts: ProblemCounts) -> Bool[np.ndarray, " problem"]:
    hits_P = counts.before_P + counts.after_P
    return np.asarray((hits_P > 0) & (hits_P < counts.n_before_P + counts.n_after_P))


def _p_fell(counts: ProblemCounts, can_P: Bool[np.ndarray, " problem"]) -> Float[np.ndarray, " problem"]:
    p_P = fisher_fell(counts.before_P, counts.n_before_P, counts.after_P, counts.n_after_P)
    p_P[can_P] = holm(p_P[can_P])
    return p_P


def _state(before: int, after: int, change: int) -> State:
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
    return min(1.0, 2.0 * float(binom.cdf(min(n_lost, n_gained), n_lost + n_gained, 0.5)))
