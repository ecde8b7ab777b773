"""The trainer for TRL, as far as it needs no TRL."""

from __future__ import annotations

from importlib.util import find_spec

import pytest
import torch

from diagnostics.records.errors import ConfigError
from trainers.integrations.trl import CalibratedGRPOConfig, calibrations, recalibrated
from trainers.objectives.calibrations.iac import Iac
from trainers.objectives.calibrations.negative_only import NegativeOnly
from trainers.objectives.contract import GroupedRewards


def rewards() -> GroupedRewards:
    reward_PG = torch.tensor([[1.0, 0.0, 0.0, 0.0]])
    return GroupedRewards(
        reward_PG=reward_PG,
        correct_PG=reward_PG > 0.5,
        n_tokens_PG=torch.ones(1, 4, dtype=torch.long),
        truncated_PG=torch.zeros(1, 4, dtype=torch.bool),
    )


def test_a_calibration_is_read_with_its_settings() -> None:
    assert calibrations("iac:alpha=0.5") == (Iac(alpha=0.5),)
    assert calibrations("negative_only") == (NegativeOnly(),)


def test_iac_is_refused_where_negatives_alone_would_be_kept() -> None:
    with pytest.raises(ConfigError, match="iac has no effect beside negative_only"):
        calibrations("iac+negative_only")


@pytest.mark.parametrize("expression", ["grpo", "rloo+iac", "iac+token_mean", "iac+kl", "nsr", "self"])
def test_what_trl_has_settings_of_its_own_for_is_refused(expression: str) -> None:
    with pytest.raises(ConfigError, match="only calibrations can be given to TRL"):
        calibrations(expression)


def test_calibrations_apply_to_the_advantages_of_trl() -> None:
    advantage_PG = torch.tensor([[1.5, -0.5, -0.5, -0.5]])
    assert recalibrated((Iac(),), advantage_PG, rewards()).tolist() == [[4.5, -0.5, -0.5, -0.5]]
    assert recalibrated((NegativeOnly(),), advantage_PG, rewards()).tolist() == [[0.0, -0.5, -0.5, -0.5]]


@pytest.mark.parametrize("name", ["easy_filter", "overlong_filter"])
def test_a_calibration_that_changes_the_divisor_is_refused_before_training(name: str) -> None:
    with pytest.raises(ConfigError, match=f"calibration {name}: takes samples out of the divisor"):
        calibrations(name)


@pytest.mark.skipif(find_spec("trl") is not None, reason="TRL is installed")
def test_without_trl_a_config_says_what_is_missing() -> None:
    with pytest.raises(ConfigError, match="needs TRL"):
        CalibratedGRPOConfig()
