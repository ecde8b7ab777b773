"""Measure of the exact first-order shift of all responses by a training step on own samples."""

from __future__ import annotations

import numpy as np

from oversharp.diagnostics.measures.contract import Plot, Results
from oversharp.diagnostics.measures.declare import per_checkpoint
from oversharp.diagnostics.measures.kernel.gradients.batch import NO_ADVANTAGE, TrainingBatch
from oversharp.diagnostics.measures.kernel.gradients.coupling import (
    COUPLINGS,
    NO_OWN,
    RESOLUTION,
    Coupling,
    average_over_problems,
)
from oversharp.diagnostics.theory.coupling import induced_shift

SCOPES = ("seen correct", "seen wrong", "unseen correct", "unseen wrong", "related correct")


@per_checkpoint(
    input=COUPLINGS,
    scopes=SCOPES,
    title="Exact shift by the own samples",
    unit="nats at β = 1",
    section="kernel",
    rank=40,
    plot=Plot(x="step", group="scope", y_label="kᵀK⁺y (nats at β = 1)"),
    signed=True,
)
def kernel_shift(coupling: Coupling) -> Results:
    """Exact shift: the effect of training on the own samples as one batch.

    Meaning: the checkpoint's own samples of a problem are treated as one training batch. Consider the smallest step of
    the weights that changes the log-probability of each of these samples by y = N·A/G, where A is the advantage, N the
    number of samples with the same text, and G the batch size. To first order this step changes the log-probability of
    every other response by kᵀK⁺y. Scopes:
    - ``seen correct`` and ``seen wrong``: the own samples.
    - ``unseen correct`` and ``unseen wrong``: responses of the panel or modes of the same problem that were not
      sampled.
    - ``related correct``: correct responses of the panel or modes of the other problems in the group.
    In over-sharpening, sampled responses rise, while unsampled correct responses rise less or fall.
    Unit: nats at β = 1; divide by the trainer's β. Mean within a problem, then over the problems whose own samples
    include correct and wrong ones. 95 % t interval over these problems. n counts them.
    Limits: this is a first-order, minimum-norm step, which no optimiser takes. K⁺ drops eigenvalues below 1e-6 of the
    largest, which is the precision of float32 gradients. Advantages are computed from correctness, normalised within
    the problem.
    Source: [A] (arXiv 2601.15609), section 2.3 and Appendix D. The pseudo-inverse is used because K has no inverse if
    samples repeat. Seen responses shift by exactly y, and others as the kernel determines.

    >>> from oversharp.diagnostics.measures.kernel.gradients.examples import gradients, tiny_kernels
    >>> rows = [("q", "own", True), ("q", "own", False), ("q", "panel", True)]
    >>> findings = kernel_shift(tiny_kernels({"base": gradients((2, 0), (0, 1), (1, 1))}, rows))
    >>> [(f.scope, round(f.value, 4)) for f in findings if f.value is not None]  # α = ½/4 and −½/1
    [('seen correct', 0.5), ('seen wrong', -0.5), ('unseen correct', -0.25)]
    """
    batches = coupling.informative_batches()
    values: dict[str, list[float]] = {scope: [] for scope in SCOPES}
    for batch in batches:
        for scope, position_T in _targets(coupling, batch).items():
            if len(position_T):
                values[scope].append(float(_shift(coupling, batch, position_T).mean()))
    why = "no problem with correct and wrong own samples has such a response in the kernel" if batches else NO_ADVANTAGE
    why = why if len(coupling.own_S) else NO_OWN
    return {scope: average_over_problems(values[scope], why_none=why) for scope in SCOPES}


def _targets(coupling: Coupling, batch: TrainingBatch) -> dict[str, np.ndarray]:
    rows, fixed_F = coupling.rows, coupling.fixed_F
    correct_F = rows.correct_N[fixed_F]
    here_F = rows.problem_N[fixed_F] == batch.problem_id
    unseen_F = here_F & ~np.isin(fixed_F, batch.mode_S)
    related_F = ~here_F & (rows.related_N[fixed_F] == rows.related_N[batch.mode_S[0]])
    return {
        "seen correct": np.unique(batch.mode_S[batch.correct_S]),
        "seen wrong": np.unique(batch.mode_S[~batch.correct_S]),
        "unseen correct": fixed_F[unseen_F & correct_F],
        "unseen wrong": fixed_F[unseen_F & ~correct_F],
        "related correct": fixed_F[related_F & correct_F],
    }


def _shift(coupling: Coupling, batch: TrainingBatch, position_T: np.ndarray) -> np.ndarray:
    kernel_NN = coupling.rows.kernel_NN
    batch_SS = kernel_NN[np.ix_(batch.mode_S, batch.mode_S)]
    cross_TS = kernel_NN[np.ix_(position_T, batch.mode_S)]
    return induced_shift(batch_SS, cross_TS, batch.targets, relative_cutoff=RESOLUTION)
