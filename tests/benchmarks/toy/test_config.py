from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from benchmarks.toy import ToyConfig
from oversharp.diagnostics.records.errors import ConfigError


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"estimator": "grpo"}, "estimator 'grpo': choose from raw"),
        ({"optimizer": "lion"}, "optimizer 'lion': choose from sgd"),
        ({"importance_weights": "some", "dlc_mu": 0.5}, "importance_weights 'some': choose from none"),
        ({"group_size": 0}, "group_size 0: must be at least 1"),
        ({"estimator": "rloo", "group_size": 1}, "a single rollout is not a group; rloo compares at least 2"),
        ({"steps": 0}, "steps 0: must be at least 1"),
        ({"seeds": 0}, "seeds 0: must be at least 1"),
        ({"seed": -1}, "seed -1: must be at least 0"),
        ({"record_every": 0}, "record_every 0: must be at least 1"),
        ({"learning_rate": 0.0}, "learning_rate 0.0: must be above 0"),
        ({"learning_rate": float("nan")}, "learning_rate nan: must be above 0"),
        ({"temperature": float("inf")}, "temperature inf: must be above 0"),
        ({"dlc_learning_rate": -1.0}, "dlc_learning_rate -1.0: must be above 0"),
        ({"importance_cap": 0.0}, "importance_cap 0.0: must be above 0"),
        ({"weight_decay": -0.1}, "weight_decay -0.1: must be 0 or more"),
        ({"iac_alpha": -1.0}, "iac_alpha -1.0: must be 0 or more"),
        ({"dlc_mu": -1.0}, "dlc_mu -1.0: must be 0 or more"),
        ({"momentum": 1.0}, r"momentum 1.0: must lie in \[0, 1\)"),
        ({"iac_scale_matched": True}, "iac_scale_matched: needs iac_alpha above 0"),
        ({"importance_weights": "exact"}, "importance_weights 'exact': without dlc_mu every weight is 1"),
        ({"estimator": "mle", "dlc_mu": 0.5}, "estimator 'mle' draws no sample"),
    ],
)
def test_a_setting_that_cannot_work_is_refused_in_one_line(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says) as refused:
        ToyConfig(**settings)
    assert "\n" not in str(refused.value)


def test_raw_rewards_need_no_group() -> None:
    assert ToyConfig(estimator="raw", group_size=1).samples


def test_the_memory_learns_at_the_policys_rate_unless_told() -> None:
    assert ToyConfig(learning_rate=0.7).memory_learning_rate == 0.7
    assert ToyConfig(learning_rate=0.7, dlc_learning_rate=0.1).memory_learning_rate == 0.1


def test_every_setting_is_documented() -> None:
    documented = (ToyConfig.__doc__ or "").splitlines()
    assert [field.name for field in dataclasses.fields(ToyConfig) if f"    {field.name}" not in documented] == []
