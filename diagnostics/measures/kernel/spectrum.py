"""Measures of the kernel's diagonal λ and its spectrum."""

from __future__ import annotations

import math
from statistics import median

import numpy as np
from jaxtyping import Float

from oversharp.diagnostics.measures.contract import Plot, Result, Results
from oversharp.diagnostics.measures.declare import per_checkpoint
from oversharp.diagnostics.measures.kernel.gradients.coupling import FIXED_ROWS, LIVE_ROWS, RESOLUTION, Rows, number
from oversharp.diagnostics.measures.kernel.gradients.pairs import NO_PAIR, WITHIN
from oversharp.diagnostics.statistics.intervals import mean_interval
from oversharp.diagnostics.theory.coupling import effective_rank


@per_checkpoint(
    input=FIXED_ROWS,
    scopes=("min", "max"),
    title="Self-influence λ",
    unit="squared gradient norm",
    section="kernel",
    rank=150,
    folded=True,
    plot=Plot(x="step", group="scope", y_label="‖∇ log π‖², summed over tokens", log_y=True),
)
def kernel_lambda(rows: Rows) -> Results:
    """Self-influence λ: how much a step on a response changes its own log-probability.

    Meaning: λ is the diagonal of the gradient kernel, ‖∇ log π(y|x)‖², for the responses of the panel and the modes. A
    step of size ε along a response's own gradient changes its log-probability by ε·λ. Scopes ``min`` and ``max`` are
    the extremes that the bounds of [A] use.
    Unit: squared gradient norm of log π summed over tokens (nats² per squared parameter). n counts responses. There is
    no interval, because these are extremes of a fixed set.
    Limits: λ grows with the length of a response, and falls as the model becomes certain of it. So compare checkpoints,
    not models. Extremes depend on single responses. ``kernel_lambda_per_token`` corrects for length.
    Source: [A] (arXiv 2601.15609), section 2.3, λ_min and λ_max.

    >>> from oversharp.diagnostics.measures.kernel.gradients.examples import gradients, tiny_kernels
    >>> evidence = tiny_kernels({"base": gradients((1, 0), (1, 2))}, [("q", "panel", True), ("q", "panel", False)])
    >>> [(f.scope, f.value, f.n) for f in kernel_lambda(evidence)]
    [('min', 1.0, 2), ('max', 5.0, 2)]
    """
    return _extremes(rows, np.ones(len(rows)))


@per_checkpoint(
    input=FIXED_ROWS,
    scopes=("min", "max"),
    title="Self-influence λ per token",
    unit="squared gradient norm",
    section="kernel",
    rank=160,
    folded=True,
    plot=Plot(x="step", group="scope", y_label="‖∇ log π‖², mean over tokens", log_y=True),
)
def kernel_lambda_per_token(rows: Rows) -> Results:
    """Self-influence λ per token: self-influence corrected for the length of the response.

    Meaning: ``kernel_lambda`` for log-probabilities that are averaged over tokens instead of summed: K_ii/T_i², for the
    responses of the panel and the modes. Scopes are ``min`` and ``max``.
    Unit: squared gradient norm of the mean log π per token. n counts responses. There is no interval, because these are
    extremes of a fixed set.
    Limits: it falls roughly as 1/T, because gradients of distant tokens are hardly aligned. So neither normalisation
    makes λ a constant of the model. Extremes depend on single responses.
    Source: [A] (arXiv 2601.15609), section 2.3, λ_min and λ_max, with the log-probability of [C] (The Reasoning
    Boundary Paradox), Eq 16.

    >>> from oversharp.diagnostics.measures.kernel.gradients.examples import gradients, tiny_kernels
    >>> rows = [("q", "panel", True), ("q", "panel", False)]
    >>> evidence = tiny_kernels({"base": gradients((1, 0), (2, 4))}, rows, n_tokens=[1, 5])
    >>> [(f.scope, f.value) for f in kernel_lambda_per_token(evidence)]  # 1/1² and 20/5²
    [('min', 0.8), ('max', 1.0)]
    """
    return _extremes(rows, rows.n_tokens_N.astype(np.float64) ** 2)


def _extremes(rows: Rows, divisor_N: Float[np.ndarray, " row"]) -> Results:
    # for a response of which the model is certain the gradient is 0, and rounding can make K_ii negative
    diagonal_N = np.maximum(np.diag(rows.kernel_NN), 0.0) / divisor_N
    return {"min": number(diagonal_N.min(), len(rows)), "max": number(diagonal_N.max(), len(rows))}


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
    """Effective rank of the kernel: the number of independent directions of the responses.

    Meaning: exp of the entropy of the normalised eigenvalues of the cosine kernel. N responses without any coupling
    have rank N. Responses that can only change together have rank 1. Scope ``all`` uses all responses of the panel and
    the modes together. Scope ``within problems`` uses those of one problem, averaged over problems with at least two. A
    fall over training means that responses become coupled.
    Unit: directions, from 1 to the number of responses. ``all`` has no interval, and its n counts responses. ``within
    problems`` has a 95 % t interval over problems, and its n counts these.
    Limits: the rank grows with the number of responses. So compare only checkpoints of one audit, or audits of equal
    size.
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
        WITHIN: mean_interval(rank_P, bounds=(1.0, math.inf)) if len(rank_P) else NO_PAIR,
    }


@per_checkpoint(
    input=LIVE_ROWS,
    scopes=("cosine", "sum"),
    title="Condition of the kernel",
    unit="ratio",
    section="kernel",
    rank=170,
    folded=True,
    plot=Plot(x="step", group="scope", y_label="condition, median over problems", log_y=True),
)
def kernel_condition(rows: Rows) -> Results:
    """Condition of the kernel: its condition number between responses to one problem.

    Meaning: the largest divided by the smallest eigenvalue of the kernel between responses of the panel and the modes
    to the same problem. The value is the median over problems with at least two. A large value means that the model
    hardly distinguishes the responses. The bounds and shifts of [A] need the inverse of this kernel, whose error grows
    with the condition number. Scopes are ``cosine`` (primary) and ``sum``, which also grows if lengths or certainties
    differ.
    Unit: ratio, at least 1. n counts problems. The median has no interval.
    Limits: above 1e6 the kernel is singular within float32 precision. If that is so for half of the problems, the
    median is unknown. More responses raise the condition number, so compare only audits of equal size.
    Source: K⁻¹ in section 2.3 of [A] (arXiv 2601.15609), which is assumed there to exist.

    >>> from oversharp.diagnostics.measures.kernel.gradients.examples import gradients, tiny_kernels
    >>> evidence = tiny_kernels({"base": gradients((1, 0), (0, 2))}, [("q1", "panel", True), ("q1", "panel", True)])
    >>> [(f.scope, f.value, f.n) for f in kernel_condition(evidence)]
    [('cosine', 1.0, 1), ('sum', 4.0, 1)]
    """
    problems = [own for own in rows.by_problem() if len(own) > 1]
    return {
        "cosine": _median([_condition(own.cosines) for own in problems]),
        "sum": _median([_condition(own.kernel_NN) for own in problems]),
    }


def _median(conditions: list[float]) -> Result:
    if not conditions:
        return NO_PAIR
    middle = median(conditions)  # infinite if one of the two middle values is infinite
    if np.isinf(middle):
        n_singular = sum(map(np.isinf, conditions))
        return f"the kernel is singular in {n_singular} of {len(conditions)} problems, so the median is unknown"
    return number(middle, len(conditions))


def _condition(kernel_NN: Float[np.ndarray, "row row"]) -> float:
    """Return the condition number, infinite if the kernel is singular within rounding."""
    value_N = np.linalg.eigvalsh(kernel_NN)
    smallest, largest = float(value_N[0]), float(value_N[-1])
    return largest / smallest if smallest > RESOLUTION * largest else np.inf
