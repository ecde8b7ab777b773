"""One worker process of an own-file verifier, as its parent sees it."""

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

#: Seconds between looks at whether a process has ended: a process that it forked may hold its socket open.
POLL_S = 0.25


@dataclass(kw_only=True, eq=False)
class GraderProcess:
    """A process that answers one call after the other. ``calls`` are the calls that it has not answered yet, in order.

    ``since`` and ``deadline`` (monotonic seconds) are of the first of them, the call under way, which may take
    ``limit_s``. ``left_threads``: the call before it left a thread behind.
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
        """A process that waits for its first message."""
        ours, theirs = socket.socketpair()
        with theirs:
            process = subprocess.Popen(
                # -P: the folder of the script has a math.py
                [sys.executable, "-P", worker.__file__, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # Ctrl-C is the parent's business, and the group is killed as a whole
            )
        return cls(process=process, socket=ours)

    @property
    def deadline(self) -> float:
        """When the call under way is late."""
        return self.since + self.limit_s

    def begin(self, limit_s: float) -> None:
        """From now on the first call is under way."""
        self.since, self.limit_s = time.monotonic(), limit_s

    def send(self, message: object, timeout_s: float) -> None:
        """Raises ``OSError`` where the process has ended, or takes nothing for ``timeout_s``."""
        content = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
        self.socket.settimeout(timeout_s)
        self.socket.sendall(len(content).to_bytes(worker.LENGTH_BYTES, "big") + content)

    def replies(self) -> list[Any]:
        """The replies that have come, without waiting."""
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
            except ValueError:  # written by other code: what comes after it cannot be trusted either
                self._is_closed = True
                break
        return replies

    def has_ended(self) -> bool:
        """Whether the process has ended, or cannot be talked to any more."""
        return self._is_closed or self._has_exited()

    def _has_exited(self) -> bool:
        # without reaping: until then its number is no other process's
        return self._exit_code is not None or (
            os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        )

    def end(self, wait_s: float = 0.0) -> int:
        """End the process, after ``wait_s`` seconds in which it may end itself, and all of its group; its exit code."""
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
    """Wait until one of them has something to say, is late, or may have ended."""
    until = min(grader.deadline for grader in workers)
    wait([grader.socket for grader in workers], min(POLL_S, max(0.0, until - time.monotonic())))
