"""Run commands like a user, each in a process that is forked from one with all imports."""

from __future__ import annotations

import os
import resource
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from subprocess import TimeoutExpired
from tempfile import TemporaryFile

from tests.preloaded import OF_COMMANDS, Forked, ForkServer, RunningServer, require_end_of

RUN_COMMAND = "benchmarks.torture.commands:run_command"
#: Imported before the fork. From then on signals are blocked until the command has begun.
PRELOADED = (
    *OF_COMMANDS,
    "oversharp.diagnostics.ingest.ingest",
    "oversharp.diagnostics.audit.regrade",
    "oversharp.trainers.loop",
    "datasets",
    "benchmarks.torture.commands:hold_signals",
)
#: Commits that are as small relative to a trial as the usual ones are to a large run.
SMALL_COMMITS = {
    "oversharp.diagnostics.engine.grading.GRADES_PER_COMMIT": 64,
    "oversharp.diagnostics.audit.stages.TOKENS_PER_COMMIT": 64,
    "oversharp.diagnostics.ingest.batch.SAMPLES_PER_COMMIT": 48,
    "oversharp.diagnostics.ingest.batch.SAMPLES_PER_BLOCK": 16,
}
#: Seconds after which a command counts as hanging.
MOST_S = 300.0
_ANSWERED = (signal.SIGTERM, signal.SIGINT)


@dataclass(frozen=True, kw_only=True)
class Ended:
    """End of a command: its exit code or minus the signal, its output, and its time."""

    code: int
    said: str
    wall_s: float

    @property
    def line(self) -> str:
        """The last line of the output."""
        return (self.said.strip().splitlines() or [""])[-1]


@contextmanager
def fork_server() -> Iterator[RunningServer]:
    """Start the process that forks."""
    server = ForkServer(PRELOADED)
    try:
        yield server
    finally:
        server.close()


def ended(
    server: RunningServer,
    arguments: Sequence[str],
    *,
    stop: tuple[float, signal.Signals] | None = None,
    most_bytes: int | None = None,
    call: str = RUN_COMMAND,
) -> Ended:
    """Run one command to its end. ``stop`` sends it a signal after some seconds.

    ``most_bytes``: limit on the size of each file that it writes. Raises ``AssertionError`` if the command hangs, or
    leaves a process behind.
    """
    with TemporaryFile("w+b") as output:
        start = time.monotonic()
        process = Forked(
            server.socket_path,
            call,
            [*([str(most_bytes or 0)] if call == RUN_COMMAND else []), *arguments],
            stdout=output.fileno(),
            stderr=output.fileno(),
        )
        if stop is not None:
            while process.poll() is None and time.monotonic() < start + stop[0]:
                time.sleep(0.002)
            process.send_signal(stop[1])
        try:
            code = process.wait(MOST_S)
        except TimeoutExpired as error:
            raise AssertionError(f"it hangs: {arguments[0]}") from error
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
        wall_s = time.monotonic() - start
        require_end_of(process.pid)
        output.seek(0)
        return Ended(code=code, said=output.read().decode("utf-8", "replace"), wall_s=wall_s)


def hold_signals() -> None:
    """Block signals in the process that forks, because a fork is no command until ``run_command`` unblocks them."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _ANSWERED)


def run_command() -> None:
    """Run MOST_BYTES COMMAND … in the forked process.

    No report is written, because that would take half of the time.
    """
    import importlib

    most_bytes = int(sys.argv.pop(1))
    report = importlib.import_module("oversharp.diagnostics.app.report")
    report.write_report = lambda store_path, report_path: None  # type: ignore[attr-defined]
    importlib.import_module("oversharp.reports").build_report = lambda store_path, out_path, **_: out_path  # type: ignore[attr-defined]
    for place, value in SMALL_COMMITS.items():
        module, _, name = place.rpartition(".")
        setattr(importlib.import_module(module), name, value)
    if most_bytes:
        resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, resource.RLIM_INFINITY))
    if sys.argv[1] == "state":
        from benchmarks.torture.states import write_state

        sys.argv.pop(1)
        write_state()
        return
    process = importlib.import_module("oversharp.diagnostics.app.process")
    plain = process._stop_at_signals

    def begun(came: list[int]) -> None:
        plain(came)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _ANSWERED)

    process._stop_at_signals = begun  # type: ignore[attr-defined]
    process.main()
