"""Parent's handle of one worker process for a function in the user's file."""

from __future__ import annotations

import contextlib
import json
import math
import os
import pickle
import select
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from oversharp.diagnostics.verifiers.own_workers import worker

#: Seconds between checks whether a process has ended. The socket does not show it, because a forked child may keep the
#: socket open.
POLL_S = 0.25


@dataclass(frozen=True, kw_only=True)
class RunningUnit:
    """Calls that a process runs together: one call, or those of one batch.

    ``places`` are their positions in the round. ``since`` is the start in monotonic seconds.
    """

    places: tuple[int, ...]
    since: float
    limit_s: float

    @property
    def deadline(self) -> float:
        """Time at which the unit times out, in monotonic seconds."""
        return self.since + self.limit_s


@dataclass(kw_only=True, eq=False)
class GraderProcess:
    """A process that runs ``width`` units at a time, in the order in which they were sent.

    ``waiting`` are units that it has received and not begun. ``since`` (monotonic seconds) is the time of its last
    reply, or the start of its first running unit. ``is_alone``: its unit must not have neighbors. ``left_threads``: an
    earlier call left a thread running.
    """

    process: subprocess.Popen[bytes]
    socket: socket.socket
    width: int
    loaded: Mapping[str, Any] = field(default_factory=dict)
    running: dict[int, RunningUnit] = field(default_factory=dict)
    waiting: deque[tuple[int, tuple[int, ...]]] = field(default_factory=deque)
    since: float = 0.0
    n_answered: int = 0
    is_alone: bool = False
    left_threads: bool = False
    _sending: list[tuple[int, tuple[int, ...]]] = field(default_factory=list)
    _unsent: memoryview = field(default_factory=lambda: memoryview(b""))
    _send_deadline: float = math.inf
    _n_units: int = 0
    _received: bytes = b""
    _is_closed: bool = False
    _exit_code: int | None = None

    @classmethod
    def start(cls, width: int, script: str = worker.__file__) -> GraderProcess:
        """Start a process that runs ``script`` and waits for its first message."""
        ours, theirs = socket.socketpair()
        with theirs:
            process = subprocess.Popen(
                # -P keeps the script's folder off sys.path, because it contains a math.py
                [sys.executable, "-P", script, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # new session: the parent handles Ctrl-C and kills the whole group
            )
        return cls(process=process, socket=ours, width=width)

    @property
    def n_open(self) -> int:
        """Number of units without a reply."""
        return len(self.running) + len(self.waiting) + len(self._sending)

    @property
    def is_shared(self) -> bool:
        """Whether running units have, or had, neighbors, which may be the cause of a fault."""
        return self.width > 1 and self.n_answered > 0 and not self.is_alone

    @property
    def is_sending(self) -> bool:
        """Whether a part of a message is unsent."""
        return bool(self._unsent)

    @property
    def deadline(self) -> float:
        """Time at which the first running unit, or the unsent message, times out; in monotonic seconds."""
        return min([self._send_deadline, *(unit.deadline for unit in self.running.values())])

    @property
    def late_unit(self) -> RunningUnit | None:
        """The unit that is past its deadline for the longest time, if any."""
        late = min(self.running.values(), key=lambda unit: unit.deadline, default=None)
        return late if late is not None and late.deadline < time.monotonic() else None

    def send_task(self, task: object, timeout_s: float) -> None:
        """Send a message as a whole, such as the file to load.

        Raises ``OSError`` if the process has ended, or reads nothing for ``timeout_s``.
        """
        self._send_deadline = time.monotonic() + timeout_s
        self.socket.settimeout(timeout_s)
        self.socket.sendall(_encode(task))

    def give(
        self, units: Sequence[tuple[int, ...]], calls: Sequence[Any], *, limit_s: float, cancel_s: float | None
    ) -> None:
        """Start to send units: ``calls[place]`` for each of their places. A task is cancelled after ``cancel_s``."""
        numbered = list(enumerate(units, start=self._n_units))
        self._n_units += len(units)
        self._sending = numbered
        self._unsent = memoryview(
            _encode([[number, [calls[place] for place in places], cancel_s] for number, places in numbered])
        )
        self._send_deadline = time.monotonic() + limit_s
        self.send_rest(limit_s)

    def send_rest(self, limit_s: float) -> None:
        """Send as much of the message as the process accepts now. Units that it has begins have ``limit_s`` seconds."""
        self.socket.setblocking(False)
        try:
            while self._unsent:
                self._unsent = self._unsent[self.socket.send(self._unsent[: 1 << 18]) :]
        except BlockingIOError:
            return
        except OSError:
            self._is_closed = True
            return
        self._send_deadline = math.inf
        self.waiting.extend(self._sending)
        self._sending = []
        self._begin(limit_s)

    def take(self, number: int, next_limit_s: float) -> RunningUnit | None:
        """Remove an answered unit and begin the next; None if no such unit is running."""
        unit = self.running.pop(number, None)
        self.since = time.monotonic()
        self._begin(next_limit_s)
        if not self.running:
            self.is_alone = False
        return unit

    def clear(self) -> tuple[list[int], list[int]]:
        """Forget all units. Returns the places of those that run, and of those that have not begun."""
        running = [place for unit in self.running.values() for place in unit.places]
        later = [place for _, places in (*self.waiting, *self._sending) for place in places]
        self.running.clear()
        self.waiting.clear()
        self._sending.clear()
        return running, later

    def _begin(self, limit_s: float) -> None:
        # the process begins units in this order, so no message is needed
        now = time.monotonic()
        if not self.running:
            self.since = now
        while self.waiting and len(self.running) < self.width:
            number, places = self.waiting.popleft()
            self.running[number] = RunningUnit(places=places, since=now, limit_s=limit_s)

    def replies(self) -> list[dict[str, Any]]:
        """Return the replies received so far, without waiting."""
        self.socket.setblocking(False)
        try:
            while part := self.socket.recv(1 << 16):
                self._received += part
            self._is_closed = True
        except BlockingIOError:
            pass
        except ConnectionError:
            self._is_closed = True
        *lines, self._received = self._received.split(b"\n")
        replies = []
        for line in lines:
            try:
                reply = json.loads(line)
                if not isinstance(reply, dict):
                    raise ValueError("no reply")
                replies.append(reply)
            except ValueError:  # other code wrote to the socket, so later bytes cannot be trusted either
                self._is_closed = True
                break
        return replies

    def has_ended(self) -> bool:
        """Return whether the process has ended or its connection is unusable."""
        return self._is_closed or self._has_exited()

    def _has_exited(self) -> bool:
        # check without reaping the process, so that no other process gets its id
        return self._exit_code is not None or (
            os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        )

    def end(self, wait_s: float = 0.0) -> int:
        """End the process and its group after a grace period of ``wait_s`` seconds; return its exit code."""
        if self._exit_code is not None:
            return self._exit_code
        self.socket.close()
        until = time.monotonic() + wait_s
        while not self._has_exited() and time.monotonic() < until:
            time.sleep(0.005)
        if not self._has_exited():
            worker.end_descendants(self.process.pid)  # those outside of its group
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.kill()
        self._exit_code = self.process.wait()
        return self._exit_code


def await_any(workers: Iterable[GraderProcess], until: float = math.inf) -> None:
    """Wait until a worker has sent a reply, accepts a message, is past its deadline, or may have ended.

    Waits no longer than ``until`` (monotonic seconds).
    """
    poll, now = select.poll(), time.monotonic()
    for grader in workers:
        poll.register(grader.socket, select.POLLIN | (select.POLLOUT if grader.is_sending else 0))
        until = min(until, grader.deadline)
    poll.poll(1000 * min(POLL_S, max(0.0, until - now)))


def _encode(message: object) -> bytes:
    content = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
    return len(content).to_bytes(worker.LENGTH_BYTES, "big") + content


def describe_exit(code: int) -> str:
    """Return an exit code of ``subprocess`` in words.

    >>> describe_exit(3), describe_exit(-9)
    ('exit code 3', 'signal SIGKILL')
    """
    if code >= 0:
        return f"exit code {code}"
    return f"signal {signal.Signals(-code).name}" if -code in set(signal.Signals) else f"signal {-code}"
