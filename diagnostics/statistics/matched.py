"""Two runs compared where they are equally accurate, instead of at the same step.

A slower run looks better at the same step because it has moved less. So pass@k is read off each run at the same
pass@1: the path over steps (x = pass@1, y = pass@k) is followed from the base and cut where it first reaches x.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class RunPath:
    """One run over its steps, in ascending order: ``x`` (pass@1) and ``y`` (pass@k), None where unknown."""

    steps: Sequence[int]
    x: Sequence[float | None]
    y: Sequence[float | None]


@dataclass(frozen=True, kw_only=True, slots=True)
class MatchedValue:
    """``value`` of y where x first reached the level, at the interpolated ``step``; or None and ``why``."""

    value: float | None = None
    step: float | None = None
    why: str | None = None


def value_at(path: RunPath, x: float) -> MatchedValue:
    """y of ``path`` where it reaches ``x`` for the first time, linear between neighbouring checkpoints.

    The path need not be monotone. The first passage counts, upwards or downwards, because later passages mix the cost
    of reaching x with the cost of staying there. Checkpoints with an unknown x or y are skipped. No extrapolation:
    outside the range of the path there is no value but a reason.

    >>> grpo = RunPath(steps=[0, 20, 40], x=[0.25, 0.75, 0.5], y=[1.0, 0.75, 0.5])
    >>> value_at(grpo, 0.5)
    MatchedValue(value=0.875, step=10.0, why=None)
    >>> value_at(grpo, 0.8).why
    'never reaches 0.8: the run covers 0.25 to 0.75'
    """
    points = [
        (step, x_t, y_t)
        for step, x_t, y_t in zip(path.steps, path.x, path.y, strict=True)
        if x_t is not None and y_t is not None
    ]
    if not points:
        return MatchedValue(why="no checkpoint of the run has both values")
    first_step, first_x, first_y = points[0]
    if first_x == x:
        return MatchedValue(value=first_y, step=float(first_step))
    for (step_a, x_a, y_a), (step_b, x_b, y_b) in itertools.pairwise(points):
        if min(x_a, x_b) <= x <= max(x_a, x_b):  # a flat stretch at x was entered before
            share = (x - x_a) / (x_b - x_a)
            return MatchedValue(value=y_a + share * (y_b - y_a), step=step_a + share * (step_b - step_a))
    low, high = min(x_t for _, x_t, _ in points), max(x_t for _, x_t, _ in points)
    return MatchedValue(why=f"never reaches {x:.3g}: the run covers {low:.3g} to {high:.3g}")
