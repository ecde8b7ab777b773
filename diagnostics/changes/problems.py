"""Changes of single problems between two checkpoints, with significance. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from oversharp.diagnostics.records.cells import short_repr
from oversharp.diagnostics.statistics.problem_changes import SURE, ProblemCounts, State, change_p, problem_states


@dataclass(frozen=True, kw_only=True)
class ProblemChange:
    """One problem at two checkpoints, with equal sample counts, or with those at which a stopping rule left it.

    ``state`` is "lost" if no correct sample is left, and "gained" if there is a first one; "fell" and "rose" are
    changes of the share of correct samples. With a stopping rule, "lost" and "gained" mean that no sample up to the
    smaller cap is correct at one of the checkpoints. ``p_adjusted`` is the p of Fisher's exact test (with a stopping
    rule, of an exact likelihood-ratio test), one-sided in the direction of the change, with Holm's correction over the
    problems that have both correct and wrong samples; it is 1 if the share did not change. ``sure`` means that it is at
    most 0.05. Both are None if samples are not independent, which the test assumes. ``problem`` is the id in the user's
    file, or that of the store.
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

    __repr__ = short_repr

    @property
    def sure(self) -> bool:
        """Return whether the change is significant: 5 % for all falls, or all rises, together."""
        return self.p_adjusted is not None and self.p_adjusted <= SURE


def problem_changes(
    counts: ProblemCounts,
    *,
    problem_ids: Sequence[str],
    names: Sequence[str],
    titles: Sequence[str],
    independent: bool = True,
    falls_only: bool = False,
) -> tuple[ProblemChange, ...]:
    """Return the change of every problem.

    ``problem_ids``, ``names`` and ``titles`` have the same order.

    ``independent`` says whether the samples of a problem are independent draws. With ``falls_only``, problems that rose
    or are gained are left out.

    Raises ``ValueError`` if a count is outside 0 … n or a problem has no sample.

    >>> import numpy as np
    >>> counts = ProblemCounts(before_P=np.array([9, 1]), n_before_P=np.array([10, 10]),
    ...                        after_P=np.array([0, 0]), n_after_P=np.array([10, 10]))
    >>> named = {"problem_ids": ("a", "b"), "names": ("a", "b"), "titles": ("2 + 2?", "3 + 3?")}
    >>> [(one.state, one.sure) for one in problem_changes(counts, **named)]
    [('lost', True), ('lost', False)]
    """
    p_P = change_p(counts, falls_only=falls_only)
    states = problem_states(counts)
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
        for i, problem_id in enumerate(problem_ids)
        if not (falls_only and states[i] in ("rose", "gained"))
    )
