"""Measure CPU and wall seconds and memory of a command with all its processes, and CPU seconds per stage.

A stage ends with a line of output, which ``oversharp audit`` prints after each.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

#: Clock ticks per second in /proc.
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, kw_only=True)
class Line:
    """A line of output, the CPU seconds up to it, and the peak memory of the largest process up to it."""

    text: str
    cpu_s: float
    memory_gib: float


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Cost of a command.

    ``memory_gib`` is that of the largest process. ``load`` is the machine's load average of the last minute, at the
    end.
    """

    wall_s: float
    cpu_s: float
    memory_gib: float
    load: float
    exit_code: int
    lines: tuple[Line, ...]


def cost_of(command: Sequence[str], log: Path) -> Cost:
    """Run a command and append its output to ``log``."""
    log.parent.mkdir(parents=True, exist_ok=True)
    start, lines = time.perf_counter(), list[Line]()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert process.stdout is not None
    with log.open("a", encoding="utf-8") as kept, process.stdout as said:
        for text in said:
            kept.write(text)
            kept.flush()
            cpu_s, memory_gib = tree_cost(process.pid)
            lines.append(Line(text=text.rstrip("\n"), cpu_s=cpu_s, memory_gib=memory_gib))
        # only wait4 returns the cost of this one child and the processes that it waited for
        _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return Cost(
        wall_s=round(time.perf_counter() - start, 1),
        cpu_s=round(usage.ru_utime + usage.ru_stime, 1),
        memory_gib=round(usage.ru_maxrss / 1024**2, 3),
        load=round(os.getloadavg()[0], 1),
        exit_code=process.returncode,
        lines=tuple(lines),
    )


def tree_cost(root: int) -> tuple[float, float]:
    """Return CPU seconds of a process and its descendants, and the largest peak of a live one in GiB.

    Ended processes count in the CPU seconds.
    """
    parents, ticks = dict[int, int](), dict[int, int]()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (stat := _stat(entry)) is not None:
            parents[int(entry.name)] = int(stat[1])
            # utime, stime, and those of children that were waited for
            ticks[int(entry.name)] = sum(map(int, stat[11:15]))
    below = [pid for pid in ticks if _is_below(pid, root, parents)]
    return sum(ticks[pid] for pid in below) / _TICKS, round(max(map(_peak_gib, below), default=0.0), 3)


def _peak_gib(pid: int) -> float:
    """Return the peak memory of a process, 0 after it ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return 0.0
    return sum(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) / 1024**2


def _stat(process: Path) -> list[str] | None:
    """Return the fields of ``/proc/PID/stat`` after the name, which may contain spaces.

    None after the process ended.
    """
    try:
        return (process / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return None


def _is_below(pid: int, root: int, parents: dict[int, int]) -> bool:
    while pid not in (root, 0, 1) and pid in parents:
        pid = parents[pid]
    return pid == root
