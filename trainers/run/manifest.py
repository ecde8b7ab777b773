"""Checksums of a run's files, so that a run never resumes from damaged or replaced files.

``checksums.json`` has the size and BLAKE2b checksum of every file of every committed step: the checkpoint without its
model card, the rollouts, and the metrics up to this step. Loading a checkpoint cannot detect a flipped bit in a tensor.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from hashlib import blake2b
from pathlib import Path

from oversharp.diagnostics.records.errors import TrainingError
from oversharp.diagnostics.records.progress import ProgressSink
from oversharp.trainers.run.checkpointing import atomic_file, checkpoint_path, committed_step, save_state

NAME = "checksums.json"
METRICS = "metrics.jsonl"
_DIGEST_BYTES, _READ_BYTES = 16, 1 << 20
_CARD = "README.md"

#: Files of a step: path relative to the run directory → (size in bytes, checksum).
Files = Mapping[str, tuple[int, str]]


def commit(run: Path, step: int, state: Mapping[str, object]) -> None:
    """Commit ``step`` after its files are written: write the checksums, then the state, which commits the step."""
    steps = {earlier: files for earlier, files in _read_checksums(run).items() if earlier < step}
    steps[step] = {path.relative_to(run).as_posix(): _checksum_file(path, None) for path in _files_of(run, step)}
    with atomic_file(run / NAME) as file:
        file.write_text(
            json.dumps({"steps": steps, "checksum": _checksum_steps(steps)}, indent=1) + "\n", encoding="utf-8"
        )
    save_state(run, step, state)


def find_resume_step(run: Path, max_steps: int, progress: ProgressSink) -> int | None:
    """Check the files of a run and return its last committed step; None if no step is committed.

    Prints notes on missing files, and on a run that is finished. Raises ``TrainingError``; see ``require_intact``.
    """
    done = committed_step(run)
    if done is not None:
        for line in require_intact(run, done, finished=done >= max_steps):
            progress.note(line)
        if done >= max_steps:
            progress.note(f"{run}: finished at step {done}, nothing to do")
    return done


def require_intact(run: Path, done: int, *, finished: bool = False) -> tuple[str, ...]:
    """Raise ``TrainingError`` if a file of ``run`` differs from the file at the commit of step ``done``.

    Intermediate checkpoints and log files may be missing. Returns a line on each missing one. ``finished`` is whether
    nothing was written after the commit. Without ``checksums.json``, nothing is checked.
    """
    missing: list[str] = []
    for step, files in _read_checksums(run).items():
        for name, (n_bytes, checksum) in files.items() if step <= done else ():
            path = run / name
            if name == METRICS and step != done:
                continue
            if (owner := _deleted_optional(run, path, step, done)) is not None:
                missing.append(f"{owner}: missing; the run continues without it")
            elif _checksum_file(path, n_bytes if name == METRICS and not finished else None) != (n_bytes, checksum):
                raise TrainingError(f"{path}: damaged or replaced since this run wrote it; {_hint(run, path, done)}")
    return tuple(dict.fromkeys(missing))


def _deleted_optional(run: Path, path: Path, step: int, done: int) -> Path | None:
    """Return the folder or file of ``path`` if it was deleted and the run can continue without it, else None."""
    folder = checkpoint_path(run, step)
    if path.is_relative_to(folder):
        return None if folder.is_dir() or step in (0, done) else folder
    return None if path.exists() else path


def _files_of(run: Path, step: int) -> Iterator[Path]:
    yield from sorted(path for path in checkpoint_path(run, step).rglob("*") if path.is_file() and path.name != _CARD)
    for path in (run / "rollouts" / f"step_{step:06d}.parquet", run / METRICS):
        if path.is_file():
            yield path


def _checksum_file(path: Path, n_bytes: int | None) -> tuple[int, str]:
    """Return size and checksum of a file, or of its first ``n_bytes``. Raise ``TrainingError`` if reading fails."""
    digest, left, n_read = blake2b(digest_size=_DIGEST_BYTES), n_bytes, 0
    try:
        with path.open("rb") as file:
            while content := file.read(_READ_BYTES if left is None else min(_READ_BYTES, left)):
                digest.update(content)
                n_read += len(content)
                left = None if left is None else left - len(content)
    except OSError as error:
        raise TrainingError(f"{path}: cannot be read ({error.strerror}); restore it from a backup") from error
    return n_read, digest.hexdigest()


def _hint(run: Path, path: Path, done: int) -> str:
    name = path.relative_to(run).parts[0]
    if name in (checkpoint_path(run, 0).name, checkpoint_path(run, done).name):
        return "restore it from a backup or start a new run in another --output-dir"
    entry = name if path.parent.parent == run and name.startswith("checkpoint-") else path.name
    return f"restore it from a backup, or move {entry} away to continue without it"


def _read_checksums(run: Path) -> dict[int, dict[str, tuple[int, str]]]:
    path = run / NAME
    try:
        written = json.loads(path.read_bytes())
        steps = {
            int(step): {str(name): (int(n_bytes), str(checksum)) for name, (n_bytes, checksum) in files.items()}
            for step, files in written["steps"].items()
        }
        if written["checksum"] != _checksum_steps(steps):
            raise ValueError("its checksum does not match its content")
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        raise TrainingError(
            f"{path}: damaged ({error}); restore it, or move it away to continue without checking the run's files"
        ) from error
    return steps


def _checksum_steps(steps: Mapping[int, Files]) -> str:
    return blake2b(json.dumps(steps, sort_keys=True).encode(), digest_size=_DIGEST_BYTES).hexdigest()
