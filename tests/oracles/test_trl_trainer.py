"""TRL trains a tiny model for a few steps with our calibrations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.testing import assert_close

from oversharp.diagnostics.records.errors import ConfigError
from oversharp.trainers import objectives
from oversharp.trainers.objectives.estimators.grpo import standardise_rewards
from tests.oracles.trl_runs import Reward, grpo_trainer
from tests.trainers.batches import rewards_of

pytestmark = pytest.mark.filterwarnings("ignore")  # TRL's, of versions and of its own future

GROUP, PROMPTS, STEPS = 8, 4, 3


class Seen:
    """Two reward functions that keep what they gave at the last step."""

    def __init__(self) -> None:
        self.right: list[float] = []
        self.size: list[float] = []

    def functions(self) -> list[Reward]:
        def is_right(completions: list[str], **_: Any) -> list[float]:
            self.right = [float("+" in completion or "-" in completion) for completion in completions]
            return self.right

        def size(completions: list[str], **_: Any) -> list[float]:
            self.size = [0.1 * len(completion.split()) for completion in completions]
            return self.size

        return [is_right, size]


def trained(model_path: Path, out: Path, seen: Seen, calibration: str | None, **settings: Any) -> Any:
    size = {"per_device_train_batch_size": GROUP * PROMPTS, "max_steps": STEPS, "learning_rate": 1e-3}
    trainer = grpo_trainer(model_path, out, seen.functions(), calibration=calibration, **size, **settings)
    trainer.train()
    return trainer


def weights(trainer: Any) -> torch.Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in trainer.model.parameters()])


@pytest.mark.usefixtures("trl")
@pytest.mark.parametrize("calibration", ["iac:alpha=0.5", "iac:scale_matched=true", "negative_only"])
def test_trl_trains_on_the_calibrated_advantages(model_path: Path, tmp_path: Path, calibration: str) -> None:
    seen = Seen()
    trainer = trained(model_path, tmp_path, seen, calibration, verdict_from="is_right")
    reward_PG = torch.tensor(seen.right).view(PROMPTS, GROUP) + torch.tensor(seen.size).view(PROMPTS, GROUP)
    plain_PG = standardise_rewards(reward_PG, ddof=1, eps=1e-4)
    rewards = rewards_of(reward_PG, correct=torch.tensor(seen.right).view(PROMPTS, GROUP) > 0.5)
    expected_PG = objectives.parse(f"grpo:convention=trl+{calibration}").credit(rewards).advantage_PG
    found_PG = torch.tensor(trainer._logs["advantages"]).view(PROMPTS, GROUP)
    assert_close(found_PG, expected_PG, rtol=1e-5, atol=1e-5)
    assert not torch.allclose(found_PG, plain_PG)
    # what was trained on, in the shuffled order of TRL's buffer
    [buffered] = trainer._buffered_inputs
    assert_close(buffered["advantages"].sort().values, found_PG.flatten().sort().values)
    assert trainer.state.global_step == STEPS


@pytest.mark.usefixtures("trl")
def test_an_exponent_of_0_trains_the_very_weights_of_trl(model_path: Path, tmp_path: Path) -> None:
    plain = weights(trained(model_path, tmp_path, Seen(), None))
    assert torch.equal(weights(trained(model_path, tmp_path, Seen(), "iac:alpha=0")), plain)
    assert not torch.equal(weights(trained(model_path, tmp_path, Seen(), "iac")), plain)


@pytest.mark.usefixtures("trl")
def test_a_verifier_that_is_no_reward_function_is_named(model_path: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="verdict_from 'right': unknown reward function; choose from is_right"):
        trained(model_path, tmp_path, Seen(), "iac", verdict_from="right")
