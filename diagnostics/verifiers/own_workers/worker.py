"""Worker process for a function in the user's file. It loads the file and calls the function.

The pool runs this file by its path, so it imports only the standard library. Requests are pickled, each preceded by its
length. Replies are JSON, one per line, because the parent must not unpickle bytes that the user's code could have
written. File descriptor 1 is redirected to standard error, for subprocesses too, because standard output belongs to the
command.

A request is a list of units ``[number, responses, limit_s]``: ``responses`` are keyword arguments, one dict per
response. Only a batch function gets more than one. Units begin in the order in which they were sent, ``width`` at a
time, so the parent knows which are running: in this thread if ``width`` is 1, else in threads, or as tasks of an event
loop if the function is a coroutine. A task is cancelled after ``limit_s`` seconds, unless that is None.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import functools
import importlib.util
import inspect
import json
import math
import os
import pickle
import queue
import resource
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any

#: Names of the arguments that a function may take. Those of a batch function end in "s".
ARGUMENTS = ("response", "answer", "prompt", "meta")
#: Longest stored answer and longest stored reason, in characters.
MAX_ANSWER_CHARACTERS, MAX_REASON_CHARACTERS = 1000, 200
#: States of a reply. ``OK`` has results, the others a fault. After ``MEMORY`` the worker ends: the call ran out of
#: memory and left the process in an unknown state. ``LATER``: the function asks for another try. ``LATE``: a task was
#: cancelled at its limit. ``MAIN``: the function only works in the main thread.
OK, RAISED, MEMORY, LATER, LATE, MAIN = "ok", "raised", "memory", "later", "late", "main"
LENGTH_BYTES = 8

_PR_SET_PDEATHSIG = 1
_MODULE_PREFIX = "oversharp_verifier_"
#: How often descendants are looked for again after a kill.
_MOST_ROUNDS = 20
#: Stack of a thread, which counts as memory of the process.
_STACK_BYTES = 8 << 20
#: ``is_used``: whether the call that this thread runs used signals, which only the main thread can.
_signals = threading.local()


class UnusableFileError(Exception):
    """The file cannot be loaded, or its function cannot be called. ``reply`` has the reason."""

    def __init__(self, **reply: object) -> None:
        super().__init__()
        self.reply = reply


def main(descriptor: int) -> None:
    """Serve one parent: load the file in its first message, then answer units until it closes the socket."""
    parent, task = connect(descriptor)
    if task is None:
        return
    if task["width"] > 1:
        _watch_signals()
    try:
        module = load_module(task["path"], task["source"])
        function = _find_function(module, task["function"])
        asked, is_batch = _argument_names(function)
        correct_at = find_threshold(module)
    except UnusableFileError as error:
        send(parent, error.reply)
        return
    is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)
    send(parent, {"asked": asked, "is_batch": is_batch, "is_async": is_async, "correct_at": correct_at})
    grader = _Grader(parent, function, is_batch=is_batch)
    if is_async:
        import asyncio  # takes longer than the start of the process

        asyncio.run(_serve_tasks(parent, grader, task["width"]))
    elif task["width"] > 1:
        _serve_threads(parent, grader, task["width"])
    else:
        _serve_in_turn(parent, grader)


def connect(descriptor: int) -> tuple[socket.socket, Any]:
    """Return the parent's socket and first message, None if there is none, and apply the message's limits."""
    with contextlib.suppress(AttributeError):  # Linux only: kill a hanging call when the parent dies
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    atexit.register(_end_own_descendants, os.getpid())  # first, so that it runs after the handlers of the user's file
    parent = socket.socket(fileno=descriptor)
    parent.set_inheritable(False)
    _redirect_stdout()
    if (task := receive(parent)) is not None:
        sys.path[:], sys.argv = task["sys_path"], [task["path"]]
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        memory_bytes = task["memory_bytes"] + (task["width"] - 1) * _STACK_BYTES
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        if hard == resource.RLIM_INFINITY or hard > memory_bytes:
            resource.setrlimit(resource.RLIMIT_DATA, (memory_bytes, hard))
    return parent, task


def _serve_in_turn(parent: socket.socket, grader: _Grader) -> None:
    """Call the function in this thread, because signals such as SIGALRM work only here."""
    grader.count_threads()
    while (units := receive(parent)) is not None:
        for number, responses, _ in units:
            grader.answer(number, responses)


def _serve_threads(parent: socket.socket, grader: _Grader, width: int) -> None:
    units: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def serve() -> None:
        while True:
            number, responses, _ = units.get()
            grader.answer(number, responses)

    for _ in range(width):
        threading.Thread(target=serve, daemon=True).start()
    grader.count_threads()
    while (received := receive(parent)) is not None:
        for unit in received:
            units.put(unit)


async def _serve_tasks(parent: socket.socket, grader: _Grader, width: int) -> None:
    import asyncio

    loop, has_closed = asyncio.get_running_loop(), asyncio.Event()
    units: asyncio.Queue[Any] = asyncio.Queue()

    def take_units() -> None:
        while (received := receive(parent)) is not None:
            for unit in received:
                loop.call_soon_threadsafe(units.put_nowait, unit)
        loop.call_soon_threadsafe(has_closed.set)

    async def serve() -> None:
        while True:
            await grader.answer_async(*await units.get())

    threading.Thread(target=take_units, daemon=True).start()
    grader.count_threads()
    tasks = [loop.create_task(serve()) for _ in range(width)]
    await has_closed.wait()
    del tasks  # referenced until here, because the loop has only weak references


class _Grader:
    """The user's function, and its replies to the parent."""

    def __init__(self, parent: socket.socket, function: Callable[..., Any], *, is_batch: bool) -> None:
        self._parent, self._function, self._is_batch = parent, function, is_batch
        self._process_id = os.getpid()
        self._sending = threading.Lock()
        self._n_threads = 0

    def count_threads(self) -> None:
        """Count the threads that no call has started."""
        self._n_threads = threading.active_count()

    def answer(self, number: int, responses: Sequence[Mapping[str, Any]]) -> None:
        """Call the function and send the reply."""
        _signals.is_used = False
        try:
            reply = self._results(self._function(**self._arguments(responses)), len(responses))
        except BaseException as error:  # noqa: BLE001 - the user's code, which may raise SystemExit too
            reply = self._fault(error)
        if _signals.is_used:
            reply = {"state": MAIN, "fault": ""}
        self._reply(number, reply)

    async def answer_async(self, number: int, responses: Sequence[Mapping[str, Any]], limit_s: float | None) -> None:
        """Await the function and send the reply."""
        import asyncio

        try:
            async with asyncio.timeout(limit_s) as limit:
                given = await self._function(**self._arguments(responses))
            reply = self._results(given, len(responses))
        except BaseException as error:  # noqa: BLE001 - as above
            is_late = isinstance(error, TimeoutError) and limit.expired()
            reply = {"state": LATE, "fault": ""} if is_late else self._fault(error)
        self._reply(number, reply)

    def _arguments(self, responses: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
        if not self._is_batch:
            return responses[0]
        return {f"{name}s": [response[name] for response in responses] for name in responses[0]}

    def _results(self, given: Any, n: int) -> dict[str, Any]:
        """Return the rewards and answers, or for a response without a reward None and the reason."""
        results = list(_split_batch(given)) if self._is_batch else [given]
        if len(results) != n:
            fault = reason_of(ValueError(f"returned {len(results)} results for {n} responses"), self._function)
            return {"state": OK, "results": [[None, fault]] * n}
        return {"state": OK, "results": [self._result(result) for result in results]}

    def _result(self, given: Any) -> list[Any]:
        try:
            reward, answer = parse_result(given)
        except (TypeError, ValueError, OverflowError) as error:
            return [None, reason_of(error, self._function)]
        return [reward, None if answer is None else storable(answer, MAX_ANSWER_CHARACTERS)]

    def _fault(self, error: BaseException) -> dict[str, Any]:
        reply: dict[str, Any] = {"state": RAISED, "fault": reason_of(error, self._function)}
        if isinstance(error, MemoryError):
            reply["state"] = MEMORY
        elif _asks_for_retry(error):
            reply |= {"state": LATER, "after_s": getattr(error, "after_s", None)}
        return reply

    def _reply(self, number: int, reply: dict[str, Any]) -> None:
        if os.getpid() != self._process_id:  # the function forked, and this is the child process
            os._exit(0)
        # a thread that the function left running may slow down or break the next call
        reply |= {"unit": number, "left_threads": threading.active_count() > self._n_threads}
        try:
            with self._sending:
                send(self._parent, reply)
        except OSError:  # the parent has closed the socket, or the function has
            os._exit(1)
        if reply["state"] == MEMORY:
            end_descendants(self._process_id)
            os._exit(1)


def end_descendants(process_id: int) -> None:
    """Kill the processes that a process has started, also those in another session.

    Processes whose parent has ended before are not found. Does nothing on systems other than Linux.
    """
    for _ in range(_MOST_ROUNDS):  # again, because they may have started others in the meantime
        found = [child for child in _descendants(process_id) if not _is_zombie(child)]
        if not found:
            return
        for child in found:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(child, signal.SIGKILL)
        time.sleep(0.001)


def _end_own_descendants(process_id: int) -> None:
    if os.getpid() == process_id:  # not in a process that the function forked
        end_descendants(process_id)


def _descendants(process_id: int) -> Iterator[int]:
    try:
        threads = os.listdir(f"/proc/{process_id}/task")
    except OSError:
        return
    for thread in threads:
        try:
            with open(f"/proc/{process_id}/task/{thread}/children", encoding="ascii") as children:
                own = [int(child) for child in children.read().split()]
        except OSError:
            continue
        for child in own:
            yield child
            yield from _descendants(child)


def _is_zombie(process_id: int) -> bool:
    try:
        with open(f"/proc/{process_id}/stat", encoding="utf-8", errors="replace") as stat:
            return stat.read().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def _watch_signals() -> None:
    """Notice signals in other threads: functions often catch the error and return 0, such as with ``signal.alarm``."""

    def watch(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*arguments: Any) -> Any:
            if threading.current_thread() is not threading.main_thread():
                _signals.is_used = True
                raise ValueError("signal only works in main thread of the main interpreter")
            return function(*arguments)

        return call

    signal.signal, signal.alarm, signal.setitimer = watch(signal.signal), watch(signal.alarm), watch(signal.setitimer)


def _asks_for_retry(error: BaseException) -> bool:
    """Return whether the error is ``oversharp.RetryLater``, which only the user's file may import."""
    return any(
        kind.__name__ == "RetryLater" and kind.__module__.split(".")[0] == "oversharp" for kind in type(error).__mro__
    )


def _split_batch(given: Any) -> Iterator[Any]:
    """Return the results of a batch. Raises ``TypeError`` if ``given`` is no sequence."""
    if isinstance(given, Mapping | str | bytes) or not hasattr(given, "__len__") or not hasattr(given, "__iter__"):
        raise TypeError(f"returned {type(given).__name__} instead of a list of results")
    return iter(given)


def parse_result(given: Any) -> tuple[float, str | None]:
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


def reason_of(error: BaseException, function: Callable[..., Any] | None = None) -> str:
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


def load_module(path: str, source: bytes) -> ModuleType:
    """Return the module of a file with this content. Raises ``UnusableFileError``."""
    stem = os.path.basename(path).removesuffix(".py")
    spec = importlib.util.spec_from_file_location(f"{_MODULE_PREFIX}{stem}", path)
    if spec is None:
        raise UnusableFileError(fault="is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look up their module in sys.modules
    try:
        # execute the hashed content, because the loader would read the file again, which may have changed
        exec(compile(source, path, "exec"), vars(module))
    except BaseException as error:  # the user's code, as above
        raise UnusableFileError(fault=f"cannot be loaded ({reason_of(error)})") from error
    return module


def _find_function(module: ModuleType, name: str) -> Callable[..., Any]:
    function = getattr(module, name, None)
    if not callable(function):
        raise UnusableFileError(known=[other for other, value in vars(module).items() if inspect.isfunction(value)])
    return function  # type: ignore[no-any-return]


def find_threshold(module: ModuleType) -> float:
    """Return the file's ``CORRECT_AT``, the smallest reward of a correct response; 1 without it."""
    given = getattr(module, "CORRECT_AT", 1.0)
    if not isinstance(given, int | float) or isinstance(given, bool) or not math.isfinite(given):
        raise UnusableFileError(fault=f"has CORRECT_AT = {given!r}; it must be a number")
    return float(given)


def _argument_names(function: Callable[..., Any]) -> tuple[tuple[str, ...], bool]:
    """Return the names in ``ARGUMENTS`` that the function takes, and whether it takes lists of them."""
    try:
        taken = inspect.signature(function).parameters.values()
    except (TypeError, ValueError) as error:  # some C functions have no signature
        raise UnusableFileError(fault=f"cannot be called ({reason_of(error)})") from error
    lists = {f"{name}s": name for name in ARGUMENTS}
    keywords = any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in taken)
    required = [
        parameter.name
        for parameter in taken
        if parameter.default is inspect.Parameter.empty and parameter.kind is not inspect.Parameter.VAR_KEYWORD
    ]
    is_batch = any(name in lists for name in required)
    allowed = lists if is_batch else {name: name for name in ARGUMENTS}
    for name in required:
        if name not in allowed:
            raise UnusableFileError(unknown_argument=name, allowed=list(allowed))
    if keywords:
        return ARGUMENTS, is_batch
    return tuple(allowed[parameter.name] for parameter in taken if parameter.name in allowed), is_batch


def _redirect_stdout() -> None:
    with contextlib.suppress(OSError):  # sys.stderr is None if the command has no standard error
        os.dup2(2, 1)
    if sys.stdout is not None:
        # no buffering, so that a kill loses no output, and no error when a lone surrogate is printed
        sys.stdout.reconfigure(line_buffering=True, errors="backslashreplace")  # type: ignore[union-attr]


def send(parent: socket.socket, reply: object) -> None:
    """Send a reply."""
    parent.sendall(json.dumps(reply).encode() + b"\n")


def receive(parent: socket.socket) -> Any:
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
