"""Update rules over many seeds at once, in operations that round exactly.

torch.optim's kernels fuse multiply and add, and may do so in vector lanes only. A seed's path would then depend on its
place among the others. The tests compare these rules with torch.optim.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from benchmarks.toy.config import ToyConfig

BETA1, BETA2, EPS = 0.9, 0.999, 1e-8


@dataclass(frozen=True, kw_only=True, eq=False)
class OptimizerState:
    """Number of updates, and running first and second moment of the gradient (None before the first)."""

    n_updates: int = 0
    first_SKD: Float[Tensor, "seed label feature"] | None = None
    second_SKD: Float[Tensor, "seed label feature"] | None = None


def ascend(
    weight_SKD: Float[Tensor, "seed label feature"],
    gradient_SKD: Float[Tensor, "seed label feature"],
    state: OptimizerState,
    config: ToyConfig,
) -> tuple[Float[Tensor, "seed label feature"], OptimizerState]:
    """Return the weights after one ascent step, and the next state. Nothing is changed in place.

    Conventions are torch.optim's: momentum without dampening, Adam with bias correction, AdamW's decay before the step.
    Sources: Kingma & Ba (arXiv 1412.6980); Loshchilov & Hutter (arXiv 1711.05101).
    """
    rate, n_updates = config.learning_rate, state.n_updates + 1
    if config.optimizer == "sgd":
        return weight_SKD + gradient_SKD * rate, OptimizerState(n_updates=n_updates)
    if config.optimizer == "momentum":
        velocity_SKD = gradient_SKD if state.first_SKD is None else state.first_SKD * config.momentum + gradient_SKD
        return weight_SKD + velocity_SKD * rate, OptimizerState(n_updates=n_updates, first_SKD=velocity_SKD)
    first_SKD = gradient_SKD * (1 - BETA1)
    second_SKD = gradient_SKD * gradient_SKD * (1 - BETA2)
    if state.first_SKD is not None and state.second_SKD is not None:
        first_SKD = state.first_SKD * BETA1 + first_SKD
        second_SKD = state.second_SKD * BETA2 + second_SKD
    if config.optimizer == "adamw":
        weight_SKD = weight_SKD * (1 - rate * config.weight_decay)
    scale_SKD = second_SKD.sqrt() / math.sqrt(1 - BETA2**n_updates) + EPS
    moved_SKD = weight_SKD + first_SKD / scale_SKD * (rate / (1 - BETA1**n_updates))
    return moved_SKD, OptimizerState(n_updates=n_updates, first_SKD=first_SKD, second_SKD=second_SKD)
