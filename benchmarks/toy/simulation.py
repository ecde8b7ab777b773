"""Train a softmax world over many seeds at once.

Each seed has a separate generator, and every operation works row by row, so a seed's path does not depend on the number
of seeds. Axes: S seeds, K labels, D features, G samples of a group, T recorded steps.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from benchmarks.toy.config import ToyConfig
from benchmarks.toy.estimators import ESTIMATORS, calibrated
from benchmarks.toy.optimizers import OptimizerState, ascend
from benchmarks.toy.worlds import World
from oversharp.trainers.seeds import stream_seed

#: Uniform numbers held at once, a bound on memory. The size of the blocks does not change the stream.
_DRAWS_HELD = 2**20


@dataclass(frozen=True, kw_only=True, eq=False)
class ToyRun:
    """Result of a run. Axes: S seeds, T recorded steps, K labels.

    Attributes
    ----------
    world, config
        Settings of the run.
    step_T
        Recorded steps, 0 first, ``config.steps`` last. Step t is the state after t updates.
    prob_STK
        The policy's probabilities for the query trained on, softmax(logits / temperature).
    held_out_prob_ST
        Probability of the right label at the held-out query ([A]'s accuracy); None if the world has none.
    logit_STK
        Logits of the query trained on; None unless ``config.keep_logits``.
    """

    world: World
    config: ToyConfig
    step_T: Int[np.ndarray, " record"]
    prob_STK: Float[np.ndarray, "seed record label"]
    held_out_prob_ST: Float[np.ndarray, "seed record"] | None
    logit_STK: Float[np.ndarray, "seed record label"] | None


def run(world: World, config: ToyConfig) -> ToyRun:
    """Train ``world`` under ``config`` in float64 on the CPU; equal settings give equal bytes on one machine.

    A sampled step draws G labels, turns their rewards into advantages A_i (calibrated, if asked) and climbs
    1/G * sum of w_i A_i grad log pi(label_i), where w_i is the importance weight (1 without a memory). There is no
    KL term. Sources: [A] (arXiv 2601.15609) 2.4 and Algorithm 1; [B] (arXiv 2510.04028) Algorithm 1; [C] App D.

    >>> from benchmarks.toy.worlds import cat_world
    >>> answer = run(cat_world(), ToyConfig(steps=20, seeds=3, record_every=8))
    >>> answer.step_T.tolist(), answer.prob_STK.shape, answer.held_out_prob_ST.shape
    ([0, 8, 16, 20], (3, 4, 4), (3, 4))
    >>> answer.prob_STK[0, 0].tolist()
    [0.25, 0.25, 0.25, 0.25]
    """
    query = _Query(world.feature_D, config.temperature)
    held_out = None if world.held_out_feature_D is None else _Query(world.held_out_feature_D, config.temperature)
    reward_K = torch.tensor(world.reward_K, dtype=torch.float64)
    weight_SKD = _initial_weights(world).expand(config.seeds, -1, -1)
    memory_SKD = torch.zeros_like(weight_SKD) if config.dlc_mu else None
    state = OptimizerState()
    draws = _uniforms(config) if config.samples else None

    step_T = [*range(0, config.steps, config.record_every), config.steps]
    logit_STK = torch.empty(config.seeds, len(step_T), len(world.labels), dtype=torch.float64)
    held_out_prob_ST = torch.empty(config.seeds, len(step_T), dtype=torch.float64)
    for step in range(config.steps + 1):
        logit_SK = query.logits(weight_SKD)
        if step % config.record_every == 0 or step == config.steps:
            record = len(step_T) - 1 if step == config.steps else step // config.record_every
            logit_STK[:, record] = logit_SK
            if held_out is not None:
                held_out_prob_ST[:, record] = held_out.probabilities(weight_SKD)[:, world.held_out_label]
        if step == config.steps:
            break
        if draws is None:
            gradient_SK = _exact_gradient(logit_SK, reward_K, config)
        else:
            memory_logit_SK = None if memory_SKD is None else query.logits(memory_SKD)
            label_SG, weight_SG = _sample(logit_SK, memory_logit_SK, next(draws), config)
            gradient_SK = _sampled_gradient(logit_SK, label_SG, weight_SG, reward_K, config)
            if memory_SKD is not None and memory_logit_SK is not None:
                surprise_SK = _frequencies(label_SG, memory_logit_SK.shape[1]) - memory_logit_SK.softmax(dim=1)
                memory_SKD = memory_SKD + query.to_weights(surprise_SK) * config.memory_learning_rate
        weight_SKD, state = ascend(weight_SKD, query.to_weights(gradient_SK), state, config)
    return ToyRun(
        world=world,
        config=config,
        step_T=np.array(step_T),
        prob_STK=(logit_STK / config.temperature).softmax(dim=2).numpy(),
        held_out_prob_ST=None if held_out is None else held_out_prob_ST.numpy(),
        logit_STK=logit_STK.numpy() if config.keep_logits else None,
    )


def generator_of_seed(config: ToyConfig, position: int) -> np.random.Generator:
    """Return the generator of one of the ``config.seeds`` runs at its start.

    It yields G uniform numbers per step.
    """
    return np.random.default_rng(stream_seed(config.seed, "toy", position))


class _Query:
    """Features of one query: weights → logits, and gradients of logits → gradients of weights."""

    def __init__(self, feature_D: tuple[float, ...], temperature: float) -> None:
        self._feature_D = torch.tensor(feature_D, dtype=torch.float64)
        self._temperature = temperature

    def logits(self, weight_SKD: Float[Tensor, "seed label feature"]) -> Float[Tensor, "seed label"]:
        return (weight_SKD * self._feature_D).sum(dim=2)

    def probabilities(self, weight_SKD: Float[Tensor, "seed label feature"]) -> Float[Tensor, "seed label"]:
        return (self.logits(weight_SKD) / self._temperature).softmax(dim=1)

    def to_weights(self, gradient_SK: Float[Tensor, "seed label"]) -> Float[Tensor, "seed label feature"]:
        return gradient_SK[:, :, None] * self._feature_D


def _initial_weights(world: World) -> Float[Tensor, "label feature"]:
    feature_D = torch.tensor(world.feature_D, dtype=torch.float64)
    logit_K = torch.tensor(world.initial_logit_K, dtype=torch.float64)
    return logit_K[:, None] * (feature_D / (feature_D * feature_D).sum())


def _uniforms(config: ToyConfig) -> Iterator[Float[Tensor, "seed group"]]:
    generators = [generator_of_seed(config, position) for position in range(config.seeds)]
    steps_held = min(config.steps, max(1, _DRAWS_HELD // (config.seeds * config.group_size)))
    while True:
        held_SNG = np.stack([generator.random((steps_held, config.group_size)) for generator in generators])
        yield from torch.from_numpy(held_SNG).unbind(dim=1)


def _sample(
    logit_SK: Float[Tensor, "seed label"],
    memory_logit_SK: Float[Tensor, "seed label"] | None,
    uniform_SG: Float[Tensor, "seed group"],
    config: ToyConfig,
) -> tuple[Int[Tensor, "seed group"], Float[Tensor, "seed group"] | None]:
    """Sample a group of labels per seed by inverting the cumulative distribution.

    Returns importance weights too; None if all are 1.
    """
    prob_SK = (logit_SK / config.temperature).softmax(dim=1)
    sampled_SK = prob_SK
    if memory_logit_SK is not None:
        sampled_SK = ((logit_SK - memory_logit_SK * config.dlc_mu) / config.temperature).softmax(dim=1)
    # the last entry is omitted, because rounding may leave it below 1: no draw may exceed the last label
    cumulative_SK = sampled_SK.cumsum(dim=1)[:, :-1].contiguous()
    label_SG = torch.searchsorted(cumulative_SK, uniform_SG.contiguous(), right=True)
    if config.importance_weights == "none":
        return label_SG, None
    weight_SG = prob_SK.gather(1, label_SG) / sampled_SK.gather(1, label_SG)
    return label_SG, weight_SG.clamp(
        max=config.importance_cap
    ) if config.importance_weights == "truncated" else weight_SG


def _sampled_gradient(
    logit_SK: Float[Tensor, "seed label"],
    label_SG: Int[Tensor, "seed group"],
    weight_SG: Float[Tensor, "seed group"] | None,
    reward_K: Float[Tensor, " label"],
    config: ToyConfig,
) -> Float[Tensor, "seed label"]:
    """Return the gradient of 1/G * sum of w_i A_i log softmax(logits / temperature)[label_i] by the logits."""
    reward_SG = reward_K[label_SG]
    advantage_SG = ESTIMATORS[config.estimator](reward_SG)
    if config.iac_alpha:
        advantage_SG = calibrated(
            advantage_SG, reward_SG > 0, alpha=config.iac_alpha, scale_matched=config.iac_scale_matched
        )
    if weight_SG is not None:
        advantage_SG = advantage_SG * weight_SG
    prob_SK = (logit_SK / config.temperature).softmax(dim=1)
    pulled_SK = torch.zeros_like(prob_SK).scatter_add_(1, label_SG, advantage_SG)
    total_S1 = advantage_SG.sum(dim=1, keepdim=True)
    return (pulled_SK - prob_SK * total_S1) / (config.group_size * config.temperature)


def _exact_gradient(
    logit_SK: Float[Tensor, "seed label"], reward_K: Float[Tensor, " label"], config: ToyConfig
) -> Float[Tensor, "seed label"]:
    """Return the gradient of sum r_k pi_k (expected) or sum r_k log pi_k (mle) by the logits ([C] Eq 19, 20)."""
    prob_SK = (logit_SK / config.temperature).softmax(dim=1)
    if config.estimator == "mle":
        return (reward_K - prob_SK * reward_K.sum()) / config.temperature
    mean_reward_S1 = (prob_SK * reward_K).sum(dim=1, keepdim=True)
    return prob_SK * (reward_K - mean_reward_S1) / config.temperature


def _frequencies(label_SG: Int[Tensor, "seed group"], n_labels: int) -> Float[Tensor, "seed label"]:
    one_SG = torch.ones(label_SG.shape, dtype=torch.float64)
    count_SK = torch.zeros(len(label_SG), n_labels, dtype=torch.float64).scatter_add_(1, label_SG, one_SG)
    return count_SK / label_SG.shape[1]
