"""Process of a live audit: run ``oversharp`` until it ends, its budget is spent, or the training has ended.

    python -P -m oversharp.trainers.integrations.live_process TRAINING_PID BUDGET_S audit RUN_DIR --task=countdown …

This process checks the budget and the training itself. The training could not do that: it may be killed, and one of its
steps may take longer than the budget.
"""

from __future__ import annotations

import os
import runpy
import signal
import sys
import time
from threading import Thread

#: Interval, in seconds, at which the training process and the budget are checked.
_CHECK_S = 0.2


def budget_message(budget_s: float) -> str:
    """Return the last log line of an audit that exceeded its budget."""
    return f"error: the budget of {budget_s:g} s is spent; raise budget_s, or lower n, limit or max_tokens"


def _kill_in_time(training: int, budget_s: float) -> None:
    """Kill all processes of the audit, which are one group, when the budget is spent or the training has ended."""
    end = time.monotonic() + budget_s
    while os.getppid() == training and time.monotonic() < end:
        time.sleep(_CHECK_S)
    if os.getppid() == training:
        os.write(2, f"{budget_message(budget_s)}\n".encode())
    os.killpg(os.getpgid(0), signal.SIGKILL)


def main() -> None:
    """Run ``oversharp`` with the arguments that follow the process id and the budget."""
    training, budget_s = int(sys.argv[1]), float(sys.argv[2])
    sys.argv = ["oversharp", *sys.argv[3:]]  # the store records this as the command
    Thread(target=_kill_in_time, args=(training, budget_s), daemon=True).start()

    runpy.run_module("oversharp", run_name="__main__")


if __name__ == "__main__":
    main()
