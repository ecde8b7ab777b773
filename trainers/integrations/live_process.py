"""The process of a live audit: ``oversharp`` that ends with its budget, and with the training that started it.

    python -P -m oversharp.trainers.integrations.live_process TRAINING_PID BUDGET_S audit RUN_DIR --task=countdown …

A training that is killed tells nobody, so the audit looks for it; and it keeps to its budget by itself, however long a
step of the training takes.
"""

from __future__ import annotations

import os
import runpy
import signal
import sys
import time
from threading import Thread

#: Seconds between two looks at the training and the clock.
_LOOK_S = 0.2


def budget_message(budget_s: float) -> str:
    """The last line of the log of an audit that took longer than ``budget_s`` seconds."""
    return f"error: the budget of {budget_s:g} s is spent; raise budget_s, or lower n, limit or max_tokens"


def _end_in_time(training: int, budget_s: float) -> None:
    """End the group, with every process that the audit started, after the budget or as soon as the training is gone."""
    end = time.monotonic() + budget_s
    while os.getppid() == training and time.monotonic() < end:
        time.sleep(_LOOK_S)
    if os.getppid() == training:
        os.write(2, f"{budget_message(budget_s)}\n".encode())
    os.killpg(os.getpgid(0), signal.SIGKILL)


def main() -> None:
    """Run the command behind the process id of the training and the budget."""
    training, budget_s = int(sys.argv[1]), float(sys.argv[2])
    sys.argv = ["oversharp", *sys.argv[3:]]  # what the store records as the command
    Thread(target=_end_in_time, args=(training, budget_s), daemon=True).start()

    runpy.run_module("oversharp", run_name="__main__")


if __name__ == "__main__":
    main()
