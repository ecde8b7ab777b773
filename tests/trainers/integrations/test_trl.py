"""The trainer for TRL, as far as it needs no TRL."""

from __future__ import annotations

from importlib.util import find_spec

import pytest
import torch

from diagnostics.errors import ConfigError
from trainers.integrations.trl import CalibratedGRPOConfig, calibrations, recalibrated
from trainers.objectives.contract import GroupedRewards
from trainers.objectives.iac import Iac
from trainers.objectives.negative_only import NegativeOnly
from trainers.objectives.nsr import Nsr


def rewards() -> GroupedRewards:
    reward_PG = torch.tensor([[1.0, 0.0, 0.0, 0.0]])
    return GroupedRewards(
        reward_PG=reward_PG,
        correct_PG=reward_PG > 0.5,
        n_tokens_PG=torch.ones(1, 4, dtype=torch.long),
        truncated_PG=torch.zeros(1, 4, dtype=torch.bool),
    )


def test_calibrations_are_read_in_their_order() -> None:
    assert calibrations("iac:alpha=0.5+negative_only") == (Iac(alpha=0.5), NegativeOnly())


@pytest.mark.parametrize("expression", ["grpo", "rloo+iac", "iac+token_mean", "iac+kl", "nsr", "self"])
def test_what_trl_has_settings_of_its_own_for_is_refused(expression: str) -> None:
    with pytest.raises(ConfigError, match="only calibrations can be given to TRL"):
        calibrations(expression)


def test_calibrations_apply_one_after_the_other() -> None:
    advantage_PG = torch.tensor([[1.5, -0.5, -0.5, -0.5]])
    assert recalibrated((Iac(),), advantage_PG, rewards()).tolist() == [[4.5, -0.5, -0.5, -0.5]]
    assert recalibrated((Iac(), NegativeOnly()), advantage_PG, rewards()).tolist() == [[0.0, -0.5, -0.5, -0.5]]


def test_a_calibration_that_changes_the_divisor_is_refused() -> None:
    with pytest.raises(ConfigError, match="Nsr: takes samples out of the divisor"):
        recalibrated((Nsr(),), torch.zeros(1, 4), rewards())


@pytest.mark.skipif(find_spec("trl") is not None, reason="TRL is installed")
def test_without_trl_a_config_says_what_is_missing() -> None:
    with pytest.raises(ConfigError, match="needs TRL"):
        CalibratedGRPOConfig()
