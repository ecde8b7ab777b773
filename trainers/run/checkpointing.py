"""Write checkpoints and training state atomically, and read them.

A killed run loses only the steps since its last save. Every file and folder is written under a temporary name, flushed
to disk, and renamed. The training state is written last. It commits the step, whose weights are in ``checkpoint-N/``.
Importing this module, and inspecting a directory, does not load torch.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from hashlib import blake2b
from io import BytesIO
from pathlib import Path
from pickle import UnpicklingError
from typing import TYPE_CHECKING, Any, Protocol, cast

from safetensors import SafetensorError

from oversharp.diagnostics.records.errors import TrainingError

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

_TEMPORARY = "tmp-"
_CHECKSUM_BYTES = 32
_STATE = re.compile(r"step-(\d+)\.pt")
_RESTORE = "restore it from a backup or start a new run in another --output-dir"


class Stateful(Protocol):
    """Object with a state to restore: an optimizer or a model."""

    def load_state_dict(self, state_dict: Any, /) -> object:
        """Load a saved state."""


def checkpoint_path(run: Path, step: int) -> Path:
    """Return the folder of the model after ``step`` optimizer steps."""
    return run / f"checkpoint-{step}"


def save_checkpoint(
    run: Path, step: int, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, *, card: str | None = None
) -> None:
    """Save weights, configurations and tokenizer as ``save_pretrained`` does, and ``card`` as README.md.

    Raises ``TrainingError`` if a weight is not finite or the disk is full.
    """
    from oversharp.diagnostics.models.load import quiet_transformers

    if not all(bool(parameter.isfinite().all()) for parameter in model.parameters()):
        raise TrainingError(
            f"step {step}: the weights are not finite; the checkpoints before it are intact, "
            "start a new run with a lower --learning-rate"
        )
    with atomic_folder(checkpoint_path(run, step)) as folder, quiet_transformers():
        # adapters have no embedding; by default, peft would look up the base model on the hub to check that
        options = {"save_embedding_layers": False} if hasattr(model, "peft_config") else {}
        cast("Any", model).save_pretrained(folder, **options)
        try:
            tokenizer.save_pretrained(folder)
        except Exception as error:  # the tokenizers library has no specific exception for a full disk
            raise OSError(str(error).splitlines()[0]) from error
        if card is not None:
            (folder / "README.md").write_text(card, encoding="utf-8")


def save_state(run: Path, step: int, state: Mapping[str, object]) -> None:
    """Commit ``step`` by writing all state except the weights, such as optimizers. Remove older states.

    The last 32 bytes of the file are the BLAKE2b checksum of the bytes before them, because ``torch.load`` cannot
    detect a flipped bit in a tensor.
    """
    import torch

    folder = run / "state"
    with atomic_file(folder / f"step-{step}.pt") as file:
        try:
            torch.save(dict(state), file)
        except RuntimeError as error:  # torch raises this if the disk is full
            raise OSError(f"incomplete: {str(error).splitlines()[0]}") from error
        checksum = _checksum(file.read_bytes())
        with file.open("ab") as end:
            end.write(checksum)
    with disk_errors(folder):
        for entry in folder.iterdir():
            match = _STATE.fullmatch(entry.name)
            if match and int(match[1]) != step:
                remove(entry)


def committed_step(run: Path) -> int | None:
    """Return the last committed step, after which the run can resume; None if no step is committed.

    Raises ``TrainingError`` if the step's checkpoint is missing, or the folder of states cannot be read.
    """
    folder = run / "state"
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise TrainingError(
            f"{folder}: cannot be read as a folder ({error.strerror}); restore it or choose another --output-dir"
        ) from error
    steps = [int(match[1]) for name in names if (match := _STATE.fullmatch(name))]
    if not steps:
        return None
    if not checkpoint_path(run, max(steps)).is_dir():
        raise TrainingError(
            f"{checkpoint_path(run, max(steps))}: missing, so the run cannot continue; restore it or start a new run"
        )
    return max(steps)


def load_state(run: Path, step: int) -> dict[str, object]:
    """Return the state that ``save_state`` wrote after ``step``. Raise ``TrainingError`` for a damaged file."""
    import torch

    path = run / "state" / f"step-{step}.pt"
    try:
        content = path.read_bytes()
    except OSError as error:
        raise TrainingError(f"{path}: cannot be read ({error.strerror}); {_RESTORE}") from error
    content, checksum = content[:-_CHECKSUM_BYTES], content[-_CHECKSUM_BYTES:]
    if _checksum(content) != checksum:
        raise TrainingError(f"{path}: damaged, its checksum does not match its content; {_RESTORE}")
    with _state_errors(path):
        saved: dict[str, object] = torch.load(BytesIO(content), map_location="cpu", weights_only=True)
        saved["optimizer"]
    return saved


def restore(run: Path, step: int, owner: Stateful, saved: object) -> None:
    """Load a saved state into an optimizer or model. Raise ``TrainingError`` if it does not match."""
    with _state_errors(run / "state" / f"step-{step}.pt"):
        owner.load_state_dict(saved)


@contextmanager
def _state_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except (RuntimeError, EOFError, UnpicklingError, LookupError, TypeError, ValueError, AttributeError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise TrainingError(f"{path}: not the state of this run's optimizer ({reason}); {_RESTORE}") from error


@contextmanager
def atomic_folder(final: Path) -> Iterator[Path]:
    """Yield a temporary folder that is renamed to ``final`` once it is complete and on disk."""
    temporary = final.with_name(f"{_TEMPORARY}{final.name}")
    with disk_errors(final):
        remove(temporary)
        temporary.mkdir(parents=True)
        yield temporary
        for entry in temporary.rglob("*"):
            _flush(entry)
        _flush(temporary)
        remove(final)  # it exists if the run was killed and repeats the step
        os.rename(temporary, final)
        _flush(final.parent)


@contextmanager
def atomic_file(final: Path) -> Iterator[Path]:
    """Yield a temporary path that is renamed to ``final`` once the file is complete and on disk."""
    temporary = final.with_name(f"{_TEMPORARY}{final.name}")
    with disk_errors(final):
        final.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        _flush(temporary)
        os.replace(temporary, final)
        _flush(final.parent)


def remove_leftovers(run: Path) -> None:
    """Delete temporary files and folders of a killed run."""
    with disk_errors(run):
        for folder in (run, run / "state", run / "rollouts"):
            for entry in folder.glob(f"{_TEMPORARY}*"):
                remove(entry)


def remove(path: Path) -> None:
    """Delete a file or folder if it exists."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Raise a ``TrainingError`` with ``path`` and a hint if a write inside the block fails."""
    try:
        yield
    except (OSError, SafetensorError) as error:
        raise TrainingError(f"{path}: cannot be written ({error}); make room, then continue with --resume") from error


def _checksum(content: bytes) -> bytes:
    return blake2b(content, digest_size=_CHECKSUM_BYTES).digest()


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
