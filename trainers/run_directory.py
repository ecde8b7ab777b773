"""A run directory belongs to one configuration: opening, locking, settings, metrics and rollout files."""

from __future__ import annotations

import fcntl
import json
import os
import platform
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import get_type_hints

from diagnostics.errors import TrainingError
from trainers.checkpointing import atomic_file, committed_step, disk_errors, remove_leftovers
from trainers.config import SftConfig, TrainConfig, settings_of, to_toml

#: Settings that may differ between the parts of one run.
_FREE = frozenset({"resume", "output_dir", "tracker"})
_PACKAGES = ("oversharp", "torch", "transformers", "tokenizers", "numpy")


@contextmanager
def opened(config: TrainConfig | SftConfig) -> Iterator[Path]:
    """The run directory of ``config``, locked against a second trainer, its settings written.

    A new directory starts a new run, with or without ``resume``. Raises ``TrainingError`` if the directory holds a
    run and ``resume`` is off, or holds a run of other settings (naming them), or is in use.
    """
    run = config.output_dir
    try:
        run.mkdir(parents=True, exist_ok=True)
        lock = (run / ".lock").open("w")
    except OSError as error:
        raise TrainingError(f"{run}: cannot be written ({error}); choose another --output-dir") from error
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


def _claim(run: Path, config: TrainConfig | SftConfig) -> None:
    path = run / "config.toml"
    given = settings_of(config)
    written = _read_settings(path, _table(config)) if path.is_file() else {}
    committed = committed_step(run)
    if written and committed is not None:  # a run that failed before its first commit holds nothing
        # a setting that the run was written without had its default: settings that came later change no old run
        before = {**_defaults(type(config)), **written}
        differing = differing_keys(before, given)
        # a constant learning rate makes a longer run the continuation of a shorter one; a schedule does not
        if isinstance(config, TrainConfig):
            differing = [key for key in differing if key != "max_steps"]
        if differing:
            raise TrainingError(
                f"{run}: holds a run with other settings ({', '.join(differing)}); "
                "choose another --output-dir or use the settings in its config.toml"
            )
        if not config.resume:
            raise TrainingError(
                f"{run}: holds a run of these settings at step {committed}; "
                "pass --resume to continue it or choose another --output-dir"
            )
        # what was trained stays on record, whatever a later command asks for
        given = {**given, "max_steps": max(config.max_steps, committed)}
    with atomic_file(path) as file:
        settings = to_toml({key: value for key, value in given.items() if key != "resume"})
        file.write_text(f"[{_table(config)}]\n{settings}", encoding="utf-8")
    with atomic_file(run / "environment.json") as file:
        file.write_text(json.dumps(environment(), indent=1) + "\n", encoding="utf-8")


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
    mend = "choose another --output-dir"
    try:
        settings: dict[str, object] = tomllib.loads(path.read_text(encoding="utf-8")).get(table, {})
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise TrainingError(f"{path}: not the settings of a run ({error}); {mend}") from error
    if not settings:
        raise TrainingError(f"{path}: not the settings of a run (no table [{table}]); {mend}")
    return settings


def differing_keys(old: Mapping[str, object], new: Mapping[str, object]) -> list[str]:
    """Names of settings that are not the same in both, sorted; where and how a run goes on does not count.

    >>> differing_keys({"seed": 0, "chat": False}, {"seed": 1, "chat": False, "limit": 4, "resume": True})
    ['limit', 'seed']
    """
    names = (old.keys() | new.keys()) - _FREE
    return sorted(name for name in names if old.get(name) != new.get(name))


def environment() -> dict[str, str | None]:
    """Versions that a result depends on; None for a package that is not installed as one."""
    versions: dict[str, str | None] = {"python": platform.python_version(), "platform": platform.platform()}
    for package in _PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            versions[package] = None
    return versions


class MetricsLog:
    """``metrics.jsonl``: one line per step. Opening it after ``step`` removes the lines of later steps."""

    def __init__(self, run: Path, *, after_step: int) -> None:
        self._path = run / "metrics.jsonl"
        kept = list(_lines_up_to(self._path, after_step))
        with atomic_file(self._path) as file:
            file.write_text("".join(kept), encoding="utf-8")

    def append(self, metrics: Mapping[str, float | int]) -> None:
        """Write one line. Raises ``TrainingError`` on a full disk, ``ValueError`` for NaN."""
        with disk_errors(self._path), self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(metrics, allow_nan=False) + "\n")

    def flush(self) -> None:
        """Bring the lines written so far to the disk; called before a step is committed."""
        with disk_errors(self._path), self._path.open("a") as file:
            os.fsync(file.fileno())


def _lines_up_to(path: Path, step: int) -> Iterator[str]:
    """Raises ``TrainingError`` with the line for what no trainer wrote: cutting it out could cut out a metric."""
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
            yield text + "\n"


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
