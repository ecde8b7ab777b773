"""Common parts of result files: machine, versions, timing of processes, rounding."""

from __future__ import annotations

import json
import os
import platform
import re
import resource
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parents[1] / "results"


@dataclass(frozen=True, kw_only=True)
class Took:
    """Wall and CPU seconds of a process and all processes that it started and waited for."""

    wall_s: float
    cpu_s: float
    output: str


def timed(command: Sequence[str], environment: Mapping[str, str] | None = None) -> Took:
    """Run a command, with these variables added to the environment.

    Raises ``CalledProcessError`` if it fails.
    """
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.perf_counter()
    own = {**os.environ, **(environment or {})}
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=own)
    wall_s = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Took(wall_s=wall_s, cpu_s=cpu_s, output=done.stdout)


def circumstances(packages: Iterable[str]) -> dict[str, Any]:
    """Return machine, its load, and versions of the installed packages.

    The CPU pressure is the share of the last minute in which a process waited for a core. Above some 10 %, wall times
    are too long, and a ratio needs interleaved turns.
    """
    versions = {"python": platform.python_version()}
    for name in packages:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    load = os.getloadavg()[0]
    return {
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, load {load:.1f} at the end{_pressure_text()}",
        "versions": versions,
    }


def _pressure_text() -> str:
    """Return the CPU pressure of the last minute; empty where the system does not report it."""
    try:
        found = re.search(r"some .*avg60=([\d.]+)", Path("/proc/pressure/cpu").read_text(encoding="utf-8"))
    except OSError:
        found = None
    return "" if found is None else f", CPU pressure {float(found[1]):.0f} %"


def own_peak_gib() -> float:
    """Return the peak memory of this process in GiB. ``ru_maxrss`` would include that of a parent before ``exec``."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(re.search(r"^VmHWM:\s+(\d+) kB", status, re.MULTILINE)[1]) / 2**20  # type: ignore[index]


def write(name: str, result: dict[str, Any]) -> None:
    """Write ``benchmarks/results/NAME.json`` and print it.

    If documentation claims its numbers, the hash of the code that they depend on is added (``claims.py``).
    """
    claims = import_module("benchmarks.speed.claims")  # by name: it is no part of the code that is measured
    if name in claims.CLAIMS:
        result = {**result, "code": claims.code_hash(name)}
    text = json.dumps(result, indent=2)
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / f"{name}.json").write_text(text + "\n")
    print(text)


def digits(number: float, significant: int = 3) -> float:
    """Round ``number`` to significant digits.

    >>> digits(12345.678), digits(0.0123456)
    (12300.0, 0.0123)
    """
    return float(f"{number:.{significant}g}")
