"""Parent's handle of one worker process for a function in the user's file."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from typing import Any

from oversharp.diagnostics.verifiers.own_workers import worker

#: Seconds between checks whether a process has ended. The socket does not show it, because a forked child may keep the
#: socket open.
POLL_S = 0.25


@dataclass(kw_only=True, eq=False)
class GraderProcess:
    """A process that answers calls one at a time.

    ``calls`` are its unanswered calls, in order. The first of them is running. ``since``, ``limit_s`` and ``deadline``
    (monotonic seconds) refer to the running call. ``left_threads``: an earlier call left a thread running.
    """

    process: subprocess.Popen[bytes]
    socket: socket.socket
    loaded: Mapping[str, Any] = field(default_factory=dict)
    calls: deque[int] = field(default_factory=deque)
    since: float = 0.0
    limit_s: float = 0.0
    n_answered: int = 0
    left_threads: bool = False
    _received: bytes = b""
    _is_closed: bool = False
    _exit_code: int | None = None

    @classmethod
    def start(cls) -> GraderProcess:
        """Start a process that waits for its first message."""
        ours, theirs = socket.socketpair()
        with theirs:
            process = subprocess.Popen(
                # -P keeps the script's folder off sys.path, because it contains a math.py
                [sys.executable, "-P", worker.__file__, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # new session: the parent handles Ctrl-C and kills the whole group
            )
        return cls(process=process, socket=ours)

    @property
    def deadline(self) -> float:
        """Time at which the running call times out, in monotonic seconds."""
        return self.since + self.limit_s

    def begin(self, limit_s: float) -> None:
        """Start the clock of the first call."""
        self.since, self.limit_s = time.monotonic(), limit_s

    def send(self, message: object, timeout_s: float) -> None:
        """Send a message.

        Raises ``OSError`` if the process has ended, or reads nothing for ``timeout_s``.
        """
        content = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
        self.socket.settimeout(timeout_s)
        self.socket.sendall(len(content).to_bytes(worker.LENGTH_BYTES, "big") + content)

    def replies(self) -> list[Any]:
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
                replies.append(json.loads(line))
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
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.kill()
        self._exit_code = self.process.wait()
        return self._exit_code


def await_any(workers: list[GraderProcess]) -> None:
    """Wait until a worker has sent a reply, is past its deadline, or may have ended."""
    until = min(grader.deadline for grader in workers)
    wait([grader.socket for grader in workers], min(POLL_S, max(0.0, until - time.monotonic())))
