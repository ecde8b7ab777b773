"""The faults, each with what must hold after it. A fault says what was wrong, or None where all held."""

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
#: Of errors with a type: one per border of the house. 70 would be an error that nobody foresaw.
_HOUSE = frozenset(range(1, 13)) - {3}
_DONE = (0, 3)
#: What a command says when all is done, where it is ended while it tidies up.
_DONE_LINE = re.compile(r"^(store|report|verdict of|stopped: )|checkpoint-6$", re.MULTILINE)
_SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
#: Less would keep what a command says from being written too.
_LEAST_BYTES = 1 << 14
#: A file system needs some room itself.
_LEAST_DISK = 1 << 18


class WrongError(Exception):
    """What did not hold."""


@dataclass(frozen=True, kw_only=True)
class Found:
    """How a trial ended, ``EQUAL`` or ``ONE_LINE``, and what was done in it."""

    ended: str
    done: str


def killed(bench: Bench, stage: Stage, number: int, rng: np.random.Generator) -> Found:
    """One to three signals at moments that are shares of the undisturbed time; then the same command, undisturbed."""
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
    """``ulimit -f``: no file becomes longer than a random size. Then the same command without it."""
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
    """A file system of a random size, too small for most; then the same command with room."""
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
    """Whether this machine lets us make a small file system."""
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
    """A file of what a finished command left is damaged: it is read, and the same command is run again."""
    folder = bench.finished(stage, number)
    hurt = _hurt(folder, _files(folder / stage.product), rng)
    held = bench.state(stage, folder)
    if isinstance(held, Ended):
        _require_one_line(held, folder, named=hurt.path)
    else:
        _require_same(bench, stage, hurt, held)
    return _run_after(bench, stage, folder, hurt)


def damaged_input(bench: Bench, stage: Stage, number: int, rng: np.random.Generator) -> Found:
    """A file that the command needs is damaged before it is run."""
    folder = bench.folder(stage, number)
    files = [path for name in stage.needs.values() for path in _files(folder / name) if path.name != "problems.jsonl"]
    return _run_after(bench, stage, folder, _hurt(folder, files, rng))


def damaged_while_stopped(bench: Bench, stage: Stage, number: int, rng: np.random.Generator) -> Found:
    """A command is killed, and what it has written is damaged before it goes on."""
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
    """A file that was damaged, and how."""

    path: Path
    done: str

    @property
    def checkpoint(self) -> str | None:
        """Whose file it is, of a run that is audited."""
        name = self.path.parent.name
        return name if name.startswith("checkpoint-") else None


def _files(product: Path) -> list[Path]:
    """All that belongs to a store or a run."""
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
    """Equal but for what was damaged: then that is named."""
    expected = bench.whole[stage.name].state
    if stage.name == "audit" and hurt.checkpoint is not None:
        label = hurt.checkpoint
        if ended is not None and ended.code == 3 and label not in ended.said:
            raise WrongError(f"{hurt.done}: {label} is left out without a word")
        differs = difference(held, expected, without=label, only=("samples", "counts"))
    elif hurt.path.suffix == ".parquet" and stage.name != "train":
        # token scores that are gone are computed anew by an audit alone
        differs = difference(held, expected, lacking=("n_lists", "notes"))
    else:
        differs = difference(held, expected, lacking=_told_gone(stage, hurt, ended))
    if differs:
        raise WrongError(f"{hurt.done}: {differs}")


def _told_gone(stage: Stage, hurt: _Hurt, ended: Ended | None) -> tuple[str, ...]:
    """Tables of logs that are not there any more, which a training says and goes on without."""
    if stage.name != "train" or ended is None or f"{hurt.path}: gone" not in ended.said:
        return ()
    return ("metrics",) if hurt.path.name == "metrics.jsonl" else ("rollouts",)


def _require_equal_after(bench: Bench, stage: Stage, folder: Path, done: str) -> None:
    """The same command, undisturbed, ends as if nothing had happened."""
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
    """It was done before, or ended by the signal: by one that it can answer with one line, if it was at work."""
    if "Traceback" in ended.said or "Exception ignored" in ended.said:
        raise WrongError(f"{sent.name}: {ended.said.strip()[-900:]}")
    not_begun_or_done = ended.code == -sent and (not ended.said or _DONE_LINE.search(ended.said) is not None)
    if ended.code in _DONE or not_begun_or_done or (ended.code == -sent and sent is signal.SIGKILL):
        return
    if ended.code != 128 + sent or not ended.line.startswith("stopped: "):
        raise WrongError(f"{sent.name}: {ended.code}, {ended.said.strip()[-500:]}")


def _require_one_line(ended: Ended, folder: Path, *, named: Path | None = None) -> None:
    """An error with a type, in one line at the end, that names the file; with a disk too small, any of ours."""
    lines = [line for line in ended.said.splitlines() if line.startswith("error: ")]
    if "Traceback" in ended.said or ended.code not in _HOUSE or lines != [ended.line]:
        raise WrongError(f"{ended.code}: {ended.said.strip()[-900:]}")
    names = [folder.name] if named is None else [named.name, named.stem, named.parent.name]
    if not any(name in lines[0] for name in names):
        raise WrongError(f"names no file: {lines[0]}")


#: By the name that results have, with the stages that each is tried on.
FAULTS: Mapping[str, tuple[Callable[[Bench, Stage, int, np.random.Generator], Found], tuple[str, ...]]] = {
    "killed": (killed, tuple(STAGES)),
    "no file above a size": (short_files, tuple(STAGES)),
    "a full disk": (full_disk, tuple(STAGES)),
    "a damaged result": (damaged_product, ("import", "regrade", "audit", "confirm", "merge")),
    "a damaged input": (damaged_input, ("regrade", "audit", "confirm", "merge")),
    "killed, then damaged": (damaged_while_stopped, ("import", "audit", "train")),
}
