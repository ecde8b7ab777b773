"""The process of the ``oversharp`` command: it ends as soon as there is nothing left to do."""

from __future__ import annotations

import atexit
import os
import sys
import threading
from typing import NoReturn


def main() -> NoReturn:
    """Run the command and end this process with its exit code; what it raises ends as in any Python.

    Python would first collect the garbage of torch and its like, for a second or two that free what ends anyway. So
    what has to be waited for, written or tidied up is done here, in Python's order, and the rest is left.
    """
    from diagnostics.app.cli import main as run_command

    code = 0
    try:
        run_command()
    except SystemExit as ended:
        code = int(ended.code or 0)
    threading._shutdown()  # type: ignore[attr-defined]  # as multiprocessing does; what follows, too
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:
        sys.exit(code)  # Python says what could not be written, and fails
    os._exit(code)
