"""Process of a live audit: run ``oversharp`` until it ends, its budget is spent, or the training has ended.

    python -P -m oversharp.trainers.integrations.live_process TRAINING_PID BUDGET_S audit RUN_DIR --task=countdown …

The process checks both itself: a killed training cannot stop it, and a training step may be longer than the budget.
"""

from __future__ import annotations

import os
import runpy
import signal
import sys
import time
from threading import Thread

#: Seconds between two checks of training and budget.
_CHECK_S = 0.2


def budget_message(budget_s: float) -> str:
    """Return the last log line of an audit that exceeded its budget."""
    return f"error: the budget of {budget_s:g} s is spent; raise budget_s, or lower n, limit or max_tokens"


def _kill_in_time(training: int, budget_s: float) -> None:
    """Kill the process group, with all processes of the audit, after the budget or when the training has ended."""
    end = time.monotonic() + budget_s
    while os.getppid() == training and time.monotonic() < end:
        time.sleep(_CHECK_S)
    if os.getppid() == training:
        os.write(2, f"{budget_message(budget_s)}\n".encode())
    os.killpg(os.getpgid(0), signal.SIGKILL)


def main() -> None:
    """Run the command in the arguments after process id and budget."""
    training, budget_s = int(sys.argv[1]), float(sys.argv[2])
    sys.argv = ["oversharp", *sys.argv[3:]]  # the store records it as the command
    Thread(target=_kill_in_time, args=(training, budget_s), daemon=True).start()

    runpy.run_module("oversharp", run_name="__main__")


if __name__ == "__main__":
    main()
