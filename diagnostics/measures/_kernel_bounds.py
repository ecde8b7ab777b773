"""Theorem 2.4's two bounds on one batch, beside the exact shifts of the same kernel."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from diagnostics.measures._batch import TrainingBatch
from diagnostics.measures._kernel import RESOLUTION, Coupling
from diagnostics.theory.coupling import induced_shift, kernel_extremes
from diagnostics.theory.coupling_bounds import seen_shift_bound, unseen_shift_bound

#: A shift beyond its bound by less than this, beside the largest target, is the rounding of float32 gradients.
RELATIVE_ROUNDING = 1e-4


@dataclass(frozen=True, kw_only=True)
class Case:
    """The exact shift that comes nearest to its bound, or goes farthest beyond; no bound: its denominator is ≤ 0."""

    exact: float
    bound: float | None
    fails: bool


def unseen_case(coupling: Coupling, batch: TrainingBatch) -> Case | None:
    """Case 1: the largest shift of an unseen correct response is at most the bound; None if there is no such one."""
    rows, fixed_F = coupling.rows, coupling.fixed_F
    there_F = (rows.problem_N[fixed_F] == batch.problem_id) & rows.correct_N[fixed_F]
    unseen_T = fixed_F[there_F & ~np.isin(fixed_F, batch.mode_S)]
    if not len(unseen_T):
        return None
    kernel_SS, target_S = coupling.aligned_kernel(batch), np.abs(batch.targets)
    bound = unseen_shift_bound(
        kernel_extremes(kernel_SS, batch.mode_S), group_size=len(target_S), target_sum=float(target_S.sum()), eta=1.0
    ).value
    cross_TS = rows.kernel_NN[np.ix_(unseen_T, batch.mode_S)] * np.sign(batch.advantage_S)
    exact = float(induced_shift(kernel_SS, cross_TS, target_S, relative_cutoff=RESOLUTION).max())
    slack = RELATIVE_ROUNDING * float(target_S.max())
    return Case(exact=exact, bound=bound, fails=bound is not None and exact > bound + slack)


def seen_case(coupling: Coupling, batch: TrainingBatch) -> Case:
    """Case 2: the shift of every own sample is at least its bound."""
    kernel_SS, target_S = coupling.aligned_kernel(batch), np.abs(batch.targets)
    extremes = kernel_extremes(kernel_SS, batch.mode_S)
    shift_S = induced_shift(kernel_SS, kernel_SS, target_S, relative_cutoff=RESOLUTION)
    bounds = [
        seen_shift_bound(
            extremes,
            group_size=len(target_S),
            target_sum=float(target_S.sum()),
            eta=1.0,
            count=int(count),
            target=float(target_S[first]),
        ).value
        for first, count in zip(batch.first_draws, batch.counts, strict=True)
    ]
    exact_M = shift_S[batch.first_draws]
    if None in bounds:
        return Case(exact=float(exact_M.min()), bound=None, fails=False)
    bound_M = np.array(bounds, dtype=np.float64)
    nearest = int((exact_M - bound_M).argmin())
    slack = RELATIVE_ROUNDING * float(target_S.max())
    fails = bool(exact_M[nearest] < bound_M[nearest] - slack)
    return Case(exact=float(exact_M[nearest]), bound=float(bound_M[nearest]), fails=fails)
