"""GRPO: rewards standardised within the group of rollouts of one prompt.

    A_i = (r_i - mean(r)) / (std(r) + eps)          A_i = 0 where all rewards of the group are equal

Source: DeepSeekMath (arXiv 2402.03300), 4.1.2. The paper leaves std's degrees of freedom and eps open; codebases
differ, see ``NORMALISATION_PRESETS``.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from trainers.objectives.contract import AdvantageSettings, Objective, check_group, is_constant


def advantages(
    reward_PG: Float[Tensor, "prompt group"], correct_PG: Bool[Tensor, "prompt group"], settings: AdvantageSettings
) -> Float[Tensor, "prompt group"]:
    """Group-standardised rewards; ``correct_PG`` is not used. ``ValueError`` for groups of one.

    >>> settings = AdvantageSettings(ddof=0, eps=0.0)
    >>> advantages(torch.tensor([[1.0, 0.0, 0.0, 0.0]]), torch.tensor([[True, False, False, False]]), settings)
    tensor([[ 1.7321, -0.5774, -0.5774, -0.5774]])
    """
    check_group(reward_PG)
    centred_PG = reward_PG - reward_PG.mean(dim=1, keepdim=True)
    std_P1 = reward_PG.std(dim=1, correction=settings.ddof, keepdim=True)
    constant_P1 = is_constant(reward_PG)[:, None]
    return torch.where(constant_P1, 0.0, centred_PG / (std_P1 + settings.eps))


OBJECTIVE = Objective(
    title="Group Relative Policy Optimization",
    source="arXiv 2402.03300, 4.1.2",
    advantages=advantages,
)
