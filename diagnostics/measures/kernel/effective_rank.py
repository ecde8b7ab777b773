"""Effective rank of the kernel."""

from __future__ import annotations

import math

import numpy as np

from oversharp.diagnostics.measures.contract import Plot, Results
from oversharp.diagnostics.measures.declare import per_checkpoint
from oversharp.diagnostics.measures.kernel.gradients.coupling import LIVE_ROWS, Rows, number
from oversharp.diagnostics.measures.kernel.gradients.pairs import NO_TWO, WITHIN
from oversharp.diagnostics.statistics.intervals import mean_interval
from oversharp.diagnostics.theory.coupling import effective_rank


@per_checkpoint(
    input=LIVE_ROWS,
    scopes=("all", WITHIN),
    title="Effective rank of the kernel",
    unit="directions",
    section="kernel",
    rank=90,
    folded=True,
    plot=Plot(x="step", group="scope", y_label="effective rank"),
)
def kernel_effective_rank(rows: Rows) -> Results:
    """Effective rank of the kernel: the number of directions in which the fixed responses can move independently.

    Meaning: exp of the entropy of the normalised eigenvalues of the cosine kernel. N responses without any coupling
    have rank N; responses that can only move together have rank 1. Scope ``all``: all fixed responses together;
    ``within problems``: those of one problem, averaged over problems with at least two. A fall over training means
    that the responses become coupled.
    Unit: directions, 1 to the number of responses. ``all`` has no interval and its n counts responses; ``within
    problems`` has a 95 % t interval over problems and its n counts those.
    Limits: grows with the number of responses, so compare audits of equal size only, and checkpoints of one audit.
    Source: Roy and Vetterli 2007 (EUSIPCO, The effective rank), on the kernel of [A] (arXiv 2601.15609), section 2.3.

    >>> from oversharp.diagnostics.measures.kernel.gradients.examples import gradients, tiny_kernels
    >>> rows = [("q1", "panel", True), ("q1", "panel", True), ("q2", "panel", False)]
    >>> evidence = tiny_kernels({"base": gradients((1, 0), (9, 0), (0, 5))}, rows)
    >>> [(f.scope, round(f.value, 4), f.n) for f in kernel_effective_rank(evidence)]  # eigenvalues 2, 1, 0 of 3
    [('all', 1.8899, 3), ('within problems', 1.0, 1)]
    """
    rank_P = np.array([effective_rank(own.cosines) for own in rows.by_problem() if len(own) > 1])
    return {
        "all": number(effective_rank(rows.cosines), len(rows)),
        WITHIN: mean_interval(rank_P, bounds=(1.0, math.inf)) if len(rank_P) else NO_TWO,
    }
