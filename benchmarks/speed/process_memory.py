"""Measure the memory of a command's processes: the largest one, and all together.

The largest process is relevant for ``ulimit`` and most tools, the sum for the size of the machine. Pages that several
processes share (libraries, mapped files) count once in the sum (proportional set size), and fully for each single
process.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread

#: Seconds between two measurements. Measuring a process of 4 GiB takes 20 ms.
INTERVAL_S = 0.4
_PAGE = os.sysconf("SC_PAGE_SIZE")
#: (word of the command line, kind of process). The first match counts.
_KINDS = (("vllm_process", "engine"), ("math_worker", "graders"), ("resource_tracker", "graders"))


@dataclass(frozen=True, kw_only=True)
class Look:
    """GiB at one time: the largest process of each kind, and all processes together."""

    at_s: float
    largest_gib: Mapping[str, float]
    sum_gib: float


@dataclass(frozen=True, kw_only=True)
class Said:
    """A line of output and its time, in seconds from the start."""

    at_s: float
    text: str


@dataclass(frozen=True, kw_only=True)
class Held:
    """Measurements and output of a command that ended."""

    looks: tuple[Look, ...]
    lines: tuple[Said, ...]
    exit_code: int
    cpu_s: float
    wall_s: float

    def peaks(self, first_s: float = 0.0, last_s: float = float("inf")) -> dict[str, float]:
        """Return peaks between two times: by kind of process, and of the sum as ``sum``."""
        looks = [one for one in self.looks if first_s <= one.at_s < last_s]
        kinds = {kind for look in looks for kind in look.largest_gib}
        by_kind = {kind: max(look.largest_gib.get(kind, 0.0) for look in looks) for kind in sorted(kinds)}
        return {**by_kind, "sum": max((look.sum_gib for look in looks), default=0.0)}


def memory_of(command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None) -> Held:
    """Run a command, measure its processes meanwhile, and append its output to ``log``."""
    log.parent.mkdir(parents=True, exist_ok=True)
    start, lines, looks, ended = time.perf_counter(), list[Said](), list[Look](), Event()
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env={**os.environ, **(environment or {})}
    )

    def watch() -> None:
        while not ended.wait(INTERVAL_S):
            looks.append(look_at(process.pid, time.perf_counter() - start))

    watcher = Thread(target=watch, daemon=True)
    watcher.start()
    assert process.stdout is not None
    with log.open("a", encoding="utf-8") as kept, process.stdout as said:
        for text in said:
            kept.write(text)
            kept.flush()
            lines.append(Said(at_s=time.perf_counter() - start, text=text.rstrip("\n")))
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    ended.set()
    watcher.join()
    return Held(
        looks=tuple(looks),
        lines=tuple(lines),
        exit_code=process.returncode,
        cpu_s=usage.ru_utime + usage.ru_stime,
        wall_s=time.perf_counter() - start,
    )


def look_at(root: int, at_s: float = 0.0) -> Look:
    """Measure a process and its descendants now."""
    largest, total = dict[str, float](), 0.0
    for pid in [root, *_below(root)]:
        try:
            command = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
            resident = int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE
            rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
        except (OSError, IndexError):  # the process has just ended
            continue
        kind = "audit" if pid == root else next((kind for word, kind in _KINDS if word in command), "others")
        largest[kind] = max(largest.get(kind, 0.0), resident / 2**30)
        total += sum(int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Pss:")) / 2**20
    return Look(at_s=at_s, largest_gib=largest, sum_gib=total)


def _below(root: int) -> list[int]:
    """Return all descendants of ``root``."""
    parents = dict[int, int]()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int(
                    (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()[1]
                )
            except OSError:
                continue
    found, grown = {root}, True
    while grown:
        more = {pid for pid, parent in parents.items() if parent in found} - found
        found, grown = found | more, bool(more)
    return sorted(found - {root})
