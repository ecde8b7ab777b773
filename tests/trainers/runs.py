"""Small real training runs, and readers of their files."""

from __future__ import annotations

import json
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pyarrow.parquet as parquet
import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedModel, Qwen3Config, Qwen3ForCausalLM

from oversharp.diagnostics.models.load import LoadedModel, load_path
from oversharp.diagnostics.records.progress import SilentProgress
from oversharp.trainers.config import TrainConfig
from oversharp.trainers.loop import train
from oversharp.trainers.worlds.base import build_tokenizer

#: Sizes of a tiny model of any architecture.
SIZES = {
    "vocab_size": 53,
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 8,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


#: Sizes of a tiny model with attention heads that vLLM's CPU kernels support.
VLLM_SIZES = {
    **SIZES,
    "vocab_size": 107,
    "hidden_size": 64,
    "head_dim": 32,
    "max_position_embeddings": 512,
    "bos_token_id": None,
    "eos_token_id": 1,
}


def gpt2(vocabulary_size: int = 107, *, seed: int = 0, layers: int = 2) -> PreTrainedModel:
    """Write a model of another architecture, with learned positions."""
    torch.manual_seed(seed)
    sizes = {"vocab_size": vocabulary_size, "n_positions": 64, "n_embd": 24, "n_layer": layers, "n_head": 2}
    return GPT2LMHeadModel(GPT2Config(**sizes, bos_token_id=0, eos_token_id=1)).eval()


def loaded_from(path: Path, *, end_ids: tuple[int, ...] | None = None) -> LoadedModel:
    """Load the model on the CPU; with many ``end_ids``, responses differ in length."""
    loaded = load_path(path, device=torch.device("cpu"), dtype="float32")
    return loaded if end_ids is None else replace(loaded, end_ids=end_ids)


@torch.no_grad()
def multiplied(model: PreTrainedModel, factor: float) -> PreTrainedModel:
    """Scale all matrices, so that a wrong mask or position changes the output."""
    for parameter in model.parameters():
        if parameter.ndim == 2:
            parameter.mul_(factor)
    return model


@torch.no_grad()
def apply_adapter(model: PreTrainedModel) -> Any:
    """Add a LoRA adapter to every linear layer that changes the output."""
    adapted = get_peft_model(model, LoraConfig(r=4, lora_alpha=8, target_modules="all-linear"))
    torch.manual_seed(0)
    for name, parameter in adapted.named_parameters():
        if ".lora_B" in name:
            parameter.normal_(std=0.1)
    return adapted.eval()


@contextmanager
def no_file_above(n_bytes: int) -> Iterator[None]:
    """Let writes of larger files fail, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


#: Correct answers, one of which is in half of the tiny model's samples.
EVENS = [str(number) for number in range(0, 100, 2)]


class Notes(SilentProgress):
    """Progress sink that stores its notes."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


@dataclass(frozen=True, kw_only=True)
class FinishedRun:
    """A run of five steps with checkpoints 0, 2, 4 and 5, and its notes. Do not write into it."""

    config: TrainConfig
    path: Path
    notes: list[str]


def whole_and_interrupted(config: TrainConfig, *, interrupted_at: int) -> tuple[Path, Path]:
    """Return an uninterrupted run, and one resumed after a step."""
    whole = train(replace(config, output_dir=config.output_dir / "whole"))
    parts = replace(config, output_dir=config.output_dir / "parts")
    train(replace(parts, max_steps=interrupted_at))
    return whole, train(replace(parts, resume=True))


def weights(run: Path, step: int, file: str = "model.safetensors") -> str:
    """Return the digest of the weights (or of the adapter, ``adapter_model.safetensors``) after ``step``."""
    return sha256((run / f"checkpoint-{step}" / file).read_bytes()).hexdigest()


def metrics(run: Path, *, timed: bool = True) -> list[dict[str, Any]]:
    """Return the lines of ``metrics.jsonl``, without measured times unless ``timed``."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{name: number for name, number in line.items() if timed or not name.endswith("_s")} for line in lines]


def rollouts(run: Path) -> list[dict[str, Any]]:
    """Return the rows of all rollout files."""
    return [
        row for path in sorted((run / "rollouts").glob("*.parquet")) for row in parquet.read_table(path).to_pylist()
    ]


def warned(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the warnings of a live audit, without those about unparsed answers of random models."""
    messages = [record.getMessage() for record in caplog.records if record.name == "oversharp.live"]
    return [line for line in messages if "pass@1 so far" not in line]


def problems_at(path: Path, modes: list[str], prompts: list[str]) -> Path:
    """Append problems with these correct answers to a file."""
    with path.open("a") as file:
        for prompt in prompts:
            file.write(json.dumps({"prompt": prompt, "answer": "x", "modes": modes, "verifier": "modes"}) + "\n")
    return path


def model_on_hub(cache: Path) -> str:
    """Write a tiny model to a hub cache and return its name."""
    hub = cache / "models--tiny--qwen"
    (hub / "refs").mkdir(parents=True)
    (hub / "refs" / "main").write_text("1f")
    Qwen3ForCausalLM(Qwen3Config(**VLLM_SIZES)).save_pretrained(hub / "snapshots" / "1f")
    build_tokenizer().save_pretrained(hub / "snapshots" / "1f")
    return "tiny/qwen"
