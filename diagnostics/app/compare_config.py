"""Parse and check the TOML file of ``oversharp compare``: runs, seeds and settings.

    seeds = [0, 1, 2]

    [train]                     # any setting of `oversharp train`, for all runs
    max_steps = 160

    [[run]]                     # one objective; overrides [train]
    name = "iac"
    algorithm = "iac:alpha=1"

    [audit]                     # any setting of `oversharp audit`, for all series
    n = 256
    k = [1, 8, 128]

    [base]                      # any setting of `oversharp train-base`; not used if [train] has a model

Invalid settings raise an error with file, table and key, before training starts.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

from oversharp.diagnostics.audit.config import AuditConfig
from oversharp.diagnostics.records.arguments import convert_value
from oversharp.diagnostics.records.errors import ConfigError
from oversharp.diagnostics.records.files import read_small
from oversharp.diagnostics.tasks.worlds import WORLDS
from oversharp.trainers.config import DEFAULT_WORLD, SftConfig, TrainConfig, settings_of
from oversharp.trainers.run.checkpointing import checkpoint_path

Config = TypeVar("Config", TrainConfig, SftConfig, AuditConfig)

_TABLES = ("seeds", "base", "train", "run", "audit")
_RUN_NAME = re.compile(r"[A-Za-z0-9][\w.+-]*")
#: Prompt settings that are equal for all runs and the audit.
_PROMPT_SETTINGS = ("prompt_template", "system_prompt", "chat", "chat_args")
_SET_BY_COMPARE = {
    "output_dir": "pass --out DIR",
    "resume": "remove it, a comparison always resumes",
    "seed": "give seeds = [0, 1, 2] at the top of the file",
}
_SHARED_BY_RUNS = {key: f"put {key} under [train], all runs share it" for key in ("model", *_PROMPT_SETTINGS)}
_SET_BY_AUDIT = {
    "out": "pass --out DIR",
    "name": "series are named by run and seed",
    "base": "all runs start from the base of [train]",
    "top_up": "raise n, existing samples are kept",
}


@dataclass(frozen=True, kw_only=True)
class ComparedRun:
    """One training run: an objective with one seed."""

    objective: str
    seed: int
    config: TrainConfig

    @property
    def name(self) -> str:
        """Name of the run's directory and series. The report parses objective and seed from it."""
        return f"{self.objective}-seed-{self.seed}"


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Settings of a comparison; ``base`` is None if the runs start from an existing model."""

    path: Path
    out: Path
    base: SftConfig | None
    runs: tuple[ComparedRun, ...]
    audit: AuditConfig


def read_comparison(path: Path, out: Path | None = None) -> Comparison:
    """Read and check the file at ``path``.

    The default of ``out`` is ``runs/`` and the name of the file.

    Raises ``ConfigError`` with file, table and key.
    """
    tables = _tables(path)
    out = out or Path("runs") / path.stem
    shared = _table(path, tables, "train")
    _refuse(path, "[train]", shared, _SET_BY_COMPARE)
    base = None
    if "model" not in shared:
        given = _table(path, tables, "base")
        _refuse(path, "[base]", given, {key: _SET_BY_COMPARE[key] for key in ("output_dir", "resume")})
        settings = _typed(path, "[base]", SftConfig, given)
        if shared.get("task") in WORLDS and shared["task"] != DEFAULT_WORLD:
            settings = {"task": shared["task"], **settings}
        base = _made(path, "[base]", SftConfig, {**settings, "output_dir": out / "base", "resume": True})
    elif "base" in tables:
        raise ConfigError(f"{path} [base]: [train] has a model, so no base is trained; remove one of the two")
    start = shared.get("model") if base is None else str(checkpoint_path(base.output_dir, base.max_steps))
    runs = tuple(
        _run(path, out, {**shared, "model": start}, table, seed)
        for table in _run_tables(path, tables)
        for seed in _seeds(path, tables)
    )
    _refuse_twins(path, runs)
    return Comparison(path=path, out=out, base=base, runs=runs, audit=_audit(path, tables, out, runs, base))


def _tables(path: Path) -> dict[str, Any]:
    try:
        tables = tomllib.loads(read_small(path).decode())
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}); pass the TOML file of a comparison") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not TOML ({error}); fix the syntax") from error
    for key in tables:
        if key not in _TABLES:
            raise ConfigError(f"{path}: {_unknown(key, _TABLES, 'key or table of a comparison')}")
    return tables


def _table(path: Path, tables: Mapping[str, Any], name: str) -> dict[str, Any]:
    table = tables.get(name, {})
    if not isinstance(table, dict):
        raise ConfigError(f"{path} {name}: must be a table; write [{name}] and its settings below")
    return table


def _run_tables(path: Path, tables: Mapping[str, Any]) -> list[dict[str, Any]]:
    runs = tables.get("run", [])
    if isinstance(runs, dict) or not isinstance(runs, list) or not all(isinstance(run, dict) for run in runs):
        raise ConfigError(f"{path} [run]: must be a list of tables; write [[run]] with two brackets for each objective")
    if not runs:
        raise ConfigError(f'{path}: no run; add [[run]] with name = "grpo" and algorithm = "grpo" for each objective')
    names: set[str] = set()
    for place, run in enumerate(runs, start=1):
        if "name" not in run:
            raise ConfigError(f'{path} [[run]] {place}: name is missing; write name = "grpo", for example')
        name = run["name"]
        if not isinstance(name, str) or not _RUN_NAME.fullmatch(name) or re.search(r"-seed-\d+$", name):
            raise ConfigError(
                f"{path} [[run]] {place}: name = {name!r} is no valid name; use letters, digits and . _ + - without a "
                "seed at the end"
            )
        if name in names:
            raise ConfigError(f"{path} [[run]] {name}: the name is used twice; give every objective a different name")
        names.add(name)
    return runs


def _seeds(path: Path, tables: Mapping[str, Any]) -> list[int]:
    if "seeds" not in tables:
        raise ConfigError(f"{path}: seeds is missing; write seeds = [0, 1, 2] above the first table")
    seeds = tables["seeds"]
    whole = isinstance(seeds, list) and all(type(seed) is int and seed >= 0 for seed in seeds)
    if not isinstance(seeds, list) or not whole or not seeds or len(set(seeds)) < len(seeds):
        raise ConfigError(
            f"{path}: seeds = {seeds!r} is not a list of different whole numbers of 0 or more; write seeds = [0, 1, 2] "
            "above the first table"
        )
    return sorted(seeds)


def _run(path: Path, out: Path, shared: Mapping[str, Any], table: Mapping[str, Any], seed: int) -> ComparedRun:
    name = str(table["name"])
    where = f"[[run]] {name}"
    own = {key: value for key, value in table.items() if key != "name"}
    _refuse(path, where, own, {**_SET_BY_COMPARE, **_SHARED_BY_RUNS})
    settings = {**_typed(path, "[train]", TrainConfig, shared), **_typed(path, where, TrainConfig, own)}
    directory = out / f"{name}-seed-{seed}"
    config = _made(path, where, TrainConfig, {**settings, "seed": seed, "output_dir": directory, "resume": True})
    return ComparedRun(objective=name, seed=seed, config=config)


def _refuse_twins(path: Path, runs: Sequence[ComparedRun]) -> None:
    """Raise ``ConfigError`` if two objectives have equal settings."""
    seen: dict[tuple[tuple[str, object], ...], str] = {}
    for run in runs:
        settings = tuple(sorted((k, v) for k, v in settings_of(run.config).items() if k != "output_dir"))
        if (twin := seen.setdefault(settings, run.objective)) != run.objective:
            raise ConfigError(
                f"{path} [[run]] {run.objective}: has the same settings as {twin}; change one, or remove one of the two"
            )


def _audit(
    path: Path, tables: Mapping[str, Any], out: Path, runs: Sequence[ComparedRun], base: SftConfig | None
) -> AuditConfig:
    given = _table(path, tables, "audit")
    _refuse(path, "[audit]", given, _SET_BY_AUDIT)
    trained = runs[0].config
    asked = () if "preset" in given else _PROMPT_SETTINGS  # the preset sets these
    inherited: dict[str, Any] = {key: getattr(trained, key) for key in (*asked, "device")}
    if "task" not in given and "problems" not in given:
        worlds = {run.config.world for run in runs}
        if len(worlds) == 1 and None not in worlds:
            [inherited["task"]] = worlds
        else:
            raise ConfigError(
                f"{path} [audit]: set problems = FILE.jsonl or task = NAME to problems that the runs do not train on"
            )
    if base is not None:
        inherited["sampler"] = "transformers"  # transformers is faster than an engine for a model this small
    settings = {**inherited, **_typed(path, "[audit]", AuditConfig, given)}
    return _made(path, "[audit]", AuditConfig, {**settings, "out": out})


def _refuse(path: Path, where: str, table: Mapping[str, Any], refused: Mapping[str, str]) -> None:
    for key in table:
        if key in refused:
            raise ConfigError(f"{path} {where}: {key} cannot be set here; {refused[key]}")


def _typed(path: Path, where: str, kind: type[Config], table: Mapping[str, Any]) -> dict[str, Any]:
    """Convert the settings of a table to the field types of the dataclass ``kind``."""
    hints = get_type_hints(kind)
    names = [field.name for field in fields(kind)]
    settings = {}
    for key, value in table.items():
        if key not in names:
            raise ConfigError(f"{path} {where}: {_unknown(key, names, 'setting')}")
        if type(value) is int and hints[key] in (float, float | None):
            value = float(value)  # convert as the command line does, because stored settings are compared as text
        try:
            settings[key] = convert_value(key, value, hints[key])
        except ConfigError as error:
            raise ConfigError(f"{path} {where}: {error}") from error
    return settings


def _made(path: Path, where: str, kind: type[Config], settings: Mapping[str, Any]) -> Config:
    try:
        return kind(**settings)
    except ConfigError as error:
        raise ConfigError(f"{path} {where}: {error}") from error


def _unknown(key: str, known: Sequence[str], kind: str) -> str:
    nearest = get_close_matches(key, known, n=1, cutoff=0.5)
    hint = f"did you mean {nearest[0]}?" if nearest else f"there are {', '.join(known)}"
    return f"{key} is no {kind}; {hint}"
