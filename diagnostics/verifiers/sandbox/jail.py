"""A jail: one warm interpreter that forks a process per job, and the check which back end works."""

from __future__ import annotations

import inspect
import marshal
import os
import select
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from types import TracebackType

from oversharp.diagnostics.records.errors import VerifierError
from oversharp.diagnostics.verifiers.sandbox import guest, wire
from oversharp.diagnostics.verifiers.sandbox.backends import (
    UNSANDBOXED,
    Backend,
    all_backends,
    allows_unsandboxed,
    interpreter,
)

#: Wall seconds in which a jail must start or end a job.
_PATIENCE_S = 60.0
#: Wall seconds in which a jail must end before it is killed.
_END_S = 10.0
#: Whether jails filter system calls. Otherwise a program could reach the next one in a warm jail.
FILTERS_CALLS = os.uname().machine == "x86_64"
#: Modules that programs often import. A warm jail imports them once.
_PRELOAD = (
    "json", "collections", "itertools", "math", "re", "heapq", "functools", "bisect", "string", "typing", "dataclasses",
    "random", "copy", "operator", "datetime", "decimal", "fractions", "statistics", "threading", "io", "abc", "enum",
)  # fmt: skip
#: Code of a jail's interpreter: it runs the modules that it receives, and the last one's ``main``.
_BOOT = """
import _socket, marshal, sys
control = _socket.socket(fileno=int(sys.argv[1]))
codes, preload = marshal.loads(control.recv(1 << 20))
for name, code in codes:
    module = sys.modules[name] = type(sys)(name)
    exec(code, module.__dict__)
module.main(control, preload)
"""
#: Reads sources and writes their code.
_COMPILER = """
import marshal, sys
codes = [(name, compile(source, name, "exec")) for name, source in marshal.load(sys.stdin.buffer)]
sys.stdout.buffer.write(marshal.dumps((codes, sys.argv[1:])))
"""


class SandboxError(Exception):
    """The jail broke. This is no fault of the program, unless the program broke it."""


@dataclass(frozen=True, kw_only=True)
class JailLimits:
    """JailLimits of a program: wall seconds per test and in total, and memory in bytes."""

    test_s: float = 5.0
    program_s: float = 50.0
    memory_bytes: int = 1 << 30


class Pipes:
    """Pipes of one job. They are closed at the end of the ``with`` block."""

    def __init__(self) -> None:
        self.theirs: list[int] = []
        self._ours: list[int] = []

    def __enter__(self) -> Pipes:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close_theirs()
        for descriptor in self._ours:
            os.close(descriptor)

    def to_jail(self) -> int:
        """Add a pipe that the jail reads, and return our end."""
        theirs, ours = os.pipe()
        return self._add(theirs, ours)

    def from_jail(self) -> int:
        """Add a pipe that the jail writes, and return our end."""
        ours, theirs = os.pipe()
        return self._add(theirs, ours)

    def share(self, descriptor: int) -> None:
        """Add a copy of our end of another job's pipe, so that the two jobs are connected."""
        self.theirs.append(os.dup(descriptor))

    def close(self, descriptor: int) -> None:
        """Close one of our ends, so that the jail reads its end of file."""
        self._ours.remove(descriptor)
        os.close(descriptor)

    def close_theirs(self) -> None:
        """Close the jail's ends here, so that a pipe ends when the jail's process does."""
        while self.theirs:
            os.close(self.theirs.pop())

    def _add(self, theirs: int, ours: int) -> int:
        self.theirs.append(theirs)
        self._ours.append(ours)
        return ours


class Jail:
    """An interpreter in a jail of ``backend``. It starts on first use.

    With ``is_warm`` its process serves all jobs: each gets a fork. Otherwise each job gets a new jail. A jail ends with
    the thread that started it, or with ``close()``.
    """

    def __init__(self, backend: Backend, limits: JailLimits, *, is_warm: bool = True) -> None:
        self.backend, self.limits = backend, limits
        self._is_warm = is_warm
        self._is_ended = False
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None

    @contextmanager
    def job(self, kind: str, pipes: Pipes) -> Iterator[None]:
        """Run a job of ``guest`` with the jail's ends of ``pipes``, which are closed here.

        At the end of the block all its processes are killed.

        Raises ``SandboxError`` if the jail cannot start, or does not confirm the end.
        """
        control = self._start() if self._process is None or self._control is None else self._control
        cpu_s = int(self.limits.program_s) + 1
        try:
            socket.send_fds(control, [f"{kind} {cpu_s} {self.limits.memory_bytes}".encode()], pipes.theirs)
            pipes.close_theirs()
            yield
            if self._is_warm:
                control.send(guest.END)
                _expect(control, guest.GONE)
        except OSError as error:
            raise SandboxError(f"the jail ended ({error})") from error
        finally:
            if not self._is_warm:
                self.close()

    def try_out(self) -> None:
        """Start the jail and end a job in it. Raises ``SandboxError`` if that fails."""
        with Pipes() as pipes:
            pipes.to_jail()
            pipes.from_jail()
            with self.job(guest.CALLS, pipes):
                pass

    def close(self) -> None:
        """Kill the jail and all its processes."""
        # ``end`` may close the jail at the same time from another thread
        control, process = self._control, self._process
        self._control = self._process = None
        if control is not None:
            control.close()  # the interpreter ends, and as process 1 it takes the others with it
        if process is not None:
            try:  # a killed back end would leave the interpreter as a zombie
                process.wait(_END_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            if process.stderr is not None:
                process.stderr.close()

    def end(self) -> None:
        """Close the jail for good: another thread that uses it gets a ``SandboxError``."""
        self._is_ended = True
        self.close()

    def _start(self) -> socket.socket:
        if self._is_ended:
            raise SandboxError("grading was stopped")
        control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._control = control
        try:
            with theirs:
                self._process = self.backend.start(("-c", _BOOT, str(theirs.fileno())), theirs.fileno())
            control.send(_guest_code(self._is_warm))
            _expect(control, guest.READY)
        except OSError as error:
            reason = self._complaint() or str(error)
            self.close()
            raise SandboxError(f"{self.backend.name} does not start: {reason}") from error
        return control

    def _complaint(self) -> str:
        """Return the last line that a jail that failed to start wrote to standard error."""
        process = self._process
        if process is None or process.stderr is None:
            return ""
        ends_at = time.monotonic() + 1.0
        text = b""
        while select.select([process.stderr], [], [], max(0.0, ends_at - time.monotonic()))[0]:
            part = os.read(process.stderr.fileno(), 4096)
            if not part:
                break
            text += part
        lines = text.decode("utf-8", "replace").strip().splitlines()
        return lines[-1][:200] if lines else ""


def _expect(control: socket.socket, word: bytes) -> None:
    control.settimeout(_PATIENCE_S)
    received = control.recv(64)
    if received != word:
        raise OSError(f"expected {word.decode()}: {repr(received) if received else 'it ended'}")


@cache
def _guest_code(is_warm: bool) -> bytes:
    """Return the code that a jail runs, compiled by the jail's interpreter, which need not be this one.

    Compiling takes as long as starting the interpreter, so it is done once.
    """
    sources = [(module.__name__, inspect.getsource(module)) for module in (wire, guest)]
    command = [interpreter(), "-I", "-S", "-c", _COMPILER, *(_PRELOAD if is_warm else ())]
    done = subprocess.run(command, input=marshal.dumps(sources, 2), capture_output=True)
    if done.returncode:
        raise VerifierError(f"{interpreter()} cannot run the sandbox; code tasks need Python 3.10 or newer there")
    return done.stdout


@cache
def backend_states() -> tuple[tuple[str, str], ...]:
    """Return the name of each back end, strongest first, and why it does not work here; "" if it works."""
    states = []
    for backend in all_backends():
        if backend.name == UNSANDBOXED:
            continue
        jail = Jail(backend, JailLimits())
        try:
            jail.try_out()
        except (SandboxError, VerifierError) as error:
            states.append((backend.name, str(error)))
        else:
            states.append((backend.name, ""))
        finally:
            jail.close()
    return tuple(states)


def choose_backend() -> Backend:
    """Return the strongest back end that works here.

    Raises ``VerifierError`` if none does and ``--allow-unsandboxed`` is missing.
    """
    working = {name for name, fault in backend_states() if not fault}
    for backend in all_backends():
        if backend.name in working or (backend.name == UNSANDBOXED and allows_unsandboxed()):
            return backend
    faults = "; ".join(fault for _, fault in backend_states()) or "bubblewrap and unshare are not installed"
    raise VerifierError(
        f"programs cannot be isolated on this machine ({faults}); install bubblewrap (apt-get install bubblewrap), or "
        "pass --allow-unsandboxed to run them with your rights"
    )
