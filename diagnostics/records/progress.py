"""What a long run says while it works: one line per stage, a bar on a terminal, nothing on stdout."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import datetime
from threading import Event, Thread
from typing import Protocol

from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.text import Text

from oversharp.diagnostics.records.amounts import about_time
from oversharp.diagnostics.records.cells import visible


class ProgressSink(Protocol):
    """Where a run reports its progress."""

    def note(self, text: str) -> None:
        """One line of information."""

    def stage(self, title: str, total: int) -> AbstractContextManager[Callable[[int], None]]:
        """A stage of ``total`` units; use as ``with sink.stage("sample", 256) as advance: advance(32)``."""

    def overall(self, says: Callable[[], str]) -> AbstractContextManager[None]:
        """A run over several stages; ``says`` tells in a line how far all of it is, whenever it is asked."""


class SilentProgress:
    """Says nothing: for libraries, notebooks and tests."""

    def note(self, text: str) -> None:
        """Drops ``text``."""

    @contextmanager
    def stage(self, title: str, total: int) -> Iterator[Callable[[int], None]]:
        """A stage whose ``advance`` does nothing."""
        yield lambda count: None

    @contextmanager
    def overall(self, says: Callable[[], str]) -> Iterator[None]:
        """Never asks ``says``."""
        yield


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
        >>> _OpenStage(title="train grpo", total=60, began=0.0, done=5).line(now=140.0)
        'train grpo: 5 of 60, 28 s each, about 26 min left'
        """
        said = f"{self.title}: {self.done:,} of {self.total:,}"
        passed = now - self.began
        if not self.done or passed <= 0:
            return f"{said} after {passed / 60:.0f} min"
        left_s = (self.total - self.done) * passed / self.done
        left = f"{about_time(left_s)} left" if left_s > 0 else "nearly done"
        each_s = passed / self.done
        pace = f"{1 / each_s:,.1f} per second" if each_s <= 1 else f"{each_s:,.{1 if each_s < 10 else 0}f} s each"
        return f"{said}, {pace}, {left}"


class _Bars(Progress):
    """Bars, and below them a line on the whole run."""

    says: Callable[[], str] | None = None

    def get_renderables(self) -> Iterable[RenderableType]:
        """What rich draws several times a second."""
        yield from super().get_renderables()
        if self.says is not None:
            yield Text(visible(self.says()), no_wrap=True, overflow="ellipsis")


class ConsoleProgress:
    """Bars on a terminal, plain lines elsewhere; always on stderr. Stages may overlap.

    Elsewhere each stage has a line when it ended, and one a minute with the time of day while it is at work.
    """

    def __init__(self) -> None:
        self._console = Console(stderr=True, highlight=False)
        self._bars: _Bars | None = None
        self._open: list[_OpenStage] = []
        self._says: Callable[[], str] | None = None
        self._ended = Event()

    def note(self, text: str) -> None:
        """Prints ``text`` to stderr as it is, without markup or wrapping; control characters are written out."""
        self._console.print(visible(text), markup=False, soft_wrap=True)

    @contextmanager
    def stage(self, title: str, total: int) -> Iterator[Callable[[int], None]]:
        """A bar over ``total`` units on a terminal; elsewhere one line once the stage has ended without an error.

        A line takes the place of its bar where the run goes on: a terminal has no room for the bars of all stages.
        """
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
            if self._goes_on:
                bars.remove_task(task)
            self._stop_if_over()
        if not self._console.is_terminal or self._goes_on:
            self.note(f"{title}: {total} done")

    @contextmanager
    def overall(self, says: Callable[[], str]) -> Iterator[None]:
        """A line under the bars on a terminal; elsewhere one a minute, also while no stage is at work."""
        self._says = says
        self._bars = self._bars or self._started()
        self._bars.says = says
        try:
            yield
        finally:
            self._says = self._bars.says = None
            self._stop_if_over()

    @property
    def _goes_on(self) -> bool:
        return bool(self._open) or self._says is not None

    def _stop_if_over(self) -> None:
        if self._bars is not None and not self._goes_on:
            self._ended.set()
            self._bars.stop()
            self._bars = None

    def _started(self) -> _Bars:
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
        bars = _Bars(*columns, console=self._console, transient=False, disable=not self._console.is_terminal)
        bars.start()
        return bars

    def _tell(self, ended: Event) -> None:
        while not ended.wait(HEARTBEAT_S):
            says, now = self._says, time.monotonic()
            lines = [] if says is None else [says()]
            for line in lines + [one.line(now) for one in tuple(self._open)]:
                self.note(f"{datetime.now():%H:%M} {line}")
