"""Estimators against verl's, on the same rewards and lengths."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from oversharp.trainers import objectives
from oversharp.trainers.objectives.estimators.grpo import standardise_rewards

CLOSE = {"rtol": 0, "atol": 1e-6}


def theirs(core_algos: ModuleType, name: str, batch: Any, **settings: bool) -> torch.Tensor:
    estimator = core_algos.get_adv_estimator_fn(name)
    advantage_BT, _ = estimator(
        token_level_rewards=batch.reward_BT,
        response_mask=batch.mask_BT.double(),
        index=np.array(batch.index_B, dtype=object),
        config=core_algos.AlgoConfig(),
        **settings,
    )
    return advantage_BT


def ours(expression: str, batch: Any) -> torch.Tensor:
    advantage_PG = objectives.parse(expression).estimator.advantages(batch.rewards)
    return advantage_PG.flatten()[:, None] * batch.mask_BT


@pytest.mark.parametrize(
    ("expression", "name"),
    [
        ("grpo", "grpo"),
        ("grpo", "grpo_vectorized"),
        ("rloo", "rloo"),
        ("rloo", "rloo_vectorized"),
        ("reinforce_pp", "reinforce_plus_plus"),
        ("reinforce_pp_baseline", "reinforce_plus_plus_baseline"),
    ],
)
def test_an_estimator_agrees_with_verl(core_algos: ModuleType, batch: Any, expression: str, name: str) -> None:
    assert_close(ours(expression, batch), theirs(core_algos, name, batch), **CLOSE)


def test_dr_grpos_advantage_is_verls_grpo_without_the_standard_deviation(core_algos: ModuleType, batch: Any) -> None:
    assert_close(ours("dr_grpo", batch), theirs(core_algos, "grpo", batch, norm_adv_by_std_in_grpo=False), **CLOSE)


def test_equal_rewards_have_no_advantage_here_and_rounding_noise_in_verl(core_algos: ModuleType) -> None:
    mask_BT, index = torch.ones(8, 1), np.array(["q"] * 8, dtype=object)
    found_BT, _ = core_algos.get_adv_estimator_fn("grpo")(
        token_level_rewards=torch.full((8, 1), 0.1), response_mask=mask_BT, index=index
    )
    assert found_BT.flatten().tolist() == pytest.approx([-0.0074] * 8, abs=2e-4)
    assert (standardise_rewards(torch.full((1, 8), 0.1), ddof=1, eps=1e-6) == 0).all()
