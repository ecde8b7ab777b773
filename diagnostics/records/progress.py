"""What a long run says while it works: one line per stage, a bar on a terminal, nothing on stdout."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

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


class ConsoleProgress:
    """Bars on a terminal, one plain line per finished stage elsewhere; always on stderr. Stages may overlap."""

    def __init__(self) -> None:
        self._console = Console(stderr=True, highlight=False)
        self._bars: Progress | None = None
        self._n_open = 0

    def note(self, text: str) -> None:
        """Prints ``text`` to stderr as it is, without markup or wrapping; control characters are written out."""
        self._console.print(visible(text), markup=False, soft_wrap=True)

    @contextmanager
    def stage(self, title: str, total: int) -> Iterator[Callable[[int], None]]:
        """A bar over ``total`` units on a terminal; elsewhere one line once the stage has ended without an error."""
        bars = self._bars = self._bars or self._started()
        task = bars.add_task(visible(title), total=total)
        self._n_open += 1
        try:
            yield lambda count: bars.advance(task, count)
        finally:
            self._n_open -= 1
            if not self._n_open:
                bars.stop()
                self._bars = None
        if not self._console.is_terminal:
            self.note(f"{title}: {total} done")

    def _started(self) -> Progress:
        """The block of bars that all stages which overlap share: a terminal has room for one."""
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
