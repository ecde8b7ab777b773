from __future__ import annotations

import re
import tomllib
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from oversharp.diagnostics.records.errors import ConfigError
from oversharp.trainers.config import SftConfig, TrainConfig, settings_of, to_toml


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"group_size": 0}, "--group-size 0: must be at least 1"),
        ({"max_steps": 0}, "--max-steps 0: must be at least 1"),
        ({"save_every": 0}, "--save-every 0"),
        ({"micro_batch": 0}, "--micro-batch 0"),
        ({"limit": 0}, "--limit 0"),
        ({"seed": -1}, "--seed -1"),
        ({"learning_rate": 0.0}, "--learning-rate 0.0: must be a finite number above 0"),
        ({"learning_rate": float("nan")}, "--learning-rate nan"),
        ({"temperature": 0.0}, "--temperature 0.0"),
        ({"correct_above": float("nan")}, "--correct-above nan: must be a number"),
        ({"lora_rank": -1}, "--lora-rank -1"),
        ({"lora_alpha": 8.0}, "--lora-alpha needs --lora-rank"),
        ({"updates_per_batch": 5}, "--updates-per-batch 5: does not divide --batch-prompts 32"),
        ({"algorithm": "iac:alpha"}, "settings of iac: 'alpha' is not NAME=VALUE, or repeated"),
        ({"algorithm": "iacc"}, "unknown objective 'iacc'; did you mean iac"),
        ({"algorithm": "ppo-like"}, "unknown objective 'ppo-like'; choose from"),
        ({"algorithm": "sft"}, "not an RL objective"),
        ({"problems": Path("a.jsonl"), "task": "countdown", "model": "m"}, "not both"),
        ({"problems": Path("a.jsonl")}, "--model is missing"),
        ({"prompt_template": "Question:"}, "must contain {prompt}"),
        ({"system_prompt": "Be brief."}, "--system-prompt needs --chat"),
    ],
)
def test_an_invalid_setting_is_rejected_with_its_flag(setting: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        TrainConfig(**setting)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"max_steps": 0}, "--max-steps 0"),
        ({"wrong_share": 1.5}, "--wrong-share 1.5"),
        ({"seed": -1}, "--seed -1"),
        ({"task": "program"}, "--task program: has no base to train; did you mean: programs"),
    ],
)
def test_sft_settings_are_checked_too(setting: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        SftConfig(**setting)


def test_a_built_in_world_needs_no_model_and_sets_the_length_of_responses() -> None:
    assert (TrainConfig().world, TrainConfig(task="countdown").world) == ("countdown", "countdown")
    programs = TrainConfig(task="programs")
    assert (programs.world, programs.used_max_tokens) == ("programs", 6)
    assert TrainConfig(task="word_problems:train", model="m").world is None
    assert TrainConfig(problems=Path("a.jsonl"), model="m").world is None
    with pytest.raises(ConfigError, match="--verifier: built-in tasks have their own verifier"):
        TrainConfig(task="programs", verifier="math")


@pytest.mark.parametrize("config_type", [TrainConfig, SftConfig])
def test_every_setting_is_documented(config_type: type) -> None:
    texts = "\n".join(part.__doc__ or "" for part in config_type.__mro__[:-1])
    documented = re.findall(r"^    (\w+)$", texts, flags=re.MULTILINE)
    assert sorted({*documented} - {"Attributes"}) == sorted(field.name for field in fields(config_type))


def test_max_tokens_defaults_to_the_tasks_value() -> None:
    assert TrainConfig(model="m", task="countdown").used_max_tokens == 6
    assert TrainConfig(model="m", task="countdown", max_tokens=9).used_max_tokens == 9
    assert TrainConfig(model="m", problems=Path("a.jsonl")).used_max_tokens == 1024
    assert TrainConfig(model="m", task="benchmark:aime24", max_tokens=9).used_max_tokens == 9


def test_settings_are_equal_after_a_round_trip_through_toml() -> None:
    config = TrainConfig(
        model='a "quoted" \\ path/ü',
        learning_rate=1e-7,
        prompt_template="Q:\t{prompt}\n",
        chat=True,
        max_grad_norm=1e30,
    )
    assert tomllib.loads(to_toml(settings_of(config))) == settings_of(config)
