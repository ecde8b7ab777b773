"""The command in a process with output at its end, and a thread that outlives it."""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
import time
from types import ModuleType, SimpleNamespace

from oversharp.diagnostics.app import cli, process


def main() -> None:
    """Be the command."""

    def outlast() -> None:
        threading.main_thread().join()
        print("a thread")

    atexit.register(print, "a farewell")
    threading.Thread(target=outlast).start()
    process.main()


def faulty() -> None:
    """Run a command that raises an unexpected error."""

    def run() -> None:
        raise TypeError("no such\nthing")

    cli.main = run
    process.main()


def ended_by_code_of_a_user() -> None:
    """Be a command that calls code which ends Python, as if all were done."""

    def call(*_: object, **__: object) -> None:
        sys.exit(0)

    cli.app = SimpleNamespace(meta=call)
    process.main()


def stopped() -> None:
    """Be a command that is sent the signal of its first argument."""

    for one in (signal.SIGHUP, signal.SIGTERM):
        signal.signal(one, signal.SIG_DFL)  # whoever started the tests may ignore them

    def wait(*_: object, **__: object) -> None:
        os.kill(os.getpid(), int(sys.argv[1]))
        time.sleep(60)

    cli.app = SimpleNamespace(meta=wait)
    process.main()


def stopped_in_a_library() -> None:
    """Be a command that is sent that signal in a call of a library, which then says something else."""
    for one in (signal.SIGHUP, signal.SIGTERM):
        signal.signal(one, signal.SIG_DFL)

    def call(*_: object, **__: object) -> None:
        try:
            os.kill(os.getpid(), int(sys.argv[1]))
            time.sleep(60)
        except KeyboardInterrupt:
            raise RuntimeError("std::bad_cast") from None

    cli.app = SimpleNamespace(meta=call)
    process.main()


def stopped_while_it_begins() -> None:
    """Be a command that is sent that signal while its modules are imported."""

    class Importing(ModuleType):
        def __getattr__(self, _: str) -> None:
            os.kill(os.getpid(), int(sys.argv[1]))
            time.sleep(60)

    for one in (signal.SIGHUP, signal.SIGTERM):
        signal.signal(one, signal.SIG_DFL)
    sys.modules[cli.__name__] = Importing(cli.__name__)
    process.main()


def stopped_when_all_is_said() -> None:
    """Be a command that is sent that signal when it has said all, and before it ends at signals."""
    number, plain = int(sys.argv.pop(1)), process._end_at_signals

    def late() -> None:
        process._end_at_signals = plain
        os.kill(os.getpid(), number)
        time.sleep(60)

    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    process._end_at_signals = late
    process.main()
