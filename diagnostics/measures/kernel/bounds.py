"""The two bounds of Theorem 2.4 of [A] and the exact shifts of the same kernel: sizes, and how often bounds fail."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from oversharp.diagnostics.measures.contract import Plot, Results
from oversharp.diagnostics.measures.declare import per_checkpoint
from oversharp.diagnostics.measures.kernel.gradients.batch import NO_ADVANTAGE, TrainingBatch
from oversharp.diagnostics.measures.kernel.gradients.coupling import COUPLINGS, NO_OWN, RESOLUTION, Coupling, number
from oversharp.diagnostics.statistics.intervals import share_interval
from oversharp.diagnostics.theory.coupling import induced_shift, kernel_extremes
from oversharp.diagnostics.theory.coupling_bounds import seen_shift_bound, unseen_shift_bound

#: A shift beyond its bound by less than this part of the largest target is the rounding of float32 gradients.
RELATIVE_ROUNDING = 1e-4


@dataclass(frozen=True, kw_only=True)
class _Case:
    """The exact shift nearest to its bound, or farthest beyond; ``bound`` is None if its denominator is ≤ 0."""

    exact: float
    bound: float | None
    fails: bool


def _unseen_case(coupling: Coupling, batch: TrainingBatch) -> _Case | None:
    """Return case 1, the largest shift of an unseen correct response and its upper bound, or None without one."""
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
    return _Case(exact=exact, bound=bound, fails=bound is not None and exact > bound + slack)


def _seen_case(coupling: Coupling, batch: TrainingBatch) -> _Case:
    """Return case 2, the shift of an own sample and its lower bound."""
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
        return _Case(exact=float(exact_M.min()), bound=None, fails=False)
    bound_M = np.array(bounds, dtype=np.float64)
    nearest = int((exact_M - bound_M).argmin())
    slack = RELATIVE_ROUNDING * float(target_S.max())
    fails = bool(exact_M[nearest] < bound_M[nearest] - slack)
    return _Case(exact=float(exact_M[nearest]), bound=float(bound_M[nearest]), fails=fails)


@per_checkpoint(
    input=COUPLINGS,
    scopes=("unseen exact", "unseen bound", "seen exact", "seen bound"),
    title="Exact shifts beside the bounds of Theorem 2.4",
    unit="nats",
    section="kernel",
    rank=110,
    folded=True,
    plot=Plot(x="step", group="scope", y_label="shift of log π at β = 1, median over problems"),
    signed=True,
)
def kernel_bounds(coupling: Coupling) -> Results:
    """Shifts and their bounds: the two bounds of Theorem 2.4 and the exact shifts of the same kernel.

    Meaning: for the batch that the checkpoint's own samples of a problem form, ``unseen exact`` is the largest exact
    shift kᵀK⁺y of a correct response outside the batch, and ``unseen bound`` its upper bound in [A] (Case 1); ``seen
    exact`` is the shift of the own sample nearest to its bound, or farthest below it, and ``seen bound`` its lower
    bound in [A] (Case 2). Medians over the problems that have a bound.
    Unit: nats of log-probability at β = 1; n counts problems. No interval: a denominator near 0 makes the bound of one
    problem huge; a median of few problems withstands that, a mean or its interval does not.
    Limits: signs are absorbed and η is 1, as for ``kernel_bound_failures``, which counts the reversed pairs of exact
    shift and bound: medians can hide them.
    Source: [A] (arXiv 2601.15609), Theorem 2.4, as printed; the exact shift is its section 2.3.

    >>> from oversharp.diagnostics.measures.kernel.gradients.examples import gradients, tiny_kernels
    >>> rows = [("q", "own", True), ("q", "own", False), ("q", "panel", True)]
    >>> evidence = tiny_kernels({"base": gradients((2, 0), (0, -1), (1, 1))}, rows)
    >>> [(f.scope, round(f.value, 4)) for f in kernel_bounds(evidence)]
    [('unseen exact', 0.75), ('unseen bound', 0.0), ('seen exact', 0.5), ('seen bound', 0.125)]
    """

    def values(case: _Case) -> dict[str, float]:
        return {} if case.bound is None else {"exact": case.exact, "bound": case.bound}

    none = "the printed bound has no positive denominator at any problem"
    by_scope, why = _by_case(coupling, ("exact", "bound"), values, none)
    return {scope: number(float(np.median(found)), len(found)) if found else why for scope, found in by_scope.items()}


@per_checkpoint(
    input=COUPLINGS,
    scopes=("unseen fails", "unseen no bound", "seen fails", "seen no bound"),
    title="Bounds of Theorem 2.4 that fail",
    unit="share of problems",
    section="kernel",
    rank=120,
    folded=True,
    plot=Plot(x="step", group="scope", y_label="share of problems", y_range=(0.0, 1.0)),
)
def kernel_bound_failures(coupling: Coupling) -> Results:
    """Failures of the bounds: the share of problems for which a bound of Theorem 2.4 fails on the real kernel.

    Meaning: [A] bounds the shift of an unseen response from above (Case 1) and of a seen one from below (Case 2), in
    terms of λ and ρ alone. Compared with the exact shift kᵀK⁺y of the checkpoint's own samples: scopes ``unseen fails``
    (some unseen correct response moves by more than the bound), ``seen fails`` (some own sample moves by less), and
    ``unseen no bound`` and ``seen no bound`` (a denominator of the printed form is not positive, so there is no bound).
    Unit: share of problems whose own samples are partly correct, partly wrong; those without an unseen correct response
    do not count for Case 1. 95 % t interval over problems with a variance floor; n counts problems.
    Limits: as in the paper the sign of the advantage is in the gradient. η is 1, because source and target are one
    problem: the case most favourable to the bounds. 0 does not mean that the theorem holds: see
    ``kernel_assumptions``.
    Source: [A] (arXiv 2601.15609), Theorem 2.4, as printed; K ⪰ M(λ_min, ρ_min) does not follow from bounds on entries.

    >>> from oversharp.diagnostics.measures.kernel.gradients.examples import gradients, tiny_kernels
    >>> rows = [("q", "own", True), ("q", "own", False), ("q", "panel", True)]
    >>> evidence = tiny_kernels({"base": gradients((2, 0), (0, -1), (1, 1))}, rows)
    >>> findings = kernel_bound_failures(evidence)  # λ 1 to 4, ρ 0: at most 0 for the unseen one, which moves by 3/4
    >>> [(f.scope, f.value) for f in findings]
    [('unseen fails', 1.0), ('unseen no bound', 0.0), ('seen fails', 0.0), ('seen no bound', 0.0)]
    """

    def values(case: _Case) -> dict[str, float]:
        return {"fails": float(case.fails), "no bound": float(case.bound is None)}

    none = "no unseen correct response beside a batch with advantages"
    by_scope, why = _by_case(coupling, ("fails", "no bound"), values, none)
    return {
        scope: share_interval(np.array(found, dtype=np.float64)) if found else why for scope, found in by_scope.items()
    }


def _by_case(
    coupling: Coupling, parts: Sequence[str], values: Callable[[_Case], dict[str, float]], none: str
) -> tuple[dict[str, list[float]], str]:
    """Return the values of both cases at every problem by scope, and the reason for a scope without any."""
    by_scope: dict[str, list[float]] = {f"{name} {part}": [] for name in ("unseen", "seen") for part in parts}
    batches = coupling.informative()
    for batch in batches:
        for name, case in (("unseen", _unseen_case(coupling, batch)), ("seen", _seen_case(coupling, batch))):
            for part, value in (values(case) if case else {}).items():
                by_scope[f"{name} {part}"].append(value)
    return by_scope, NO_OWN if not len(coupling.own_S) else none if batches else NO_ADVANTAGE
