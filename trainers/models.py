"""Loads the policy and encodes prompts: the edge to transformers."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from jaxtyping import Bool, Int
from safetensors import SafetensorError
from torch import Tensor

from diagnostics.errors import CheckpointError, ConfigError
from diagnostics.types import Problem
from trainers.config import TrainConfig

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


def choose_device(wanted: str | None) -> torch.device:
    """The device asked for, else a GPU if there is one. Raises ``ConfigError`` for one that is not there."""
    if wanted is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(wanted)
    except RuntimeError:
        raise ConfigError(f"--device {wanted}: not a device name; use cpu, cuda or cuda:0") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ConfigError(f"--device {wanted}: this machine has no usable CUDA GPU; use --device cpu")
    return device


@contextmanager
def cpu_threads(threads: int) -> Iterator[None]:
    """Limit torch to ``threads`` CPU threads inside the block."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def without_library_bars() -> Iterator[None]:
    """Silence transformers' own progress bars inside the block: ours says what happens."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


def load_policy(path: str | Path, device: torch.device) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Model in float32 and evaluation mode, and its tokenizer.

    Evaluation mode stays on during training: dropout would make the sampler and the trainer two different policies.
    Raises ``CheckpointError`` if either cannot be loaded or no end token is known.
    """
    from transformers import AutoModelForCausalLM, AutoTokenizer

    if _looks_local(path) and not (Path(path) / "config.json").is_file():
        raise CheckpointError(f"{path}: no config.json here; give a checkpoint directory such as RUN/checkpoint-1200")
    try:
        with without_library_bars():
            model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
        tokenizer = AutoTokenizer.from_pretrained(path)
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        first_line = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise CheckpointError(f"{path}: cannot load model and tokenizer ({first_line}); check the directory") from error
    if not end_token_ids(model, tokenizer):
        raise CheckpointError(f"{path}: no end token known; set eos_token_id in generation_config.json")
    model.to(device)  # type: ignore[arg-type]
    return model.eval(), tokenizer


def _looks_local(path: str | Path) -> bool:
    return isinstance(path, Path) or os.path.exists(path) or path.startswith((".", "/", "~")) or path.count("/") > 1


def end_token_ids(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> tuple[int, ...]:
    """Every token that ends a response."""
    generation = getattr(model, "generation_config", None)
    wanted = getattr(generation, "eos_token_id", None)
    if wanted is None:
        wanted = tokenizer.eos_token_id
    if wanted is None:
        return ()
    return tuple(wanted) if isinstance(wanted, (list, tuple)) else (int(wanted),)


def pad_token_id(tokenizer: PreTrainedTokenizerBase, end_ids: Sequence[int]) -> int:
    """What fills short rows; masked everywhere, so any token would do."""
    return end_ids[0] if tokenizer.pad_token_id is None else int(tokenizer.pad_token_id)


def encode_prompts(
    problems: Sequence[Problem], tokenizer: PreTrainedTokenizerBase, config: TrainConfig, *, pad_id: int
) -> tuple[Int[Tensor, "prompt length"], Bool[Tensor, "prompt length"]]:
    """Token ids of the prompts, padded on the left, and the mask of what is not padding."""
    rows = [_prompt_ids(config.prompt_template.format(prompt=p.prompt), tokenizer, config) for p in problems]
    longest = max(map(len, rows))
    ids_PL = torch.tensor([[pad_id] * (longest - len(row)) + row for row in rows])
    mask_PL = torch.tensor([[False] * (longest - len(row)) + [True] * len(row) for row in rows])
    return ids_PL, mask_PL


def _prompt_ids(text: str, tokenizer: PreTrainedTokenizerBase, config: TrainConfig) -> list[int]:
    if not config.chat:
        ids: list[int] = tokenizer(text)["input_ids"]
        return ids
    if tokenizer.chat_template is None:
        raise ConfigError("--chat: this tokenizer has no chat template; leave --chat out or pass --prompt-template")
    system = [{"role": "system", "content": config.system_prompt}] if config.system_prompt else []
    turns = [*system, {"role": "user", "content": text}]
    rendered = tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
    # the template writes the special tokens itself
    chat_ids: list[int] = tokenizer(rendered, add_special_tokens=False)["input_ids"]
    return chat_ids
