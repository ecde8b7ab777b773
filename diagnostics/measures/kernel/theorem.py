"""Measures that check Theorem 2.4 and Corollary 2.2 of [A] on a model's kernel."""

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

#: A shift violates its bound only if it exceeds it by more than this share of the largest target. Smaller differences
#: are rounding of float32 gradients.
RELATIVE_ROUNDING = 1e-4
ASSUMPTIONS = ("A2.1 aligned", "A2.3 local", "order", "denominator", "weights", "no repeats")


@dataclass(frozen=True, kw_only=True)
class _Case:
    """The exact shift that is nearest to its bound, or violates it most."""

    exact: float
    bound: float | None
    fails: bool


def _unseen_case(coupling: Coupling, batch: TrainingBatch) -> _Case | None:
    """Return Case 1: an unseen correct response and its upper bound; None if there is none."""
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
    """Return Case 2: the shift of an own sample and its lower bound."""
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

    Meaning: the checkpoint's own samples of a problem are treated as one training batch. The exact shift kᵀK⁺y (see
    ``kernel_shift``) is compared with the bounds of [A]. The values are medians over the problems that have a bound.
    Scopes:
    - ``unseen exact``: the largest exact shift of a correct response outside the batch.
    - ``unseen bound``: its upper bound in [A] (Case 1).
    - ``seen exact``: the exact shift of the own sample that is nearest to its bound, or furthest below it.
    - ``seen bound``: its lower bound in [A] (Case 2).
    Unit: nats of log-probability at β = 1. n counts problems. There is no interval: a denominator near 0 makes the
    bound of a single problem huge. The median of a few problems is robust to that, but a mean or an interval is not.
    Limits: as in the paper, the advantage's sign is part of the gradient, and η is 1 as in ``kernel_bound_failures``. A
    median can hide problems that violate their bound; ``kernel_bound_failures`` counts these.
    Source: [A] (arXiv 2601.15609), Theorem 2.4, as printed; the exact shift is from its section 2.3.

    >>> from oversharp.diagnostics.measures.kernel.gradients.examples import gradients, tiny_kernels
    >>> rows = [("q", "own", True), ("q", "own", False), ("q", "panel", True)]
    >>> evidence = tiny_kernels({"base": gradients((2, 0), (0, -1), (1, 1))}, rows)
    >>> [(f.scope, round(f.value, 4)) for f in kernel_bounds(evidence)]
    [('unseen exact', 0.75), ('unseen bound', 0.0), ('seen exact', 0.5), ('seen bound', 0.125)]
    """

    def values(case: _Case) -> dict[str, float]:
        return {} if case.bound is None else {"exact": case.exact, "bound": case.bound}

    none = "the denominator of the printed bound is not positive for any problem"
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

    Meaning: in terms of λ and ρ, [A] bounds the shift of an unseen response from above (Case 1), and the shift of a
    seen response from below (Case 2). These bounds are compared with the exact shift kᵀK⁺y for the checkpoint's own
    samples. Scopes:
    - ``unseen fails``: an unseen correct response shifts by more than its bound.
    - ``seen fails``: an own sample shifts by less than its bound.
    - ``unseen no bound`` and ``seen no bound``: a denominator of the printed form is not positive, so there is no
      bound.
    Unit: share of problems, among those whose own samples include correct and wrong ones. Problems without an unseen
    correct response do not count for Case 1. 95 % t interval over problems with a variance floor. n counts problems.
    Limits: as in the paper, the advantage's sign is part of the gradient. η is 1, because source and target are the
    same problem. This case is the most favourable to the bounds. A value of 0 does not mean that the theorem is true:
    see ``kernel_assumptions``.
    Source: [A] (arXiv 2601.15609), Theorem 2.4, as printed. K ⪰ M(λ_min, ρ_min) does not follow from bounds on entries.

    >>> from oversharp.diagnostics.measures.kernel.gradients.examples import gradients, tiny_kernels
    >>> rows = [("q", "own", True), ("q", "own", False), ("q", "panel", True)]
    >>> evidence = tiny_kernels({"base": gradients((2, 0), (0, -1), (1, 1))}, rows)
    >>> findings = kernel_bound_failures(evidence)  # λ 1 to 4, ρ 0: at most 0 for the unseen one, which moves by 3/4
    >>> [(f.scope, f.value) for f in findings]
    [('unseen fails', 1.0), ('unseen no bound', 0.0), ('seen fails', 0.0), ('seen no bound', 0.0)]
    """

    def values(case: _Case) -> dict[str, float]:
        return {"fails": float(case.fails), "no bound": float(case.bound is None)}

    none = "no problem with correct and wrong own samples has an unseen correct response"
    by_scope, why = _by_case(coupling, ("fails", "no bound"), values, none)
    return {
        scope: share_interval(np.array(flags, dtype=np.float64)) if flags else why for scope, flags in by_scope.items()
    }


def _by_case(
    coupling: Coupling, parts: Sequence[str], values: Callable[[_Case], dict[str, float]], none: str
) -> tuple[dict[str, list[float]], str]:
    """Return the values of both cases by scope, and the reason for scopes without values."""
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

    Meaning: the assumptions of [A], and steps of its proof, are checked on the kernel of the checkpoint's own samples.
    The theory applies to a model only if all shares are near 1. Scopes:
    - ``A2.1 aligned``: no two modes have opposed gradients.
    - ``A2.3 local``: λ_min ≥ ρ_max.
    - ``order``: K ⪰ M(λ_min, ρ_min).
    - ``denominator``: λ_min + (G−1)ρ_min > 0.
    - ``weights``: no entry of α = K⁺y is negative.
    - ``no repeats``: no response was sampled twice. With repeats, K has no inverse.
    Unit: share of problems, among those whose own samples include correct and wrong ones. 95 % t interval over problems
    with a variance floor. n counts problems.
    Limits: as in the paper, the advantage's sign is part of the gradient. The modes are distinct responses. Assumption
    2.2 is checked by ``kernel_decay``.
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

    Meaning: R = N·[(y/A_sum)·(λ/ρ + G − 1) − 1] for the correct response of a problem that was sampled most often. λ
    and ρ are the means of the diagonal and of the off-diagonal entries in the kernel of the problem's own samples. If R
    is above 1, then by the simplified bounds of [A] this response must gain more than an unseen response can. The value
    is the median over problems.
    Unit: ratio, signed. n counts problems whose own samples include correct and wrong ones and have ρ > 0. The median
    has no interval.
    Limits: it assumes the same λ and ρ for all responses, and the bounds that ``kernel_bound_failures`` checks.
    ``kernel_shift`` is the exact value. As in the paper, the advantage's sign is part of the gradient. Problems with ρ
    ≤ 0 are excluded, because R has no meaning there. η cancels.
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
    # all correct modes have the same advantage, so the most frequent one also has the largest target
    count_M = np.where(batch.correct_S[batch.first_draws], batch.counts, 0)
    most = int(count_M.argmax())
    return seen_to_unseen_ratio(
        target=float(target_S[batch.first_draws[most]]),
        target_sum=float(target_S.sum()),
        count=int(count_M[most]),
        lambda_over_rho=mean_diagonal(kernel_SS) / rho,
        group_size=len(target_S),
    )
