"""Settings of a live audit: those of ``oversharp audit``, with smaller defaults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from oversharp.diagnostics.audit.config import AuditConfig
from oversharp.diagnostics.audit.terms import ANY
from oversharp.diagnostics.records.errors import ConfigError
from oversharp.diagnostics.records.names import nearest_names
from oversharp.diagnostics.series.folders import locate_model

#: Defaults for a smaller audit: 64 samples for each of at most 64 problems (128 samples of the base), no kernel, no
#: controls. Controls are samples of the last checkpoint, so a live audit would take them at every checkpoint.
LIVE_DEFAULTS: Mapping[str, Any] = MappingProxyType({"n": 64, "limit": 64, "kernel_problems": 0, "controls": False})
#: Name of the default folder of store, report and log, which is in the run directory.
FOLDER = "oversharp"

_PATHS = ("base", "problems", "out")


def live_config(run_dir: Path | str, settings: AuditConfig | Mapping[str, Any]) -> AuditConfig:
    """Return the configuration of a live audit, from settings by name or from a complete configuration.

    For settings by name, the defaults are ``LIVE_DEFAULTS``, and ``out`` is the folder ``oversharp`` in ``run_dir``. A
    complete configuration has no other defaults. In both cases ``looks`` defaults to "any", because the number of
    audited checkpoints is unknown, and paths become absolute, because trainers change directories. Raises
    ``ConfigError``.

    >>> live_config("/runs/grpo", {"task": "countdown"}).out
    PosixPath('/runs/grpo/oversharp')
    >>> live_config("/runs/grpo", {"task": "countdown", "samples": 8})
    Traceback (most recent call last):
    oversharp.diagnostics.records.errors.ConfigError: samples: no such setting of an audit; did you mean: ...
    """
    run = Path(run_dir).expanduser().resolve()
    config = settings if isinstance(settings, AuditConfig) else _config_from_settings(run, settings)
    if config.top_up is not None:
        raise ConfigError("--top-up: every live audit would add this number of samples; set n instead")
    return replace(
        config,
        name=config.name or run.name,
        base=None if config.base is None else _locate_base(config.base),
        problems=None if config.problems is None else config.problems.expanduser().absolute(),
        out=config.out.expanduser().absolute(),
        looks=config.looks or ANY,
    )


def arguments(run_dir: Path | str, config: AuditConfig) -> list[str]:
    """Return the arguments of the command ``oversharp`` that audits ``run_dir``, without settings that are defaults.

    >>> arguments("/runs/grpo", AuditConfig(task="countdown", k=(1, 8), chat=True))
    ['audit', '/runs/grpo', '--task=countdown', '--k=1,8', '--chat']
    """
    words = ["audit", str(Path(run_dir).expanduser().resolve())]
    for field in fields(config):
        value, flag = getattr(config, field.name), f"--{field.name.replace('_', '-')}"
        if value is True:
            words.append(flag)
        elif value is False and value != field.default:
            words.append(f"--no-{flag.removeprefix('--')}")
        elif value != field.default:
            words.append(f"{flag}={','.join(map(str, value)) if isinstance(value, tuple) else value}")
    return words


def _config_from_settings(run: Path, settings: Mapping[str, Any]) -> AuditConfig:
    known = {field.name for field in fields(AuditConfig)}
    unknown = sorted(set(settings) - known)
    if unknown:
        raise ConfigError(f"{unknown[0]}: no such setting of an audit; {nearest_names(unknown[0], known)}")
    given = {**LIVE_DEFAULTS, "out": run / FOLDER, **settings}
    given |= {name: Path(given[name]) for name in _PATHS if given.get(name) is not None}
    if "k" in given:
        given["k"] = tuple(given["k"])
    return AuditConfig(**given)


def _locate_base(base: Path) -> Path:
    """Return the directory of the base: ``base`` itself, or the folder of a hub model in the cache."""
    if base.expanduser().is_dir():
        return base.expanduser().absolute()
    located = locate_model(str(base))
    if located is None:
        raise ConfigError(f"--base {base}: neither a directory nor a model in the Hugging Face cache")
    return located.absolute()
