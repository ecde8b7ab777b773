"""Worker process for a function in the user's file. It loads the file and calls the function.

The pool runs this file by its path, so it imports only the standard library. Requests are pickled, each preceded by its
length. Replies are JSON, one per line, because the parent must not unpickle bytes that the user's code could have
written. File descriptor 1 is redirected to standard error, for subprocesses too, because standard output belongs to the
command.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import inspect
import json
import math
import os
import pickle
import resource
import signal
import socket
import sys
import threading
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

#: Names of the arguments that a function may take.
ARGUMENTS = ("response", "answer", "prompt", "meta")
#: Longest stored answer and longest stored reason, in characters.
MAX_ANSWER_CHARACTERS, MAX_REASON_CHARACTERS = 1000, 200
#: Flag of a reply after which the worker ends. The call ran out of memory and left the process in an unknown state.
OUT_OF_MEMORY = 2
LENGTH_BYTES = 8

_PR_SET_PDEATHSIG = 1
_MODULE_PREFIX = "oversharp_verifier_"


class _UnusableFileError(Exception):
    """The file cannot be loaded, or its function cannot be called. ``reply`` has the reason."""

    def __init__(self, **reply: object) -> None:
        super().__init__()
        self.reply = reply


def main(descriptor: int) -> None:
    """Serve one parent: load the file in its first message, then answer calls until it closes the socket."""
    with contextlib.suppress(AttributeError):  # Linux only: kill a hanging call when the parent dies
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    parent = socket.socket(fileno=descriptor)
    parent.set_inheritable(False)
    _redirect_stdout()
    task = _receive(parent)
    if task is None:
        return
    sys.path[:] = task["sys_path"]
    sys.argv = [task["path"]]
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    if hard == resource.RLIM_INFINITY or hard > task["memory_bytes"]:
        resource.setrlimit(resource.RLIMIT_DATA, (task["memory_bytes"], hard))
    try:
        function = _find_function(_load_module(task["path"], task["source"]), task["function"])
        asked = _argument_names(function)
    except _UnusableFileError as error:
        _send(parent, error.reply)
        return
    _send(parent, {"asked": asked})
    _serve(parent, function, threading.active_count())


def _serve(parent: socket.socket, function: Callable[..., Any], n_threads: int) -> None:
    process_id = os.getpid()
    while (calls := _receive(parent)) is not None:
        for call in calls:
            reply = _call_function(function, call)
            if os.getpid() != process_id:  # the function forked, and this is the child process
                os._exit(0)
            # a thread that the function left running may slow down or break the next call
            reply[2] = reply[2] or int(threading.active_count() > n_threads)
            _send(parent, reply)
            if reply[2] == OUT_OF_MEMORY:
                os._exit(1)


def _call_function(function: Callable[..., Any], call: Mapping[str, Any]) -> list[Any]:
    """Return [reward, answer, 0], or [None, reason, flag] if the function raises or returns no reward."""
    try:
        reward, answer = _parse_result(function(**call))
    except MemoryError as error:
        return [None, _reason(error, function), OUT_OF_MEMORY]
    except BaseException as error:  # noqa: BLE001 - the user's code, which may raise SystemExit too
        return [None, _reason(error, function), 0]
    return [reward, None if answer is None else storable(answer, MAX_ANSWER_CHARACTERS), 0]


def _parse_result(given: Any) -> tuple[float, str | None]:
    """Split a result into reward and final answer.

    Raises ``TypeError`` or ``ValueError`` if it has no reward.
    """
    reward, answer = given if isinstance(given, tuple) and len(given) == 2 else (given, None)
    if isinstance(reward, Mapping | str | bytes) or reward is None or not (answer is None or isinstance(answer, str)):
        raise TypeError(f"returned {type(reward).__name__} instead of a number, or a number and a text")
    number = float(reward)
    if not math.isfinite(number):
        raise ValueError(f"returned {number}, which is not a finite number")
    return number, answer


def storable(text: str, most: int) -> str:
    """Return the first ``most`` characters, with "?" for characters that a store rejects.

    A store rejects lone surrogates and null characters.

    >>> storable("a\\x00b\\ud800c", 4)
    'a?b?'
    """
    return text[:most].encode("utf-8", "replace").decode("utf-8").replace("\0", "?")


def _reason(error: BaseException, function: Callable[..., Any] | None = None) -> str:
    """Return type, message and line number of an error, on one line.

    Its ``__str__`` may be the user's code. If no line of the file raised the error, it is the line where ``function``
    begins: the function returned something that is not a reward.
    """
    try:
        message = " ".join(str(error).split())
    except BaseException:  # noqa: BLE001 - as above
        message = "its message is unavailable"
    where = _where(error)
    if not where and inspect.isfunction(function):
        where = f", by the function in line {function.__code__.co_firstlineno}"
    text = f"{type(error).__name__}: {message}" if message else type(error).__name__
    return storable(text, MAX_REASON_CHARACTERS - len(where)) + where


def _where(error: BaseException) -> str:
    """Return the line of the user's file that raised the error; "" if unknown."""
    lines, trace = [], error.__traceback__
    while trace is not None:
        if str(trace.tb_frame.f_globals.get("__name__", "")).startswith(_MODULE_PREFIX):
            lines.append(trace.tb_lineno)
        trace = trace.tb_next
    return f", line {lines[-1]}" if lines else ""


def _load_module(path: str, source: bytes) -> ModuleType:
    stem = os.path.basename(path).removesuffix(".py")
    spec = importlib.util.spec_from_file_location(f"{_MODULE_PREFIX}{stem}", path)
    if spec is None:
        raise _UnusableFileError(fault="is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look up their module in sys.modules
    try:
        # execute the hashed content, because the loader would read the file again, which may have changed
        exec(compile(source, path, "exec"), vars(module))
    except BaseException as error:  # the user's code, as above
        raise _UnusableFileError(fault=f"cannot be loaded ({_reason(error)})") from error
    return module


def _find_function(module: ModuleType, name: str) -> Callable[..., Any]:
    function = getattr(module, name, None)
    if not callable(function):
        known = [other for other, value in vars(module).items() if inspect.isfunction(value)]
        raise _UnusableFileError(known=known)
    return function  # type: ignore[no-any-return]


def _argument_names(function: Callable[..., Any]) -> tuple[str, ...]:
    """Return the names in ``ARGUMENTS`` that the function takes."""
    try:
        taken = inspect.signature(function).parameters.values()
    except (TypeError, ValueError) as error:  # some C functions have no signature
        raise _UnusableFileError(fault=f"cannot be called ({_reason(error)})") from error
    if any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in taken):
        return ARGUMENTS
    for parameter in taken:
        if parameter.name not in ARGUMENTS and parameter.default is inspect.Parameter.empty:
            raise _UnusableFileError(unknown_argument=parameter.name)
    return tuple(parameter.name for parameter in taken if parameter.name in ARGUMENTS)


def _redirect_stdout() -> None:
    with contextlib.suppress(OSError):  # sys.stderr is None if the command has no standard error
        os.dup2(2, 1)
    if sys.stdout is not None:
        # no buffering, so that a kill loses no output, and no error when a lone surrogate is printed
        sys.stdout.reconfigure(line_buffering=True, errors="backslashreplace")  # type: ignore[union-attr]


def _send(parent: socket.socket, reply: object) -> None:
    parent.sendall(json.dumps(reply).encode() + b"\n")


def _receive(parent: socket.socket) -> Any:
    """Return the next message; None if the parent has closed the socket."""
    length = _receive_exactly(parent, LENGTH_BYTES)
    content = None if length is None else _receive_exactly(parent, int.from_bytes(length, "big"))
    return None if content is None else pickle.loads(content)


def _receive_exactly(parent: socket.socket, n_bytes: int) -> bytes | None:
    parts = []
    while n_bytes:
        part = parent.recv(min(n_bytes, 1 << 20))
        if not part:
            return None
        parts.append(part)
        n_bytes -= len(part)
    return b"".join(parts)


if __name__ == "__main__":
    main(int(sys.argv[1]))
