"""The settings of a live audit: those of ``oversharp audit`` with smaller defaults, checked before the training."""

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

#: What is smaller than in an audit afterwards: 64 samples of at most 64 problems (128 of the base, once), no kernel, no
#: controls, which every checkpoint would want anew while it is the last.
LIVE_DEFAULTS: Mapping[str, Any] = MappingProxyType({"n": 64, "limit": 64, "kernel_problems": 0, "controls": False})
#: The folder in the run's directory that the store, the report and the log lie in where ``out`` names no other.
FOLDER = "oversharp"

_PATHS = ("base", "problems", "out")


def live_config(run_dir: Path | str, settings: AuditConfig | Mapping[str, Any]) -> AuditConfig:
    """The audit's configuration, from any of its settings by name or from one that is complete.

    Named settings have ``LIVE_DEFAULTS``, and ``out`` is the folder ``oversharp`` in ``run_dir``; a complete
    configuration is taken as it is. Every saved checkpoint brings a look at the verdict, and nobody knows how many will
    come: ``looks`` is "any" where it is not named. Paths become absolute, for trainers change directories. Raises
    ``ConfigError``.

    >>> live_config("/runs/grpo", {"task": "countdown"}).out
    PosixPath('/runs/grpo/oversharp')
    >>> live_config("/runs/grpo", {"task": "countdown", "samples": 8})
    Traceback (most recent call last):
    oversharp.diagnostics.records.errors.ConfigError: samples: no such setting of an audit; did you mean: ...
    """
    run = Path(run_dir).expanduser().resolve()
    config = settings if isinstance(settings, AuditConfig) else _named(run, settings)
    if config.top_up is not None:
        raise ConfigError("--top-up: every live audit would draw that many more samples; name n instead")
    return replace(
        config,
        name=config.name or run.name,
        base=None if config.base is None else _located(config.base),
        problems=None if config.problems is None else config.problems.expanduser().absolute(),
        out=config.out.expanduser().absolute(),
        looks=config.looks or ANY,
    )


def arguments(run_dir: Path | str, config: AuditConfig) -> list[str]:
    """``config`` as the words after ``oversharp`` that audit ``run_dir``; settings at their default are left out.

    >>> arguments("/runs/grpo", AuditConfig(task="countdown", k=(1, 8), chat=True))
    ['audit', '/runs/grpo', '--task=countdown', '--k=1,8', '--chat']
    """
    words = ["audit", str(Path(run_dir).expanduser().resolve())]
    for one in fields(config):
        value, flag = getattr(config, one.name), f"--{one.name.replace('_', '-')}"
        if value is True:
            words.append(flag)
        elif value is False and value != one.default:
            words.append(f"--no-{flag.removeprefix('--')}")
        elif value != one.default:
            words.append(f"{flag}={','.join(map(str, value)) if isinstance(value, tuple) else value}")
    return words


def _named(run: Path, settings: Mapping[str, Any]) -> AuditConfig:
    known = {one.name for one in fields(AuditConfig)}
    unknown = sorted(set(settings) - known)
    if unknown:
        raise ConfigError(f"{unknown[0]}: no such setting of an audit; {nearest_names(unknown[0], known)}")
    given = {**LIVE_DEFAULTS, "out": run / FOLDER, **settings}
    given |= {name: Path(given[name]) for name in _PATHS if given.get(name) is not None}
    if "k" in given:
        given["k"] = tuple(given["k"])
    return AuditConfig(**given)


def _located(base: Path) -> Path:
    """A directory, or where the cache has the model of that name."""
    if base.expanduser().is_dir():
        return base.expanduser().absolute()
    located = locate_model(str(base))
    if located is None:
        raise ConfigError(f"--base {base}: neither a directory nor a model in the Hugging Face cache")
    return located.absolute()
