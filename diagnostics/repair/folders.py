"""The folder that a repair writes: claimed, locked, with room on its disk; a checkpoint appears whole or not at all."""

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
from oversharp.diagnostics.series.tokenizers import tokenizer_file, tokenizer_places

#: What the folder is made of; in every checkpoint the same file says what that one is.
RECORD = REPAIR_RECORD
#: So begin folders that are still being written: an audit passes over them.
_UNFINISHED = "tmp-"

_OF_MODEL = ("config.json", "generation_config.json", "*.py")
_OF_TOKENIZER = (
    "tokenizer*", "special_tokens_map.json", "added_tokens.json", "vocab.json", "vocab.txt", "merges.txt",
    "spiece.model", "tekken.json", "*.tiktoken", "chat_template*", "additional_chat_templates/*",
    "preprocessor_config.json", "processor_config.json", "video_preprocessor_config.json", "*.py",
)  # fmt: skip


@contextmanager
def claimed(out: Path, record: dict[str, Any]) -> Iterator[None]:
    """The folder ``out``, locked, with ``record`` saying what it is made of; leftovers of a killed call are removed.

    Raises ``ConfigError`` where it holds other things, the repair of other weights, or another call is writing.
    """
    require_ours(out, record)
    try:
        out.mkdir(parents=True, exist_ok=True)
        lock = (out / RECORD).open("a+", encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"--out {out}: cannot be written ({error.strerror}); choose another --out") from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(f"--out {out}: another repair is writing here; wait for it") from None
        if lock.tell() == 0:
            lock.write(json.dumps(record, indent=2) + "\n")
            lock.flush()
        for leftover in out.glob(f"{_UNFINISHED}checkpoint-*"):
            shutil.rmtree(leftover)
        yield


def require_ours(out: Path, record: dict[str, Any]) -> None:
    """Raise ``ConfigError`` unless ``out`` is not there, empty, or an earlier repair of the same weights."""
    if out.exists() and not out.is_dir():
        raise ConfigError(f"--out {out}: is a file; choose another --out")
    if not out.is_dir() or not any(out.iterdir()):
        return
    written = out / RECORD
    if not written.is_file():
        some = min(one.name for one in out.iterdir())
        raise ConfigError(f"--out {out}: holds other things ({some}); choose a new folder")
    text = written.read_text(encoding="utf-8")
    if not text:  # killed between claiming and writing
        return
    try:
        held = json.loads(text)
    except ValueError:
        raise ConfigError(f"--out {out}: {RECORD} is not of a repair; choose a new folder") from None
    odd = next(
        (name for name in record["made_of"] if held.get("made_of", {}).get(name) != record["made_of"][name]), None
    )
    if odd is not None:
        raise ConfigError(f"--out {out}: holds a repair with another {odd}; choose a new folder")


def refuse_inside(out: Path, places: Sequence[Path]) -> None:
    """Raise ``ConfigError`` where ``out`` lies in a folder of the series, whose next audit would trip over it."""
    for place in places:
        if out.resolve().is_relative_to(place.resolve()):
            raise ConfigError(f"--out {out}: lies inside {place}, which is audited itself; choose one beside it")


def require_room(out: Path, n_bytes: int) -> None:
    """Raise ``ConfigError`` unless the disk of ``out`` has so many bytes free."""
    free = shutil.disk_usage(_existing(out)).free
    if n_bytes > free:
        raise ConfigError(
            f"--out {out}: needs {disk_size(n_bytes)} and its disk has {disk_size(free)} free; make room, choose "
            "another --out or fewer --lambdas"
        )


def same_disk(file: Path, out: Path) -> bool:
    """Whether a hard link of ``file`` can lie in ``out``."""
    return file.stat().st_dev == _existing(out).stat().st_dev


def _existing(path: Path) -> Path:
    return next(one for one in (path.absolute(), *path.absolute().parents) if one.exists())


@contextmanager
def atomic_folder(final: Path) -> Iterator[Path]:
    """A folder to fill; it appears as ``final``, whole and on disk, or not at all."""
    temporary = final.with_name(f"{_UNFINISHED}{final.name}")
    temporary.mkdir()
    try:
        yield temporary
        if not temporary.is_dir():
            return  # what was in it is not wanted
        for entry in (*temporary.rglob("*"), temporary):
            _flush(entry)
        temporary.rename(final)
        _flush(final.parent)
    except OSError as error:
        shutil.rmtree(temporary, ignore_errors=True)
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise CheckpointError(
            f"{final}: the disk is full; make room and run the same command again: what stands is kept"
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
    """The same file under another name, which takes no room; a copy where the file system cannot."""
    source = file.resolve()
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


def copy_small_files(checkpoint: Checkpoint, folder: Path) -> None:
    """Tokenizer and chat template, wherever they lie, and of a full model its configurations and code."""
    vocabulary = tokenizer_file(tokenizer_places(checkpoint))
    of_model = _OF_MODEL if checkpoint.kind == "full" else ("generation_config.json",)
    _copy(checkpoint.path, of_model, folder)
    if vocabulary is not None:
        _copy(vocabulary.parent, _OF_TOKENIZER, folder)


def _copy(source: Path, patterns: Sequence[str], folder: Path) -> None:
    for pattern in patterns:
        for file in source.glob(pattern):
            if file.is_file():
                target = folder / file.relative_to(source)
                target.parent.mkdir(exist_ok=True)
                shutil.copyfile(file, target)  # without its rights: it may be read-only
