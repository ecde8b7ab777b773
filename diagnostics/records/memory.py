"""How much memory this process could still take."""

from __future__ import annotations

from pathlib import Path


def free_bytes() -> float:
    """Of the machine and of its control group; infinite where nobody says."""
    limits = []
    meminfo = Path("/proc/meminfo")
    if meminfo.is_file():
        lines = dict(line.split(":", 1) for line in meminfo.read_text().splitlines())
        limits.append(float(lines["MemAvailable"].split()[0]) * 1024)
    group = Path("/sys/fs/cgroup")
    if (group / "memory.max").is_file() and (most := (group / "memory.max").read_text().strip()) != "max":
        limits.append(float(most) - float((group / "memory.current").read_text()))
    return min(limits, default=float("inf"))
