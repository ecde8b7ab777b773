"""Run directories: opening, locking, settings, metrics and rollout files of one configuration."""

from __future__ import annotations

import fcntl
import json
import os
import platform
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import get_type_hints

from oversharp.diagnostics.records.errors import TrainingError
from oversharp.trainers.config import SftConfig, TrainConfig, settings_of, to_toml
from oversharp.trainers.run.checkpointing import atomic_file, committed_step, disk_errors, remove_leftovers

#: Settings that may differ between the parts of one run.
_FREE = frozenset({"resume", "output_dir", "tracker", "grader_timeout", "grader_memory_gib", "grader_workers"})
_ELSEWHERE = "choose another --output-dir"
_PACKAGES = ("oversharp", "torch", "transformers", "tokenizers", "numpy")


@contextmanager
def open_run(config: TrainConfig | SftConfig) -> Iterator[Path]:
    """Lock the run directory of ``config``, write its settings, and yield it.

    A new directory starts a new run, with or without ``resume``. Raises ``TrainingError`` if the directory is in use,
    contains a run while ``resume`` is off, or contains a run with other settings (the message lists them).
    """
    run = config.output_dir
    _require_apart(config)
    try:
        run.mkdir(parents=True, exist_ok=True)
        lock = (run / ".lock").open("w")
    except OSError as error:
        raise TrainingError(f"{run}: cannot be written ({error.strerror}); {_ELSEWHERE}") from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise TrainingError(
                f"{run}: another trainer is writing here; wait for it or choose another --output-dir"
            ) from None
        _claim(run, config)
        remove_leftovers(run)
        yield run


def find_resumable_step(config: TrainConfig | SftConfig) -> int | None:
    """Return the last step of the run that ``config`` would continue, None for a new run. Writes nothing.

    Raises ``TrainingError`` for a directory that ``open_run`` rejects, except for one in use.
    """
    run, path = config.output_dir, config.output_dir / "config.toml"
    _require_apart(config)
    _require_writable(run)
    written = _read_settings(path, _table(config)) if path.is_file() else {}
    committed = committed_step(run)
    if not written or committed is None:  # a run that failed before its first commit is empty
        return committed
    differing = differing_keys(written, settings_of(config))
    # with a constant learning rate, a longer run continues a shorter one; with a schedule it does not
    if isinstance(config, TrainConfig) and config.schedule == "constant":
        differing = [key for key in differing if key != "max_steps"]
    if differing:
        raise TrainingError(
            f"{run}: contains a run with other settings ({', '.join(differing)}); {_ELSEWHERE} or use the settings in "
            "its config.toml"
        )
    if not config.resume:
        raise TrainingError(
            f"{run}: contains a run with these settings at step {committed}; pass --resume to continue it, or "
            f"{_ELSEWHERE}"
        )
    return committed


def _require_apart(config: TrainConfig | SftConfig) -> None:
    """Raise ``TrainingError`` if the run directory overlaps the model's folder, which would mix their checkpoints.

    The model may be in ``output_dir/base``, where a run without a model trains its base.
    """
    if not isinstance(config, TrainConfig) or config.model is None or not Path(config.model).is_dir():
        return
    model, run = Path(config.model).resolve(), config.output_dir.resolve()
    if model == run:
        where = "is the folder of the model"
    elif model.is_relative_to(run) and not model.is_relative_to(run / "base"):
        where = "contains the model"
    elif run.is_relative_to(model):
        where = "is inside the folder of the model"
    else:
        return
    raise TrainingError(f"--output-dir {config.output_dir}: {where}, {config.model}; {_ELSEWHERE}")


def _require_writable(run: Path) -> None:
    """Raise ``TrainingError`` if ``run``, or its nearest existing parent, is not a writable directory."""
    place = next(place for place in (run, *run.absolute().parents) if os.path.lexists(place))
    if not place.is_dir():
        raise TrainingError(f"{run}: cannot be written ({place} is not a directory); {_ELSEWHERE}")
    if not os.access(place, os.W_OK | os.X_OK):
        raise TrainingError(f"{run}: cannot be written (no permission to write in {place}); {_ELSEWHERE}")


def _claim(run: Path, config: TrainConfig | SftConfig) -> None:
    committed = find_resumable_step(config)
    settings = settings_of(config)
    # record the trained steps even if a later command asks for fewer
    settings["max_steps"] = max(config.max_steps, committed or 0)
    with atomic_file(run / "config.toml") as file:
        text = to_toml({key: value for key, value in settings.items() if key != "resume"})
        file.write_text(f"[{_table(config)}]\n{text}", encoding="utf-8")
    if committed is None or committed < config.max_steps:
        _record_part(run, committed)


def _table(config: TrainConfig | SftConfig) -> str:
    """Return the command of the settings: ``oversharp COMMAND --config RUN/config.toml`` reads them."""
    return "train" if isinstance(config, TrainConfig) else "train-base"


def _read_settings(path: Path, table: str) -> dict[str, object]:
    try:
        settings: dict[str, object] = tomllib.loads(path.read_text(encoding="utf-8")).get(table, {})
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise TrainingError(f"{path}: not the settings of a run ({error}); {_ELSEWHERE}") from error
    if not settings:
        raise TrainingError(f"{path}: not the settings of a run (no table [{table}]); {_ELSEWHERE}")
    return settings


def differing_keys(old: Mapping[str, object], new: Mapping[str, object]) -> list[str]:
    """Return the sorted names of settings that differ, ignoring those that may change on resume.

    >>> differing_keys({"seed": 0, "chat": False}, {"seed": 1, "chat": False, "limit": 4, "resume": True})
    ['limit', 'seed']
    """
    names = (old.keys() | new.keys()) - _FREE
    return sorted(name for name in names if old.get(name) != new.get(name))


@dataclass(frozen=True, kw_only=True)
class RunPart:
    """Environment of one part of a run, between start or resume and end: an entry of ``environment.json``.

    ``after_step`` is the last step before it, 0 for the first. ``started`` is a UTC time (ISO 8601). ``versions`` has
    the versions that results depend on, None for a package that is not installed.
    """

    after_step: int
    started: str
    versions: Mapping[str, str | None]


def run_parts(run: Path) -> tuple[RunPart, ...]:
    """Return the parts of a run in order, including parts that were killed before their first save.

    Raises ``TrainingError`` for an invalid file.
    """
    path = run / "environment.json"
    try:
        return tuple(RunPart(**part) for part in json.loads(path.read_bytes()))
    except FileNotFoundError:
        return ()
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise TrainingError(
            f"{path}: not the environments of a run ({error}); restore it, or move it away to continue without it"
        ) from error


def installed_versions() -> dict[str, str | None]:
    """Return the current versions that results depend on."""
    versions_by_name: dict[str, str | None] = {"python": platform.python_version(), "platform": platform.platform()}
    for package in _PACKAGES:
        try:
            versions_by_name[package] = version(package)
        except PackageNotFoundError:
            versions_by_name[package] = None
    return versions_by_name


def _record_part(run: Path, committed: int | None) -> None:
    started = datetime.now(UTC).isoformat(timespec="seconds")
    part = RunPart(after_step=committed or 0, started=started, versions=installed_versions())
    parts = (*(() if committed is None else run_parts(run)), part)
    with atomic_file(run / "environment.json") as file:
        file.write_text(json.dumps([asdict(part) for part in parts], indent=1) + "\n", encoding="utf-8")


class MetricsLog:
    """Writer of ``metrics.jsonl``, one line per step. Opening it removes the lines after ``after_step``.

    ``history`` has the metrics of every step so far, including earlier parts of the run.
    """

    def __init__(self, run: Path, *, after_step: int) -> None:
        self._path = run / "metrics.jsonl"
        kept = list(_lines_up_to(self._path, after_step))
        with atomic_file(self._path) as file:
            file.write_text("".join(line for line, _ in kept), encoding="utf-8")
        self.history = [metrics for _, metrics in kept]

    def append(self, metrics: Mapping[str, float]) -> None:
        """Write one line. Raise ``TrainingError`` on a full disk, ``ValueError`` for NaN."""
        with disk_errors(self._path), self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(metrics, allow_nan=False) + "\n")
        self.history.append(dict(metrics))

    def flush(self) -> None:
        """Flush the lines to disk; called before a step is committed."""
        with disk_errors(self._path), self._path.open("a") as file:
            os.fsync(file.fileno())


def _lines_up_to(path: Path, step: int) -> Iterator[tuple[str, dict[str, float]]]:
    """Yield lines and their metrics up to ``step``.

    Raises ``TrainingError`` with the line number for an invalid line: skipping it could lose metrics.
    """
    hint = "restore it, or move it away to continue without the metrics so far"
    try:
        # a killed process may leave a partial last line, without a line end
        lines = path.read_bytes().split(b"\n")[:-1]
    except FileNotFoundError:
        return
    except OSError as error:
        raise TrainingError(f"{path}: cannot be read ({error.strerror}); {hint}") from error
    for number, line in enumerate(lines, start=1):
        try:
            text = line.decode("utf-8")
            record = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise TrainingError(f"{path} line {number}: not JSON in UTF-8; {hint}") from error
        if not isinstance(record, dict) or type(record.get("step")) is not int:
            raise TrainingError(f'{path} line {number}: not the metrics of a step, it has no "step"; {hint}')
        if record["step"] <= step:
            yield text + "\n", record


@dataclass(frozen=True, kw_only=True)
class RolloutRow:
    """Row of ``rollouts/step_XXXXXX.parquet``.

    ``logp_sum`` is in nats over the ``n_tokens`` response tokens including the end token, at temperature 1. ``state``
    comes from the verifier: a response that could not be graded has reward 0 and a state other than "ok".
    """

    step: int
    problem_id: str
    sample_index: int
    prompt: str
    response: str
    reward: float
    correct: bool
    state: str
    advantage: float
    n_tokens: int
    truncated: bool
    logp_sum: float


def write_rollouts(run: Path, step: int, rows: Sequence[RolloutRow]) -> None:
    """Write all rollouts since the previous save to one Parquet file named after the last step."""
    import pyarrow as pa
    from pyarrow import parquet

    arrow_type = {int: pa.int32(), float: pa.float64(), str: pa.string(), bool: pa.bool_()}
    columns = get_type_hints(RolloutRow)
    schema = pa.schema([(name, arrow_type[kind]) for name, kind in columns.items()])
    table = pa.table({name: [getattr(row, name) for row in rows] for name in columns}, schema=schema)
    with atomic_file(run / "rollouts" / f"step_{step:06d}.parquet") as file:
        parquet.write_table(table, file, compression="zstd")
