"""Our estimators in verl's registry, called as verl calls them, and found by a process that only imports verl."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from oversharp.trainers import objectives
from oversharp.trainers.integrations import verl as integration

CLOSE = {"rtol": 0, "atol": 1e-6}
EXPRESSIONS = {"iac": "iac", "iac_scale_matched": "iac:scale_matched=true", "grpo_n": "grpo_n"}


def as_verl_calls(core_algos: ModuleType, name: str, batch: Any, algorithm: dict[str, Any]) -> torch.Tensor:
    from omegaconf import OmegaConf

    integration.register()
    config = OmegaConf.create({"norm_adv_by_std_in_grpo": True, **algorithm})
    OmegaConf.set_struct(config, True)  # as Hydra leaves it
    advantage_BT, return_BT = core_algos.get_adv_estimator_fn(name)(
        token_level_rewards=batch.reward_BT,
        response_mask=batch.mask_BT.long(),
        config=config,
        index=np.array(batch.index_B, dtype=object),
    )
    assert torch.equal(advantage_BT, return_BT)
    return advantage_BT


@pytest.mark.parametrize(("name", "expression"), EXPRESSIONS.items())
def test_an_estimator_in_verls_registry_is_our_objective(
    core_algos: ModuleType, batch: Any, name: str, expression: str
) -> None:
    found_BT = as_verl_calls(core_algos, name, batch, {})
    expected_B = objectives.parse(expression).credit(batch.rewards).advantage_PG.flatten()
    assert_close(found_BT, expected_B[:, None] * batch.mask_BT, **CLOSE)


def test_the_exponent_comes_from_verls_config(core_algos: ModuleType, batch: Any) -> None:
    found_BT = as_verl_calls(core_algos, "iac", batch, {"iac": {"alpha": 0.5}})
    expected_B = objectives.parse("iac:alpha=0.5").credit(batch.rewards).advantage_PG.flatten()
    assert_close(found_BT, expected_B[:, None] * batch.mask_BT, **CLOSE)


def test_an_exponent_of_0_is_verls_own_grpo(core_algos: ModuleType, batch: Any) -> None:
    plain_BT, _ = core_algos.get_adv_estimator_fn("grpo")(
        token_level_rewards=batch.reward_BT,
        response_mask=batch.mask_BT.double(),
        index=np.array(batch.index_B, dtype=object),
    )
    assert_close(as_verl_calls(core_algos, "iac", batch, {"iac": {"alpha": 0.0}}), plain_BT, **CLOSE)


def test_registering_again_changes_nothing(core_algos: ModuleType) -> None:
    integration.register()
    integration.register()
    for name, estimator in integration.ESTIMATORS.items():
        assert core_algos.get_adv_estimator_fn(name) is estimator


def in_a_process(code: str, **environment: str) -> str:
    root, standins = Path(__file__).parents[2], Path(__file__).parent / "standins"
    found = "print([name for name in ('iac', 'iac_scale_matched', 'grpo_n') if name in ADV_ESTIMATOR_REGISTRY])"
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\nfrom verl.trainer.ppo.core_algos import ADV_ESTIMATOR_REGISTRY\n{found}"],
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(root), str(standins)]),
            "PYTHONWARNINGS": "ignore",
            **environment,
        },
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()[-1]


@pytest.mark.usefixtures("core_algos")
def test_verl_finds_them_by_the_external_lib_of_the_documented_command(
    make_checkpoint: Callable[[Path, int], Path], tmp_path: Path
) -> None:
    # what verl's trainer does first, in the process that will compute the advantages
    model = make_checkpoint(tmp_path / "model", 0)
    settings = f"path={str(model)!r}, external_lib='oversharp.trainers.integrations.verl'"
    code = f"from verl.workers.config import HFModelConfig\nHFModelConfig({settings})"
    assert in_a_process(code) == "['iac', 'iac_scale_matched', 'grpo_n']"


@pytest.mark.usefixtures("core_algos")
def test_verl_finds_them_by_its_variable_and_not_without_it() -> None:
    found = in_a_process("import verl", VERL_USE_EXTERNAL_MODULES="oversharp.trainers.integrations.verl")
    assert found == "['iac', 'iac_scale_matched', 'grpo_n']"
    assert in_a_process("import verl") == "[]"
