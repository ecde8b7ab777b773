"""What a long run says while it works: one line per stage, a bar on a terminal, nothing on stdout."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import datetime
from threading import Event, Thread
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from diagnostics.records.amounts import plural
from diagnostics.records.cells import visible


class ProgressSink(Protocol):
    """Where a run reports its progress."""

    def note(self, text: str) -> None:
        """One line of information."""

    def stage(self, title: str, total: int) -> AbstractContextManager[Callable[[int], None]]:
        """A stage of ``total`` units; use as ``with sink.stage("sample", 256) as advance: advance(32)``."""


class SilentProgress:
    """Says nothing: for libraries, notebooks and tests."""

    def note(self, text: str) -> None:
        """Drops ``text``."""

    @contextmanager
    def stage(self, title: str, total: int) -> Iterator[Callable[[int], None]]:
        """A stage whose ``advance`` does nothing."""
        yield lambda count: None


#: Where there is no terminal, a stage that is still at work says so this often.
HEARTBEAT_S = 60.0


@dataclass(kw_only=True)
class _OpenStage:
    """A stage that has not ended, with the time of its start."""

    title: str
    total: int
    began: float
    done: int = 0

    def line(self, now: float) -> str:
        """How far it is, how fast, and how long it takes from here at this speed.

        >>> _OpenStage(title="sample checkpoint-20", total=400, began=0.0, done=100).line(now=50.0)
        'sample checkpoint-20: 100 of 400, 2.0 per second, about 3 min left'
        """
        said = f"{self.title}: {self.done:,} of {self.total:,}"
        passed = now - self.began
        if not self.done or passed <= 0:
            return f"{said} after {passed / 60:.0f} min"
        left_s = (self.total - self.done) * passed / self.done
        left = f"about {-(-left_s // 60):.0f} min left" if left_s > 0 else "nearly done"
        return f"{said}, {self.done / passed:.1f} per second, {left}"


class Pace:
    """How far a run is over all its checkpoints.

    ``lacking`` are the samples that each still lacks, by its id; who lacks none is not counted.

    >>> pace = Pace({"base": 2000, "late": 1000, "last": 1000}, began=0.0)
    >>> pace.start_line
    'to draw: 4,000 samples at 3 checkpoints'
    >>> pace.done_line("base", now=100.0)
    'checkpoint 1 of 3 is done: 20 samples per second, about 2 min for the others'
    >>> pace.leave_out("late")
    >>> pace.done_line("last", now=150.0)
    'checkpoint 3 of 3 is done: 20 samples per second'
    >>> print(pace.done_line("held", now=150.0))
    None
    """

    def __init__(self, lacking: Mapping[str, int], *, began: float) -> None:
        self._lacking = dict(lacking)
        self._of = len(lacking)
        self._began = began
        self._drawn = 0

    @property
    def start_line(self) -> str | None:
        """What there is to draw; None where that is nothing."""
        if not self._lacking:
            return None
        at = plural(self._of, "checkpoint")
        return f"to draw: {plural(sum(self._lacking.values()), 'sample')} at {at}"

    def leave_out(self, checkpoint_id: str) -> None:
        """Its samples will not be drawn."""
        self._lacking.pop(checkpoint_id, None)

    def done_line(self, checkpoint_id: str, now: float) -> str | None:
        """What to say of a checkpoint that is done; None where it had nothing to draw."""
        if checkpoint_id not in self._lacking:
            return None
        self._drawn += self._lacking.pop(checkpoint_id)
        per_s = self._drawn / max(now - self._began, 1e-9)
        said = f"checkpoint {self._of - len(self._lacking)} of {self._of} is done: {per_s:.2g} samples per second"
        left_s = sum(self._lacking.values()) / per_s
        return f"{said}, about {-(-left_s // 60):.0f} min for the others" if self._lacking else said


class ConsoleProgress:
    """Bars on a terminal, plain lines elsewhere; always on stderr. Stages may overlap.

    Elsewhere each stage has a line when it ended, and one a minute with the time of day while it is at work.
    """

    def __init__(self) -> None:
        self._console = Console(stderr=True, highlight=False)
        self._bars: Progress | None = None
        self._open: list[_OpenStage] = []
        self._ended = Event()

    def note(self, text: str) -> None:
        """Prints ``text`` to stderr as it is, without markup or wrapping; control characters are written out."""
        self._console.print(visible(text), markup=False, soft_wrap=True)

    @contextmanager
    def stage(self, title: str, total: int) -> Iterator[Callable[[int], None]]:
        """A bar over ``total`` units on a terminal; elsewhere one line once the stage has ended without an error."""
        bars = self._bars = self._bars or self._started()
        task = bars.add_task(visible(title), total=total)
        mine = _OpenStage(title=title, total=total, began=time.monotonic())
        self._open.append(mine)

        def advance(count: int) -> None:
            mine.done += count
            bars.advance(task, count)

        try:
            yield advance
        finally:
            self._open.remove(mine)
            if not self._open:
                self._ended.set()
                bars.stop()
                self._bars = None
        if not self._console.is_terminal:
            self.note(f"{title}: {total} done")

    def _started(self) -> Progress:
        """The block of bars that all stages which overlap share: a terminal has room for one."""
        if not self._console.is_terminal:
            self._ended = Event()
            Thread(target=self._tell, args=(self._ended,), daemon=True).start()
        columns = (
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
        )
        bars = Progress(*columns, console=self._console, transient=False, disable=not self._console.is_terminal)
        bars.start()
        return bars

    def _tell(self, ended: Event) -> None:
        while not ended.wait(HEARTBEAT_S):
            for one in tuple(self._open):
                self.note(f"{datetime.now():%H:%M} {one.line(time.monotonic())}")
