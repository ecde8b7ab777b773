"""The faults, each with its requirements.

A fault returns how the trial ended, and raises ``WrongError`` if a requirement is not met.
"""

from __future__ import annotations

import re
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.torture.commands import Ended
from benchmarks.torture.damage import DAMAGES
from benchmarks.torture.material import Bench
from benchmarks.torture.stages import STAGES, Stage
from benchmarks.torture.states import State, difference

EQUAL, ONE_LINE = "equal", "one line"
#: Exit codes of errors with a type. 70 would be an unexpected error.
_HOUSE = frozenset(range(1, 13)) - {3}
_DONE = (0, 3)
#: Last output of a finished command that was killed while it cleaned up.
_DONE_LINE = re.compile(r"^(store|report|verdict of|stopped: )|checkpoint-6$", re.MULTILINE)
_SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
#: A smaller limit would also truncate the command's output.
_LEAST_BYTES = 1 << 14
#: Bytes that a file system needs itself.
_LEAST_DISK = 1 << 18


class WrongError(Exception):
    """A requirement that was not met."""


@dataclass(frozen=True, kw_only=True)
class Found:
    """End of a trial, ``EQUAL`` or ``ONE_LINE``, and its actions."""

    ended: str
    done: str


def killed(bench: Bench, stage: Stage, number: int, rng: np.random.Generator) -> Found:
    """Send one to three signals at random times, then run the same command undisturbed.

    The times are shares of the undisturbed run time.
    """
    folder = bench.folder(stage, number)
    done = []
    for _ in range(int(rng.integers(1, 4))):
        after_s = float(rng.uniform(0.0, 1.05)) * bench.whole[stage.name].wall_s
        sent = _SIGNALS[int(rng.integers(len(_SIGNALS)))]
        ended = bench.run(stage, folder, stop=(after_s, sent))
        done.append(f"{sent.name} after {after_s:.2f} s: {ended.code}")
        _require_stopped(ended, sent)
    _require_equal_after(bench, stage, folder, ", ".join(done))
    return Found(ended=EQUAL, done=", ".join(done))


def short_files(bench: Bench, stage: Stage, number: int, rng: np.random.Generator) -> Found:
    """Limit the size of all files (``ulimit -f``), then run the same command without the limit."""
    folder = bench.folder(stage, number)
    largest = max(path.stat().st_size for path in (bench.root / "whole" / stage.name).rglob("*") if path.is_file())
    most = int(rng.integers(_LEAST_BYTES, largest))
    ended = bench.run(stage, folder, most_bytes=most)
    done = f"no file above {most} bytes: {ended.code}"
    if ended.code not in _DONE:
        _require_one_line(ended, folder)
    _require_equal_after(bench, stage, folder, done)
    return Found(ended=EQUAL, done=done)


def full_disk(bench: Bench, stage: Stage, number: int, rng: np.random.Generator) -> Found:
    """Run on a file system of a random size, mostly too small, then again with enough room."""
    plain = bench.folder(stage, number)
    folder = plain.with_name(f"{number}-disk")
    folder.mkdir(exist_ok=True)
    needed = bench.whole[stage.name].n_bytes
    laid = sum(path.stat().st_size for path in plain.rglob("*") if path.is_file())
    size = int(laid * 1.02) + _LEAST_DISK + int(rng.uniform(0, 1.2) * max(needed - laid, 1 << 20))
    _mount(folder, size)
    try:
        for one in plain.iterdir():
            subprocess.run(["cp", "-r", str(one), str(folder)], check=True)
        ended = bench.run(stage, folder)
        done = f"a disk of {size} bytes: {ended.code}"
        if ended.code not in _DONE:
            _require_one_line(ended, folder)
        subprocess.run(["mount", "-o", "remount,size=1g", str(folder)], check=True)
        _require_equal_after(bench, stage, folder, done)
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=False)
    return Found(ended=EQUAL, done=done)


def can_mount(folder: Path) -> bool:
    """Return whether this machine allows mounting a small file system."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        _mount(folder, 1 << 20)
    except (subprocess.CalledProcessError, OSError):
        return False
    subprocess.run(["umount", str(folder)], check=True)
    return True


def _mount(folder: Path, size: int) -> None:
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "torture", str(folder)], check=True, capture_output=True
    )


def damaged_product(bench: Bench, stage: Stage, number: int, rng: np.random.Generator) -> Found:
    """Damage a file of a finished command's output, then read it and run the same command again."""
    folder = bench.finished(stage, number)
    hurt = _hurt(folder, _files(folder / stage.product), rng)
    held = bench.state(stage, folder)
    if isinstance(held, Ended):
        _require_one_line(held, folder, named=hurt.path)
    else:
        _require_same(bench, stage, hurt, held)
    return _run_after(bench, stage, folder, hurt)


def damaged_input(bench: Bench, stage: Stage, number: int, rng: np.random.Generator) -> Found:
    """Damage an input file, then run the command."""
    folder = bench.folder(stage, number)
    files = [path for name in stage.needs.values() for path in _files(folder / name) if path.name != "problems.jsonl"]
    return _run_after(bench, stage, folder, _hurt(folder, files, rng))


def damaged_while_stopped(bench: Bench, stage: Stage, number: int, rng: np.random.Generator) -> Found:
    """Kill a command, damage a file that it has written, and run it again."""
    folder = bench.folder(stage, number)
    after_s = float(rng.uniform(0.4, 1.0)) * bench.whole[stage.name].wall_s
    bench.run(stage, folder, stop=(after_s, signal.SIGKILL))
    files = _files(folder / stage.product)
    if not files:
        _require_equal_after(bench, stage, folder, "killed before it wrote anything")
        return Found(ended=EQUAL, done="killed before it wrote anything")
    return _run_after(bench, stage, folder, _hurt(folder, files, rng))


@dataclass(frozen=True, kw_only=True)
class _Hurt:
    """A damaged file, and its damage."""

    path: Path
    done: str

    @property
    def checkpoint(self) -> str | None:
        """The audited checkpoint that the file belongs to, if any."""
        name = self.path.parent.name
        return name if name.startswith("checkpoint-") else None


def _files(product: Path) -> list[Path]:
    """Return all files of a store or a run."""
    below = product if product.suffix != ".duckdb" else product.parent
    return sorted(path for path in below.rglob("*") if path.is_file()) if below.is_dir() else []


def _hurt(folder: Path, files: Sequence[Path], rng: np.random.Generator) -> _Hurt:
    path = files[int(rng.integers(len(files)))]
    name = list(DAMAGES)[int(rng.integers(len(DAMAGES)))]
    return _Hurt(path=path, done=f"{path.relative_to(folder)}: {name}, {DAMAGES[name](path, rng)}")


def _run_after(bench: Bench, stage: Stage, folder: Path, hurt: _Hurt) -> Found:
    ended = bench.run(stage, folder)
    done = f"{hurt.done}: {ended.code}"
    if ended.code not in _DONE:
        _require_one_line(ended, folder, named=hurt.path)
        return Found(ended=ONE_LINE, done=f"{done}, {ended.line}")
    held = bench.state(stage, folder)
    if isinstance(held, Ended):
        raise WrongError(f"{done}: done, and then {held.said.strip()[-300:]}")
    _require_same(bench, stage, hurt, held, ended)
    return Found(ended=EQUAL, done=done)


def _require_same(bench: Bench, stage: Stage, hurt: _Hurt, held: State, ended: Ended | None = None) -> None:
    """Require equal results except for the damaged part, which must be named."""
    expected = bench.whole[stage.name].state
    if stage.name == "audit" and hurt.checkpoint is not None:
        label = hurt.checkpoint
        if ended is not None and ended.code == 3 and label not in ended.said:
            raise WrongError(f"{hurt.done}: {label} is left out without a word")
        differs = difference(held, expected, without=label, only=("samples", "counts"))
    elif hurt.path.suffix == ".parquet" and stage.name != "train":
        # only an audit recomputes missing token scores
        differs = difference(held, expected, lacking=("n_lists", "notes"))
    else:
        differs = difference(held, expected, lacking=_told_gone(stage, hurt, ended))
    if differs:
        raise WrongError(f"{hurt.done}: {differs}")


def _told_gone(stage: Stage, hurt: _Hurt, ended: Ended | None) -> tuple[str, ...]:
    """Return the tables of missing logs that a training reports and continues without."""
    if stage.name != "train" or ended is None or f"{hurt.path}: gone" not in ended.said:
        return ()
    return ("metrics",) if hurt.path.name == "metrics.jsonl" else ("rollouts",)


def _require_equal_after(bench: Bench, stage: Stage, folder: Path, done: str) -> None:
    """Require that the same command, undisturbed, ends like an undisturbed run."""
    ended = bench.run(stage, folder)
    if ended.code != bench.whole[stage.name].code:
        raise WrongError(f"{done}; then {ended.code}: {ended.said.strip()[-500:]}")
    held = bench.state(stage, folder)
    if isinstance(held, Ended):
        raise WrongError(f"{done}; then {held.said.strip()[-300:]}")
    differs = difference(held, bench.whole[stage.name].state)
    if differs:
        raise WrongError(f"{done}; then {differs}")


def _require_stopped(ended: Ended, sent: signal.Signals) -> None:
    """Require that the command was done before, or was ended by the signal.

    If it was at work, it must answer a signal that it can handle with one line.
    """
    if "Traceback" in ended.said or "Exception ignored" in ended.said:
        raise WrongError(f"{sent.name}: {ended.said.strip()[-900:]}")
    not_begun_or_done = ended.code == -sent and (not ended.said or _DONE_LINE.search(ended.said) is not None)
    if ended.code in _DONE or not_begun_or_done or (ended.code == -sent and sent is signal.SIGKILL):
        return
    if ended.code != 128 + sent or not ended.line.startswith("stopped: "):
        raise WrongError(f"{sent.name}: {ended.code}, {ended.said.strip()[-500:]}")


def _require_one_line(ended: Ended, folder: Path, *, named: Path | None = None) -> None:
    """Require an error with a type, in one last line that names the file.

    With a full disk any of our files is enough.
    """
    lines = [line for line in ended.said.splitlines() if line.startswith("error: ")]
    if "Traceback" in ended.said or ended.code not in _HOUSE or lines != [ended.line]:
        raise WrongError(f"{ended.code}: {ended.said.strip()[-900:]}")
    names = [folder.name] if named is None else [named.name, named.stem, named.parent.name]
    if not any(name in lines[0] for name in names):
        raise WrongError(f"names no file: {lines[0]}")


#: Name in the results → the fault and the stages that it is tried on.
FAULTS: Mapping[str, tuple[Callable[[Bench, Stage, int, np.random.Generator], Found], tuple[str, ...]]] = {
    "killed": (killed, tuple(STAGES)),
    "no file above a size": (short_files, tuple(STAGES)),
    "a full disk": (full_disk, tuple(STAGES)),
    "a damaged result": (damaged_product, ("import", "regrade", "audit", "confirm", "merge")),
    "a damaged input": (damaged_input, ("regrade", "audit", "confirm", "merge")),
    "killed, then damaged": (damaged_while_stopped, ("import", "audit", "train")),
}
