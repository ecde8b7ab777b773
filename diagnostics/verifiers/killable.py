"""Worker processes that can be killed, so that a hanging call only costs its own timeout.

Signals and futures do not suffice. SIGALRM does not interrupt big-integer work in C, and needs the main thread.
``Future.result(timeout)`` stops waiting but leaves the worker hanging. Killing the process always works.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import resource
import signal
import threading
import time
import warnings
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from multiprocessing import forkserver
from multiprocessing.synchronize import Semaphore
from types import FrameType
from typing import Generic, Literal, TypeVar

from pebble import ProcessExpired, ProcessPool

from oversharp.diagnostics.records.errors import VerifierError

R = TypeVar("R")

#: Largest number of calls in the pool without a result. It keeps workers busy and bounds the memory.
CALLS_IN_FLIGHT = 512
#: Number of attempts of a call whose worker dies. The cause may be external, such as the out-of-memory killer.
TRIES = 3
#: Seconds after the timeout of the oldest call at which the pool counts as stuck.
STALL_S = 60.0
#: Memory limit (address space) of one worker, so that a tower of powers cannot exhaust the machine's memory.
WORKER_MEMORY_BYTES = 4 << 30


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome(Generic[R]):
    """Result of one call: its ``value``, or the ``reason`` why there is none."""

    value: R | None
    state: Literal["ok", "timeout", "error"]
    reason: str = ""


class KillablePool:
    """Run calls in worker processes, and kill the worker of a call that exceeds ``timeout_s`` (wall seconds).

    The other calls continue. Workers start at the first ``map`` and import ``module`` once, which does not count as
    time of a call. If a worker dies for another reason (killed from outside, out of memory), its call is tried again
    before it becomes an ``error``. ``timeout_s`` must be positive. ``workers`` defaults to the CPUs that this process
    may use, at most 8.
    """

    def __init__(self, *, module: str, timeout_s: float, workers: int | None = None) -> None:
        if not (math.isfinite(timeout_s) and timeout_s > 0):
            raise VerifierError(f"verifier timeout is {timeout_s} s; give a positive number of seconds")
        if workers is not None and workers < 1:
            raise VerifierError(f"verifier workers is {workers}; give at least 1")
        self.timeout_s = timeout_s
        self._module = module
        self._workers = workers or min(8, len(os.sched_getaffinity(0)))
        self._pool: ProcessPool | None = None
        self._finalizer: weakref.finalize[..., KillablePool] | None = None
        self._started: Semaphore

    def map(self, function: Callable[..., R], calls: Sequence[tuple[object, ...]]) -> list[Outcome[R]]:
        """Return ``function(*call)`` for every call, in order.

        ``function`` and its values must be picklable.
        """
        outcomes: list[Outcome[R]] = []
        in_flight: deque[_Ticket[R]] = deque()
        for call in calls:
            if len(in_flight) == CALLS_IN_FLIGHT:
                outcomes.append(self._outcome(in_flight.popleft()))
            in_flight.append(self._submit(function, call))
        outcomes.extend(self._outcome(ticket) for ticket in in_flight)
        return outcomes

    def close(self) -> None:
        """End the workers. They start again if the pool is used again."""
        if self._finalizer is not None:
            self._finalizer()
        self._pool = self._finalizer = None

    def _submit(self, function: Callable[..., R], call: tuple[object, ...]) -> _Ticket[R]:
        for _ in range(TRIES):
            if self._pool is None:
                with stopped_later():
                    self._pool = self._start()
                    self._finalizer = weakref.finalize(self, _stop, self._pool)
                    self._await_workers(self._pool)
            try:
                future: Future[R] = self._pool.schedule(
                    timed, args=(self.timeout_s, function, call), timeout=self.timeout_s
                )
            except RuntimeError:  # pebble closes a pool whose workers die while idle
                self.close()
            else:
                return _Ticket(pool=self._pool, function=function, call=call, future=future)
        raise self._cannot_start("they die as soon as they start")

    def _start(self) -> ProcessPool:
        # forkserver, because forking a process with torch threads is unsafe. The server has already imported the
        # module, so a killed worker is replaced in milliseconds instead of a second.
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload([self._module])
        _start_server()
        self._started = context.Semaphore(0)
        return ProcessPool(
            max_workers=self._workers,
            initializer=prepare_worker,
            initargs=(self._module, self._started),
            context=context,
        )

    def _await_workers(self, pool: ProcessPool) -> None:
        # accessing pool.active starts the workers; it is false if they die
        waits_until = time.monotonic() + STALL_S
        for _ in range(self._workers):
            while pool.active and not self._started.acquire(timeout=0.1):
                if time.monotonic() > waits_until:
                    return

    def _outcome(self, ticket: _Ticket[R]) -> Outcome[R]:
        error: BaseException | None = None
        for attempt in range(TRIES):
            orphaned = ticket.pool is not self._pool and not ticket.future.done()
            if attempt > 0 or orphaned:
                ticket = self._submit(ticket.function, ticket.call)
            try:
                error = ticket.future.exception(timeout=2 * self.timeout_s + STALL_S)
            except TimeoutError:  # no progress: a worker was killed while it held the lock of the queue
                self.close()
                error = BrokenProcessPool("the pool stalled")
            if not isinstance(error, ProcessExpired | BrokenProcessPool):
                break
        if error is None:
            return Outcome(value=ticket.future.result(), state="ok")
        if isinstance(error, TimeoutError):
            return Outcome(value=None, state="timeout", reason=f"no result within {self.timeout_s:g} s")
        if isinstance(error, ProcessExpired):
            return Outcome(value=None, state="error", reason=f"its worker process died {TRIES} times")
        if isinstance(error, BrokenProcessPool):
            raise self._cannot_start(str(error))
        return Outcome(value=None, state="error", reason=f"{type(error).__name__}: {error}"[:200])

    def _cannot_start(self, why: str) -> VerifierError:
        return VerifierError(
            f"verifier workers do not work ({why}); check that `python -c 'import {self._module}'` succeeds "
            "and that a script that runs audits has the guard `if __name__ == '__main__':`"
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Ticket(Generic[R]):
    """A submitted call, and its pool."""

    pool: ProcessPool
    function: Callable[..., R]
    call: tuple[object, ...]
    future: Future[R]


@contextmanager
def stopped_later() -> Iterator[None]:
    """Defer Ctrl-C, SIGTERM and SIGHUP to the end of the block, when its workers have started.

    If a pool is abandoned while a worker starts, the semaphores that the worker opens are removed, and the worker
    prints a traceback. Starting takes a second or two. Outside the main thread this does nothing, because only the main
    thread receives signals.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handlers = {
        signal_number: signal.getsignal(signal_number)
        for signal_number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    }
    received: list[tuple[int, FrameType | None]] = []
    replaced: list[signal.Signals] = []
    try:
        for signal_number, handler in handlers.items():
            if callable(handler):
                replaced.append(signal_number)
                signal.signal(signal_number, lambda number, frame: received.append((number, frame)))
        yield
    finally:
        for signal_number in replaced:
            signal.signal(signal_number, handlers[signal_number])
        for number, frame in received:
            handlers[signal.Signals(number)](number, frame)  # type: ignore[operator, misc]


def _start_server() -> None:
    """Start the fork server so that it ignores Ctrl-C. It ends when its pipes are closed."""
    handler = signal.getsignal(signal.SIGINT)
    if handler is None or threading.current_thread() is not threading.main_thread():
        forkserver.ensure_running()
        return
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        forkserver.ensure_running()
    finally:
        signal.signal(signal.SIGINT, handler)


def _stop(pool: ProcessPool) -> None:
    pool.stop()
    pool.join()


def prepare_worker(module: str, started: Semaphore) -> None:
    """Prepare a worker before its first call, after it has opened all of its semaphores."""
    started.release()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # scorers print, and standard output may be JSON
    warnings.simplefilter("ignore")  # the user's -W error must not change grades
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    if hard == resource.RLIM_INFINITY or hard > WORKER_MEMORY_BYTES:
        resource.setrlimit(resource.RLIMIT_AS, (WORKER_MEMORY_BYTES, hard))
    import_module(module)


def timed(timeout_s: float, function: Callable[..., R], call: tuple[object, ...]) -> R:
    """Run a call in the worker, with a limit on CPU time as a second safeguard.

    The parent kills a late worker. But if the parent itself is killed, a worker in a big-integer operation would occupy
    a core forever.
    """
    usage = resource.getrusage(resource.RUSAGE_SELF)
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    limit_s = math.ceil(usage.ru_utime + usage.ru_stime + 2 * timeout_s) + 1
    if hard == resource.RLIM_INFINITY or limit_s < hard:
        resource.setrlimit(resource.RLIMIT_CPU, (limit_s, hard))
    return function(*call)
