"""Run untrusted programs inside a jail.

The jail's first process, the zygote, forks a process per job and kills it at the end. It gets the compiled code of
this module and of ``wire`` over its socket, so the jail contains no file of oversharp. Both import only parts of the
standard library that load in milliseconds. A program never shares a process with its expected results.
"""

from __future__ import annotations

import _signal
import _socket
import builtins
import ctypes
import gc
import os
import resource
import sys
import time

from oversharp.diagnostics.verifiers.sandbox.wire import (
    Raised,
    RemoteProgram,
    UnsendableError,
    encode,
    encode_error,
    receive,
    show,
    write_all,
)

TYPE_CHECKING = False  # importing typing, signal, socket or json would double the time to start
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

#: Kinds of jobs: answer calls, run a script with standard input and output, run tests that call a program.
CALLS, SCRIPT, JUDGE = "calls", "script", "judge"
#: Reply of a program that was loaded.
LOADED = "{}"
READY, GONE, END = b"ready", b"gone", b"end"

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS = 1, 4, 22, 38
_EPERM, _ENOSYS, _ALLOW, _KILL = 0x00050001, 0x00050026, 0x7FFF0000, 0x80000000
#: System calls that fail with EPERM on x86-64: new programs, signals to others, sockets, tracing, shared memory and
#: queues, namespaces and mounts, rings and handles that bypass the filter.
_DENIED = (
    57, 58, 59, 322,  # fork vfork execve execveat
    62, 200, 234, 424, 129, 297,  # kill tkill tgkill pidfd_send_signal rt_sigqueueinfo rt_tgsigqueueinfo
    41, 42, 49, 50, 288, 43,  # socket connect bind listen accept4 accept
    101, 310, 311, 312, 434, 438, 440, 448,  # ptrace process_vm_* kcmp pidfd_* process_madvise process_mrelease
    29, 30, 64, 68, 240, 248, 249, 250, 319, 279, 256,  # shm* semget msgget mq_open *key* memfd_create *_pages
    155, 161, 165, 166, 272, 308, 428, 429, 430, 431, 432, 433, 442,  # mounts and namespaces
    298, 321, 323, 425, 426, 427,  # perf_event_open bpf userfaultfd io_uring_*
    109, 112, 141, 144, 203, 251, 314,  # sessions, priorities and schedules of other processes
)  # fmt: skip
_CLONE, _CLONE3, _PRLIMIT, _CLONE_THREAD = 56, 435, 302, 0x00010000
#: Event loops make pairs of AF_UNIX streams. Datagrams could be sent to other addresses.
_SOCKETPAIR, _UNIX, _STREAM_CLOEXEC = 53, 1, 0x80001
_X86_64, _X32_BIT = 0xC000003E, 0x40000000


def reply_to(answer: Callable[[], str]) -> str:
    """Return the reply of a call as a line of JSON: what ``answer`` returns, or the exception that it raises."""
    try:
        return answer()
    except BaseException as error:  # noqa: BLE001 - the program's own, which may be SystemExit
        return encode_error(error)


def load_sources(space: dict[str, Any], sources: Sequence[str]) -> str:
    """Run a program's sources in ``space``, and return the reply."""
    for source in sources:
        exec(compile(source, "program.py", "exec", dont_inherit=True), space)
    return LOADED


def answer_call(space: dict[str, Any], name: str, arguments: Sequence[Any], options: dict[str, Any]) -> str:
    """Call a function of a loaded program, and return the reply."""
    result = _find(space, name)(*arguments, **options)
    return f'{{"result":{encode(result)},"arguments":{encode(list(arguments))}}}'


def _serve_calls(requests: int, replies: int) -> None:
    """Load the program of the first message, then answer calls."""
    space = new_module("candidate")
    sources = receive(requests)["sources"]
    reply = reply_to(lambda: load_sources(space, sources))
    write_all(replies, reply.encode() + b"\n")
    while reply == LOADED and (message := receive(requests)) is not None:
        answer = reply_to(lambda message=message: answer_call(space, **message))  # type: ignore[misc]
        write_all(replies, answer.encode() + b"\n")


def _find(space: dict[str, Any], name: str) -> Any:
    """Return the function ``name``, or that method of a new object of the class Solution."""
    if name not in space and "Solution" in space:
        return getattr(space["Solution"](), name)
    if name not in space:
        raise NameError(f"name {name!r} is not defined")
    return space[name]


def _run_script(requests: int, standard_input: int, standard_output: int, errors: int) -> None:
    """Run a script, and write the exception that ends it to ``errors``. That can only make the program wrong."""
    os.dup2(standard_input, 0)
    os.dup2(standard_output, 1)
    os.close(standard_input)
    os.close(standard_output)
    sources = receive(requests)["sources"]
    os.close(requests)
    space = new_module("__main__")

    def run() -> str:
        try:
            return load_sources(space, sources)
        except SystemExit as error:
            if error.code is None or error.code == 0:
                return LOADED
            raise

    reply = reply_to(run)
    if reply != LOADED:
        write_all(errors, reply.encode() + b"\n")
    # as the interpreter does when it ends
    if "threading" in sys.modules:
        sys.modules["threading"]._shutdown()
    if "atexit" in sys.modules:
        sys.modules["atexit"]._run_exitfuncs()
    sys.stdout.flush()


def _judge(requests: int, verdicts: int, replies: int, calls: int) -> None:
    """Run a script of tests. Its calls of ``remote`` names go to the program, whose process is another one."""
    job = receive(requests)
    program = RemoteProgram(calls, replies, job["call_limit_s"], time.monotonic() + job["limit_s"])
    write_all(verdicts, encode(run_script_of_tests(job, program)).encode() + b"\n")


def run_script_of_tests(job: dict[str, Any], program: RemoteProgram) -> dict[str, str | int]:
    """Return the first failure as ``wrong``, or why the tests cannot run as ``fault``, and its ``line``.

    The result is empty if all tests pass.
    """
    space = new_module("tests")

    def remote(name: str) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            try:
                result, after = program.call(name, arguments, options)
            except Raised as error:
                raise _as_builtin(error) from None
            if job["in_place"]:
                _write_back(arguments, after)
            return result

        return call

    verdict: dict[str, str | int] = {}
    try:
        exec(compile(job["context"], "context", "exec", dont_inherit=True), space)
        space.update({name: remote(name) for name in job["remote"]})
        tests = compile(job["tests"], "tests", "exec", dont_inherit=True)
        program.load(job["sources"])
        exec(tests, space)
    except UnsendableError as error:
        verdict["fault"] = str(error)
    except Raised as error:
        verdict = {"wrong": f"{error.kind}: {error.text}"}
    except BaseException as error:  # noqa: BLE001 - anything that a test raises
        what = program.failure or f"{type(error).__name__}: {show(error, str)[:200]}".strip(": ")
        is_fault = not program.failure and program.n_calls == 0
        verdict = {"fault" if is_fault else "wrong": what, "line": _line_of_tests(error)}
    if program.failure and "fault" not in verdict:  # a test may have caught it
        verdict["wrong"] = program.failure
    return verdict


def _as_builtin(error: Raised) -> Exception:
    """Return an exception of the program as its nearest builtin base, else as ``RuntimeError``."""
    kind = getattr(builtins, error.bases[0], None) if error.bases else None
    if isinstance(kind, type) and issubclass(kind, Exception) and kind is not Exception:
        try:
            built: Exception = kind(error.text)
        except TypeError:  # such as UnicodeDecodeError, which takes five arguments
            pass
        else:
            return built
    return RuntimeError(f"{error.kind}: {error.text}")


def _write_back(arguments: Sequence[Any], after: Sequence[Any]) -> None:
    for mine, theirs in zip(arguments, after):  # noqa: B905 - strict is missing before Python 3.10
        if type(mine) is list and type(theirs) is list:
            mine[:] = theirs
        elif type(mine) is type(theirs) and type(mine) in (dict, set):
            mine.clear()
            mine.update(theirs)


def _line_of_tests(error: BaseException) -> int:
    """Return the line of the tests in which an error was raised; 0 if unknown."""
    line, trace = 0, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == "tests":
            line = trace.tb_lineno
        trace = trace.tb_next
    return line


def new_module(name: str) -> dict[str, Any]:
    """Return the namespace of a new module."""
    module = type(sys)(name)
    sys.modules[name] = module  # dataclasses look up their module
    return module.__dict__


class _Confinement:
    """Limits of a process and, on x86-64, a filter of system calls with which it could reach another process."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._is_filtered = os.uname().machine == "x86_64"
        self._content = ctypes.create_string_buffer(_filter())
        self._program = _FilterProgram((len(self._content) - 1) // 8, ctypes.addressof(self._content))

    def hide_memory(self) -> None:
        """Make this process and those that it forks unreadable to other processes of the same user."""
        self._libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)

    def apply(self, cpu_s: int, memory_bytes: int) -> None:
        """Confine this process for good."""
        devnull = os.open(os.devnull, os.O_RDWR)
        for standard in (0, 1, 2):
            os.dup2(devnull, standard)
        os.close(devnull)
        limits = {
            resource.RLIMIT_CPU: cpu_s,
            resource.RLIMIT_AS: memory_bytes,
            resource.RLIMIT_FSIZE: 0,
            resource.RLIMIT_CORE: 0,
            resource.RLIMIT_NOFILE: 64,
        }
        if not self._is_filtered:
            limits[resource.RLIMIT_NPROC] = 64
        for kind, most in limits.items():
            _, hard = resource.getrlimit(kind)
            most = most if hard == resource.RLIM_INFINITY else min(most, hard)
            resource.setrlimit(kind, (most, most))
        self._libc.prctl(_PR_SET_PDEATHSIG, _signal.SIGKILL, 0, 0, 0)
        if self._libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
            os._exit(1)
        if self._is_filtered and self._libc.prctl(_PR_SET_SECCOMP, 2, ctypes.byref(self._program), 0, 0):
            os._exit(1)


class _FilterProgram(ctypes.Structure):
    _fields_ = (("n_instructions", ctypes.c_ushort), ("address", ctypes.c_void_p))


def _filter() -> bytes:
    """Return the seccomp filter (classic BPF).

    Another architecture's numbers kill. ``clone`` may only make threads. ``clone3`` is missing, so that libc uses
    ``clone``. ``prlimit`` may only change this process. ``socketpair`` may only make connected streams.
    """
    load, equal, bits, at_least, stop = 0x20, 0x15, 0x45, 0x35, 0x06

    def step(code: int, jump: int, otherwise: int, value: int) -> bytes:
        return code.to_bytes(2, "little") + bytes((jump, otherwise)) + value.to_bytes(4, "little")

    def first_argument(number: int, code: int, value: int) -> list[bytes]:
        # bit test: allowed if it is set; equality: allowed if it is equal
        return [
            step(equal, 0, 4, number), step(load, 0, 0, 16), step(code, 0, 1, value), step(stop, 0, 0, _ALLOW),
            step(stop, 0, 0, _EPERM),
        ]  # fmt: skip

    steps = [
        step(load, 0, 0, 4), step(equal, 1, 0, _X86_64), step(stop, 0, 0, _KILL),
        step(load, 0, 0, 0), step(at_least, 0, 1, _X32_BIT), step(stop, 0, 0, _KILL),
        step(equal, 0, 1, _CLONE3), step(stop, 0, 0, _ENOSYS),
        *first_argument(_CLONE, bits, _CLONE_THREAD),
        *first_argument(_PRLIMIT, equal, 0),
        step(equal, 0, 6, _SOCKETPAIR), step(load, 0, 0, 16), step(equal, 0, 3, _UNIX), step(load, 0, 0, 24),
        step(equal, 0, 1, _STREAM_CLOEXEC), step(stop, 0, 0, _ALLOW), step(stop, 0, 0, _EPERM),
    ]  # fmt: skip
    for number in _DENIED:
        steps += [step(equal, 0, 1, number), step(stop, 0, 0, _EPERM)]
    return b"".join([*steps, step(stop, 0, 0, _ALLOW)])


_JOBS: dict[str, Callable[..., None]] = {CALLS: _serve_calls, SCRIPT: _run_script, JUDGE: _judge}


def main(control: _socket.socket, preload: Sequence[str]) -> None:
    """Fork a process per job until the socket is closed. Imported modules are shared by all programs."""
    vars(builtins).update(exit=sys.exit, quit=sys.exit)  # the module site, which is not loaded, defines them
    for name in preload:
        __import__(name)
    sys.argv[:] = ["program.py"]
    confinement = _Confinement()
    confinement.hide_memory()
    gc.freeze()  # a child that collects garbage would copy the modules' memory
    control.send(READY)
    process_id = 0
    while True:
        message, ancillary, _, _ = control.recvmsg(256, _socket.CMSG_SPACE(4 * 4))
        if message in (END, b""):
            if process_id:
                os.kill(process_id, _signal.SIGKILL)
                os.waitpid(process_id, 0)
                process_id = 0
            if not message:
                os._exit(0)
            control.send(GONE)
            continue
        descriptors = [
            int.from_bytes(data[first : first + 4], sys.byteorder)
            for _, _, data in ancillary
            for first in range(0, len(data), 4)
        ]
        kind, cpu_s, memory_bytes = message.decode().split()
        process_id = os.fork()
        if process_id == 0:
            try:
                os.close(control.detach())
                confinement.apply(int(cpu_s), int(memory_bytes))
                _JOBS[kind](*descriptors)
            finally:
                os._exit(0)
        for descriptor in descriptors:
            os.close(descriptor)
