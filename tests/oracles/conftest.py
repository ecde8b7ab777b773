"""verl's and TRL's own functions as oracles, and the random batches that both sides get.

They need ``make oracles``. Without it these tests are skipped; REQUIRE_ORACLES=1 insists.
"""

from __future__ import annotations

import os
import sys
import warnings
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import pytest
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from oversharp.trainers.objectives.contract import GroupedRewards, TokenLogps
from tests.conftest import write_checkpoint

STANDINS = Path(__file__).parent / "standins"

# only for verl: whoever else finds a package called Ray takes it for the real one
if find_spec("verl") is not None and find_spec("ray") is None:
    sys.path.insert(0, str(STANDINS))


def _need(package: str, version: str) -> None:
    if find_spec(package) is None:
        reason = f"{package} {version} is not installed: make oracles"
        if os.environ.get("REQUIRE_ORACLES"):
            pytest.fail(reason)
        pytest.skip(reason)


@pytest.fixture(scope="session")
def core_algos() -> ModuleType:
    """``verl.trainer.ppo.core_algos``."""
    _need("verl", "0.9")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of packages that verl would use and that are not here
        from verl.trainer.ppo import core_algos as module
    return module


@pytest.fixture(scope="session")
def trl() -> ModuleType:
    """TRL, with its GRPO trainer imported."""
    _need("trl", "1.16")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import trl as module
        from trl import GRPOTrainer  # noqa: F401
    return module


@pytest.fixture(scope="session")
def model_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny Qwen3 with random weights. Do not write into it."""
    return write_checkpoint(tmp_path_factory.mktemp("model") / "tiny", seed=0)


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Random rollouts in float64: four prompts, six samples each, up to eleven tokens."""

    rewards: GroupedRewards
    tokens: TokenLogps
    advantage_B: Float[Tensor, " row"]
    index_B: list[str]

    @property
    def mask_BT(self) -> Bool[Tensor, "row token"]:  # noqa: N802
        """The response tokens."""
        return self.tokens.mask_BT

    @property
    def reward_BT(self) -> Float[Tensor, "row token"]:  # noqa: N802
        """Each reward on its response's last token, as verl has it."""
        n_tokens_B: Int[Tensor, " row"] = self.mask_BT.sum(dim=1)
        reward_BT = torch.zeros(self.mask_BT.shape, dtype=torch.float64)
        return reward_BT.scatter(1, n_tokens_B[:, None] - 1, self.rewards.reward_PG.flatten()[:, None])


def random_batch(seed: int) -> Batch:
    """Ratios spread far beyond every clip, rewards of both signs, unequal lengths."""
    generator = torch.Generator().manual_seed(seed)
    n_prompts, group, width = 4, 6, 11
    n_tokens_B = torch.randint(1, width + 1, (n_prompts * group,), generator=generator)
    n_tokens_B[0] = width

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    old_logp_BT = -normal(n_prompts * group, width).abs() - 1
    logp_BT = old_logp_BT + 0.7 * normal(n_prompts * group, width)
    # near enough that verl's cap on k3 is never reached
    reference_logp_BT = logp_BT + 0.4 * normal(n_prompts * group, width)
    tokens = TokenLogps(
        logp_BT=logp_BT.requires_grad_(),
        entropy_BT=normal(n_prompts * group, width).abs(),
        old_logp_BT=old_logp_BT,
        mask_BT=torch.arange(width) < n_tokens_B[:, None],
        reference_logp_BT=reference_logp_BT.detach(),
    )
    reward_PG = normal(n_prompts, group)
    rewards = GroupedRewards(
        reward_PG=reward_PG,
        correct_PG=reward_PG > 0.5,
        n_tokens_PG=n_tokens_B.view(n_prompts, group),
        truncated_PG=torch.zeros(n_prompts, group, dtype=torch.bool),
    )
    index_B = [f"prompt {prompt}" for prompt in range(n_prompts) for _ in range(group)]
    return Batch(rewards=rewards, tokens=tokens, advantage_B=normal(n_prompts * group), index_B=index_B)


ARE_COMPARED = os.environ.get("REQUIRE_ORACLES") or find_spec("verl") is not None or find_spec("trl") is not None


@pytest.fixture(params=range(5 if ARE_COMPARED else 1))
def batch(request: pytest.FixtureRequest) -> Batch:
    """Five random batches; where nothing is compared, one, so that fewer tests are skipped."""
    return random_batch(request.param)
