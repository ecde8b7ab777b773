"""What an objective is: a pure function from the rewards of a batch to one advantage per sample."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from jaxtyping import Bool, Float
from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class AdvantageSettings:
    """What an estimator may be told. Each one reads the fields that concern it.

    ``ddof`` is the degrees of freedom taken off in the standard deviation of a group (0 population, 1 sample),
    ``eps`` the constant added to it, in units of reward. ``iac_alpha`` is the exponent of inverse-success
    calibration; ``iac_scale_matched`` rescales it to the uncalibrated mean absolute advantage.
    """

    ddof: int
    eps: float
    iac_alpha: float = 1.0
    iac_scale_matched: bool = False


Advantages = Callable[
    [Float[Tensor, "prompt group"], Bool[Tensor, "prompt group"], AdvantageSettings], Float[Tensor, "prompt group"]
]


@dataclass(frozen=True, kw_only=True)
class Objective:
    """One estimator: its name in words, the paper and section it comes from, and the function."""

    title: str
    source: str
    advantages: Advantages


#: (ddof, eps) of the group's standard deviation, as verl 0.9, TRL 1.16, OpenRLHF, oat and open-instruct have them.
NORMALISATION_PRESETS: Mapping[str, tuple[int, float]] = MappingProxyType(
    {
        "verl": (1, 1e-6),
        "trl": (1, 1e-4),
        "openrlhf": (1, 1e-9),
        "oat": (1, 1e-8),
        "open-instruct": (0, 1e-8),
    }
)


def check_group(reward_PG: Float[Tensor, "prompt group"]) -> None:
    """Raise ``ValueError`` unless every prompt has at least two rollouts to compare.

    >>> import torch
    >>> check_group(torch.zeros(4, 1))
    Traceback (most recent call last):
    ...
    ValueError: a single rollout is not a group: rewards have shape (4, 1); give at least 2 rollouts per prompt
    """
    if reward_PG.ndim != 2 or reward_PG.shape[1] < 2:
        raise ValueError(
            f"a single rollout is not a group: rewards have shape {tuple(reward_PG.shape)}; "
            "give at least 2 rollouts per prompt"
        )


def is_constant(reward_PG: Float[Tensor, "prompt group"]) -> Bool[Tensor, " prompt"]:
    """Groups whose rewards are all equal and hence teach nothing.

    Decided by max == min. The standard deviation of eight equal float32 rewards of 0.1 is not zero, and dividing by
    it turns rounding noise into an advantage (-0.83 with an eps of 1e-9).

    >>> import torch
    >>> is_constant(torch.tensor([[0.1] * 8, [0.0] * 7 + [1.0]])).tolist()
    [True, False]
    """
    return reward_PG.amax(dim=1) == reward_PG.amin(dim=1)
