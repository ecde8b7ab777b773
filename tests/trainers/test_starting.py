"""Whole runs under the settings that change what a run starts with."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from oversharp.diagnostics.records.errors import ConfigError
from oversharp.trainers.config import TrainConfig
from oversharp.trainers.loop import train
from oversharp.trainers.run.checkpointing import load_state
from tests.trainers.runs import FinishedRun, metrics, model_on_hub, weights, whole_and_interrupted

ADAPTER = "adapter_model.safetensors"


def test_a_lora_run_saves_adapters_and_goes_on_bit_for_bit(config: TrainConfig) -> None:
    settings = replace(config, lora_rank=2, learning_rate=1e-2, algorithm="grpo+kl:beta=0.1", max_steps=4)
    whole, parts = whole_and_interrupted(settings, interrupted_at=2)
    assert weights(whole, 4, ADAPTER) == weights(parts, 4, ADAPTER)
    assert len({weights(whole, step, ADAPTER) for step in (0, 2, 4)}) == 3
    # the reference is the policy without its adapter: no distance at first, some later
    assert metrics(whole)[0]["penalty"] == pytest.approx(0.0, abs=1e-6)
    assert metrics(whole)[-1]["penalty"] > 1e-6


def test_a_kl_in_the_reward_is_none_at_the_first_step_and_changes_the_later_ones(config: TrainConfig) -> None:
    plain = train(replace(config, algorithm="reinforce_pp", max_steps=2, learning_rate=1e-2))
    settings = replace(config, algorithm="reinforce_pp:kl=0.5", max_steps=2, learning_rate=1e-2)
    settings = replace(settings, output_dir=config.output_dir.parent / "kl")
    whole, parts = whole_and_interrupted(settings, interrupted_at=1)
    first, second = zip(metrics(plain), metrics(whole), strict=True)
    assert first[0]["loss"] == pytest.approx(first[1]["loss"], abs=1e-6)  # the policy is still its reference
    assert second[0]["advantage_abs_mean"] != pytest.approx(second[1]["advantage_abs_mean"], rel=1e-3)
    assert weights(whole, 2) == weights(parts, 2)


@pytest.mark.parametrize(
    "settings", [{"algorithm": "dlc"}, {"algorithm": "dlc:memory=tiny/qwen+kl", "reference": "tiny/qwen"}], ids=str
)
def test_an_adapter_grows_on_a_model_of_the_hub(
    config: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, str]
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    name = model_on_hub(tmp_path / "hub")
    run = train(replace(config, model=name, lora_rank=2, max_steps=1, **settings))
    assert json.loads((run / "checkpoint-1" / "adapter_config.json").read_text())["base_model_name_or_path"] == name


def test_a_lora_run_rehearses_what_its_base_says(config: TrainConfig) -> None:
    run = train(replace(config, lora_rank=2, algorithm="self:beta=0.1", max_steps=2))
    assert all(line["rehearsal_loss"] > 0 for line in metrics(run))


@pytest.mark.parametrize(
    "setting", [{"gradient_checkpointing": True}, {"precision": "bfloat16"}, {"micro_batch": 4}], ids=str
)
def test_how_passes_run_changes_the_gradient_by_rounding_only(
    config: TrainConfig, finished: FinishedRun, setting: dict[str, Any]
) -> None:
    other = train(replace(config, max_steps=1, **setting))
    closeness = 0.05 if "precision" in setting else 1e-4
    assert metrics(other)[0]["grad_norm"] == pytest.approx(metrics(finished.path)[0]["grad_norm"], rel=closeness)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"group_size": 1}, "with --group-size 1: a single rollout is not a group"),
        ({"algorithm": "grpo:eps=-1"}, "eps -1.0: must be 0 or more"),
        ({"reference": "somewhere"}, "no part of grpo uses a reference"),
    ],
    ids=str,
)
def test_what_an_objective_cannot_work_with_is_refused_before_anything_is_written(
    config: TrainConfig, setting: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        train(replace(config, **setting))
    assert not config.output_dir.exists()


def test_an_estimator_without_groups_trains_on_one_rollout_per_prompt(config: TrainConfig) -> None:
    run = train(replace(config, algorithm="reinforce_pp", group_size=1, batch_prompts=20, max_steps=2))
    assert all(line["grad_norm"] > 0 for line in metrics(run))


def test_a_resumed_run_keeps_the_size_of_its_passes_whatever_memory_is_free(
    config: TrainConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = train(replace(config, max_steps=2))
    assert load_state(run, 2)["rows_per_pass"] == 18
    monkeypatch.setattr("oversharp.trainers.model.device_memory.free_bytes", lambda device: 30e6)
    train(replace(config, max_steps=4, resume=True))
    assert load_state(run, 4)["rows_per_pass"] == 18


def test_a_warm_start_happens_before_the_first_step_and_not_again_on_a_resume(
    config: TrainConfig, tmp_path: Path
) -> None:
    settings = replace(config, algorithm="dlc:warm_start_steps=3", max_steps=4)
    whole, parts = whole_and_interrupted(settings, interrupted_at=2)
    cold = train(replace(settings, algorithm="dlc", max_steps=1, output_dir=tmp_path / "cold"))
    losses = [[line["memory_network_loss"] for line in metrics(run)] for run in (whole, parts, cold)]
    assert losses[0] == losses[1]
    assert losses[0][0] != losses[2][0]
