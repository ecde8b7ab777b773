"""The process of the ``oversharp`` command: what it needs to start, and how it ends."""

from __future__ import annotations

import atexit
import io
import os
import platform
import signal
import sys
import tempfile
import threading
import traceback
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as distribution_version
from types import FrameType
from typing import NoReturn

#: Of an error that nobody foresaw: a fault of oversharp, or of a library under it.
FAULT_EXIT_CODE = 70
_SIGNAL_EXIT_CODE = 128
_NOWHERE_EXIT_CODE = 2
_INTERRUPTED = _SIGNAL_EXIT_CODE + signal.SIGINT
_VERSIONS = ("oversharp", "torch", "transformers", "vllm", "duckdb", "pandas", "pyarrow", "math-verify")


def main() -> NoReturn:
    """Run the command and end this process with its exit code, as soon as there is nothing left to do.

    SIGTERM and SIGHUP end it as Ctrl-C does, with 128 and their number as its code. What nobody foresaw is one line
    and a file with the traceback.

    Python would first collect the garbage of torch and its like, for a second or two that free what ends anyway. So
    what has to be waited for, written or tidied up is done here, in Python's order, and the rest is left.
    """
    _open_missing_streams()
    _print_any_text()
    if not _is_somewhere():
        print("error: the current directory was deleted; change to another with cd", file=sys.stderr)
        sys.exit(_NOWHERE_EXIT_CODE)
    stopped_by: list[int] = []
    code: int | None = None
    try:
        code = _ran(stopped_by)
        _end_at_signals()
    except KeyboardInterrupt:  # in the moment in which all was said, or about to be
        _end_at_signals()
        code = _stopped() if code is None else code
    if stopped_by and code == _INTERRUPTED:
        code = _SIGNAL_EXIT_CODE + stopped_by[0]
    threading._shutdown()  # type: ignore[attr-defined]  # as multiprocessing does; what follows, too
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:
        sys.exit(code)  # Python says what could not be written, and fails
    os._exit(code)


def _open_missing_streams() -> None:
    """Open /dev/null as standard input, output or error where the command was started without (``>&-``).

    The next file that is opened would else take its number, and what is printed would go into that file.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDONLY if number == 0 else os.O_WRONLY)  # takes the lowest free number
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, mode, encoding="utf-8", closefd=False))


def _print_any_text() -> None:
    """Write characters that the encoding of the output lacks as escapes: none of them ends the command."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="backslashreplace")


def _is_somewhere() -> bool:
    try:
        os.getcwd()
    except OSError:
        return False
    return True


def _ran(stopped_by: list[int]) -> int:
    """Run the command; its exit code."""
    try:
        _stop_at_signals(stopped_by)
        from oversharp.diagnostics.app.cli import main as run_command  # what it imports takes long enough to be stopped

        run_command()
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except KeyboardInterrupt:
        return _stopped()
    except Exception as error:  # noqa: BLE001 - whatever it is, a user reads one line
        if stopped_by:  # a library whose call was stopped may say anything: DuckDB's does "std::bad_cast"
            return _stopped()
        print(f"error: {_fault(error)}", file=sys.stderr)
        return FAULT_EXIT_CODE
    return 0


def _stopped() -> int:
    print("stopped: what was committed is kept; run the same command to continue", file=sys.stderr)
    return _INTERRUPTED


def _stop_at_signals(came: list[int]) -> None:
    """Have SIGTERM and SIGHUP end the command as Ctrl-C does; ``came`` takes in the one that came, Ctrl-C too.

    One that is ignored stays so (``nohup``); a forked worker ends as without this.
    """
    owner = os.getpid()
    without = {one: signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}

    def stop(number: int, _: FrameType | None) -> None:
        if os.getpid() != owner:
            signal.signal(number, without[signal.Signals(number)])
            os.kill(os.getpid(), number)
            return
        came.append(number)
        raise KeyboardInterrupt

    for one, handler in without.items():
        if handler in (signal.SIG_DFL, signal.default_int_handler):
            signal.signal(one, stop)


def _end_at_signals() -> None:
    """Once all is said, a signal ends the process at once, as it ends others: no traceback of what only tidies up."""
    for one in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(one) is not signal.SIG_IGN:
            signal.signal(one, signal.SIG_DFL)


def _fault(error: Exception) -> str:
    """One line on an error that nobody foresaw, its traceback and the versions being in the file that it names."""
    said = " ".join(f"{type(error).__name__}: {error}".split())[:300]
    try:
        with tempfile.NamedTemporaryFile(
            "w", prefix="oversharp-fault-", suffix=".txt", delete=False, encoding="utf-8"
        ) as file:
            file.write(f"{' '.join(sys.argv)}\n\n{_versions()}\n\n")
            traceback.print_exception(error, file=file)
    except OSError:  # a full disk
        return f"{said}; a fault of oversharp: {traceback.format_exc().splitlines()[-2].strip()}"
    return f"{said}; nobody foresaw this: please report it with {file.name}; what was committed is kept"


def _versions() -> str:
    lines = [f"python {platform.python_version()}, {platform.platform()}"]
    for name in _VERSIONS:
        try:
            lines.append(f"{name} {distribution_version(name)}")
        except PackageNotFoundError:
            lines.append(f"{name} is not installed")
    return "\n".join(lines)
