"""Processes that call a function in the user's file: start, replacement, time limits, and expected durations.

``GraderLimits.workers`` calls run at a time, in at most as many processes as there are CPU cores. A process runs one
call, several in threads, or, if the function is a coroutine, several as tasks of one event loop. Each worker is a new
Python process, not a fork. So the user's file does not see packages that oversharp imported, and the function may start
processes.
"""

from __future__ import annotations

import os
import sys
import time
import weakref
from collections.abc import Mapping
from typing import Any

from oversharp.diagnostics.records.errors import VerifierError
from oversharp.diagnostics.verifiers.own_workers.limits import GraderLimits
from oversharp.diagnostics.verifiers.own_workers.process import GraderProcess, await_any, describe_exit

#: Limits of the calls that are sent ahead: their number, and their estimated duration in seconds.
MOST_CALLS, MESSAGE_S = 256, 0.2
#: Time limit of loading the file and of the first call, which may load a model: multiple of a call's limit, and
#: smallest value in seconds.
LOAD_LIMITS, LEAST_LOAD_S = 4, 20.0
#: Seconds that a worker has to exit (and to run the file's ``atexit`` functions) before it is killed.
END_S = 5.0
#: Largest number of responses in a call of a batch function.
BATCH_RESPONSES = 32
#: Seconds that a task has to end after it was cancelled.
CANCEL_S = 0.5


class GraderTeam:
    """Worker processes of one function. ``name`` and ``path`` are used in messages. Not for several threads."""

    def __init__(self, *, name: str, path: str, source: bytes, function: str, limits: GraderLimits) -> None:
        self.limits = limits
        self._place = f"--verifier {name}: {path}"
        self._task = {
            "path": path,
            "source": source,
            "function": function,
            "memory_bytes": int(limits.memory_gib * (1 << 30)),
        }
        self.n_processes = min(limits.workers, len(os.sched_getaffinity(0)))
        self.most_width = -(-limits.workers // self.n_processes)
        self.is_interrupted = False
        self._load_s = max(LEAST_LOAD_S, LOAD_LIMITS * limits.timeout_s)
        self._slowest_first_s: float | None = None  # maximum over the first calls of all workers
        self._mean_s: float | None = None
        self._workers: list[GraderProcess] = []
        weakref.finalize(self, _end, self._workers, os.getpid())

    def load(self) -> Mapping[str, Any]:
        """Start a worker and return its reply: ``asked`` (the function's arguments), or why it cannot be used."""
        if not self._workers:
            self._workers.append(self._start())
        loaded = self._workers[0].loaded
        if "asked" not in loaded:
            self.end(0.0)
        return loaded

    def end(self, wait_s: float = END_S) -> None:
        """End the workers, after a grace period of ``wait_s`` seconds. They start again at the next call."""
        _end(self._workers, os.getpid(), wait_s)

    @property
    def batch_responses(self) -> int:
        """Largest number of responses in one call."""
        return BATCH_RESPONSES if self._workers and self._workers[0].loaded["is_batch"] else 1

    def limit_s(self, worker: GraderProcess) -> float:
        """Return the time limit of a worker's next call in seconds.

        It is longer for a first call, which may load a model.
        """
        if worker.n_answered:
            return self.limits.timeout_s + (0.0 if self.cancel_s(worker) is None else CANCEL_S)
        if self._slowest_first_s is None:
            return self._load_s
        return self.limits.timeout_s + 2 * self._slowest_first_s

    def cancel_s(self, worker: GraderProcess) -> float | None:
        """Return the seconds after which a worker cancels its next task; None if only the end of the process does."""
        return self.limits.timeout_s if worker.loaded["is_async"] and worker.is_shared else None

    def add_duration(self, worker: GraderProcess, took_s: float) -> None:
        """Update the estimated durations of calls with an answered call."""
        if worker.n_answered == 0:
            self._slowest_first_s = max(took_s, self._slowest_first_s or 0.0)
        else:
            self._mean_s = took_s if self._mean_s is None else 0.9 * self._mean_s + 0.1 * took_s
        worker.n_answered += 1

    def calls_ahead(self) -> int:
        """Return the number of calls to send ahead: few if calls are slow, so that no worker idles at the end."""
        return 1 if self._mean_s is None else max(1, min(MOST_CALLS, int(MESSAGE_S / max(self._mean_s, 1e-6))))

    def staffed(self, n_calls: int) -> list[GraderProcess]:
        """Return the workers for ``n_calls`` calls. Workers that ended while idle are replaced."""
        for worker in [worker for worker in self._workers if not worker.n_open and worker.has_ended()]:
            self.dismiss(worker)
        n_processes = min(self.n_processes, n_calls)
        while len(self._workers) < n_processes:
            self._workers.append(self._hire())
        return list(self._workers)

    def replaced(self, worker: GraderProcess) -> GraderProcess:
        """Replace an idle worker by a new one, and return it."""
        self._workers.remove(worker)
        worker.end(END_S)
        self._workers.append(self._hire())
        return self._workers[-1]

    def use_main_threads(self) -> None:
        """Run each call in the main thread of a separate process from now on."""
        self.n_processes, self.most_width = self.limits.workers, 1

    def dismiss(self, worker: GraderProcess, wait_s: float = 0.0) -> int:
        """End a worker and the processes that it started; return its exit code."""
        self._workers.remove(worker)
        return worker.end(wait_s)

    def cannot_go_on(self, why: str) -> VerifierError:
        """Return the error of a file that was loaded earlier and can no longer be loaded."""
        return VerifierError(f"{self._place} {why}, although it was loaded before")

    def _hire(self) -> GraderProcess:
        worker = self._start()
        if "asked" not in worker.loaded:
            worker.end()
            raise self.cannot_go_on(str(worker.loaded.get("fault", "has changed")))
        return worker

    def _start(self) -> GraderProcess:
        # the widths of all processes add up to the number of calls at a time
        n_others, n_taken = len(self._workers), sum(worker.width for worker in self._workers)
        share = -((n_taken - self.limits.workers) // (self.n_processes - n_others))
        worker = GraderProcess.start(max(1, min(self.most_width, share)))
        try:
            worker.send_task({**self._task, "width": worker.width, "sys_path": sys.path}, self._load_s)
            worker.loaded = self._await_loading(worker)
        except OSError:  # the process ended before it read the message
            worker.loaded = {"fault": f"ends its process while it is loaded ({describe_exit(worker.end())})"}
        except BaseException:
            worker.end()
            raise
        return worker

    def _await_loading(self, worker: GraderProcess) -> Mapping[str, Any]:
        while True:
            await_any([worker])
            has_ended = worker.has_ended()
            if replies := worker.replies():
                loaded: Mapping[str, Any] = replies[0]
                return loaded
            if has_ended:
                return {"fault": f"ends its process while it is loaded ({describe_exit(worker.end(END_S))})"}
            if time.monotonic() > worker.deadline:
                worker.end()
                return {"fault": f"is not loaded within {self._load_s:g} s; a longer --grader-timeout gives it more"}


def _end(workers: list[GraderProcess], owner: int, wait_s: float = END_S) -> None:
    if os.getpid() != owner:  # this process is a fork of the process that owns the workers
        return
    for worker in workers:
        worker.socket.close()  # notify all workers at the same time
    for worker in workers:
        worker.end(wait_s)
    workers.clear()
