"""Complete runs with settings of models, passes, validation and schedule."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from oversharp.diagnostics.records.errors import ConfigError, OversharpError
from oversharp.trainers.checking import validation_problems
from oversharp.trainers.config import TrainConfig
from oversharp.trainers.loop import train
from oversharp.trainers.run.checkpointing import load_state
from tests.trainers.runs import FinishedRun, metrics, model_on_hub, weights, whole_and_interrupted

pytestmark = pytest.mark.slow

ADAPTER = "adapter_model.safetensors"


def test_a_lora_run_saves_adapters_and_resumes_bit_for_bit(config: TrainConfig) -> None:
    settings = replace(config, lora_rank=2, learning_rate=1e-2, algorithm="grpo+kl:beta=0.1", max_steps=4)
    whole, parts = whole_and_interrupted(settings, interrupted_at=2)
    assert weights(whole, 4, ADAPTER) == weights(parts, 4, ADAPTER)
    assert len({weights(whole, step, ADAPTER) for step in (0, 2, 4)}) == 3
    # the reference is the policy without its adapter: the KL is 0 at first, and then positive
    assert metrics(whole)[0]["penalty"] == pytest.approx(0.0, abs=1e-6)
    assert metrics(whole)[-1]["penalty"] > 1e-6


def test_a_kl_in_the_reward_is_0_at_the_first_step_and_changes_later_ones(config: TrainConfig) -> None:
    plain = train(replace(config, algorithm="reinforce_pp", max_steps=2, learning_rate=1e-2))
    settings = replace(config, algorithm="reinforce_pp:kl=0.5", max_steps=2, learning_rate=1e-2)
    settings = replace(settings, output_dir=config.output_dir.parent / "kl")
    whole, parts = whole_and_interrupted(settings, interrupted_at=1)
    first, second = zip(metrics(plain), metrics(whole), strict=True)
    assert first[0]["loss"] == pytest.approx(first[1]["loss"], abs=1e-6)  # the policy still equals its reference
    assert second[0]["advantage_abs_mean"] != pytest.approx(second[1]["advantage_abs_mean"], rel=1e-3)
    assert weights(whole, 2) == weights(parts, 2)


@pytest.mark.parametrize(
    "settings", [{"algorithm": "dlc"}, {"algorithm": "dlc:memory=tiny/qwen+kl", "reference": "tiny/qwen"}], ids=str
)
def test_an_adapter_can_be_trained_on_a_hub_model(
    config: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, str]
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    name = model_on_hub(tmp_path / "hub")
    run = train(replace(config, model=name, lora_rank=2, max_steps=1, **settings))
    assert json.loads((run / "checkpoint-1" / "adapter_config.json").read_text())["base_model_name_or_path"] == name


def test_a_lora_run_rehearses_samples_of_its_base(config: TrainConfig) -> None:
    run = train(replace(config, lora_rank=2, algorithm="self:beta=0.1", max_steps=2))
    assert all(line["rehearsal_loss"] > 0 for line in metrics(run))


@pytest.mark.parametrize(
    "setting", [{"gradient_checkpointing": True}, {"precision": "bfloat16"}, {"micro_batch": 4}], ids=str
)
def test_settings_of_passes_change_the_gradient_only_by_rounding(
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
def test_an_invalid_objective_is_rejected_before_anything_is_written(
    config: TrainConfig, setting: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        train(replace(config, **setting))
    assert not config.output_dir.exists()


def test_an_estimator_without_groups_trains_on_one_rollout_per_prompt(config: TrainConfig) -> None:
    run = train(replace(config, algorithm="reinforce_pp", group_size=1, batch_prompts=20, max_steps=2))
    assert all(line["grad_norm"] > 0 for line in metrics(run))


def test_a_resumed_run_keeps_its_pass_size_regardless_of_free_memory(
    config: TrainConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = train(replace(config, max_steps=2))
    assert load_state(run, 2)["rows_per_pass"] == 18
    monkeypatch.setattr("oversharp.trainers.loop.free_bytes", lambda device: 30e6)
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


VALIDATION = {"val_pass_at_1", "val_pass_at_4", "val_token_entropy_nats", "val_truncation_rate"}


@pytest.fixture
def other_problems(tmp_path: Path) -> Path:
    path = tmp_path / "validation.jsonl"
    path.write_text("".join(f'{{"prompt": "{n} + {n} =", "answer": "{2 * n}"}}\n' for n in range(1, 4)))
    return path


def test_validation_does_not_change_a_run(finished: FinishedRun, other_problems: Path, tmp_path: Path) -> None:
    asked = {"validate_every": 2, "validation": other_problems, "validation_samples": 4}
    run = train(replace(finished.config, output_dir=tmp_path / "validated", **asked))
    assert weights(run, 5) == weights(finished.path, 5)
    lines = metrics(run)
    assert [line.keys() >= VALIDATION for line in lines] == [False, True, False, True, False]
    line = lines[1]
    assert 0 <= line["val_pass_at_1"] <= line["val_pass_at_4"] <= 1
    assert line["val_token_entropy_nats"] > 0


def test_the_built_in_task_validates_on_problems_that_are_neither_trained_on_nor_audited() -> None:
    from oversharp.diagnostics.tasks import countdown

    ids = {problem.problem_id for problem in validation_problems(TrainConfig(validate_every=10))}
    assert len(ids) == 100
    others = (*countdown.problems(split="train"), *countdown.problems(split="audit"))
    assert not ids & {problem.problem_id for problem in others}
    assert validation_problems(TrainConfig()) == ()


def test_validation_problems_from_the_training_set_are_rejected(config: TrainConfig, tmp_path: Path) -> None:
    with pytest.raises(
        OversharpError, match=r"--validation: \d+ problems of \d+ are also in the training set \(the first:"
    ):
        train(replace(config, output_dir=tmp_path / "run", validate_every=1, validation=config.problems))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"validation": Path("held_out.jsonl")}, "--validation held_out.jsonl needs --validate-every"),
        ({"validate_every": 0}, "--validate-every 0: must be at least 1"),
        ({"validate_every": 5, "problems": Path("p.jsonl"), "model": "m"}, "--validate-every needs --validation FILE"),
        ({"warmup_steps": 160}, "--warmup-steps 160: must be fewer than --max-steps 160"),
    ],
)
def test_invalid_validation_settings_are_rejected(given: dict, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        TrainConfig(**given)


def test_a_schedule_is_followed_and_cannot_be_made_longer(config: TrainConfig, tmp_path: Path) -> None:
    asked = replace(
        config, output_dir=tmp_path / "run", learning_rate=8e-4, warmup_steps=1, schedule="linear", max_steps=3
    )
    run = train(asked)
    assert [line["learning_rate"] for line in metrics(run)] == [8e-4, 8e-4, 4e-4]
    with pytest.raises(OversharpError, match=r"other settings \(max_steps\)"):
        train(replace(asked, max_steps=5, resume=True))
