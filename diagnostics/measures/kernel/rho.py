"""Measures of the coupling ρ, the cosine of two gradients."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float
from scipy.special import stdtrit

from oversharp.diagnostics.measures.contract import Plot, Result, Results
from oversharp.diagnostics.measures.declare import per_checkpoint
from oversharp.diagnostics.measures.kernel.gradients.coupling import (
    COUPLINGS,
    LIVE_ROWS,
    NO_OWN,
    Coupling,
    Rows,
    mean_diagonal,
    number,
    off_diagonal,
)
from oversharp.diagnostics.measures.kernel.gradients.pairs import (
    NO_CORRECT_PAIR,
    NO_PAIR,
    RELATED,
    UNRELATED,
    WITHIN,
    fieller,
    pair_groups,
    pair_mean,
)
from oversharp.diagnostics.statistics.intervals import ratio_interval
from oversharp.diagnostics.statistics.units import Interval

GROUPS = (WITHIN, RELATED, UNRELATED)
ERROR = "standard error"
RATIO_SCOPES = ("cosine", "cosine correct", "sum", "per token")
NOT_ABOVE = "ρ is not above 0, so λ/ρ has no meaning"
NOT_SIGNIFICANT = "the interval of ρ contains 0, so λ/ρ has no upper bound; more --kernel-problems narrow the interval"


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

    Meaning: the mean cosine K_ij/√(K_ii·K_jj) between responses of the panel and the modes. If it is positive, raising
    the probability of one response raises that of the other. If it is 0, they change independently. Scopes are pairs
    ``within problems``, of ``related problems`` (same group) and of ``unrelated problems`` (different groups).
    Over-sharpening can spread between problems only if this is above 0.
    Unit: cosine, −1 to 1, averaged within a problem or pair of problems, then over these. 95 % interval over problems:
    Student's t for pairs within problems, otherwise a jackknife that leaves out one problem at a time. n counts
    problems.
    Limits: correct and wrong responses are mixed, although a training step on a wrong response lowers it.
    ``kernel_rho_correct`` uses only correct responses. Features that all responses share (language, format, the prompt
    of a problem) also count as coupling.
    Source: [A] (arXiv 2601.15609), section 2.3, ρ. The cosine is ours, because K_ij grows with the lengths of the
    responses.

    >>> from oversharp.diagnostics.measures.kernel.gradients.examples import gradients, tiny_kernels
    >>> rows = [("q1", "panel", True), ("q1", "panel", True), ("q2", "panel", True)]
    >>> findings = kernel_rho(tiny_kernels({"base": gradients((2, 0), (3, 0), (0, 1))}, rows))
    >>> [(f.scope, f.value, f.why) for f in findings][:2]
    [('within problems', 1.0, None), ('related problems', 0.0, None)]
    >>> findings[2].why
    'all problems are one group; give them a field "group" in --problems to separate related from unrelated'
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
    """Coupling of correct responses: how much raising one of them raises the others.

    Meaning: the mean cosine of gradients between the correct responses of a problem (distinct texts: modes, and correct
    panel responses). If it is above 0, learning one solution also raises the others. At 0 or below, the others gain
    nothing or lose. Compare it with ``kernel_rho_null``, which is 0 for any model.
    Unit: cosine, −1 to 1, averaged within a problem first. 95 % t interval over problems with at least two correct
    responses. n counts them.
    Limits: correct responses share the prompt, the format and often most of their text, which also counts as coupling.
    If the kernel contains modes, they are all listed correct responses or the first of them; otherwise the correct
    responses are those of the panel.
    Source: Assumption 2.1 of [A] (arXiv 2601.15609), as a number; the null test is ours.

    >>> from oversharp.diagnostics.measures.kernel.gradients.examples import gradients, tiny_kernels
    >>> rows = [("q1", "mode", True), ("q1", "panel", True), ("q1", "panel", False)]
    >>> evidence = tiny_kernels({"base": gradients((1, 0), (3, 4), (-9, 0))}, rows)
    >>> [(f.value, f.n) for f in kernel_rho_correct(evidence)]
    [(0.6, 1)]
    """
    correct = rows.take(np.flatnonzero(rows.correct_N))
    within = pair_groups(correct)[0]
    return NO_CORRECT_PAIR if within.why else pair_mean(correct.cosines, correct, within)


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

    Meaning: the smallest and the largest cosine between the gradients of two responses of the panel and the modes.
    Scopes are ``min`` and ``max``, each for pairs ``within problems``, of ``related problems`` and of ``unrelated
    problems``.
    Unit: cosine, −1 to 1. n counts pairs. There is no interval, because these are extremes of a fixed set.
    Limits: extremes depend on single pairs, and two wordings of a solution are almost the same response. Extremes grow
    with the number of responses, so compare only audits of equal size. ``kernel_rho`` is the mean.
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


@per_checkpoint(
    input=COUPLINGS,
    scopes=("all", ERROR),
    title="Null test: coupling of own samples",
    unit="fraction of the diagonal",
    section="kernel",
    rank=30,
    plot=Plot(x="step", group="scope", y_label="mean K_ij / mean K_ii, own samples"),
    signed=True,
)
def kernel_rho_null(coupling: Coupling) -> Results:
    """Null test of the kernel: the mean coupling of own samples of one problem, which must be 0.

    Meaning: if a model samples responses at temperature 1, E[∇ log π] = 0. So the kernel of two independent samples is
    0 on average, for any model. The value is the mean off-diagonal entry divided by the mean diagonal entry, over all
    pairs of own samples of a problem, including repeated samples. If its interval excludes 0, the samples are not from
    these weights at temperature 1, or the kernel is wrong. Scope ``all`` is the value, ``standard error`` its standard
    error over problems. If the standard error is large, the test has little power.
    Unit: fraction of the diagonal, signed. ``all`` has a 95 % t interval over problems (ratio estimator). n counts
    problems.
    Limits: a few large terms dominate the mean, so few problems give a wide interval. One interval in twenty excludes 0
    by chance. For a sharp model it is more, because rare responses balance the mean, and few samples miss them. The
    kernel contains only own samples that were sampled at temperature 1 without top-p or top-k. Responses truncated at
    the token limit cause little bias, because prefixes also have mean 0.
    Source: ours; E[∇ log π] = 0 is the score identity.

    >>> from oversharp.diagnostics.measures.kernel.gradients.examples import gradients, tiny_kernels
    >>> rows = [("q1", "own own", True), ("q1", "own own", False)]
    >>> findings = kernel_rho_null(tiny_kernels({"base": gradients((1, 0), (-1, 0))}, rows))
    >>> [(f.scope, f.value and round(f.value, 4), f.n) for f in findings]  # pairs: two at 1, four at −1
    [('all', -0.3333, 1), ('standard error', None, None)]
    """
    mean = _mean_coupling(coupling)
    if isinstance(mean, str):
        return {"all": mean, ERROR: mean}
    results: dict[str, Result] = {"all": mean}
    if mean.low is None or mean.high is None:
        return results | {ERROR: "one problem has no standard error; run the audit with more --kernel-problems"}
    standard_error = (mean.high - mean.low) / 2.0 / float(stdtrit(mean.n - 1, 0.975))
    return {"all": mean, ERROR: number(standard_error, mean.n)}


def _mean_coupling(coupling: Coupling) -> Interval | str:
    problem_S = coupling.rows.problem_N[coupling.own_S]
    kernels = [
        coupling.rows.kernel_NN[np.ix_(position_S, position_S)]
        for problem_id in np.unique(problem_S)
        if len(position_S := coupling.own_S[problem_S == problem_id]) > 1
    ]
    if not kernels:
        return "no problem has two own samples in the kernel" if len(coupling.own_S) else NO_OWN
    diagonal_P = np.array([mean_diagonal(kernel_SS) for kernel_SS in kernels])
    if not diagonal_P.sum() > 0.0:
        return "the gradient of every own sample is 0"
    off_P = np.array([float(off_diagonal(kernel_SS).mean()) for kernel_SS in kernels])
    return ratio_interval(off_P, diagonal_P, floor=False)


@per_checkpoint(
    input=LIVE_ROWS,
    scopes=RATIO_SCOPES,
    title="λ/ρ within problems",
    unit="ratio",
    section="kernel",
    rank=80,
    folded=True,
    plot=Plot(x="step", group="scope", y_label="λ/ρ within problems"),
)
def kernel_lambda_rho(rows: Rows) -> Results:
    """λ/ρ: the effect of a step on the response itself, relative to that on another.

    Meaning: the mean diagonal entry divided by the mean off-diagonal entry of the kernel between responses of the panel
    and the modes to the same problem, pooled over problems with at least two. If the ratio is large, a step on a
    response changes only that response. If it is near 1, all responses of a problem change together. Scopes are
    ``cosine`` (primary), ``cosine correct`` for correct responses only, and ``sum`` and ``per token`` for the kernels
    of summed and of averaged log-probabilities.
    Unit: ratio, at least 1, because no two vectors have an inner product above the mean of their squares. Fieller's 95
    % interval over problems, which for a cosine is 1 divided by the interval of ρ. n counts problems.
    Limits: the ratio is unknown for ρ ≤ 0, where it has no meaning. It is also unknown if the interval of ρ contains 0,
    because then it has no upper bound. Inner products of a model's own samples average to 0 (``kernel_rho_null``), so ρ
    need not be positive. For a single problem the ratio has no interval. Appendix G of [A] uses the same ratio across
    problems.
    Source: [A] (arXiv 2601.15609), section 2.3 and Corollary 2.2.

    >>> from oversharp.diagnostics.measures.kernel.gradients.examples import gradients, tiny_kernels
    >>> rows = [("q1", "panel", True), ("q1", "panel", False)]
    >>> evidence = tiny_kernels({"base": gradients((1, 0), (1, 1))}, rows)
    >>> [(f.scope, f.value and round(f.value, 4), f.n) for f in kernel_lambda_rho(evidence)]
    [('cosine', 1.4142, 1), ('cosine correct', None, None), ('sum', 1.5, 1), ('per token', 1.5, 1)]
    """
    correct = rows.take(np.flatnonzero(rows.correct_N))
    return {
        "cosine": _lambda_over_rho([own.cosines for own in _problems(rows)], NO_PAIR),
        "cosine correct": _lambda_over_rho([own.cosines for own in _problems(correct)], NO_CORRECT_PAIR),
        "sum": _lambda_over_rho([own.kernel_NN for own in _problems(rows)], NO_PAIR),
        "per token": _lambda_over_rho([own.per_token for own in _problems(rows)], NO_PAIR),
    }


def _problems(rows: Rows) -> list[Rows]:
    return [own for own in rows.by_problem() if len(own) > 1]


def _lambda_over_rho(kernels: list[Float[np.ndarray, "row row"]], why_none: str) -> Result:
    if not kernels:
        return why_none
    lambda_P = np.array([mean_diagonal(kernel_NN) for kernel_NN in kernels])
    rho_P = np.array([float(off_diagonal(kernel_NN).mean()) for kernel_NN in kernels])
    if rho_P.sum() <= 0.0:
        return NOT_ABOVE
    return fieller(lambda_P, rho_P, least=1.0) or NOT_SIGNIFICANT
