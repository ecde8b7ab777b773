"""The settings that the families of toy worlds share, and what is read off a run."""

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
    """What all claims about the cats share, in words."""
    return f"Persian inputs, linear softmax from 0, SGD, learning rate {LEARNING_RATE:g}, {effort.steps} steps."


def delay(effort: Effort) -> str:
    """The quantity of :func:`steps_to_collapse`."""
    return f"steps to collapse (counted as {effort.steps} if none)"


def cat_config(effort: Effort, estimator: Estimator, group_size: int) -> ToyConfig:
    """The setting of [A] 2.4 that all of its figures vary; see :func:`cat_setting`."""
    return ToyConfig(
        estimator=estimator,
        group_size=group_size,
        learning_rate=LEARNING_RATE,
        steps=effort.steps,
        seeds=effort.seeds,
        seed=effort.seed,
    )


def long_config(effort: Effort, estimator: Estimator, group_size: int) -> ToyConfig:
    """The same over ten times the steps, with a record of the last one alone."""
    config = cat_config(effort, estimator, group_size)
    return replace(config, steps=effort.long_steps, record_every=effort.long_steps)


def play(config: ToyConfig, world: World | None = None) -> ToyRun:
    """A run of ``world``, by default the cats with a very similar Siamese."""
    return run(cat_world() if world is None else world, config)


def largest_probability(played: ToyRun) -> Float[np.ndarray, "seed record"]:
    """Largest probability of any label."""
    return played.prob_STK.max(axis=2)


def is_collapsed(played: ToyRun, *, by_step: int | None = None) -> Bool[np.ndarray, " seed"]:
    """Whether each seed's policy is collapsed at the last step, or was at any step up to ``by_step``."""
    if by_step is None:
        return np.asarray(largest_probability(played)[:, -1] >= COLLAPSED_FROM)
    return np.asarray((largest_probability(played)[:, played.step_T <= by_step] >= COLLAPSED_FROM).any(axis=1))


def steps_to_collapse(played: ToyRun) -> Float[np.ndarray, " seed"]:
    """First step at which each seed's policy is collapsed; the last step where it never is.

    Its mean is the restricted mean of survival analysis, so that seeds which never collapse count as late.
    """
    hit_ST = largest_probability(played) >= COLLAPSED_FROM
    first_S = played.step_T[hit_ST.argmax(axis=1)]
    return np.where(hit_ST.any(axis=1), first_S, played.step_T[-1]).astype(np.float64)
