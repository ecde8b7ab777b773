"""Splits of a built-in world's items: for training, for audits, and for validation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, TypeVar, get_args

from oversharp.diagnostics.records.errors import ProblemError
from oversharp.diagnostics.records.types import Problem

Split = Literal["train", "held_out", "audit", "validation"]

#: Number of held-out items of the splits ``audit`` and ``validation``.
N_AUDIT = N_VALIDATION = 100
ItemT = TypeVar("ItemT")


def split_problems(
    task: str,
    split: Split,
    limit: int | None,
    *,
    train: Sequence[ItemT],
    held_out: Sequence[ItemT],
    problem: Callable[[ItemT], Problem],
) -> tuple[Problem, ...]:
    """Return the problems of one split, at most ``limit``.

    ``audit`` is the first 100 of the held-out items, ``validation`` the next 100. Raises ``ProblemError`` for an
    unknown split or a limit below 1.
    """
    if limit is not None and limit < 1:
        raise ProblemError(f"{task}: limit {limit} leaves no problem; pass at least 1")
    by_split = {
        "train": train,
        "held_out": held_out,
        "audit": held_out[:N_AUDIT],
        "validation": held_out[N_AUDIT : N_AUDIT + N_VALIDATION],
    }
    if split not in by_split:
        raise ProblemError(f"{task}: no split {split!r}; choose from {', '.join(get_args(Split))}")
    return tuple(problem(item) for item in by_split[split][:limit])
