"""Theorem 2.4 and Corollary 2.2 of [A] on the real kernel: bounds, assumptions, R."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from oversharp.diagnostics.measures.contract import Plot, Result, Results
from oversharp.diagnostics.measures.declare import per_checkpoint
from oversharp.diagnostics.measures.kernel.gradients.batch import NO_ADVANTAGE, TrainingBatch
from oversharp.diagnostics.measures.kernel.gradients.coupling import (
    COUPLINGS,
    NO_OWN,
    RESOLUTION,
    Coupling,
    average_over_problems,
    mean_diagonal,
    number,
)
from oversharp.diagnostics.statistics.intervals import share_interval
from oversharp.diagnostics.theory.assumptions import coupling_flags
from oversharp.diagnostics.theory.coupling import induced_shift, kernel_extremes
from oversharp.diagnostics.theory.coupling_bounds import seen_shift_bound, seen_to_unseen_ratio, unseen_shift_bound

#: A shift exceeds its bound only if by more than this part of the largest target, the rounding of float32 gradients.
RELATIVE_ROUNDING = 1e-4
ASSUMPTIONS = ("A2.1 aligned", "A2.3 local", "order", "denominator", "weights", "no repeats")


@dataclass(frozen=True, kw_only=True)
class _Case:
    """The exact shift nearest to its bound, or farthest beyond it."""

    exact: float
    bound: float | None
    fails: bool


def _unseen_case(coupling: Coupling, batch: TrainingBatch) -> _Case | None:
    """Return case 1, an unseen correct response and its upper bound, or None without one."""
    rows, fixed_F = coupling.rows, coupling.fixed_F
    is_target_F = (rows.problem_N[fixed_F] == batch.problem_id) & rows.correct_N[fixed_F]
    unseen_T = fixed_F[is_target_F & ~np.isin(fixed_F, batch.mode_S)]
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
    title="Exact shifts and the bounds of Theorem 2.4",
    unit="nats",
    section="kernel",
    rank=110,
    folded=True,
    plot=Plot(x="step", group="scope", y_label="shift of log π at β = 1, median over problems"),
    signed=True,
)
def kernel_bounds(coupling: Coupling) -> Results:
    """Shifts and their bounds: exact shifts of the kernel and the bounds of Theorem 2.4.

    Meaning: for the batch that the checkpoint's own samples of a problem form, ``unseen exact`` is the largest exact
    shift kᵀK⁺y of a correct response outside the batch, and ``unseen bound`` its upper bound in [A] (Case 1); ``seen
    exact`` is the shift of the own sample nearest to its bound, or farthest below it, and ``seen bound`` its lower
    bound in [A] (Case 2). Medians over the problems that have a bound.
    Unit: nats of log-probability at β = 1; n counts problems. No interval: a denominator near 0 makes the bound of one
    problem huge. A median of few problems is robust to that, a mean or its interval is not.
    Limits: signs are absorbed and η is 1, as for ``kernel_bound_failures``, which counts the reversed pairs of exact
    shift and bound, which medians can hide.
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
    return {
        scope: number(float(np.median(shifts)), len(shifts)) if shifts else why for scope, shifts in by_scope.items()
    }


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
    """Failures of the bounds: the share of problems that violate a bound of Theorem 2.4.

    Meaning: [A] bounds the shift of an unseen response from above (Case 1) and of a seen one from below (Case 2), in
    terms of λ and ρ. Compared with the exact shift kᵀK⁺y of the checkpoint's own samples: scopes ``unseen fails`` (some
    unseen correct response moves by more than the bound), ``seen fails`` (some own sample moves by less), and ``unseen
    no bound`` and ``seen no bound`` (a denominator of the printed form is not positive, so there is no bound).
    Unit: share of problems whose own samples are partly correct, partly wrong; those without an unseen correct response
    do not count for Case 1. 95 % t interval over problems with a variance floor; n counts problems.
    Limits: as in the paper the sign of the advantage is in the gradient. η is 1, because source and target are one
    problem: the case most favourable to the bounds. 0 does not mean that the theorem holds: see ``kernel_assumptions``.
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

    none = "no unseen correct response for a batch with advantages"
    by_scope, why = _by_case(coupling, ("fails", "no bound"), values, none)
    return {
        scope: share_interval(np.array(flags, dtype=np.float64)) if flags else why for scope, flags in by_scope.items()
    }


def _by_case(
    coupling: Coupling, parts: Sequence[str], values: Callable[[_Case], dict[str, float]], none: str
) -> tuple[dict[str, list[float]], str]:
    """Return the values of both cases by scope, and the reason for a scope without values."""
    by_scope: dict[str, list[float]] = {f"{name} {part}": [] for name in ("unseen", "seen") for part in parts}
    batches = coupling.informative_batches()
    for batch in batches:
        for name, case in (("unseen", _unseen_case(coupling, batch)), ("seen", _seen_case(coupling, batch))):
            for part, value in (values(case) if case else {}).items():
                by_scope[f"{name} {part}"].append(value)
    return by_scope, NO_OWN if not len(coupling.own_S) else none if batches else NO_ADVANTAGE


@per_checkpoint(
    input=COUPLINGS,
    scopes=ASSUMPTIONS,
    title="Assumptions of Theorem 2.4 that hold",
    unit="share of problems",
    section="kernel",
    rank=130,
    folded=True,
    plot=Plot(x="step", group="scope", y_label="share of problems", y_range=(0.0, 1.0)),
)
def kernel_assumptions(coupling: Coupling) -> Results:
    """Assumptions of Theorem 2.4: the share of problems for which they hold on the real kernel.

    Meaning: the assumptions of [A], and steps of its proof, checked on the kernel of the checkpoint's own samples.
    Scopes: ``A2.1 aligned`` (no two modes have opposed gradients), ``A2.3 local`` (λ_min ≥ ρ_max), ``order`` (K ⪰
    M(λ_min, ρ_min)), ``denominator`` (λ_min + (G−1)ρ_min > 0), ``weights`` (no entry of α = K⁺y is negative), ``no
    repeats`` (no response was sampled twice; with repeats K has no inverse). The theory applies to a model only if
    these are near 1.
    Unit: share of problems whose own samples are partly correct, partly wrong. 95 % t interval over problems with a
    variance floor; n counts problems.
    Limits: as in the paper the sign of the advantage is in the gradient, and the modes are distinct responses.
    Assumption 2.2 is ``kernel_decay``.
    Source: [A] (arXiv 2601.15609), Assumptions 2.1 and 2.3, Theorem 2.4 and its proof in Appendix E.

    >>> from oversharp.diagnostics.measures.kernel.gradients.examples import gradients, tiny_kernels
    >>> evidence = tiny_kernels({"base": gradients((2, 0), (1, 2))}, [("q", "own", True), ("q", "own own", False)])
    >>> findings = kernel_assumptions(evidence)
    >>> [(f.scope, f.value) for f in findings][:2]  # the wrong one is subtracted: ⟨(2, 0), (−1, −2)⟩ < 0
    [('A2.1 aligned', 0.0), ('A2.3 local', 1.0)]
    >>> [(f.scope, f.value) for f in findings][2:]
    [('order', 0.0), ('denominator', 0.0), ('weights', 1.0), ('no repeats', 0.0)]
    """
    flags = [_check_assumptions(coupling, batch) for batch in coupling.informative_batches()]
    why = NO_ADVANTAGE if len(coupling.own_S) else NO_OWN
    return {
        scope: average_over_problems([float(of_problem[scope]) for of_problem in flags], why_none=why, is_share=True)
        for scope in ASSUMPTIONS
    }


def _check_assumptions(coupling: Coupling, batch: TrainingBatch) -> dict[str, bool]:
    flags = coupling_flags(
        coupling.aligned_kernel(batch), np.abs(batch.targets), batch.mode_S, relative_cutoff=RESOLUTION
    )
    return {
        "A2.1 aligned": flags.gradients_aligned,
        "A2.3 local": flags.self_exceeds_cross,
        "order": flags.psd_order,
        "denominator": flags.denominator_positive,
        "weights": flags.n_negative_alpha == 0,
        "no repeats": flags.n_repeats == 0,
    }


@per_checkpoint(
    input=COUPLINGS,
    title="Seen over unseen, R of Corollary 2.2",
    unit="ratio",
    section="kernel",
    rank=100,
    folded=True,
    plot=Plot(x="step", y_label="R, median over problems"),
    signed=True,
)
def kernel_ratio(coupling: Coupling) -> Result:
    """R of Corollary 2.2: how much more a sampled solution may gain than an unsampled one.

    Meaning: R = N·[(y/A_sum)·(λ/ρ + G − 1) − 1] for the correct response that was sampled most often at a problem, with
    λ and ρ the mean diagonal and off-diagonal of the kernel of its own samples. Above 1 the seen response must gain
    more than an unseen one may, by [A]'s simplified bounds. The median over problems.
    Unit: ratio, signed. n counts problems whose own samples are partly correct, partly wrong, and have ρ > 0; the
    median has no interval.
    Limits: assumes one λ and one ρ for all responses, and the bounds that ``kernel_bound_failures`` checks; the exact
    answer is ``kernel_shift``. As in the paper the sign of the advantage is in the gradient; for ρ ≤ 0, R has no
    meaning and the problem is excluded. η cancels.
    Source: [A] (arXiv 2601.15609), Appendix F; the printed forms of Corollary 2.2 omit N from the last term.

    >>> from oversharp.diagnostics.measures.kernel.gradients.examples import gradients, tiny_kernels
    >>> rows = [("q", "own", True), ("q", "own", False)]
    >>> evidence = tiny_kernels({"base": gradients((2, 0), (-1, 1))}, rows)
    >>> [(round(f.value, 4), f.n) for f in kernel_ratio(evidence)]  # λ = 3, ρ = 2, G = 2: ½·(3/2 + 1) − 1
    [(0.25, 1)]
    """
    batches = coupling.informative_batches()
    ratios = [ratio for batch in batches if (ratio := _ratio(coupling, batch)) is not None]
    if ratios:
        return number(float(np.median(ratios)), len(ratios))
    if not len(coupling.own_S):
        return NO_OWN
    return f"ρ ≤ 0 at all {len(batches)} problems with advantages, so R has no meaning" if batches else NO_ADVANTAGE


def _ratio(coupling: Coupling, batch: TrainingBatch) -> float | None:
    kernel_SS, target_S = coupling.aligned_kernel(batch), np.abs(batch.targets)
    rho = float(kernel_SS[batch.mode_S[:, None] != batch.mode_S].mean())
    if rho <= 0.0:
        return None
    # correct modes share one advantage, so the most frequent one also has the largest target
    count_M = np.where(batch.correct_S[batch.first_draws], batch.counts, 0)
    most = int(count_M.argmax())
    return seen_to_unseen_ratio(
        target=float(target_S[batch.first_draws[most]]),
        target_sum=float(target_S.sum()),
        count=int(count_M[most]),
        lambda_over_rho=mean_diagonal(kernel_SS) / rho,
        group_size=len(target_S),
    )
