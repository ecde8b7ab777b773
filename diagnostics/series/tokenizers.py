"""Find tokenizer files and compare their vocabularies, without a tokenizer library."""

from __future__ import annotations

import json
from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path

from oversharp.diagnostics.records.errors import CheckpointError
from oversharp.diagnostics.records.types import Checkpoint, content_hash

#: Files that contain a vocabulary. tokenizer_config.json alone is not a tokenizer.
TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "spiece.model", "vocab.json", "vocab.txt", "tekken.json")

#: Other tokenizer files: special tokens, merges, chat templates.
_OTHER_FILES = (
    *("tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "merges.txt"),
    *("chat_template.*", "additional_chat_templates/*"),
)

#: Settings of tokenizer_config.json that have no effect on tokens.
_IGNORED_SETTINGS = ("is_local", "local_files_only", "name_or_path")


def tokenizer_file(folders: Sequence[Path]) -> Path | None:
    """Return the vocabulary file in the first of ``folders`` that has one."""
    return next((folder / name for folder in folders for name in TOKENIZER_FILES if (folder / name).is_file()), None)


def tokenizer_folders(path: Path, model_path: Path | None) -> tuple[Path, ...]:
    """Return the folders that may contain the tokenizer of ``path``, in order of preference.

    They are its own folder, NeMo-RL's policy/tokenizer, the folder huggingface around or next to adapters of verl and
    SkyRL, and the folder of an adapter's model.
    """
    nearby: tuple[Path, ...] = ()
    if path.name in ("adapter", "lora_adapter"):
        nearby = (path.parent, path.parent / "huggingface")
    elif path.parts[-3:] == ("policy", "weights", "model"):
        nearby = (path.parents[1] / "tokenizer",)
    elif path.parts[-4:] == ("policy", "weights", "model", "consolidated"):
        nearby = (path.parents[2] / "tokenizer",)
    return (path, *nearby, *([] if model_path is None else [model_path]))


def find_tokenizer(checkpoint: Checkpoint) -> Path | None:
    """Return the vocabulary file of ``checkpoint``. For an adapter it may be the file of its model."""
    return tokenizer_file(tokenizer_folders(checkpoint.path, checkpoint.base_path))


def same_tokenizer(adapter: Checkpoint, model: Checkpoint) -> bool:
    """Return whether an adapter and its model have the same tokenizer and chat template."""
    own, under = find_tokenizer(adapter), find_tokenizer(model)
    if own is None or under is None:
        return False
    return own.parent == under.parent or _tokenizer_contents(own.parent) == _tokenizer_contents(under.parent)


def _tokenizer_contents(folder: Path) -> dict[str, object]:
    """Return the content of every file that affects tokenization or end tokens."""
    files = [file for pattern in (*TOKENIZER_FILES, *_OTHER_FILES) for file in folder.glob(pattern) if file.is_file()]
    return {str(file.relative_to(folder)): _load_content(file) for file in files}


def _load_content(file: Path) -> object:
    """Return the content of a file, without the settings that loading and saving add."""
    raw = file.read_bytes()
    if file.name != "tokenizer_config.json":
        return raw
    try:
        settings = json.loads(raw)
    except (ValueError, RecursionError):
        return raw
    if not isinstance(settings, dict):
        return raw
    return {name: value for name, value in settings.items() if name not in _IGNORED_SETTINGS}


def refuse_different_vocabularies(checkpoints: Sequence[Checkpoint]) -> None:
    """Raise ``CheckpointError`` if two of ``checkpoints`` assign different ids to tokens.

    Only files with the same name are compared, because a conversion to another format is not a difference.
    """
    first_by_name: dict[str, tuple[str, Checkpoint]] = {}
    parsed: dict[str, str] = {}  # compare hashes of the content first, because checkpoints usually have the same file
    for checkpoint in checkpoints:
        file = find_tokenizer(checkpoint)
        if file is None:
            continue
        raw = file.read_bytes()
        key = blake2b(raw, digest_size=16).hexdigest()
        if key not in parsed:
            parsed[key] = _vocabulary_hash(file, raw)
        expected, first = first_by_name.setdefault(file.name, (parsed[key], checkpoint))
        if parsed[key] != expected:
            raise CheckpointError(
                f"{first.label} and {checkpoint.label} have different vocabularies ({file.name}); one of them has "
                "the tokenizer of another model: replace it with the right tokenizer"
            )


def _vocabulary_hash(file: Path, raw: bytes) -> str:
    """Return a hash of tokens and ids, ignoring padding and truncation settings."""
    if file.suffix != ".json":
        return blake2b(raw, digest_size=8).hexdigest()
    try:
        content = json.loads(raw)
        if file.name != "tokenizer.json":
            return content_hash(content)
        added = sorted((token["id"], token["content"]) for token in content.get("added_tokens", []))
        return content_hash(content["model"].get("vocab"), added)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise CheckpointError(f"{file}: not a tokenizer; copy the tokenizer files of the base model there") from None
