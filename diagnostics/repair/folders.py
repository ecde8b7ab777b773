"""Output folder of a repair: owned by one call, locked, with enough disk space.

Checkpoints are written atomically.
"""

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

#: Record of the sources, in the folder; in each checkpoint, a file of the same name describes it.
RECORD = REPAIR_RECORD
#: Prefix of folders that are being written; audits skip them.
_UNFINISHED = "tmp-"

_OF_MODEL = ("config.json", "generation_config.json", "*.py")
_OF_TOKENIZER = (
    "tokenizer*", "special_tokens_map.json", "added_tokens.json", "vocab.json", "vocab.txt", "merges.txt",
    "spiece.model", "tekken.json", "*.tiktoken", "chat_template*", "additional_chat_templates/*",
    "preprocessor_config.json", "processor_config.json", "video_preprocessor_config.json", "*.py",
)  # fmt: skip


@contextmanager
def lock_output(out: Path, record: dict[str, Any]) -> Iterator[None]:
    """Lock the folder ``out`` for the repair of ``record``; remove leftovers of a killed call.

    Raises ``ConfigError`` where it contains other files or the repair of other weights, or another call is writing.
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
    """Raise ``ConfigError`` unless ``out`` is missing, empty, or an earlier repair of the same weights."""
    if out.exists() and not out.is_dir():
        raise ConfigError(f"--out {out}: is a file; choose another --out")
    if not out.is_dir() or not any(out.iterdir()):
        return
    written = out / RECORD
    if not written.is_file():
        some = min(item.name for item in out.iterdir())
        raise ConfigError(f"--out {out}: contains other files ({some}); choose a new folder")
    text = written.read_text(encoding="utf-8")
    if not text:  # killed between creating and writing it
        return
    try:
        recorded = json.loads(text)
    except ValueError:
        raise ConfigError(f"--out {out}: {RECORD} is not from a repair; choose a new folder") from None
    odd = next(
        (name for name in record["made_of"] if recorded.get("made_of", {}).get(name) != record["made_of"][name]), None
    )
    if odd is not None:
        raise ConfigError(f"--out {out}: contains a repair with another {odd}; choose a new folder")


def refuse_inside(out: Path, places: Sequence[Path]) -> None:
    """Raise ``ConfigError`` where ``out`` is inside a folder of the series, whose next audit would include it."""
    for place in places:
        if out.resolve().is_relative_to(place.resolve()):
            raise ConfigError(f"--out {out}: is inside {place}, which is a series itself; choose a folder next to it")


def require_room(out: Path, n_bytes: int) -> None:
    """Raise ``ConfigError`` unless the disk of ``out`` has ``n_bytes`` free."""
    free = shutil.disk_usage(_existing(out)).free
    if n_bytes > free:
        raise ConfigError(
            f"--out {out}: needs {disk_size(n_bytes)}, but its disk has {disk_size(free)} free; make room, choose "
            "another --out or fewer --lambdas"
        )


def same_disk(file: Path, out: Path) -> bool:
    """Whether ``file`` can be hard-linked into ``out``."""
    return file.stat().st_dev == _existing(out).stat().st_dev


def _existing(path: Path) -> Path:
    return next(item for item in (path.absolute(), *path.absolute().parents) if item.exists())


@contextmanager
def atomic_folder(final: Path) -> Iterator[Path]:
    """Yield a folder to fill.

    It is renamed to ``final`` when complete and flushed, and removed otherwise.
    """
    temporary = final.with_name(f"{_UNFINISHED}{final.name}")
    temporary.mkdir()
    try:
        yield temporary
        if not temporary.is_dir():
            return  # the caller discarded it
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
    """Hard-link the file, which takes no space; copy it where the file system cannot."""
    source = file.resolve()
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


def copy_small_files(checkpoint: Checkpoint, folder: Path) -> None:
    """Copy tokenizer and chat template and, of a full model, its configurations and code."""
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
                shutil.copyfile(file, target)  # without permissions: the source may be read-only
