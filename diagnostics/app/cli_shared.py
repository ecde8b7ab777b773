"""What the commands of `oversharp` share."""

from __future__ import annotations

import shlex
import sys
from typing import Annotated

from cyclopts import Parameter

from diagnostics.records.progress import ConsoleProgress, ProgressSink, SilentProgress

LEFT_OUT_EXIT_CODE = 3  # finished, but a checkpoint or a run had to be left out

Json = Annotated[bool, Parameter(name="--json", negative=(), help="Print the result as JSON on stdout.")]
Quiet = Annotated[bool, Parameter(name="--quiet", negative=(), help="No progress on stderr.")]


def command_line() -> str:
    """The command as it was typed, for the record."""
    return shlex.join(["oversharp", *sys.argv[1:]])


def progress_sink(silent: bool) -> ProgressSink:
    """Where a command says what it does."""
    return SilentProgress() if silent else ConsoleProgress()
