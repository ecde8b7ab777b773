"""Worker processes for a function in the user's file, reused until a call times out.

A message contains many calls. A worker answers them in order, each in a separate reply, so that a hanging call can be
identified. If a worker ends, its unanswered calls are repeated. Each worker is a new Python process, not a fork. So the
user's file does not see packages that oversharp imported, and the function may start processes.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import weakref
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from signal import SIGKILL, Signals
from typing import Any

from oversharp.diagnostics.records.errors import VerifierError
from oversharp.diagnostics.verifiers.killable import TRIES, Outcome
from oversharp.diagnostics.verifiers.own_workers.limits import GraderLimits
from oversharp.diagnostics.verifiers.own_workers.process import GraderProcess, await_any
from oversharp.diagnostics.verifiers.own_workers.worker import OUT_OF_MEMORY

#: Limits of one message: number of calls, and their estimated duration in seconds.
MOST_CALLS, MESSAGE_S = 256, 0.2
#: Time limit of loading the file and of the first call, which may load a model: multiple of a call's limit, and
#: smallest value in seconds.
LOAD_LIMITS, LEAST_LOAD_S = 4, 20.0
#: Seconds that a worker has to exit (and to run the file's ``atexit`` functions) before it is killed.
END_S = 5.0
#: Number of workers that must die in the same call before the call is an error.
MOST_DEATHS = 2

#: Reward and final answer of one call.
Reward = tuple[float, str | None]


class GraderPool:
    """Worker processes of one function.

    They start on first use, and end with this process or ``close()``. ``name`` and ``path`` are used in messages.
    Threads may share a pool: its calls are serialized.
    """

    def __init__(self, *, name: str, path: str, source: bytes, function: str, limits: GraderLimits) -> None:
        self.limits = limits
        self._place = f"--verifier {name}: {path}"
        self._task = {
            "path": path,
            "source": source,
            "function": function,
            "memory_bytes": int(limits.memory_gib * (1 << 30)),
        }
        self._load_s = max(LEAST_LOAD_S, LOAD_LIMITS * limits.timeout_s)
        self._slowest_first_s: float | None = None  # maximum over the first calls of all workers
        self._mean_s: float | None = None
        self._workers: list[GraderProcess] = []
        self._lock = threading.Lock()
        weakref.finalize(self, _end, self._workers, os.getpid())

    def load(self) -> Mapping[str, Any]:
        """Start a worker and return its reply: ``asked`` (the function's arguments), or why it cannot be used."""
        with self._lock:
            if not self._workers:
                self._workers.append(self._start())
            loaded = self._workers[0].loaded
            if "asked" not in loaded:
                _end(self._workers, os.getpid(), 0.0)
            return loaded

    def map(self, calls: Sequence[Mapping[str, Any]]) -> list[Outcome[Reward]]:
        """Return the outcome of each call, in order. Each call is a dict of keyword arguments for the function.

        Raises ``VerifierError`` if the verifier file can no longer be loaded.
        """
        with self._lock:
            try:
                return _Round(self, calls).run()
            except BaseException:  # otherwise late replies would be matched with the next calls
                _end(self._workers, os.getpid(), 0.0)
                raise

    def close(self) -> None:
        """End the workers; they start again at the next call."""
        with self._lock:
            _end(self._workers, os.getpid())

    def limit_s(self, worker: GraderProcess) -> float:
        """Return the time limit of a worker's next call in seconds.

        It is longer for a first call, which may load a model.
        """
        if worker.n_answered:
            return self.limits.timeout_s
        if self._slowest_first_s is None:
            return self._load_s
        return self.limits.timeout_s + 2 * self._slowest_first_s

    def answered(self, worker: GraderProcess, took_s: float) -> None:
        """Update the estimated durations of calls with an answered call."""
        if worker.n_answered == 0:
            self._slowest_first_s = max(took_s, self._slowest_first_s or 0.0)
        else:
            self._mean_s = took_s if self._mean_s is None else 0.9 * self._mean_s + 0.1 * took_s
        worker.n_answered += 1

    def calls_per_message(self) -> int:
        """Return the number of calls per message: few if calls are slow, so that no worker idles at the end."""
        return 1 if self._mean_s is None else max(1, min(MOST_CALLS, int(MESSAGE_S / max(self._mean_s, 1e-6))))

    def staffed(self, n_calls: int) -> list[GraderProcess]:
        """Return as many workers as ``n_calls`` can use. Workers that ended while idle are replaced."""
        for worker in [worker for worker in self._workers if not worker.calls and worker.has_ended()]:
            self.dismiss(worker)
        while len(self._workers) < min(self.limits.workers, n_calls):
            self._workers.append(self._hire())
        return list(self._workers)

    def replaced(self, worker: GraderProcess) -> GraderProcess:
        """Replace an idle worker by a new one, and return it."""
        self._workers.remove(worker)
        worker.end(END_S)
        self._workers.append(self._hire())
        return self._workers[-1]

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
        worker = GraderProcess.start()
        try:
            worker.begin(self._load_s)
            worker.send({**self._task, "sys_path": sys.path}, self._load_s)
            worker.loaded = self._await_loading(worker)
        except OSError:  # the process ended before it read the message
            worker.loaded = {"fault": f"ends its process while it is loaded ({_ending(worker.end())})"}
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
                return {"fault": f"ends its process while it is loaded ({_ending(worker.end(END_S))})"}
            if time.monotonic() > worker.deadline:
                worker.end()
                return {"fault": f"is not loaded within {self._load_s:g} s; a longer --grader-timeout gives it more"}


class _Round:
    """One batch of calls, distributed over the workers."""

    def __init__(self, pool: GraderPool, calls: Sequence[Mapping[str, Any]]) -> None:
        self._pool, self._calls = pool, calls
        self._outcomes: dict[int, Outcome[Reward]] = {}
        self._queue = deque(range(len(calls)))
        #: Calls in flight when a worker exited after it had answered other calls. Each is retried as the first call
        #: of a new worker.
        self._alone: deque[int] = deque()
        self._n_deaths: Counter[int] = Counter()
        self._n_refusals = 0  # number of consecutive workers that accepted no message

    def run(self) -> list[Outcome[Reward]]:
        """Send all calls and return their outcomes."""
        while len(self._outcomes) < len(self._calls):
            workers = self._pool.staffed(len(self._calls) - len(self._outcomes))
            for worker in workers:
                if not worker.calls:
                    self._ask(worker)
            asked = [worker for worker in workers if worker.calls]
            if asked:
                await_any(asked)
            for worker in asked:
                self._collect_replies(worker)
        return [self._outcomes[place] for place in range(len(self._calls))]

    def _ask(self, worker: GraderProcess) -> None:
        if self._alone and (worker.n_answered == 0 or not self._queue):
            worker = worker if worker.n_answered == 0 else self._pool.replaced(worker)
            places = [self._alone.popleft()]
        else:
            n = min(len(self._queue), self._pool.calls_per_message())
            places = [self._queue.popleft() for _ in range(n)]
        if not places:
            return
        worker.calls.extend(places)
        worker.begin(self._pool.limit_s(worker))
        try:
            worker.send([self._calls[place] for place in places], worker.limit_s)
        except OSError:
            self._n_refusals += 1
            worker.calls.clear()
            self._queue.extendleft(reversed(places))
            code = self._pool.dismiss(worker)
            if self._n_refusals > TRIES:
                raise self._pool.cannot_go_on(f"ends its process between calls ({_ending(code)})") from None

    def _collect_replies(self, worker: GraderProcess) -> None:
        has_ended = worker.has_ended()  # check before reading, so that all replies of an ended worker are read
        replies = worker.replies()
        took_s = (time.monotonic() - worker.since) / max(1, len(replies))
        for reward, text, left in replies:
            if left == OUT_OF_MEMORY:
                self._lose(worker, f"{text}; its limit is --grader-memory-gib {self._pool.limits.memory_gib:g}")
                return
            self._pool.answered(worker, took_s)
            worker.left_threads = bool(left)
            self._settle(worker.calls.popleft(), reward, text)
        if replies:
            worker.begin(self._pool.limit_s(worker))
        if worker.calls and (has_ended or worker.has_ended()):
            self._lose(worker, None)
        elif worker.calls and time.monotonic() > worker.deadline:
            self._give_up(worker)

    def _settle(self, place: int, reward: float | None, text: str | None) -> None:
        self._n_refusals = 0
        if reward is None:
            self._outcomes[place] = Outcome(value=None, state="error", reason=text or "")
        else:
            self._outcomes[place] = Outcome(value=(reward, text), state="ok")

    def _lose(self, worker: GraderProcess, why: str | None) -> None:
        """Handle a dead worker.

        Its call failed if it was the worker's first call, or if a second worker died in it.
        """
        place = self._requeue(worker)
        code = self._pool.dismiss(worker, END_S)
        self._n_deaths[place] += 1
        is_to_blame = worker.n_answered == 0 and (why is not None or code != -SIGKILL)
        if is_to_blame or self._n_deaths[place] >= MOST_DEATHS:
            self._outcomes[place] = Outcome(
                value=None, state="error", reason=why or f"the grader ended its process ({_ending(code)})"
            )
        else:
            self._alone.append(place)

    def _give_up(self, worker: GraderProcess) -> None:
        """Handle a call past its deadline.

        If an earlier call left a thread running, retry it in a new worker.
        """
        place, limit_s = self._requeue(worker), worker.limit_s
        self._pool.dismiss(worker)
        if worker.left_threads and worker.n_answered:
            self._alone.append(place)
        else:
            self._outcomes[place] = Outcome(value=None, state="timeout", reason=f"no result within {limit_s:g} s")

    def _requeue(self, worker: GraderProcess) -> int:
        """Return the running call, and put the calls after it back into the queue."""
        place = worker.calls.popleft()
        self._queue.extendleft(reversed(worker.calls))
        worker.calls.clear()
        return place


def _ending(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    return f"signal {Signals(-code).name}" if -code in set(Signals) else f"signal {-code}"


def _end(workers: list[GraderProcess], owner: int, wait_s: float = END_S) -> None:
    if os.getpid() != owner:  # this process is a fork of the process that owns the workers
        return
    for worker in workers:
        worker.socket.close()  # notify all workers at the same time
    for worker in workers:
        worker.end(wait_s)
    workers.clear()
