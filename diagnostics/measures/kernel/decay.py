"""Measure of the decay of the coupling between related problems."""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float

from oversharp.diagnostics.measures.contract import Plot, Results
from oversharp.diagnostics.measures.declare import per_checkpoint
from oversharp.diagnostics.measures.kernel.gradients.coupling import LIVE_ROWS, Rows, number
from oversharp.diagnostics.measures.kernel.gradients.pairs import jackknife
from oversharp.diagnostics.theory.assumptions import DecayFit, fit_decay

SCOPES = ("eta", "residual")


@per_checkpoint(
    input=LIVE_ROWS,
    scopes=SCOPES,
    title="Decay η between related problems",
    unit="ratio",
    section="kernel",
    rank=140,
    folded=True,
    plot=Plot(x="step", group="scope", y_label="η and residual of Assumption 2.2"),
    signed=True,
)
def kernel_decay(rows: Rows) -> Results:
    """Decay η: the share of the coupling within a problem that reaches related problems.

    Meaning: Assumption 2.2 of [A] states that the kernel of a response with a mode of a related problem is η times the
    kernel with the same mode of its own problem. Here, for each response s of the panel or modes, its mean cosine with
    the correct responses of a related problem is compared with its mean cosine with the other correct responses of its
    own problem. Scope ``eta`` is the factor between the two, by least squares through 0. Scope ``residual`` is the
    unexplained part: 0 if the assumption is satisfied exactly, 1 if η explains nothing.
    Unit: ratio. ``eta`` has a 95 % interval, by a jackknife that leaves out one problem at a time. ``residual`` has
    none. n counts problems.
    Limits: the assumption matches the same mode at two problems. Real responses belong to one problem, so here the
    average over correct responses is used, which is weaker. Interpret η as transfer between problems only if the
    residual is small.
    Source: [A] (arXiv 2601.15609), Assumption 2.2 (η from 0 to 1); the averaged form is ours.

    >>> from oversharp.diagnostics.measures.kernel.gradients.examples import gradients, tiny_kernels
    >>> rows = [("q1", "panel", True), ("q1", "panel", True), ("q2", "panel", True), ("q2", "panel", True)]
    >>> evidence = tiny_kernels({"base": gradients((1, 0, 0), (1, 0, 0), (3, 4, 0), (3, 4, 0))}, rows)
    >>> [(f.scope, round(f.value, 4), f.n) for f in kernel_decay(evidence)]
    [('eta', 0.6, 2), ('residual', 0.0, 2)]
    """
    own_S, cross_SP, pairs_SP = _mean_cosines(rows)
    problem_ids, problem_S = np.unique(rows.problem_N, return_inverse=True)
    fit = _fit(own_S, cross_SP, pairs_SP)
    if fit is None:
        why = "needs two related problems with correct responses in the kernel, at least two of them in one problem"
        return dict.fromkeys(SCOPES, why)
    left_out = []
    is_used_P = np.zeros(len(problem_ids), dtype=bool)
    is_used_P[problem_S[pairs_SP.any(axis=1)]] = True
    is_used_P |= pairs_SP.any(axis=0)
    for problem in np.flatnonzero(is_used_P):
        rest_SP = pairs_SP & (problem_S != problem)[:, None]
        rest_SP[:, problem] = False
        rest = _fit(own_S, cross_SP, rest_SP)
        left_out.append(None if rest is None else rest.eta)
    return {"eta": jackknife(fit.eta, left_out), "residual": number(fit.residual, len(left_out))}


def _mean_cosines(
    rows: Rows,
) -> tuple[Float[np.ndarray, " row"], Float[np.ndarray, "row problem"], Bool[np.ndarray, "row problem"]]:
    """Return each row's mean cosine with correct rows of its problem, and of each problem.

    The mask marks the related problems for which both means exist.
    """
    problem_ids, problem_S = np.unique(rows.problem_N, return_inverse=True)
    one_hot_SP = problem_S[:, None] == np.arange(len(problem_ids))
    correct_SP = one_hot_SP & rows.correct_N[:, None]
    sum_SP = rows.cosines @ correct_SP
    count_P = correct_SP.sum(axis=0)
    # subtract the cosine of a correct row with itself, which is 1
    others_S = count_P[problem_S] - rows.correct_N
    own_S = (sum_SP[np.arange(len(rows)), problem_S] - rows.correct_N) / np.maximum(others_S, 1)
    related_P = np.array([rows.related_N[problem_S == problem][0] for problem in range(len(problem_ids))])
    pairs_SP = (rows.related_N[:, None] == related_P) & ~one_hot_SP & (count_P > 0) & (others_S > 0)[:, None]
    return own_S, sum_SP / np.maximum(count_P, 1), pairs_SP


def _fit(own_S: np.ndarray, cross_SP: np.ndarray, pairs_SP: np.ndarray) -> DecayFit | None:
    within_SP = np.broadcast_to(own_S[:, None], cross_SP.shape)
    cross_TG, within_TG = cross_SP[pairs_SP][None], within_SP[pairs_SP][None]
    return fit_decay(cross_TG, within_TG) if cross_TG.any() and within_TG.any() else None
