"""Tokenizer files on disk: where they lie and which vocabulary they hold. Reads no tokenizer library."""

from __future__ import annotations

import json
from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path

from oversharp.diagnostics.records.errors import CheckpointError
from oversharp.diagnostics.records.types import Checkpoint, content_hash

#: Files that hold a vocabulary; the settings in tokenizer_config.json alone make no tokenizer.
TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "spiece.model", "vocab.json", "vocab.txt", "tekken.json")

#: What lies beside it: special tokens, merges, chat templates.
_BESIDE = (
    *("tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "merges.txt"),
    *("chat_template.*", "additional_chat_templates/*"),
)

#: Settings that say where a tokenizer was read from or what wrote it, and nothing of texts.
_OF_THE_FILE = ("is_local", "local_files_only", "name_or_path")


def tokenizer_file(folders: Sequence[Path]) -> Path | None:
    """The vocabulary in the first of ``folders`` that has one: an adapter's own comes before its model's."""
    return next((folder / name for folder in folders for name in TOKENIZER_FILES if (folder / name).is_file()), None)


def tokenizer_folders(path: Path, model_path: Path | None) -> tuple[Path, ...]:
    """Where the tokenizer of a model or adapter in ``path`` may lie, the preferred place first.

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
    """Where the tokenizer of ``checkpoint`` may lie, the preferred place first."""
    return tokenizer_folders(checkpoint.path, checkpoint.base_path)


def same_tokenizer(adapter: Checkpoint, model: Checkpoint) -> bool:
    """Whether an adapter's tokenizer is that of the model under it, file by file, the chat template included."""
    own, under = (tokenizer_file(tokenizer_places(one)) for one in (adapter, model))
    if own is None or under is None:
        return False
    return own.parent == under.parent or _said_of_texts(own.parent) == _said_of_texts(under.parent)


def _said_of_texts(folder: Path) -> dict[str, object]:
    """All that says in a folder how texts become tokens, and which of them end a response."""
    files = [file for pattern in (*TOKENIZER_FILES, *_BESIDE) for file in folder.glob(pattern) if file.is_file()]
    return {str(file.relative_to(folder)): _said_by(file) for file in files}


def _said_by(file: Path) -> object:
    """What a file says; of the settings, all but what their first load and save adds about these themselves."""
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
    parsed: dict[str, str] = {}  # the same file lies in every checkpoint: parse it once
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
    """Of the tokens and their ids alone: padding or truncation settings may differ between checkpoints."""
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
