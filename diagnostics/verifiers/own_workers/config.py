"""Settings of graders in the user's files, and of the sandbox for programs.

Each field defines a flag, its TOML key and its help text.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated

from cyclopts import Group, Parameter

from oversharp.diagnostics.records.errors import ConfigError
from oversharp.diagnostics.records.settings import require_at_least
from oversharp.diagnostics.verifiers.own_workers.limits import GraderLimits
from oversharp.diagnostics.verifiers.sandbox.backends import allow_unsandboxed, use_server

GRADER = Parameter(group=Group("Grader", sort_key=7))
_DEFAULT = GraderLimits()


@dataclass(frozen=True, kw_only=True)
class GraderConfig:
    """Limits of a grader that is a function in your own file.

    Attributes
    ----------
    grader_timeout
        Time limit of one call of FILE.py:function, in seconds. After it the process is killed, and the response has the
        state timeout. Loading the file and the first call may take four times as long, and at least 20 s.
    grader_memory_gib
        Memory limit of the process of FILE.py:function, in GiB. It also applies to each process that the function
        starts.
    grader_workers
        Number of calls of FILE.py:function at a time, in at most one process per CPU core. Each process loads the file,
        and any model that the file loads. With more calls than cores, a process runs several in threads, or as tasks if
        the function is async.
    allow_unsandboxed
        Run programs of code tasks with your rights if this machine has no sandbox (see doctor). A program can then
        delete your files.
    sandbox_url
        Run programs of code tasks on this SandboxFusion server, such as http://localhost:8080.
    """

    grader_timeout: Annotated[float, GRADER] = _DEFAULT.timeout_s
    grader_memory_gib: Annotated[float, GRADER] = _DEFAULT.memory_gib
    grader_workers: Annotated[int, GRADER] = _DEFAULT.workers
    allow_unsandboxed: Annotated[bool, GRADER] = False
    sandbox_url: Annotated[str | None, GRADER] = None

    def __post_init__(self) -> None:
        require_limits(self.grader_limits)
        if self.allow_unsandboxed:
            allow_unsandboxed()
        if self.sandbox_url is not None:
            use_server(self.sandbox_url)

    @property
    def grader_limits(self) -> GraderLimits:
        """The settings as ``GraderLimits``."""
        return GraderLimits(
            timeout_s=self.grader_timeout, memory_gib=self.grader_memory_gib, workers=self.grader_workers
        )


def require_limits(limits: GraderLimits) -> None:
    """Raise ``ConfigError`` for limits outside their valid ranges."""
    for flag, value in (("--grader-timeout", limits.timeout_s), ("--grader-memory-gib", limits.memory_gib)):
        if not (math.isfinite(value) and 0 < value < 2**20):
            raise ConfigError(f"{flag} {value:g}: must be above 0 and below 1048576")
    require_at_least("--grader-workers", limits.workers, 1)
