"""Settings that the families of toy worlds share, and quantities of a run."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from jaxtyping import Bool, Float

from benchmarks.papers.claim import Effort
from benchmarks.toy import ToyConfig, ToyRun, cat_world, run
from benchmarks.toy.collapse import COLLAPSED_FROM
from benchmarks.toy.config import Estimator
from benchmarks.toy.worlds import World

GROUP_SIZES = (4, 8, 16, 32)
#: [A] prints no learning rate. At 2, plain SGD collapses about as fast as its Fig 1 shows.
LEARNING_RATE = 2.0
ESTIMATORS: tuple[tuple[Estimator, str], ...] = (
    ("raw", "raw"),
    ("mean_shifted", "mean-shifted"),
    ("normalised", "normalised"),
)
COLLAPSE = f"Collapse: a label with probability ≥ {COLLAPSED_FROM:g}."


def cat_setting(effort: Effort) -> str:
    """Return the common settings of the claims about the cat world, in words."""
    return f"Persian inputs, linear softmax from 0, SGD, learning rate {LEARNING_RATE:g}, {effort.steps} steps."


def delay(effort: Effort) -> str:
    """Return the quantity of :func:`steps_to_collapse` in words."""
    return f"steps to collapse (counted as {effort.steps} if none)"


def cat_config(effort: Effort, estimator: Estimator, group_size: int) -> ToyConfig:
    """Return the settings of [A] 2.4 that all of its figures vary; see :func:`cat_setting`."""
    return ToyConfig(
        estimator=estimator,
        group_size=group_size,
        learning_rate=LEARNING_RATE,
        steps=effort.steps,
        seeds=effort.seeds,
        seed=effort.seed,
    )


def long_config(effort: Effort, estimator: Estimator, group_size: int) -> ToyConfig:
    """Return the same settings with ten times the steps, recording only the last one."""
    config = cat_config(effort, estimator, group_size)
    return replace(config, steps=effort.long_steps, record_every=effort.long_steps)


def play(config: ToyConfig, world: World | None = None) -> ToyRun:
    """Run ``world``, by default the cats with a very similar Siamese."""
    return run(cat_world() if world is None else world, config)


def largest_probability(played: ToyRun) -> Float[np.ndarray, "seed record"]:
    """Return the largest probability of any label."""
    return played.prob_STK.max(axis=2)


def is_collapsed(played: ToyRun, *, by_step: int | None = None) -> Bool[np.ndarray, " seed"]:
    """Return whether each seed's policy is collapsed at the last step, or at any step up to ``by_step``."""
    if by_step is None:
        return np.asarray(largest_probability(played)[:, -1] >= COLLAPSED_FROM)
    return np.asarray((largest_probability(played)[:, played.step_T <= by_step] >= COLLAPSED_FROM).any(axis=1))


def steps_to_collapse(played: ToyRun) -> Float[np.ndarray, " seed"]:
    """Return the first step at which each seed's policy is collapsed, or the last step if it never is.

    Its mean is the restricted mean of survival analysis, so that seeds which never collapse count as late.
    """
    hit_ST = largest_probability(played) >= COLLAPSED_FROM
    first_S = played.step_T[hit_ST.argmax(axis=1)]
    return np.where(hit_ST.any(axis=1), first_S, played.step_T[-1]).astype(np.float64)
