"""Problems solved less often at one checkpoint than at another, and more often: which of it is more than luck. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float, Int
from scipy.stats import hypergeom

from diagnostics.statistics.confirmation import fisher_fell, holm

State = Literal["lost", "fell", "unchanged", "rose", "gained"]
#: From here on an adjusted p says that a problem changed.
LEVEL = 0.05


@dataclass(frozen=True, kw_only=True)
class ProblemCounts:
    """Correct samples of the same problems at two checkpoints, ``n`` of each being samples."""

    problem_ids: tuple[str, ...]
    before_P: Int[np.ndarray, " problem"]
    n_before_P: Int[np.ndarray, " problem"]
    after_P: Int[np.ndarray, " problem"]
    n_after_P: Int[np.ndarray, " problem"]


@dataclass(frozen=True, kw_only=True)
class ProblemChange:
    """One problem at two checkpoints.

    ``state``: lost is no correct sample left, gained a first one; fell and rose are about the share of correct ones.
    ``p_adjusted`` is the two-sided p of Fisher's exact test with Holm's correction over all problems that were
    compared; ``sure`` where it is at most 0.05. It is None where samples are no independent draws, which it takes them
    for. ``problem`` is the id in the user's file, or that of the store.
    """

    problem_id: str
    problem: str
    title: str
    state: State
    correct_before: int
    n_before: int
    correct_after: int
    n_after: int
    p_adjusted: float | None

    @property
    def sure(self) -> bool:
        """Whether the change is more than luck, in 95 % for all problems of the comparison together."""
        return self.p_adjusted is not None and self.p_adjusted <= LEVEL


def problem_changes(
    counts: ProblemCounts, *, names: Sequence[str], titles: Sequence[str], independent: bool = True
) -> tuple[ProblemChange, ...]:
    """Every problem, in the order given, with ``names`` and ``titles`` in the same order.

    ``independent``: whether the samples of a problem are draws of their own.

    Raises ``ValueError`` where a count is outside 0 … n or a problem has no sample.

    >>> counts = ProblemCounts(problem_ids=("a", "b"), before_P=np.array([9, 1]), n_before_P=np.array([10, 10]),
    ...                        after_P=np.array([0, 0]), n_after_P=np.array([10, 10]))
    >>> [(one.state, one.sure) for one in problem_changes(counts, names=("a", "b"), titles=("2 + 2?", "3 + 3?"))]
    [('lost', True), ('lost', False)]
    """
    p_P = holm(_two_sided(counts))
    states = _states(counts)
    return tuple(
        ProblemChange(
            problem_id=problem_id,
            problem=names[i],
            title=titles[i],
            state=states[i],
            correct_before=int(counts.before_P[i]),
            n_before=int(counts.n_before_P[i]),
            correct_after=int(counts.after_P[i]),
            n_after=int(counts.n_after_P[i]),
            p_adjusted=float(p_P[i]) if independent else None,
        )
        for i, problem_id in enumerate(counts.problem_ids)
    )


def lost_by_chance(counts: ProblemCounts) -> float:
    """Problems that would have no correct sample left if nothing changed: the same hits, dealt to both at random.

    >>> counts = ProblemCounts(problem_ids=("a", "b"), before_P=np.array([1, 8]), n_before_P=np.array([8, 8]),
    ...                        after_P=np.array([0, 8]), n_after_P=np.array([8, 8]))
    >>> round(lost_by_chance(counts), 6)  # half of the time the one hit falls to the first
    0.5
    """
    hits_P = counts.before_P + counts.after_P
    none_P = np.asarray(hypergeom.pmf(0, counts.n_before_P + counts.n_after_P, hits_P, counts.n_after_P))
    return float(none_P[hits_P > 0].sum())


def gained_by_chance(counts: ProblemCounts) -> float:
    """The same of first correct samples."""
    return lost_by_chance(
        ProblemCounts(
            problem_ids=counts.problem_ids,
            before_P=counts.after_P,
            n_before_P=counts.n_after_P,
            after_P=counts.before_P,
            n_after_P=counts.n_before_P,
        )
    )


def _two_sided(counts: ProblemCounts) -> Float[np.ndarray, " problem"]:
    """Twice the smaller of both one-sided p."""
    fell_P = fisher_fell(counts.before_P, counts.n_before_P, counts.after_P, counts.n_after_P)
    rose_P = fisher_fell(counts.after_P, counts.n_after_P, counts.before_P, counts.n_before_P)
    return np.asarray(np.minimum(1.0, 2.0 * np.minimum(fell_P, rose_P)))


def _states(counts: ProblemCounts) -> list[State]:
    # whole numbers, so that equal shares stay equal
    change_P = counts.after_P * counts.n_before_P - counts.before_P * counts.n_after_P
    return [
        _state(int(before), int(after), int(change))
        for before, after, change in zip(counts.before_P, counts.after_P, change_P, strict=True)
    ]


def _state(before: int, after: int, change: int) -> State:
    if change < 0:
        return "fell" if after else "lost"
    if change > 0:
        return "rose" if before else "gained"
    return "unchanged"
