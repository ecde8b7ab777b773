"""The model card: front matter for the hub, settings that reproduce the run, metrics with units."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from huggingface_hub import ModelCard

from oversharp.trainers import objectives
from oversharp.trainers.config import TrainConfig
from oversharp.trainers.run.directory import RunPart
from oversharp.trainers.run.model_card import model_card

METRICS = {
    "step": 160,
    "correct_rate": 0.61,
    "token_entropy_nats": 0.1669,
    "grad_norm": 0.5,
    "correct_variety": 0.4,
    "clip_fraction": 0.1,
    "response_tokens_mean": 5.5,
    "wall_s": 0.9,
    "samples_per_s": 280.0,
    "generation_s": 0.2,
}
VERSIONS = {"python": "3.11.9", "oversharp": "0.1.0", "torch": "2.13.0", "vllm": None}


def part(after_step: int, **versions: str) -> RunPart:
    return RunPart(after_step=after_step, started="2026-01-01T00:00:00+00:00", versions={**VERSIONS, **versions})


def card_of(*, step: int = 160, metrics: Mapping[str, float] = METRICS, **settings: Any) -> str:
    config = TrainConfig(**{"model": "runs/base/checkpoint-1200", "output_dir": Path("runs/iac"), **settings})
    return model_card(config, objectives.parse(config.algorithm), step=step, metrics=metrics, parts=[part(0)])


def front_matter(card: str) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load(card.split("---\n")[1])
    return loaded


def test_the_hub_can_read_the_front_matter() -> None:
    card = card_of(algorithm="iac:alpha=0.5", model="Qwen/Qwen3-0.6B", problems=Path("a/train.jsonl"))
    data = ModelCard(card).data.to_dict()
    assert data == front_matter(card)
    assert data["library_name"] == "transformers"
    assert data["base_model"] == "Qwen/Qwen3-0.6B"
    assert data["model_name"] == "iac"
    assert data["tags"] == ["oversharp", "reinforcement-learning", "rlvr", "iac"]


def test_a_local_checkpoint_is_not_the_base_model_on_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The hub rejects a card whose base_model is a path; `runs/base` looks like a hub name."""
    (tmp_path / "runs" / "base").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    for model in ("runs/base", "runs/base/checkpoint-1200", str(tmp_path)):
        card = card_of(model=model)
        assert "base_model" not in front_matter(card)
        assert f"It started from `{model}`." in card


def test_the_card_lists_the_sources_of_all_parts() -> None:
    objective = objectives.parse("iac:alpha=0.5")
    card = card_of(algorithm="iac:alpha=0.5")
    assert f"`{objective.expression}`" in card
    assert "iac:alpha=0.5" in objective.expression
    for part in objective.parts:
        assert f"- {part.title} ({part.source})" in card


def test_the_settings_reproduce_the_run() -> None:
    card = card_of(algorithm="iac", prompt_template="Q: {prompt}\nA:", learning_rate=1e-4, resume=True)
    (toml,) = re.findall(r"```toml\n(.*?)```", card, flags=re.DOTALL)
    settings = tomllib.loads(toml)["train"]
    again = TrainConfig(**settings, output_dir=Path("runs/iac"))
    assert again.learning_rate == 1e-4
    assert again.prompt_template == "Q: {prompt}\nA:"
    assert again.algorithm == "iac"
    assert not {"resume", "output_dir"} & set(settings)


def test_metrics_have_units_and_times_are_omitted() -> None:
    card = card_of()
    units = {"correct_rate": "share of responses", "token_entropy_nats": "nats per token", "grad_norm": ""}
    units |= {"correct_variety": "probability", "clip_fraction": "share of tokens", "response_tokens_mean": "tokens"}
    for name, unit in units.items():
        assert f"| {name} | {METRICS[name]} | {unit} |" in card
    for name in ("wall_s", "samples_per_s", "generation_s"):
        assert name not in card


def test_the_card_of_the_first_checkpoint_states_that_it_has_no_metrics() -> None:
    card = card_of(step=0, metrics={})
    assert "# iac, step 0" in card
    assert "None: this is the model before its first step." in card
    assert "before on-policy reinforcement learning" in card


def test_the_audit_command_has_the_prompt_format_of_the_training() -> None:
    assert "oversharp audit runs/iac --task countdown\n" in card_of()
    card = card_of(problems=Path("train.jsonl"), chat=True, chat_args='{"a": 1}', system_prompt="Be brief.")
    asked = """--chat --chat-args '{"a": 1}' --system-prompt 'Be brief.'"""
    assert f"oversharp audit runs/iac --problems HELD_OUT.jsonl {asked}\n" in card


def test_the_library_of_an_adapter_is_peft() -> None:
    data = front_matter(card_of(lora_rank=8))
    assert data["library_name"] == "peft"
    assert "lora" in data["tags"]


def test_packages_that_are_not_installed_are_omitted() -> None:
    card = card_of()
    assert "python 3.11.9, oversharp 0.1.0, torch 2.13.0" in card
    assert "vllm" not in card.split("## Versions")[1]


def test_a_run_resumed_elsewhere_lists_the_versions_of_each_part() -> None:
    config, objective = TrainConfig(), objectives.parse("grpo")

    def versions(step: int, *parts: RunPart) -> str:
        card = model_card(config, objective, step=step, metrics={}, parts=parts)
        return card.split("## Versions\n\n")[1].strip()

    # the first part after step 20 was killed before its first save
    moved = part(0), part(20, torch="2.12.0"), part(20, torch="2.14.0"), part(40, torch="2.14.0")
    then = "python 3.11.9, oversharp 0.1.0, torch 2.13.0"
    assert versions(20, *moved) == then
    assert versions(60, *moved) == f"- from step 1: {then}\n- from step 21: {then.replace('2.13.0', '2.14.0')}"
    assert versions(60, part(0), part(20), part(40)) == then


def test_hostile_names_do_not_break_the_front_matter() -> None:
    card = card_of(output_dir=Path('runs/a: "b" # c'))
    assert front_matter(card)["model_name"] == 'a: "b" # c'


def test_equal_runs_give_equal_cards() -> None:
    slower = {**METRICS, "wall_s": 9.0, "generation_s": 8.0, "samples_per_s": 28.0}
    assert card_of() == card_of(metrics=slower)
