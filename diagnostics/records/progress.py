"""Progress of a run on stderr: bars on a terminal, otherwise lines of text."""

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
from oversharp.diagnostics.records.cells import escape_controls


class ProgressSink(Protocol):
    """Receiver of a run's progress."""

    def note(self, text: str) -> None:
        """Print one line of information."""

    def stage(self, title: str, total: int) -> AbstractContextManager[Callable[[int], None]]:
        """Start a stage of ``total`` units: ``with sink.stage("draw", 256) as step: step(32)``."""

    def overall(self, status: Callable[[], str]) -> AbstractContextManager[None]:
        """Start a run over several stages. ``status`` returns its progress in one line."""


class SilentProgress:
    """No output, for libraries, notebooks and tests."""

    def note(self, text: str) -> None:
        """Ignore ``text``."""

    @contextmanager
    def stage(self, title: str, total: int) -> Iterator[Callable[[int], None]]:
        """Start a stage whose ``advance`` does nothing."""
        yield lambda count: None

    @contextmanager
    def overall(self, status: Callable[[], str]) -> Iterator[None]:
        """Ignore ``status``."""
        yield


#: Seconds between progress lines if there is no terminal.
HEARTBEAT_S = 60.0


@dataclass(kw_only=True)
class _OpenStage:
    """A running stage."""

    title: str
    total: int
    began: float
    done: int = 0

    def line(self, now: float) -> str:
        """Return the progress, the speed, and the time left at this speed.

        >>> _OpenStage(title="sample checkpoint-20", total=400, began=0.0, done=100).line(now=50.0)
        'sample checkpoint-20: 100 of 400, 2.0 per second, about 3 min left'
        >>> _OpenStage(title="train grpo", total=60, began=0.0, done=5).line(now=140.0)
        'train grpo: 5 of 60, 28 s each, about 26 min left'
        """
        text = f"{self.title}: {self.done:,} of {self.total:,}"
        passed = now - self.began
        if not self.done or passed <= 0:
            return f"{text} after {passed / 60:.0f} min"
        left_s = (self.total - self.done) * passed / self.done
        left = f"{about_time(left_s)} left" if left_s > 0 else "nearly done"
        each_s = passed / self.done
        pace = f"{1 / each_s:,.1f} per second" if each_s <= 1 else f"{each_s:,.{1 if each_s < 10 else 0}f} s each"
        return f"{text}, {pace}, {left}"


class _Bars(Progress):
    """Progress bars, with a status line of the whole run below them."""

    status: Callable[[], str] | None = None

    def get_renderables(self) -> Iterable[RenderableType]:
        """Return the bars and the line for rich to draw."""
        yield from super().get_renderables()
        if self.status is not None:
            yield Text(escape_controls(self.status()), no_wrap=True, overflow="ellipsis")


class ConsoleProgress:
    """Progress on stderr: bars on a terminal, plain lines elsewhere.

    Stages may overlap. Without a terminal, a stage prints a line with the time of day once a minute, and one at its
    end.
    """

    def __init__(self) -> None:
        self._console = Console(stderr=True, highlight=False)
        self._bars: _Bars | None = None
        self._open: list[_OpenStage] = []
        self._status: Callable[[], str] | None = None
        self._ended = Event()

    def note(self, text: str) -> None:
        """Print ``text`` to stderr without markup or wrapping; control characters are escaped."""
        self._console.print(escape_controls(text), markup=False, soft_wrap=True)

    @contextmanager
    def stage(self, title: str, total: int) -> Iterator[Callable[[int], None]]:
        """Show a bar over ``total`` units on a terminal.

        If the run continues after the stage, a line replaces the bar, since a terminal has no room for all bars. A
        stage without progress prints no line.
        """
        bars = self._bars = self._bars or self._start_bars()
        task = bars.add_task(escape_controls(title), total=total)
        this_stage = _OpenStage(title=title, total=total, began=time.monotonic())
        self._open.append(this_stage)

        def advance(count: int) -> None:
            this_stage.done += count
            bars.advance(task, count)

        try:
            yield advance
        finally:
            self._open.remove(this_stage)
            if self._is_running:
                bars.remove_task(task)
            self._stop_if_done()
        if (this_stage.done or not total) and (not self._console.is_terminal or self._is_running):
            self.note(f"{title}: {this_stage.done} done")

    @contextmanager
    def overall(self, status: Callable[[], str]) -> Iterator[None]:
        """Show the status line below the bars on a terminal; elsewhere print it once a minute."""
        self._status = status
        self._bars = self._bars or self._start_bars()
        self._bars.status = status
        try:
            yield
        finally:
            self._status = self._bars.status = None
            self._stop_if_done()

    @property
    def _is_running(self) -> bool:
        return bool(self._open) or self._status is not None

    def _stop_if_done(self) -> None:
        if self._bars is not None and not self._is_running:
            self._ended.set()
            self._bars.stop()
            self._bars = None

    def _start_bars(self) -> _Bars:
        """Start the shared bars of overlapping stages."""
        if not self._console.is_terminal:
            self._ended = Event()
            Thread(target=self._print_regularly, args=(self._ended,), daemon=True).start()
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

    def _print_regularly(self, ended: Event) -> None:
        while not ended.wait(HEARTBEAT_S):
            status, now = self._status, time.monotonic()
            lines = [] if status is None else [status()]
            for line in lines + [stage.line(now) for stage in tuple(self._open)]:
                self.note(f"{datetime.now():%H:%M} {line}")
