"""ρ, the cosine between the gradients of two fixed responses: its mean, its extremes, and among correct responses."""

from __future__ import annotations

import numpy as np

from oversharp.diagnostics.measures.contract import Plot, Result, Results
from oversharp.diagnostics.measures.declare import per_checkpoint
from oversharp.diagnostics.measures.kernel.gradients.coupling import LIVE_ROWS, Rows, number
from oversharp.diagnostics.measures.kernel.gradients.pairs import (
    NO_TWO_CORRECT,
    RELATED,
    UNRELATED,
    WITHIN,
    pair_groups,
    pair_mean,
)

GROUPS = (WITHIN, RELATED, UNRELATED)


@per_checkpoint(
    input=LIVE_ROWS,
    scopes=GROUPS,
    title="Coupling ρ",
    unit="cosine",
    section="kernel",
    rank=60,
    folded=True,
    plot=Plot(x="step", group="scope", y_label="mean cosine of gradients"),
    signed=True,
)
def kernel_rho(rows: Rows) -> Results:
    """Coupling ρ: the mean cosine between the gradients of two responses.

    Meaning: the mean cosine K_ij/√(K_ii·K_jj) between fixed responses. Positive: raising one raises the other; 0: they
    move independently. Scopes: two responses ``within problems``, of ``related problems`` (one group), of ``unrelated
    problems`` (different groups). Over-sharpening spreads between problems only if this is above 0.
    Unit: cosine, −1 to 1. Averaged within a problem (or a pair of problems), then over these. 95 % interval over
    problems: Student's t within problems, the delete-one-problem jackknife between them. n counts problems.
    Limits: correct and wrong responses are mixed here, and a step on a wrong one is subtracted from it:
    ``kernel_rho_correct`` is restricted to the correct ones. Whatever all responses share (the language, the format,
    the prompt of one problem) is coupling too.
    Source: [A] (arXiv 2601.15609), section 2.3, ρ; the cosine is ours, because K_ij grows with the lengths.

    >>> from oversharp.diagnostics.measures.kernel.gradients.examples import gradients, tiny_kernels
    >>> rows = [("q1", "panel", True), ("q1", "panel", True), ("q2", "panel", True)]
    >>> findings = kernel_rho(tiny_kernels({"base": gradients((2, 0), (3, 0), (0, 1))}, rows))
    >>> [(f.scope, f.value, f.why) for f in findings][:2]
    [('within problems', 1.0, None), ('related problems', 0.0, None)]
    >>> findings[2].why
    'all problems are one group; give them a field "group" in --problems to tell related from unrelated'
    """
    return {group.scope: group.why or pair_mean(rows.cosines, rows, group) for group in pair_groups(rows)}


@per_checkpoint(
    input=LIVE_ROWS,
    title="Coupling of correct responses",
    unit="cosine",
    section="kernel",
    rank=20,
    plot=Plot(x="step", y_label="mean cosine, correct responses of a problem"),
    signed=True,
)
def kernel_rho_correct(rows: Rows) -> Result:
    """Coupling of correct responses: how far raising one correct response raises the others of its problem.

    Meaning: the mean cosine of gradients between the correct fixed responses of a problem (distinct texts: modes, and
    correct panel responses). Above 0, learning one solution lifts the others; at 0 or below, the others gain nothing or
    lose. Compare it with ``kernel_rho_null``, which is 0 for any model.
    Unit: cosine, −1 to 1; averaged within a problem first. 95 % t interval over problems with at least two correct
    responses; n counts them.
    Limits: correct responses share the prompt, the format and often most of their text, and that is coupling too. With
    modes in the kernel they are all enumerated correct responses or the first of them; without modes, the correct ones
    that the base happened to sample.
    Source: Assumption 2.1 of [A] (arXiv 2601.15609), as a number; the null test is ours.

    >>> from oversharp.diagnostics.measures.kernel.gradients.examples import gradients, tiny_kernels
    >>> rows = [("q1", "mode", True), ("q1", "panel", True), ("q1", "panel", False)]
    >>> evidence = tiny_kernels({"base": gradients((1, 0), (3, 4), (-9, 0))}, rows)
    >>> [(f.value, f.n) for f in kernel_rho_correct(evidence)]
    [(0.6, 1)]
    """
    correct = rows.take(np.flatnonzero(rows.correct_N))
    within = pair_groups(correct)[0]
    return NO_TWO_CORRECT if within.why else pair_mean(correct.cosines, correct, within)


@per_checkpoint(
    input=LIVE_ROWS,
    scopes=[f"{end} {group}" for group in GROUPS for end in ("min", "max")],
    title="Coupling ρ, extremes",
    unit="cosine",
    section="kernel",
    rank=70,
    folded=True,
    plot=Plot(x="step", group="scope", y_label="cosine of gradients"),
    signed=True,
)
def kernel_rho_extremes(rows: Rows) -> Results:
    """Smallest and largest ρ: the extreme couplings that the bounds of [A] use.

    Meaning: the smallest and the largest cosine between the gradients of two fixed responses: scopes ``min`` and
    ``max`` ``within problems``, of ``related problems``, of ``unrelated problems``.
    Unit: cosine, −1 to 1; n counts pairs. No interval: extremes of a fixed set.
    Limits: extremes follow single pairs, and two wordings of one solution are nearly one response. More responses make
    them more extreme, so compare audits of equal size only. ``kernel_rho`` is the mean.
    Source: [A] (arXiv 2601.15609), section 2.3, ρ_min and ρ_max; the cosine is ours.

    >>> from oversharp.diagnostics.measures.kernel.gradients.examples import gradients, tiny_kernels
    >>> rows = [("q1", "panel", True), ("q1", "panel", True), ("q1", "panel", False)]
    >>> evidence = tiny_kernels({"base": gradients((2, 0), (0, 3), (-1, 0))}, rows)
    >>> [(f.scope, f.value, f.n) for f in kernel_rho_extremes(evidence)][:2]
    [('min within problems', -1.0, 3), ('max within problems', 0.0, 3)]
    """
    results: dict[str, Result] = {}
    for group in pair_groups(rows):
        cosine_E = rows.cosines[group.pairs_NN]
        results[f"min {group.scope}"] = group.why or number(cosine_E.min(), len(cosine_E))
        results[f"max {group.scope}"] = group.why or number(cosine_E.max(), len(cosine_E))
    return results
