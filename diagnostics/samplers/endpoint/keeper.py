"""Run a command in a new process group, and end the group when the parent process ends.

``python keeper.py PARENT COMMAND …``. A killed audit then leaves no server that keeps the GPU's memory. It runs as a
file, so it imports only the standard library.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

_POLL_S = 0.5
#: Seconds between SIGTERM and SIGKILL.
GRACE_S = 15.0


def main() -> int:
    """Run the command, and return its exit code. SIGTERM ends the command and all its child processes."""
    parent, command = int(sys.argv[1]), sys.argv[2:]
    is_ending = False

    def end(*_: object) -> None:
        nonlocal is_ending
        is_ending = True

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the audit, which ends this process
    try:
        child = subprocess.Popen(command, start_new_session=True)
    except OSError as error:
        print(f"{command[0]}: {error.strerror}", file=sys.stderr)
        return 127
    while child.poll() is None and not is_ending and os.getppid() == parent:
        time.sleep(_POLL_S)
    _end_group(child)
    return child.returncode


def _end_group(child: subprocess.Popen[bytes]) -> None:
    """End the processes of the child's group, first by SIGTERM. The child may have ended before its own children."""
    for number, wait_s in ((signal.SIGTERM, GRACE_S), (signal.SIGKILL, 0.0)):
        try:
            os.killpg(child.pid, number)
        except ProcessLookupError:
            break
        until_s = time.monotonic() + wait_s
        while time.monotonic() < until_s and _has_members(child):
            time.sleep(0.1)
    child.wait()


def _has_members(child: subprocess.Popen[bytes]) -> bool:
    child.poll()
    try:
        os.killpg(child.pid, 0)
    except ProcessLookupError:
        return False
    return True


if __name__ == "__main__":
    sys.exit(main())
