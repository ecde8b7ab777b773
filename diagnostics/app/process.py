"""The process of the ``oversharp`` command: streams, signals, exit codes."""

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

#: Exit code of an unexpected error in oversharp or a library.
FAULT_EXIT_CODE = 70
_SIGNAL_EXIT_CODE = 128
_NOWHERE_EXIT_CODE = 2
_INTERRUPTED = _SIGNAL_EXIT_CODE + signal.SIGINT
_VERSIONS = ("oversharp", "torch", "transformers", "vllm", "duckdb", "pandas", "pyarrow", "math-verify")


def main() -> NoReturn:
    """Run the command and end this process with its exit code.

    SIGTERM and SIGHUP end it like Ctrl-C, with exit code 128 plus the signal number. An unexpected error prints one
    line and writes the traceback to a file.

    At exit, Python would garbage-collect torch and similar libraries, which takes a second or two. This function waits
    for threads, runs exit functions and flushes streams in Python's order, and skips the garbage collection.
    """
    _open_missing_streams()
    _print_any_text()
    try:
        os.getcwd()
    except OSError:
        print("error: the current directory was deleted; change to another with cd", file=sys.stderr)
        sys.exit(_NOWHERE_EXIT_CODE)
    stopped_by: list[int] = []
    code: int | None = None
    try:
        code = _run_command(stopped_by)
        _end_at_signals()
    except KeyboardInterrupt:  # the command is finished here
        _end_at_signals()
        code = _print_stopped() if code is None else code
    if stopped_by and code == _INTERRUPTED:
        code = _SIGNAL_EXIT_CODE + stopped_by[0]
    threading._shutdown()  # type: ignore[attr-defined]  # as multiprocessing does, like the next line
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:
        sys.exit(code)  # Python then reports the failed write and sets its own exit code
    os._exit(code)


def _open_missing_streams() -> None:
    """Open /dev/null for a standard stream that is closed (``>&-``).

    Otherwise the next opened file would get its file descriptor, and printed text would be written to that file.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            # os.open returns the lowest free descriptor
            os.open(os.devnull, os.O_RDONLY if number == 0 else os.O_WRONLY)
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, mode, encoding="utf-8", closefd=False))


def _print_any_text() -> None:
    """Escape characters that the encoding of an output stream lacks, instead of raising."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="backslashreplace")


def _run_command(stopped_by: list[int]) -> int:
    """Run the command and return its exit code."""
    try:
        _stop_at_signals(stopped_by)
        # imported after the signal handlers are set, because it takes a while
        from oversharp.diagnostics.app.cli import main as run_command

        run_command()
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except KeyboardInterrupt:
        return _print_stopped()
    except Exception as error:  # noqa: BLE001 - users get one line for any error
        if stopped_by:  # an interrupted library may raise any error, such as DuckDB's "std::bad_cast"
            return _print_stopped()
        print(f"error: {_fault_text(error)}", file=sys.stderr)
        return FAULT_EXIT_CODE
    return 0


def _print_stopped() -> int:
    print("stopped: committed results are kept; run the same command to continue", file=sys.stderr)
    return _INTERRUPTED


def _stop_at_signals(received: list[int]) -> None:
    """Make SIGTERM and SIGHUP end the command like Ctrl-C.

    Received signals are appended to ``received``. Signals that are ignored (``nohup``) stay ignored. Forked workers
    keep the earlier handlers.
    """
    owner = os.getpid()
    earlier = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}

    def stop(number: int, _: FrameType | None) -> None:
        if os.getpid() != owner:
            signal.signal(number, earlier[signal.Signals(number)])
            os.kill(os.getpid(), number)
            return
        received.append(number)
        raise KeyboardInterrupt

    for number, handler in earlier.items():
        if handler in (signal.SIG_DFL, signal.default_int_handler):
            signal.signal(number, stop)


def _end_at_signals() -> None:
    """Restore the default handlers. A signal after the output then prints no traceback."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)


def _fault_text(error: Exception) -> str:
    """Write traceback and versions to a file. Returns one line with its path."""
    message = " ".join(f"{type(error).__name__}: {error}".split())[:300]
    try:
        with tempfile.NamedTemporaryFile(
            "w", prefix="oversharp-fault-", suffix=".txt", delete=False, encoding="utf-8"
        ) as file:
            file.write(f"{' '.join(sys.argv)}\n\n{_versions()}\n\n")
            traceback.print_exception(error, file=file)
    except OSError:  # the disk may be full
        return f"{message}; unexpected error in oversharp: {traceback.format_exc().splitlines()[-2].strip()}"
    return f"{message}; unexpected error: please report it with {file.name}; committed results are kept"


def _versions() -> str:
    lines = [f"python {platform.python_version()}, {platform.platform()}"]
    for name in _VERSIONS:
        try:
            lines.append(f"{name} {distribution_version(name)}")
        except PackageNotFoundError:
            lines.append(f"{name} is not installed")
    return "\n".join(lines)
