"""Theorem 2.4's two bounds beside the exact shifts of the same kernel: their sizes, and how often they fail."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from oversharp.diagnostics.measures._batch import NO_ADVANTAGE, TrainingBatch
from oversharp.diagnostics.measures._findings import told
from oversharp.diagnostics.measures._kernel import NO_KERNEL, NO_OWN, RESOLUTION, Coupling
from oversharp.diagnostics.measures._kernel_findings import number, of_coupling
from oversharp.diagnostics.measures.contract import Evidence, Measure, Plot
from oversharp.diagnostics.records.types import Finding
from oversharp.diagnostics.statistics.intervals import share_interval
from oversharp.diagnostics.statistics.units import Interval
from oversharp.diagnostics.theory.coupling import induced_shift, kernel_extremes
from oversharp.diagnostics.theory.coupling_bounds import seen_shift_bound, unseen_shift_bound

#: A shift beyond its bound by less than this, beside the largest target, is the rounding of float32 gradients.
RELATIVE_ROUNDING = 1e-4


@dataclass(frozen=True, kw_only=True)
class _Case:
    """The exact shift that comes nearest to its bound, or goes farthest beyond; no bound: its denominator is ≤ 0."""

    exact: float
    bound: float | None
    fails: bool


def _unseen_case(coupling: Coupling, batch: TrainingBatch) -> _Case | None:
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
    return _Case(exact=exact, bound=bound, fails=bound is not None and exact > bound + slack)


def _seen_case(coupling: Coupling, batch: TrainingBatch) -> _Case:
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
        return _Case(exact=float(exact_M.min()), bound=None, fails=False)
    bound_M = np.array(bounds, dtype=np.float64)
    nearest = int((exact_M - bound_M).argmin())
    slack = RELATIVE_ROUNDING * float(target_S.max())
    fails = bool(exact_M[nearest] < bound_M[nearest] - slack)
    return _Case(exact=float(exact_M[nearest]), bound=float(bound_M[nearest]), fails=fails)


def _of_cases(
    name: str,
    title: str,
    *,
    unit: Literal["nats", "share of problems"],
    parts: Sequence[str],
    of: Callable[[_Case], Sequence[float]],
    over: Callable[[Sequence[float]], Interval],
    none: str,
    plot: Plot,
    doc: str,
) -> Measure:
    """``of`` either case at every problem, a value for each of ``parts`` or nothing, and ``over`` the problems."""
    scopes = tuple(f"{case} {part}" for case in ("unseen", "seen") for part in parts)

    def compute(evidence: Evidence) -> list[Finding]:
        return of_coupling(measure, evidence, scopes, at)

    def at(checkpoint_id: str, coupling: Coupling) -> list[Finding]:
        values: dict[str, list[float]] = {scope: [] for scope in scopes}
        batches = coupling.informative()
        for batch in batches:
            for name, case in (("unseen", _unseen_case(coupling, batch)), ("seen", _seen_case(coupling, batch))):
                for part, value in zip(parts, of(case) if case else (), strict=False):
                    values[f"{name} {part}"].append(value)
        why = NO_OWN if not len(coupling.own_S) else none if batches else NO_ADVANTAGE
        return [told(measure, checkpoint_id, over(found) if found else why, scope=s) for s, found in values.items()]

    measure = Measure(
        name=name,
        title=title,
        unit=unit,
        section="kernel",
        needs=("kernel_runs", "kernel_members", "kernel_pairs"),
        missing=NO_KERNEL,
        plot=plot,
        compute=compute,
        signed=unit == "nats",
        doc=doc,
    )
    return measure


def _median(values: Sequence[float]) -> Interval:
    return number(float(np.median(values)), len(values))


def _share(values: Sequence[float]) -> Interval:
    return share_interval(np.array(values, dtype=np.float64))


MEASURES = (
    _of_cases(
        "kernel_bounds",
        "Exact shifts beside the bounds of Theorem 2.4",
        unit="nats",
        parts=("exact", "bound"),
        of=lambda case: () if case.bound is None else (case.exact, case.bound),
        over=_median,
        none="the printed bound has no positive denominator at any problem",
        plot=Plot(x="step", group="scope", y_label="shift of log π at β = 1, median over problems"),
        doc="""
Shifts and their bounds: Theorem 2.4's two bounds beside the exact shift of the same kernel.

Meaning: for the batch that the checkpoint's own samples of a problem make, ``unseen exact`` is the largest exact shift
kᵀK⁺y of a correct response that the batch lacks, and ``unseen bound`` what [A] says it cannot exceed (Case 1);
``seen exact`` is the shift of the own sample that comes nearest to its bound or goes farthest below, and ``seen bound``
what [A] says it cannot fall below (Case 2). Medians over the problems where the bound exists.
Unit: nats of log-probability at β = 1; n counts problems. No interval: a denominator near 0 makes the bound of one
problem huge, which a median of few problems withstands and a mean or its interval does not.
Limits: signs are absorbed and η is 1, as for ``kernel_bound_failures``, which counts where exact and bound are the
wrong way round: medians can hide it.
Source: [A] (arXiv 2601.15609), Theorem 2.4, as printed; the exact shift is its section 2.3.

>>> from oversharp.diagnostics.measures._kernel_example import gradients, tiny_kernels
>>> rows = [("q", "own", True), ("q", "own", False), ("q", "panel", True)]
>>> evidence = tiny_kernels({"base": gradients((2, 0), (0, -1), (1, 1))}, rows)
>>> [(f.scope, round(f.value, 4)) for f in compute(evidence)]
[('unseen exact', 0.75), ('unseen bound', 0.0), ('seen exact', 0.5), ('seen bound', 0.125)]
""",
    ),
    _of_cases(
        "kernel_bound_failures",
        "Bounds of Theorem 2.4 that fail",
        unit="share of problems",
        parts=("fails", "no bound"),
        of=lambda case: (float(case.fails), float(case.bound is None)),
        over=_share,
        none="no unseen correct response beside a batch with advantages",
        plot=Plot(x="step", group="scope", y_label="share of problems", y_range=(0.0, 1.0)),
        doc="""
Bounds of Theorem 2.4: at how many problems the printed bound fails on the real kernel.

Meaning: [A] bounds the shift of an unseen response from above (Case 1) and of a seen one from below (Case 2), in terms
of λ and ρ alone. Beside the exact shift kᵀK⁺y of the checkpoint's own samples: scopes ``unseen fails`` (some unseen
correct response moves by more than the bound), ``seen fails`` (some own sample moves by less), and ``unseen no bound``
and ``seen no bound`` (a denominator of the printed form is not positive, so it says nothing).
Unit: share of problems whose own samples are part correct, part wrong; those without an unseen correct response do not
count for Case 1. 95 % t interval over problems with a variance floor; n counts problems.
Limits: as in the paper the sign of the advantage is in the gradient. η is 1, because source and target are one
problem: the case most favourable to the bounds. 0 does not mean that the theorem holds: see ``kernel_assumptions``.
Source: [A] (arXiv 2601.15609), Theorem 2.4, as printed; K ⪰ M(λ_min, ρ_min) does not follow from bounds on entries.

>>> from oversharp.diagnostics.measures._kernel_example import gradients, tiny_kernels
>>> rows = [("q", "own", True), ("q", "own", False), ("q", "panel", True)]
>>> evidence = tiny_kernels({"base": gradients((2, 0), (0, -1), (1, 1))}, rows)
>>> [(f.scope, f.value) for f in compute(evidence)]  # λ 1 to 4, ρ 0: at most 0 for the unseen one, which moves by 3/4
[('unseen fails', 1.0), ('unseen no bound', 0.0), ('seen fails', 0.0), ('seen no bound', 0.0)]
""",
    ),
)
