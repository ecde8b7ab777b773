"""The parts of the TRL integration that do not need TRL."""

from __future__ import annotations

from importlib.util import find_spec

import pytest
import torch

from oversharp.diagnostics.records.errors import ConfigError
from oversharp.trainers.integrations.trl import CalibratedGRPOConfig, apply_calibrations, calibrations
from oversharp.trainers.objectives.calibrations.iac import Iac
from oversharp.trainers.objectives.calibrations.negative_only import NegativeOnly
from tests.trainers.batches import rewards_of


def test_a_calibration_is_parsed_with_its_settings() -> None:
    assert calibrations("iac:alpha=0.5") == (Iac(alpha=0.5),)
    assert calibrations("negative_only") == (NegativeOnly(),)


OWN = "only calibrations such as iac and negative_only"
DIVISOR = "removes samples from the divisor"


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("iac+negative_only", "iac has no effect together with negative_only"),
        *((expression, OWN) for expression in ("grpo", "rloo+iac", "iac+token_mean", "iac+kl", "nsr", "self")),
        *((name, f"calibration {name}: {DIVISOR}") for name in ("easy_filter", "overlong_filter")),
    ],
)
def test_parts_that_trl_does_not_support_are_rejected_before_training(expression: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        calibrations(expression)


def test_calibrations_apply_to_the_advantages_of_trl() -> None:
    advantage_PG, rewards = torch.tensor([[1.5, -0.5, -0.5, -0.5]]), rewards_of([[1.0, 0.0, 0.0, 0.0]])
    assert apply_calibrations((Iac(),), advantage_PG, rewards).tolist() == [[4.5, -0.5, -0.5, -0.5]]
    assert apply_calibrations((NegativeOnly(),), advantage_PG, rewards).tolist() == [[0.0, -0.5, -0.5, -0.5]]


@pytest.mark.skipif(find_spec("trl") is not None, reason="TRL is installed")
def test_without_trl_a_config_raises_with_the_missing_package() -> None:
    with pytest.raises(ConfigError, match="needs TRL"):
        CalibratedGRPOConfig()
