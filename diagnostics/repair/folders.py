"""Output folder of a repair: lock it, check it, and write checkpoints into it atomically."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from oversharp.diagnostics.records.amounts import disk_size
from oversharp.diagnostics.records.errors import CheckpointError, ConfigError
from oversharp.diagnostics.records.types import Checkpoint
from oversharp.diagnostics.series.layouts import REPAIR_RECORD
from oversharp.diagnostics.series.tokenizers import find_tokenizer

#: Name prefix of folders that are still being written. Audits skip them.
_UNFINISHED = "tmp-"

_MODEL_FILES = ("config.json", "generation_config.json", "*.py")
_TOKENIZER_FILES = (
    "tokenizer*", "special_tokens_map.json", "added_tokens.json", "vocab.json", "vocab.txt", "merges.txt",
    "spiece.model", "tekken.json", "*.tiktoken", "chat_template*", "additional_chat_templates/*",
    "preprocessor_config.json", "processor_config.json", "video_preprocessor_config.json", "*.py",
)  # fmt: skip


@contextmanager
def lock_output(out: Path, record: dict[str, Any]) -> Iterator[None]:
    """Lock the folder ``out`` for the repair of ``record``, and delete leftovers of a killed call.

    Raises ``ConfigError`` if it contains other files or a repair of other weights, or another call is writing.
    """
    require_ours(out, record)
    try:
        out.mkdir(parents=True, exist_ok=True)
        lock = (out / REPAIR_RECORD).open("a+", encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"--out {out}: cannot be written ({error.strerror}); choose another --out") from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(f"--out {out}: another repair is writing here; wait until it ends") from None
        if lock.tell() == 0:
            lock.write(json.dumps(record, indent=2) + "\n")
            lock.flush()
        for leftover in out.glob(f"{_UNFINISHED}checkpoint-*"):
            shutil.rmtree(leftover)
        yield


def require_ours(out: Path, record: dict[str, Any]) -> None:
    """Raise ``ConfigError`` unless ``out`` is missing, empty, or contains a repair of these weights."""
    if out.exists() and not out.is_dir():
        raise ConfigError(f"--out {out}: is a file; choose another --out")
    if not out.is_dir() or not any(out.iterdir()):
        return
    file = out / REPAIR_RECORD
    if not file.is_file():
        first = min(path.name for path in out.iterdir())
        raise ConfigError(f"--out {out}: contains other files ({first}); choose a new folder")
    text = file.read_text(encoding="utf-8")
    if not text:  # a call was killed between creating and writing the file
        return
    try:
        existing = json.loads(text).get("made_of", {})
    except ValueError:
        raise ConfigError(f"--out {out}: {REPAIR_RECORD} is not from a repair; choose a new folder") from None
    differing = next((name for name, value in record["made_of"].items() if existing.get(name) != value), None)
    if differing is not None:
        raise ConfigError(f"--out {out}: contains a repair with another {differing}; choose a new folder")


def refuse_inside(out: Path, places: Sequence[Path]) -> None:
    """Raise ``ConfigError`` if ``out`` is inside a series, whose next audit would include it."""
    for place in places:
        if out.resolve().is_relative_to(place.resolve()):
            raise ConfigError(f"--out {out}: is inside {place}, which is a series; choose a folder next to it")


def require_space(out: Path, n_bytes: int) -> None:
    """Raise ``ConfigError`` unless the disk of ``out`` has ``n_bytes`` free."""
    free = shutil.disk_usage(_existing(out)).free
    if n_bytes > free:
        raise ConfigError(
            f"--out {out}: needs {disk_size(n_bytes)}, but its disk has {disk_size(free)} free; make room, choose "
            "another --out or fewer --lambdas"
        )


def same_disk(file: Path, out: Path) -> bool:
    """Return whether ``file`` can be hard-linked into ``out``."""
    return file.stat().st_dev == _existing(out).stat().st_dev


def _existing(path: Path) -> Path:
    return next(place for place in (path.absolute(), *path.absolute().parents) if place.exists())


@contextmanager
def atomic_folder(final: Path) -> Iterator[Path]:
    """Yield a temporary folder. Rename it to ``final`` at the end, or delete it after an error."""
    temporary = final.with_name(f"{_UNFINISHED}{final.name}")
    temporary.mkdir()
    try:
        yield temporary
        if not temporary.is_dir():
            return  # the caller deleted the folder
        for entry in (*temporary.rglob("*"), temporary):
            _flush(entry)
        temporary.rename(final)
        _flush(final.parent)
    except OSError as error:
        shutil.rmtree(temporary, ignore_errors=True)
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise CheckpointError(
            f"{final}: the disk is full; make room and run the same command again: finished checkpoints are kept"
        ) from error
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def link(file: Path, target: Path) -> None:
    """Hard-link the file, which needs no space; copy it if the file system does not support links."""
    source = file.resolve()
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


def copy_small_files(checkpoint: Checkpoint, folder: Path) -> None:
    """Copy tokenizer and chat template. For a full model also copy configurations and code."""
    vocabulary = find_tokenizer(checkpoint)
    _copy(checkpoint.path, _MODEL_FILES if checkpoint.kind == "full" else ("generation_config.json",), folder)
    if vocabulary is not None:
        _copy(vocabulary.parent, _TOKENIZER_FILES, folder)


def _copy(source: Path, patterns: Sequence[str], folder: Path) -> None:
    for pattern in patterns:
        for file in source.glob(pattern):
            if file.is_file():
                target = folder / file.relative_to(source)
                target.parent.mkdir(exist_ok=True)
                shutil.copyfile(file, target)  # do not copy permissions, because the source may be read-only
