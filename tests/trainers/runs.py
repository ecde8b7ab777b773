"""Small real training runs: what they leave behind, as tests read it."""

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
from oversharp.trainers.countdown_base import build_tokenizer
from oversharp.trainers.loop import train

#: A tiny model of any architecture.
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


#: A tiny model with heads of a size that vLLM's CPU kernels take.
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
    """Another architecture than the tiny model's: positions are learned."""
    torch.manual_seed(seed)
    sizes = {"vocab_size": vocabulary_size, "n_positions": 64, "n_embd": 24, "n_layer": layers, "n_head": 2}
    return GPT2LMHeadModel(GPT2Config(**sizes, bos_token_id=0, eos_token_id=1)).eval()


def loaded_from(path: Path, *, end_ids: tuple[int, ...] | None = None) -> LoadedModel:
    """The model on the CPU; with many ``end_ids``, responses have many lengths."""
    loaded = load_path(path, device=torch.device("cpu"), dtype="float32")
    return loaded if end_ids is None else replace(loaded, end_ids=end_ids)


@torch.no_grad()
def multiplied(model: PreTrainedModel, factor: float) -> PreTrainedModel:
    """All matrices: so wide that a wrong mask or position shows."""
    for parameter in model.parameters():
        if parameter.ndim == 2:
            parameter.mul_(factor)
    return model


@torch.no_grad()
def apply_adapter(model: PreTrainedModel) -> Any:
    """A LoRA on every linear layer that changes what the model says."""
    adapted = get_peft_model(model, LoraConfig(r=4, lora_alpha=8, target_modules="all-linear"))
    torch.manual_seed(0)
    for name, parameter in adapted.named_parameters():
        if ".lora_B" in name:
            parameter.normal_(std=0.1)
    return adapted.eval()


@contextmanager
def no_file_above(n_bytes: int) -> Iterator[None]:
    """A disk that is full, for larger files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


#: Right answers of which the tiny model says one in half of its samples.
EVENS = [str(number) for number in range(0, 100, 2)]


class Notes(SilentProgress):
    """Keeps what is said."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


@dataclass(frozen=True, kw_only=True)
class FinishedRun:
    """A run of five steps that saved steps 0, 2, 4 and 5, and what it said. Do not write into it."""

    config: TrainConfig
    path: Path
    notes: list[str]


def whole_and_interrupted(config: TrainConfig, *, interrupted_at: int) -> tuple[Path, Path]:
    """One run without a break, and one that went on after a step."""
    whole = train(replace(config, output_dir=config.output_dir / "whole"))
    parts = replace(config, output_dir=config.output_dir / "parts")
    train(replace(parts, max_steps=interrupted_at))
    return whole, train(replace(parts, resume=True))


def weights(run: Path, step: int, file: str = "model.safetensors") -> str:
    """Digest of the weights, or with ``adapter_model.safetensors`` of the adapter, after ``step``."""
    return sha256((run / f"checkpoint-{step}" / file).read_bytes()).hexdigest()


def metrics(run: Path, *, timed: bool = True) -> list[dict[str, Any]]:
    """The lines of ``metrics.jsonl``; without what a clock decides unless ``timed``."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{name: number for name, number in line.items() if timed or not name.endswith("_s")} for line in lines]


def rollouts(run: Path) -> list[dict[str, Any]]:
    """The rows of all rollout files."""
    return [
        row for path in sorted((run / "rollouts").glob("*.parquet")) for row in parquet.read_table(path).to_pylist()
    ]


def warned(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What a live audit has warned of, but for what random models answer, which nobody can read."""
    said = [one.getMessage() for one in caplog.records if one.name == "oversharp.live"]
    return [line for line in said if "pass@1 so far" not in line]


def problems_at(path: Path, modes: list[str], prompts: list[str]) -> Path:
    """Problems with these right answers, added to what the file holds."""
    with path.open("a") as file:
        for prompt in prompts:
            file.write(json.dumps({"prompt": prompt, "answer": "x", "modes": modes, "verifier": "modes"}) + "\n")
    return path


def model_on_hub(cache: Path) -> str:
    """The name of a tiny model put into this cache of the hub."""
    hub = cache / "models--tiny--qwen"
    (hub / "refs").mkdir(parents=True)
    (hub / "refs" / "main").write_text("1f")
    Qwen3ForCausalLM(Qwen3Config(**VLLM_SIZES)).save_pretrained(hub / "snapshots" / "1f")
    build_tokenizer().save_pretrained(hub / "snapshots" / "1f")
    return "tiny/qwen"
