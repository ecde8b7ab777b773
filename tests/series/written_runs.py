"""Runs on disk, built from folders that transformers and peft wrote once."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file


@dataclass(frozen=True)
class Piece:
    """A folder that is written once and copied into layouts."""

    name: str


BASE, STEP_10, STEP_20, TOKENIZER = Piece("base"), Piece("step_10"), Piece("step_20"), Piece("tokenizer")
ADAPTER_10, ADAPTER_20 = Piece("adapter_10"), Piece("adapter_20")
#: As verl's merger writes them, without the name of the base.
NAMELESS_10, NAMELESS_20 = Piece("nameless_10"), Piece("nameless_20")
SETTINGS = Piece("settings")  # config.json and tokenizer without weights
BARE_10 = Piece("bare_10")  # config.json and weights without tokenizer

Files = dict[str, Piece | str]


def write_pieces(root: Path, make_checkpoint: Callable[[Path, int], Path]) -> Path:
    """Write every piece into ``root``: a tiny Qwen3, other weights of it, and adapters of it."""
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    base = make_checkpoint(root / "base", 0)
    settings = LoraConfig(r=2, lora_alpha=4, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
    adapted = get_peft_model(AutoModelForCausalLM.from_pretrained(base), settings)
    for step in (10, 20):
        make_checkpoint(root / f"step_{step}", step)
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            torch.manual_seed(step)
            for name, parameter in adapted.named_parameters():
                if "lora_B" in name:
                    parameter.normal_(std=0.5)
        adapted.save_pretrained(root / f"adapter_{step}")
        shutil.copytree(root / f"adapter_{step}", root / f"nameless_{step}")
        change_json(root / f"nameless_{step}/adapter_config.json", base_model_name_or_path=None)
    parts = {"tokenizer": "base/tokenizer*", "settings": "base/*.json", "bare_10": "step_10/[cm]*"}
    for name, kept in parts.items():
        (root / name).mkdir()
        for file in root.glob(kept):
            shutil.copy(file, root / name)
    return root


def change_json(path: Path, **entries: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | entries))


def write_run(run: Path, files: Files, pieces: Path) -> Path:
    """Write every entry of ``files`` into ``run``: a piece as a folder, a text as a file."""
    for name, content in files.items():
        if isinstance(content, Piece):
            shutil.copytree(pieces / content.name, run / name, dirs_exist_ok=True)
        else:
            (run / name).parent.mkdir(parents=True, exist_ok=True)
            (run / name).write_text(content)
    return run


def empty(*names: str) -> Files:
    return dict.fromkeys(names, "")


def untrain(adapter: Path) -> None:
    """Set the second factors of an adapter to zero, as before its first step."""
    file = adapter / "adapter_model.safetensors"
    save_file({name: 0 * tensor if "lora_B" in name else tensor for name, tensor in load_file(file).items()}, file)
