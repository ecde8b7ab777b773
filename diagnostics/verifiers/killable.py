"""Worker processes that can be killed: one call that hangs costs its own timeout and nothing else.

Why not signals or futures: SIGALRM does not interrupt big-integer work in C and needs the main thread;
``Future.result(timeout)`` gives up waiting but leaves the worker hung. Killing the process always works.
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

#: Calls handed to the pool ahead of the results read: enough to keep workers busy, bounded in memory.
CALLS_IN_FLIGHT = 512
#: A call whose worker dies is tried again, as the death may have had another cause (the out-of-memory killer).
TRIES = 3
#: Seconds beyond its time after which the oldest call in flight shows that the pool itself is stuck.
STALL_S = 60.0
#: Address space of one worker: a tower of powers must not take the machine down before its time is up.
WORKER_MEMORY_BYTES = 4 << 30


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome(Generic[R]):
    """What became of one call: its ``value``, or the ``reason`` why there is none."""

    value: R | None
    state: Literal["ok", "timeout", "error"]
    reason: str = ""


class KillablePool:
    """Runs calls in worker processes; a call past ``timeout_s`` (wall seconds) loses its worker, not the batch.

    Workers start at the first ``map`` and import ``module`` once, outside the timed part. A call whose worker
    died for another reason (killed from outside, out of memory) is tried again before it becomes an ``error``.

    ``timeout_s`` must be positive; ``workers`` defaults to the CPUs this process may use, at most 8.
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
        """``function(*call)`` for every call, in order. ``function`` and its values must pickle."""
        outcomes: list[Outcome[R]] = []
        in_flight: deque[_Ticket[R]] = deque()
        for call in calls:
            if len(in_flight) == CALLS_IN_FLIGHT:
                outcomes.append(self._outcome(in_flight.popleft()))
            in_flight.append(self._submit(function, call))
        outcomes.extend(self._outcome(ticket) for ticket in in_flight)
        return outcomes

    def close(self) -> None:
        """End the workers. The pool starts afresh if it is used again."""
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
            except RuntimeError:  # pebble gives a pool up when workers die while they have nothing to do
                self.close()
            else:
                return _Ticket(pool=self._pool, function=function, call=call, future=future)
        raise self._cannot_start("they die as soon as they start")

    def _start(self) -> ProcessPool:
        # forkserver: no fork of a process that holds torch threads, and a killed worker is replaced by a fork of
        # a server that has the module imported already (milliseconds instead of a second).
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
        # asking whether it is active starts the workers; it is not where they die
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
            except TimeoutError:  # nothing moves: a worker was killed while it held the lock on the queue
                self.close()
                error = BrokenProcessPool("the pool stalled")
            if not isinstance(error, ProcessExpired | BrokenProcessPool):
                break
        if error is None:
            return Outcome(value=ticket.future.result(), state="ok")
        if isinstance(error, TimeoutError):
            return Outcome(value=None, state="timeout", reason=f"no result within {self.timeout_s:g} s")
        if isinstance(error, ProcessExpired):
            return Outcome(value=None, state="error", reason=f"its worker process died, {TRIES} times over")
        if isinstance(error, BrokenProcessPool):
            raise self._cannot_start(str(error))
        return Outcome(value=None, state="error", reason=f"{type(error).__name__}: {error}"[:200])

    def _cannot_start(self, why: str) -> VerifierError:
        return VerifierError(
            f"verifier workers do not work ({why}); check that `python -c 'import {self._module}'` succeeds "
            "and that a script which audits guards itself with `if __name__ == '__main__':`"
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Ticket(Generic[R]):
    """A call under way, and the pool that has it."""

    pool: ProcessPool
    function: Callable[..., R]
    call: tuple[object, ...]
    future: Future[R]


@contextmanager
def stopped_later() -> Iterator[None]:
    """What would stop the command, Ctrl-C or SIGTERM, does so after the block: its workers have started then.

    A pool that is given up while a worker starts takes away the semaphores that the worker looks for, and the worker
    would say a traceback. Starting takes a second or two. In other threads nothing is stopped, and nothing waits.
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
    """Start the process that forks workers, deaf to Ctrl-C from its first moment: it is told by pipes when to end."""
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
    """Runs once in every worker, before its first call: the worker has found all semaphores it looks for."""
    started.release()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's business
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # scorers print; standard output may be somebody's JSON
    warnings.simplefilter("ignore")  # the user's -W error must not turn into other grades
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    if hard == resource.RLIM_INFINITY or hard > WORKER_MEMORY_BYTES:
        resource.setrlimit(resource.RLIMIT_AS, (WORKER_MEMORY_BYTES, hard))
    import_module(module)


def timed(timeout_s: float, function: Callable[..., R], call: tuple[object, ...]) -> R:
    """Call in the worker, with a limit of CPU time as a second net.

    The parent kills a worker that is late; but a parent that was itself killed cannot, and a worker deep in a
    big-integer operation would burn a core for ever.
    """
    usage = resource.getrusage(resource.RUSAGE_SELF)
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    limit_s = math.ceil(usage.ru_utime + usage.ru_stime + 2 * timeout_s) + 1
    if hard == resource.RLIM_INFINITY or limit_s < hard:
        resource.setrlimit(resource.RLIMIT_CPU, (limit_s, hard))
    return function(*call)
