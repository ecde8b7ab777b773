"""Tokenizer, end tokens and limits of a checkpoint, without its weights."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oversharp.diagnostics.models.load import find_end_ids, load_own_tokenizer
from oversharp.diagnostics.records.errors import CheckpointError
from oversharp.diagnostics.records.types import Checkpoint

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


@dataclass(frozen=True, kw_only=True)
class Encoder:
    """The fields of ``LoadedModel`` that encode prompts and decode responses."""

    tokenizer: PreTrainedTokenizerBase
    end_ids: tuple[int, ...]
    context_tokens: int | None
    vocabulary_size: int


def load_encoder(checkpoint: Checkpoint, *, trust_remote_code: bool = False) -> Encoder:
    """Read the tokenizer and the configuration of a checkpoint. No weights are read.

    The fields equal those of ``load_model``. Raises ``CheckpointError``.
    """
    tokenizer = load_own_tokenizer(checkpoint, trust_remote_code=trust_remote_code)
    folder = checkpoint.base_path or checkpoint.path
    config = _read_object(folder / "config.json", name=checkpoint.label)
    of_text = config.get("text_config")
    of_text = of_text if isinstance(of_text, dict) else config
    vocabulary_size = of_text.get("vocab_size", config.get("vocab_size"))
    if not isinstance(vocabulary_size, int):
        raise CheckpointError(f"{checkpoint.label}: {folder / 'config.json'} has no vocab_size; add it")
    defaults = folder / "generation_config.json"
    generation = _read_object(defaults, name=checkpoint.label) if defaults.is_file() else {**of_text, **config}
    stated = generation.get("eos_token_id")
    ends = [] if stated is None else stated if isinstance(stated, list) else [stated]
    return Encoder(
        tokenizer=tokenizer,
        end_ids=find_end_ids(tokenizer, ends, vocabulary_size, name=checkpoint.label),
        context_tokens=of_text.get("max_position_embeddings"),
        vocabulary_size=vocabulary_size,
    )


def _read_object(path: Path, *, name: str) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{name}: {path} cannot be read ({error}); copy it from the base model") from None
    if not isinstance(content, dict):
        raise CheckpointError(f"{name}: {path} is not a JSON object; copy it from the base model")
    return content
