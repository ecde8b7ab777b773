"""Exact expectations of the estimates of a stopping rule, by summing over all end points with their probabilities.

The probabilities come from the rounds and the binomial distribution, not from the rule's own path counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.stats import binom

from oversharp.diagnostics.statistics.pass_at_k import StoppingRule

RATES = (0.0, 1e-4, 0.002, 0.01, 0.05, 0.3, 0.9, 1.0)
RULES = (
    StoppingRule.doubling(first=8, cap=256, enough=2),
    StoppingRule.doubling(first=16, cap=256, enough=4),
    StoppingRule.doubling(first=32, cap=256, enough=4),
    StoppingRule.doubling(first=8, cap=512, enough=2),
    StoppingRule.doubling(first=16, cap=512, enough=4),
    StoppingRule.doubling(first=16, cap=100, enough=1),
    StoppingRule(rounds=(5, 6, 77, 300), enough=3),
    StoppingRule(rounds=(256,), enough=1),
)


@dataclass(frozen=True, kw_only=True)
class Unbiased:
    """Largest differences of exact expectations of one rule from the truth, over ``RATES`` and all k of ``tested_ks``.

    Attributes:
        estimate: Estimate of pass@k, compared with 1 − (1 − p)^k.
        covariance: Estimated covariance at two k ≤ cap / 2, compared with the true one.
        share: Share of correct samples, compared with p. It is biased.
    """

    rule: str
    estimate: float
    covariance: float
    share: float


def end_probabilities(rule: StoppingRule, rate: float) -> Float[np.ndarray, " end"]:
    """Return the probability of every end point, in the order of ``rule.ends``."""
    going_C, before, by_end = np.array([1.0]), 0, {}
    for n in rule.rounds:
        after_C = np.convolve(going_C, binom.pmf(np.arange(n - before + 1), n - before, rate))
        stops_C = np.arange(len(after_C)) >= (0 if n == rule.cap else rule.enough)
        by_end |= {(n, correct): after_C[correct] for correct in np.flatnonzero(stops_C)}
        going_C, before = np.where(stops_C, 0.0, after_C)[: rule.enough], n
    return np.array([by_end.get(end, 0.0) for end in rule.ends])


def tested_ks(cap: int) -> list[int]:
    """Return powers of two, numbers next to them, and the cap."""
    return sorted({k for power in range(12) for k in (2**power - 1, 2**power, 3 * 2**power) if 0 < k <= cap} | {cap})


def check_rule(rule: StoppingRule, rates: Iterable[float] = RATES) -> Unbiased:
    """Compare the exact expectations of one rule's estimates with the truth."""
    ks = tested_ks(rule.cap)
    small_ks = [k for k in ks if 2 * k <= rule.cap]
    table_EK, covariance_EKK = rule.pass_at_k_table(ks), rule.covariance_table(small_ks)
    n_E, correct_E = np.array(rule.ends).T
    estimate = covariance = share = 0.0
    for rate in rates:
        p_E = end_probabilities(rule, rate)
        miss_K = (1 - rate) ** np.array(ks, dtype=float)
        estimate = max(estimate, _largest(p_E @ table_EK - (1 - miss_K)))
        centred_EK = table_EK[:, : len(small_ks)] - p_E @ table_EK[:, : len(small_ks)]
        true_KK = (centred_EK * p_E[:, None]).T @ centred_EK
        covariance = max(covariance, _largest(np.tensordot(p_E, covariance_EKK, 1) - true_KK))
        share = max(share, abs(float(p_E @ (correct_E / n_E)) - rate))
    return Unbiased(rule=title(rule), estimate=estimate, covariance=covariance, share=share)


def title(rule: StoppingRule) -> str:
    """Return the rounds and the number of correct samples in words."""
    rounds = ", ".join(map(str, rule.rounds))
    return f"{rounds}; until {rule.enough}" if len(rule.rounds) > 1 else f"{rounds} of each"


def check_all(rules: Sequence[StoppingRule] = RULES) -> list[Unbiased]:
    """Return the comparison of every rule."""
    return [check_rule(rule) for rule in rules]


def _largest(difference: np.ndarray) -> float:
    return float(np.abs(difference).max())
