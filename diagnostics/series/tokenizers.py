"""Finds tokenizer files and reads their vocabulary, without a tokenizer library."""

from __future__ import annotations

import json
from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path

from oversharp.diagnostics.records.errors import CheckpointError
from oversharp.diagnostics.records.types import Checkpoint, content_hash

#: Files that hold a vocabulary; the settings in tokenizer_config.json alone make no tokenizer.
TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "spiece.model", "vocab.json", "vocab.txt", "tekken.json")

#: Other tokenizer files: special tokens, merges, chat templates.
_BESIDE = (
    *("tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "merges.txt"),
    *("chat_template.*", "additional_chat_templates/*"),
)

#: Settings that say where a tokenizer was read from or what wrote it, and nothing of texts.
_OF_THE_FILE = ("is_local", "local_files_only", "name_or_path")


def tokenizer_file(folders: Sequence[Path]) -> Path | None:
    """Return the vocabulary in the first of ``folders`` that has one: an adapter's own comes before its model's."""
    return next((folder / name for folder in folders for name in TOKENIZER_FILES if (folder / name).is_file()), None)


def tokenizer_folders(path: Path, model_path: Path | None) -> tuple[Path, ...]:
    """Return the places of the tokenizer of a model or adapter in ``path``, the preferred one first.

    Beside its own folder and that of the model under an adapter there are NeMo-RL's policy/tokenizer, and the folder
    huggingface around or beside the adapters of verl and SkyRL.
    """
    beside: tuple[Path, ...] = ()
    if path.name in ("adapter", "lora_adapter"):
        beside = (path.parent, path.parent / "huggingface")
    elif path.parts[-3:] == ("policy", "weights", "model"):
        beside = (path.parents[1] / "tokenizer",)
    elif path.parts[-4:] == ("policy", "weights", "model", "consolidated"):
        beside = (path.parents[2] / "tokenizer",)
    return (path, *beside, *([] if model_path is None else [model_path]))


def tokenizer_places(checkpoint: Checkpoint) -> tuple[Path, ...]:
    """Return the places of the tokenizer of ``checkpoint``, the preferred one first."""
    return tokenizer_folders(checkpoint.path, checkpoint.base_path)


def same_tokenizer(adapter: Checkpoint, model: Checkpoint) -> bool:
    """Return whether an adapter's tokenizer is that of the model under it, file by file, the chat template included."""
    own, under = (tokenizer_file(tokenizer_places(folder)) for folder in (adapter, model))
    if own is None or under is None:
        return False
    return own.parent == under.parent or _said_of_texts(own.parent) == _said_of_texts(under.parent)


def _said_of_texts(folder: Path) -> dict[str, object]:
    """Return everything in a folder that affects tokenization or ends a response."""
    files = [file for pattern in (*TOKENIZER_FILES, *_BESIDE) for file in folder.glob(pattern) if file.is_file()]
    return {str(file.relative_to(folder)): _read_content(file) for file in files}


def _read_content(file: Path) -> object:
    """Return the content of a file; of settings without the entries that loading and saving adds."""
    raw = file.read_bytes()
    if file.name != "tokenizer_config.json":
        return raw
    try:
        settings = json.loads(raw)
    except (ValueError, RecursionError):
        return raw
    if not isinstance(settings, dict):
        return raw
    return {name: value for name, value in settings.items() if name not in _OF_THE_FILE}


def refuse_different_vocabularies(checkpoints: Sequence[Checkpoint]) -> None:
    """Raise ``CheckpointError`` if two of ``checkpoints`` number their tokens differently.

    Only files of one name are compared: a conversion from one kind to another is not a difference.
    """
    first_by_kind: dict[str, tuple[str, Checkpoint]] = {}
    parsed: dict[str, str] = {}  # every checkpoint has the same file: parse it once
    for checkpoint in checkpoints:
        file = tokenizer_file(tokenizer_places(checkpoint))
        if file is None:
            continue
        raw = file.read_bytes()
        key = blake2b(raw, digest_size=16).hexdigest()
        if key not in parsed:
            parsed[key] = _vocabulary_hash(file, raw)
        expected, first = first_by_kind.setdefault(file.name, (parsed[key], checkpoint))
        if parsed[key] != expected:
            raise CheckpointError(
                f"{first.label} and {checkpoint.label} have different vocabularies ({file.name}); one of them carries "
                "the tokenizer of another model: copy the right one over it"
            )


def _vocabulary_hash(file: Path, raw: bytes) -> str:
    """Return a hash of tokens and ids: padding or truncation settings may differ between checkpoints."""
    if file.suffix != ".json":
        return blake2b(raw, digest_size=8).hexdigest()
    try:
        content = json.loads(raw)
        if file.name != "tokenizer.json":
            return content_hash(content)
        added = sorted((token["id"], token["content"]) for token in content.get("added_tokens", []))
        return content_hash(content["model"].get("vocab"), added)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise CheckpointError(f"{file}: is no tokenizer; copy the tokenizer files of the base model there") from None
