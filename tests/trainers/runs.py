"""Small real training runs: what they leave behind, as tests read it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import pyarrow.parquet as parquet
from transformers import Qwen3Config, Qwen3ForCausalLM

from diagnostics.records.progress import SilentProgress
from trainers.config import TrainConfig
from trainers.countdown_base import build_tokenizer

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


def model_on_hub(cache: Path) -> str:
    """The name of a tiny model put into this cache of the hub; its heads have a size that vLLM's CPU kernels take."""
    hub = cache / "models--tiny--qwen"
    (hub / "refs").mkdir(parents=True)
    (hub / "refs" / "main").write_text("1f")
    config = Qwen3Config(
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
    Qwen3ForCausalLM(config).save_pretrained(hub / "snapshots" / "1f")
    build_tokenizer().save_pretrained(hub / "snapshots" / "1f")
    return "tiny/qwen"
