"""Parent's handle of one process with instances of an environment."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from typing import Any

from oversharp.diagnostics.samplers.agents import worker
from oversharp.diagnostics.verifiers.own_workers.limits import GraderLimits
from oversharp.diagnostics.verifiers.own_workers.process import GraderProcess, await_any, describe_exit
from oversharp.diagnostics.verifiers.own_workers.team import END_S, LEAST_LOAD_S, LOAD_LIMITS

#: Seconds after its limit at which the process of a call is ended, if the call could not be interrupted.
KILL_S = 1.0


class EnvironmentProcess:
    """A process that answers one request at a time. Not for several threads.

    It starts with ``start``. It ends with the thread that started it, with ``end``, and in a request that hangs.
    """

    def __init__(self, task: Mapping[str, Any], limits: GraderLimits) -> None:
        self._task, self._limits = task, limits
        self._load_s = max(LEAST_LOAD_S, LOAD_LIMITS * limits.timeout_s)
        self._process: GraderProcess | None = None
        #: Set by another thread to end the request that is running.
        self.is_interrupted = False

    @property
    def is_running(self) -> bool:
        """Whether the process was started, and did not end in a request."""
        return self._process is not None

    def start(self, *, with_tools: bool = False) -> Mapping[str, Any]:
        """Start, and return what the process read from the file, or a ``fault``."""
        self._process = GraderProcess.start(1, worker.__file__)
        reply = self._exchange({**self._task, "with_tools": with_tools, "sys_path": sys.path}, self._load_s)
        if reply.get("has_ended"):
            return {"fault": f"cannot be loaded ({reply['fault']})"}
        return reply

    def ask(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the reply to a request. It has ``has_ended`` if the process ended, so that all instances are lost."""
        # a reset may load data
        limit_s = self._load_s if request["do"] == "reset" else self._limits.timeout_s
        return self._exchange({**request, "limit_s": limit_s}, limit_s + KILL_S)

    def end(self) -> None:
        """End the process. It may be started again."""
        if self._process is not None:
            self._process.end(END_S)
            self._process = None

    def _exchange(self, message: Mapping[str, Any], limit_s: float) -> Mapping[str, Any]:
        process = self._process
        assert process is not None
        try:
            process.send_task(message, limit_s)
            while True:
                await_any([process])
                has_ended = process.has_ended()  # before reading, so that the reply of an ended process is read
                if replies := process.replies():
                    return replies[0]
                if has_ended:
                    break
                if self.is_interrupted or time.monotonic() > process.deadline:
                    self._process = None
                    process.end()
                    return {"fault": f"no result within {limit_s:g} s", "has_ended": True, "is_late": True}
        except OSError:
            pass  # it ended before it read the message
        self._process = None
        return {"fault": f"its process ended ({describe_exit(process.end(KILL_S))})", "has_ended": True}
