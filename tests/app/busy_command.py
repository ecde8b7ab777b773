"""The command in a process that has something to say at its end, and a thread that outlasts the command."""

from __future__ import annotations

import atexit
import threading

from diagnostics.app import process


def main() -> None:
    """Be the command."""

    def outlast() -> None:
        threading.main_thread().join()
        print("a thread")

    atexit.register(print, "a farewell")
    threading.Thread(target=outlast).start()
    process.main()
