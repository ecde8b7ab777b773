"""A run directory belongs to one configuration: opening, locking, settings, metrics and rollout files."""

from __future__ import annotations

import fcntl
import json
import os
import platform
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
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
def opened(config: TrainConfig | SftConfig) -> Iterator[Path]:
    """The run directory of ``config``, locked against a second trainer, its settings written.

    A new directory starts a new run, with or without ``resume``. Raises ``TrainingError`` if the directory holds a
    run and ``resume`` is off, or holds a run of other settings (naming them), or is in use.
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


def held_step(config: TrainConfig | SftConfig) -> int | None:
    """The last step of the run that ``config`` would continue, None where it would start one. Writes nothing.

    Raises ``TrainingError`` for a directory that ``opened`` would refuse, unless another trainer is writing there.
    """
    run, path = config.output_dir, config.output_dir / "config.toml"
    _require_apart(config)
    _require_writable(run)
    written = _read_settings(path, _table(config)) if path.is_file() else {}
    committed = committed_step(run)
    if not written or committed is None:  # a run that failed before its first commit holds nothing
        return committed
    # a setting that the run was written without had its default: settings that came later change no old run
    differing = differing_keys({**_defaults(type(config)), **written}, settings_of(config))
    # a constant learning rate makes a longer run the continuation of a shorter one; a schedule does not
    if isinstance(config, TrainConfig) and config.schedule == "constant":
        differing = [key for key in differing if key != "max_steps"]
    if differing:
        raise TrainingError(
            f"{run}: holds a run with other settings ({', '.join(differing)}); {_ELSEWHERE} or use the settings in its "
            "config.toml"
        )
    if not config.resume:
        raise TrainingError(
            f"{run}: holds a run of these settings at step {committed}; pass --resume to continue it or {_ELSEWHERE}"
        )
    return committed


def _require_apart(config: TrainConfig | SftConfig) -> None:
    """A run writes checkpoints of its own: in the folder of its model, around or inside it they would be mixed up.

    A base of its own may lie in ``output_dir/base``, where a run that names no model has trained it.
    """
    if not isinstance(config, TrainConfig) or config.model is None or not Path(config.model).is_dir():
        return
    model, run = Path(config.model).resolve(), config.output_dir.resolve()
    if model == run:
        where = "is the folder of the model itself"
    elif model.is_relative_to(run) and not model.is_relative_to(run / "base"):
        where = "holds the model"
    elif run.is_relative_to(model):
        where = "lies inside the folder of the model"
    else:
        return
    raise TrainingError(f"--output-dir {config.output_dir}: {where}, {config.model}; {_ELSEWHERE}")


def _require_writable(run: Path) -> None:
    """Where nothing is yet, what is above it is asked."""
    place = next(place for place in (run, *run.absolute().parents) if os.path.lexists(place))
    if not place.is_dir():
        raise TrainingError(f"{run}: cannot be written ({place} is no directory); {_ELSEWHERE}")
    if not os.access(place, os.W_OK | os.X_OK):
        raise TrainingError(f"{run}: cannot be written (no permission to write in {place}); {_ELSEWHERE}")


def _claim(run: Path, config: TrainConfig | SftConfig) -> None:
    committed = held_step(config)
    settings = settings_of(config)
    # what was trained stays on record, whatever a later command asks for
    settings["max_steps"] = max(config.max_steps, committed or 0)
    with atomic_file(run / "config.toml") as file:
        text = to_toml({key: value for key, value in settings.items() if key != "resume"})
        file.write_text(f"[{_table(config)}]\n{text}", encoding="utf-8")
    if committed is None or committed < config.max_steps:
        _record_part(run, committed)


def _table(config: TrainConfig | SftConfig) -> str:
    """The command that the settings belong to: ``oversharp COMMAND --config RUN/config.toml`` reads them back."""
    return "train" if isinstance(config, TrainConfig) else "train-base"


def _defaults(kind: type[SftConfig] | type[TrainConfig]) -> dict[str, object]:
    """The defaults of all settings that have one other than none, as ``settings_of`` gives them."""
    return {
        field.name: str(field.default) if isinstance(field.default, Path) else field.default
        for field in fields(kind)
        if field.default is not None
    }


def _read_settings(path: Path, table: str) -> dict[str, object]:
    try:
        settings: dict[str, object] = tomllib.loads(path.read_text(encoding="utf-8")).get(table, {})
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise TrainingError(f"{path}: not the settings of a run ({error}); {_ELSEWHERE}") from error
    if not settings:
        raise TrainingError(f"{path}: not the settings of a run (no table [{table}]); {_ELSEWHERE}")
    return settings


def differing_keys(old: Mapping[str, object], new: Mapping[str, object]) -> list[str]:
    """Names of settings that are not the same in both, sorted; where and how a run goes on does not count.

    >>> differing_keys({"seed": 0, "chat": False}, {"seed": 1, "chat": False, "limit": 4, "resume": True})
    ['limit', 'seed']
    """
    names = (old.keys() | new.keys()) - _FREE
    return sorted(name for name in names if old.get(name) != new.get(name))


@dataclass(frozen=True, kw_only=True)
class RunPart:
    """The environment of one part of a run, from the run's start or a resume to its end: ``environment.json``.

    ``after_step`` is the last step before it, 0 for the first. ``started`` is its time in UTC (ISO 8601). ``versions``
    are those that a result depends on, None for a package that was not installed as one. A directory of an oversharp
    that kept the last part's versions alone reads as one part without its time.
    """

    after_step: int
    started: str | None
    versions: Mapping[str, str | None]


def run_parts(run: Path) -> tuple[RunPart, ...]:
    """The parts of a run in the order they were started; a part that was killed before its first save is one too.

    Raises ``TrainingError`` for a file that no trainer wrote.
    """
    path = run / "environment.json"
    try:
        written = json.loads(path.read_bytes())
        if isinstance(written, dict):
            return (RunPart(after_step=0, started=None, versions=written),)
        return tuple(RunPart(**part) for part in written)
    except FileNotFoundError:
        return ()
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise TrainingError(
            f"{path}: not the environments of a run ({error}); restore it, or move it away to continue without the "
            "record so far"
        ) from error


def versions() -> dict[str, str | None]:
    """Versions that a result depends on, here and now."""
    found: dict[str, str | None] = {"python": platform.python_version(), "platform": platform.platform()}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = None
    return found


def _record_part(run: Path, committed: int | None) -> None:
    started = datetime.now(UTC).isoformat(timespec="seconds")
    part = RunPart(after_step=committed or 0, started=started, versions=versions())
    parts = (*(() if committed is None else run_parts(run)), part)
    with atomic_file(run / "environment.json") as file:
        file.write_text(json.dumps([asdict(one) for one in parts], indent=1) + "\n", encoding="utf-8")


class MetricsLog:
    """``metrics.jsonl``: one line per step. Opening it after ``step`` removes the lines of later steps.

    ``course`` holds the metrics of every step so far, those of earlier parts of the run included.
    """

    def __init__(self, run: Path, *, after_step: int) -> None:
        self._path = run / "metrics.jsonl"
        kept = list(_lines_up_to(self._path, after_step))
        with atomic_file(self._path) as file:
            file.write_text("".join(line for line, _ in kept), encoding="utf-8")
        self.course = [metrics for _, metrics in kept]

    def append(self, metrics: Mapping[str, float]) -> None:
        """Write one line. Raises ``TrainingError`` on a full disk, ``ValueError`` for NaN."""
        with disk_errors(self._path), self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(metrics, allow_nan=False) + "\n")
        self.course.append(dict(metrics))

    def flush(self) -> None:
        """Bring the lines written so far to the disk; called before a step is committed."""
        with disk_errors(self._path), self._path.open("a") as file:
            os.fsync(file.fileno())


def _lines_up_to(path: Path, step: int) -> Iterator[tuple[str, dict[str, float]]]:
    """The lines and what they say.

    Raises ``TrainingError`` with the line for what no trainer wrote: cutting it out could cut out a metric.
    """
    mend = "restore it, or move it away to continue without the metrics so far"
    try:
        # a kill can leave the last line half-written: what follows the last line end is no line
        lines = path.read_bytes().split(b"\n")[:-1]
    except FileNotFoundError:
        return
    except OSError as error:
        raise TrainingError(f"{path}: cannot be read ({error.strerror}); {mend}") from error
    for number, line in enumerate(lines, start=1):
        try:
            text = line.decode("utf-8")
            record = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise TrainingError(f"{path} line {number}: not JSON in UTF-8; {mend}") from error
        if not isinstance(record, dict) or type(record.get("step")) is not int:
            raise TrainingError(f'{path} line {number}: not the metrics of a step, it has no "step"; {mend}')
        if record["step"] <= step:
            yield text + "\n", record


@dataclass(frozen=True, kw_only=True)
class RolloutRow:
    """One line of ``rollouts/step_XXXXXX.parquet``.

    ``logp_sum`` in nats over the ``n_tokens`` response tokens, end token included, at temperature 1. ``state`` is
    the verifier's: a response that could not be graded has reward 0 here and says why it was not "ok".
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
    """All rollouts since the previous save, in one Parquet file named after the step they end with."""
    import pyarrow as pa
    from pyarrow import parquet

    arrow_type = {int: pa.int32(), float: pa.float64(), str: pa.string(), bool: pa.bool_()}
    columns = get_type_hints(RolloutRow)
    schema = pa.schema([(name, arrow_type[kind]) for name, kind in columns.items()])
    table = pa.table({name: [getattr(row, name) for row in rows] for name in columns}, schema=schema)
    with atomic_file(run / "rollouts" / f"step_{step:06d}.parquet") as file:
        parquet.write_table(table, file, compression="zstd")
