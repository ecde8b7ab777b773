"""Run directories: open and lock one, and write its settings, metrics and rollouts."""

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

#: Settings that may differ between the parts of one run. A part is from a start or resume to its end.
_FREE = frozenset(
    {
        *("resume", "output_dir", "tracker"),
        *("grader_timeout", "grader_memory_gib", "grader_workers", "allow_unsandboxed", "sandbox_url"),
    }
)
_ELSEWHERE = "choose another --output-dir"
_PACKAGES = ("oversharp", "torch", "transformers", "tokenizers", "numpy")


@contextmanager
def open_run(config: TrainConfig | SftConfig) -> Iterator[Path]:
    """Lock the run directory of ``config``, write its settings, and yield it.

    A new directory starts a new run, with or without ``resume``. Raises ``TrainingError`` if the directory is in use,
    if it contains a run and ``resume`` is off, or if it contains a run with other settings, which the message lists.
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
    """Return the last committed step of the run that ``config`` would continue; None for a new run.

    Writes nothing. Raises ``TrainingError`` for a directory that ``open_run`` rejects, unless it is only in use.
    """
    run, path = config.output_dir, config.output_dir / "config.toml"
    _require_apart(config)
    _require_writable(run)
    written = _read_settings(path, _table(config)) if path.is_file() else {}
    committed = committed_step(run)
    if not written or committed is None:  # nothing is committed yet
        return committed
    differing = differing_keys(written, settings_of(config))
    # a run can be extended only if its learning rate is constant, because a schedule depends on max_steps
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
    """Raise ``TrainingError`` if the run directory is the model's folder or inside it.

    Their checkpoints would be mixed. The model may be in ``output_dir/base``, where a run without a model trains its
    base.
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
    # a later command may have a smaller max_steps than the run has trained
    settings["max_steps"] = max(config.max_steps, committed or 0)
    with atomic_file(run / "config.toml") as file:
        text = to_toml({key: value for key, value in settings.items() if key != "resume"})
        file.write_text(f"[{_table(config)}]\n{text}", encoding="utf-8")
    if committed is None or committed < config.max_steps:
        _record_part(run, committed)


def _table(config: TrainConfig | SftConfig) -> str:
    """Return the TOML table of the settings. It is the COMMAND of ``oversharp COMMAND --config RUN/config.toml``."""
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
    """Return the sorted names of the settings that differ. Settings that may change on resume are ignored.

    >>> differing_keys({"seed": 0, "chat": False}, {"seed": 1, "chat": False, "limit": 4, "resume": True})
    ['limit', 'seed']
    """
    names = (old.keys() | new.keys()) - _FREE
    return sorted(name for name in names if old.get(name) != new.get(name))


@dataclass(frozen=True, kw_only=True)
class RunPart:
    """Environment of one part of a run, from a start or resume to its end. It is an entry of ``environment.json``.

    ``after_step`` is the last step before the part, 0 for the first part. ``started`` is a UTC time (ISO 8601).
    ``versions`` has the versions of software that results depend on, None for packages that are not installed.
    """

    after_step: int
    started: str
    versions: Mapping[str, str | None]


def run_parts(run: Path) -> tuple[RunPart, ...]:
    """Return the parts of a run in order. Parts that were killed before their first save are included.

    Raises ``TrainingError`` for an invalid file.
    """
    path = run / "environment.json"
    try:
        return tuple(RunPart(**part) for part in json.loads(path.read_bytes()))
    except FileNotFoundError:
        return ()
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise TrainingError(
            f"{path}: cannot be read as the recorded environments ({error}); restore the file, or delete it to continue"
        ) from error


def installed_versions() -> dict[str, str | None]:
    """Return the installed versions of the software that results depend on."""
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
    """Writer of ``metrics.jsonl``, with one line per step. Opening it removes the lines after ``after_step``.

    ``history`` has the metrics of all previous steps, including those of earlier parts of the run.
    """

    def __init__(self, run: Path, *, after_step: int) -> None:
        self._path = run / "metrics.jsonl"
        kept = list(_lines_up_to(self._path, after_step))
        with atomic_file(self._path) as file:
            file.write_text("".join(line for line, _ in kept), encoding="utf-8")
        self.history = [metrics for _, metrics in kept]

    def append(self, metrics: Mapping[str, float]) -> None:
        """Write one line. Raise ``TrainingError`` if the disk is full, and ``ValueError`` for NaN."""
        with disk_errors(self._path), self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(metrics, allow_nan=False) + "\n")
        self.history.append(dict(metrics))

    def flush(self) -> None:
        """Flush the lines to disk. Call it before a step is committed."""
        with disk_errors(self._path), self._path.open("a") as file:
            os.fsync(file.fileno())


def _lines_up_to(path: Path, step: int) -> Iterator[tuple[str, dict[str, float]]]:
    """Yield the lines up to ``step``, each with its metrics.

    Raises ``TrainingError`` with the line number for an invalid line, because skipping it could lose metrics.
    """
    hint = "restore it, or move it away to continue without the metrics so far"
    try:
        # drop the text after the last line end: a killed process may leave a partial line
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

    ``logp_sum`` is the log-probability of the ``n_tokens`` response tokens, including the end token, in nats at
    temperature 1. ``state`` is the grading state of the verifier. A response that could not be graded has reward 0 and
    a state other than "ok".
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
    """Write all rollouts since the previous save to one Parquet file, which is named after the last step."""
    import pyarrow as pa
    from pyarrow import parquet

    arrow_type = {int: pa.int32(), float: pa.float64(), str: pa.string(), bool: pa.bool_()}
    columns = get_type_hints(RolloutRow)
    schema = pa.schema([(name, arrow_type[kind]) for name, kind in columns.items()])
    table = pa.table({name: [getattr(row, name) for row in rows] for name in columns}, schema=schema)
    with atomic_file(run / "rollouts" / f"step_{step:06d}.parquet") as file:
        parquet.write_table(table, file, compression="zstd")
