"""Simulated training with known probabilities of each correct mode.

The base resembles those of the papers: a tenth of the problems is out of reach, the rest is logit-normal, pass@1 is
about .2 and pass@256 about .8. A problem has several correct modes, so that a series can lose some of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, get_args

import numpy as np
from jaxtyping import Float
from scipy.special import expit, logit

Kind = Literal[
    "no_change",
    "moderate",
    "late_moderate",
    "churn",
    "over_mild",
    "over_medium",
    "over_severe",
    "over_plain",
    "collapse_mild",
    "collapse_severe",
]
KINDS: tuple[Kind, ...] = get_args(Kind)
#: Number of correct modes of a problem.
N_MODES = 4
#: (speed at which problems diverge, in logits per logit; success rate above which they gain and below which they lose)
EXPANSION: Mapping[Kind, tuple[float, float]] = MappingProxyType(
    {"over_mild": (0.55, 0.025), "over_medium": (0.9, 0.025), "over_severe": (1.4, 0.025), "over_plain": (1.4, 0.3)}
)
#: Added to the power to which the shares of a problem's modes are raised.
COLLAPSE: Mapping[Kind, float] = MappingProxyType({"collapse_mild": 1.0, "collapse_severe": 2.0})


@dataclass(frozen=True, kw_only=True)
class PlantedProblems:
    """Probability of each correct mode under the base, and the response of each problem to training."""

    mass_PJ: Float[np.ndarray, "problem mode"]
    gain_P: Float[np.ndarray, " problem"]  # uniform
    churn_P: Float[np.ndarray, " problem"]  # standard normal


def draw_problems(n_problems: int, rng: np.random.Generator) -> PlantedProblems:
    """Draw random problems. One in ten has no correct mode within reach."""
    success_P = expit(rng.normal(-2.6, 2.6, n_problems))
    success_P[rng.random(n_problems) < 0.1] = 0.0
    share_PJ = rng.dirichlet(np.ones(N_MODES), n_problems)
    return PlantedProblems(
        mass_PJ=success_P[:, None] * share_PJ,
        gain_P=rng.random(n_problems),
        churn_P=rng.normal(size=n_problems),
    )


def mass_at(kind: Kind, problems: PlantedProblems, progress: float) -> Float[np.ndarray, "problem mode"]:
    """Return the probability of each correct mode at ``progress`` 0 … 1 of training.

    no_change        the base at every step
    moderate         no mode loses (Definition 2.1 of [A]), and frequently solved problems gain most
    late_moderate    no change in the first half, then the same gain, all of it for each problem's dominant mode
    churn            problems rise and fall at random, 0 on average in logits; some lose, so it is no null
    over_…           from a quarter of the training on, frequently solved problems gain and the others lose
                     (over_plain: enough that a few samples show it)
    collapse_…       success rises everywhere, while each problem's dominant mode replaces the others
    """
    success_P = problems.mass_PJ.sum(axis=1)
    share_PJ = problems.mass_PJ / np.maximum(success_P, 1e-300)[:, None]
    x_P = logit(np.clip(success_P, 1e-12, 1 - 1e-12))
    if kind == "no_change" or progress == 0:
        return problems.mass_PJ
    if kind in ("moderate", "late_moderate"):
        late = kind == "late_moderate"
        effective = max(0.0, 2 * progress - 1) if late else progress
        # the maximum prevents that rounding turns a gain of 0 into a loss
        gain_P = np.maximum(_success(x_P + 1.5 * effective * problems.gain_P, success_P) - success_P, 0.0)
        return problems.mass_PJ + gain_P[:, None] * _sharpened(share_PJ, np.inf if late else 2.0)
    if kind == "churn":
        return _success(x_P + 0.4 * problems.churn_P, success_P)[:, None] * share_PJ
    onset = np.clip((progress - 0.25) / 0.75, 0, 1)
    if kind in COLLAPSE:
        return _success(x_P + 0.3 * progress, success_P)[:, None] * _sharpened(share_PJ, 1 + COLLAPSE[kind] * onset)
    strength, pivot = EXPANSION[kind]
    away_P = strength * (x_P - logit(pivot)) + 0.3 * problems.churn_P
    return _success(np.minimum(x_P + 0.6 * progress + onset * away_P, 8), success_P)[:, None] * share_PJ


def dominant_modes(mass_PJ: Float[np.ndarray, "problem mode"]) -> Float[np.ndarray, "problem mode"]:
    """Return 1 for the most probable mode of each problem, 0 for the others."""
    return (np.arange(mass_PJ.shape[1]) == mass_PJ.argmax(axis=1)[:, None]).astype(np.float64)


def mean_pass_at_k(success_P: Float[np.ndarray, " problem"], k: int) -> float:
    """Return the true pass@k, averaged over problems.

    >>> mean_pass_at_k(np.array([0.5, 0.0]), 2)
    0.375
    """
    return float(np.mean(-np.expm1(k * np.log1p(-np.minimum(success_P, 1 - 1e-12)))))


def _success(x_P: np.ndarray, base_P: np.ndarray) -> np.ndarray:
    return np.where(base_P > 0, expit(x_P), 0.0)


def _sharpened(share_PJ: np.ndarray, power: float) -> np.ndarray:
    """Raise shares to a power and normalise. With an infinite power the largest gets all."""
    if np.isinf(power):
        return dominant_modes(share_PJ)
    powered_PJ = (share_PJ / np.maximum(share_PJ.max(axis=1, keepdims=True), 1e-300)) ** power
    return powered_PJ / np.maximum(powered_PJ.sum(axis=1, keepdims=True), 1e-300)
