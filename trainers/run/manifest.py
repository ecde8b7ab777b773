"""What a run has written, file by file, so that it does not go on from weights or logs that are not what was written.

``checksums.json`` has bytes and BLAKE2b checksum of every file of every committed step: its checkpoint but for the
model card, its rollouts, and the metrics up to there. A bit that flips in a tensor is no fault that loading could see.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from hashlib import blake2b
from pathlib import Path

from oversharp.diagnostics.records.errors import TrainingError
from oversharp.trainers.run.checkpointing import atomic_file, checkpoint_path, save_state

NAME = "checksums.json"
METRICS = "metrics.jsonl"
_DIGEST_BYTES, _READ_BYTES = 16, 1 << 20
_CARD = "README.md"

#: Of a step: path below the run → how many bytes it has, and their checksum.
Files = Mapping[str, tuple[int, str]]


def commit(run: Path, step: int, state: Mapping[str, object]) -> None:
    """Commit ``step``, all of whose files are written: their checksums first, then the state, which is the commit."""
    steps = {one: files for one, files in _read(run).items() if one < step}
    steps[step] = {path.relative_to(run).as_posix(): _summed(path, None) for path in _files_of(run, step)}
    with atomic_file(run / NAME) as file:
        file.write_text(json.dumps({"steps": steps, "checksum": _of(steps)}, indent=1) + "\n", encoding="utf-8")
    save_state(run, step, state)


def require_intact(run: Path, done: int, *, finished: bool = False) -> tuple[str, ...]:
    """Raise ``TrainingError`` for a file of ``run`` that is not what was written until the commit of step ``done``.

    What somebody removed whole, a checkpoint between the first and the last or a file of logs, is not needed: a line of
    each is returned. ``finished``: nothing was written since. Of an older run there are no checksums to look at.
    """
    gone: list[str] = []
    for step, files in _read(run).items():
        for name, (n_bytes, checksum) in files.items() if step <= done else ():
            path = run / name
            if name == METRICS and step != done:
                continue
            if (owner := _removed(run, path, step, done)) is not None:
                gone.append(f"{owner}: gone; the run goes on without it")
            elif _summed(path, n_bytes if name == METRICS and not finished else None) != (n_bytes, checksum):
                raise TrainingError(
                    f"{path}: not what this run wrote there, damaged or replaced; {_mend(run, path, done)}"
                )
    return tuple(dict.fromkeys(gone))


def _removed(run: Path, path: Path, step: int, done: int) -> Path | None:
    """The folder or file that somebody removed and no run needs; None where ``path`` is there, or must be."""
    folder = checkpoint_path(run, step)
    if path.is_relative_to(folder):
        return None if folder.is_dir() or step in (0, done) else folder
    return None if path.exists() else path


def _files_of(run: Path, step: int) -> Iterator[Path]:
    yield from sorted(path for path in checkpoint_path(run, step).rglob("*") if path.is_file() and path.name != _CARD)
    for path in (run / "rollouts" / f"step_{step:06d}.parquet", run / METRICS):
        if path.is_file():
            yield path


def _summed(path: Path, n_bytes: int | None) -> tuple[int, str]:
    """Length and checksum of a file, or of its first ``n_bytes``. Raises ``TrainingError`` where it cannot be read."""
    found, left, n_read = blake2b(digest_size=_DIGEST_BYTES), n_bytes, 0
    try:
        with path.open("rb") as file:
            while content := file.read(_READ_BYTES if left is None else min(_READ_BYTES, left)):
                found.update(content)
                n_read += len(content)
                left = None if left is None else left - len(content)
    except OSError as error:
        raise TrainingError(f"{path}: cannot be read ({error.strerror}); restore it from a backup") from error
    return n_read, found.hexdigest()


def _mend(run: Path, path: Path, done: int) -> str:
    name = path.relative_to(run).parts[0]
    if name in (checkpoint_path(run, 0).name, checkpoint_path(run, done).name):
        return "restore it from a backup or start anew in another --output-dir"
    what = name if path.parent.parent == run and name.startswith("checkpoint-") else path.name
    return f"restore it from a backup, or move {what} away to continue without it"


def _read(run: Path) -> dict[int, dict[str, tuple[int, str]]]:
    path = run / NAME
    try:
        written = json.loads(path.read_bytes())
        steps = {
            int(step): {str(name): (int(n_bytes), str(checksum)) for name, (n_bytes, checksum) in files.items()}
            for step, files in written["steps"].items()
        }
        if written["checksum"] != _of(steps):
            raise ValueError("its own checksum is not that of its content")
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        raise TrainingError(
            f"{path}: damaged ({error}); restore it, or move it away to continue without a look at the run's files"
        ) from error
    return steps


def _of(steps: Mapping[int, Files]) -> str:
    return blake2b(json.dumps(steps, sort_keys=True).encode(), digest_size=_DIGEST_BYTES).hexdigest()
